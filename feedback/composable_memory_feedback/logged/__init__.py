"""Queries as the ops log tells of them: all that a ranking was made of, and the ranking."""
