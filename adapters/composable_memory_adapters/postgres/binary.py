"""Vectors in the form in which PostgreSQL sends and takes them (pure)."""

import sys
from array import array
from collections.abc import Sequence
from math import hypot
from struct import pack


def vector_of(numbers: bytes) -> bytes:
    """Return little-endian float32 numbers as pgvector's `vector`."""
    values = array("f", numbers)
    if sys.byteorder == "little":
        values.byteswap()
    return pack(">hh", len(values), 0) + values.tobytes()


def numbers_of(vector: bytes) -> bytes:
    """Return pgvector's `vector` as little-endian float32 numbers."""
    values = array("f", vector[4:])
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


def direction_of(values: Sequence[float]) -> bytes:
    """Return a vector of unit length that points where `values` do; they are not all 0."""
    length = hypot(*values)
    return pack(f">hh{len(values)}f", len(values), 0, *(value / length for value in values))
