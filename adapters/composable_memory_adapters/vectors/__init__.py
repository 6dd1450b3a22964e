"""Stores of vectors: in memory, in a mapped file of int8 codes, and in a table of sqlite-vec."""

__all__: list[str] = []
