"""What is indexed: which files there are, what changed in them, and how they are cut into passages."""
