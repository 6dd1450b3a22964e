"""Keeps the index in step with the notes: when to look, what to write, what to build anew."""
