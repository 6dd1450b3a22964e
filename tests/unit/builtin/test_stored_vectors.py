"""Vectors out of a damaged file: none is taken over that is not what was written."""

import zlib
from array import array

from composable_memory_adapters.builtin.store.integrity import StoredVector

BLOB = array("f", [0.6, 0.8]).tobytes()
WHOLE = ("wordllama", "model", "key", "hash", BLOB, 2, 1_700_000_000, zlib.crc32(BLOB))


def test_a_vector_that_is_as_it_was_written_is_whole() -> None:
    assert StoredVector(1, WHOLE).is_whole


def test_a_vector_that_has_lost_or_changed_a_part_is_not_whole() -> None:
    flipped = bytes([BLOB[0] ^ 1]) + BLOB[1:]
    for place, value in [
        (4, None),
        (4, b""),
        (4, flipped),
        (4, "text"),
        (5, None),
        (5, 3),
        (7, None),
        (7, 1),
    ]:
        damaged = [*WHOLE]
        damaged[place] = value
        assert not StoredVector(1, tuple(damaged)).is_whole, (place, value)  # type: ignore[arg-type]
