"""What a text says about time, and what a question asks for."""
