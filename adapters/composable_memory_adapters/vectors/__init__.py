"""Vector stores: in memory, in a memory-mapped file of int8 codes, and in a sqlite-vec table."""

__all__: list[str] = []
