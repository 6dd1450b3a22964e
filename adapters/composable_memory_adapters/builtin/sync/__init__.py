"""Keeps the index up to date with the notes: when to check, what to write, when to rebuild."""
