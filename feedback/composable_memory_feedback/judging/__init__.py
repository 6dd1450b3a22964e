"""A language model judges how well the results of one query answered it."""
