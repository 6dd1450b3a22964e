"""Keeps the index up to date with the notes: when to look, what to write, when to rebuild."""
