"""Queries in the ops log: everything that a ranking was made from, and the ranking."""
