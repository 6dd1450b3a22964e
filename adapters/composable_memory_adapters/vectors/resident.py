"""Vectors kept in memory under integer ids, and the nearest of them by cosine: each one is compared."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from composable_memory_ops_logs.quick_dataclass import dataclass

Ids: TypeAlias = NDArray[np.int64]
Matrix: TypeAlias = NDArray[np.float32]
"""One vector a row."""

Neighbour: TypeAlias = tuple[int, float]
"""An id and its cosine to the query, in [-1, 1]."""

Fetch: TypeAlias = Callable[[Ids], tuple[Sequence[int] | Ids, Matrix]]
"""Returns the stored unit vectors of the given ids, with the ids of those that still exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Ascending ids, and their vectors."""

    ids: Ids
    matrix: Matrix


class ExactVectors:
    """Vectors of one length, unit or zero, as float32; each search looks at all of them.

    It holds an immutable snapshot that `add` and `remove` replace, so any number of threads may search while
    one thread changes it.
    """

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._rows = _Rows(ids=np.empty(0, dtype=np.int64), matrix=np.empty((0, dims), dtype=np.float32))

    @property
    def ids(self) -> Ids:
        """Return the ids present, ascending."""
        return self._rows.ids

    def add(self, ids: Sequence[int] | Ids, matrix: Matrix) -> None:
        """Put row i of `matrix` under `ids[i]`, in place of what that id held; the ids are distinct."""
        if matrix.shape != (len(ids), self.dims):
            raise ValueError(f"{len(ids)} ids need a matrix of {(len(ids), self.dims)}, got {matrix.shape}")
        new, old = np.array(ids, dtype=np.int64), self._without(ids)
        if len(old.ids):
            new, matrix = np.concatenate([old.ids, new]), np.concatenate([old.matrix, matrix])
        order = np.argsort(new)
        self._rows = _Rows(ids=new[order], matrix=np.asarray(matrix[order], dtype=np.float32))

    def remove(self, ids: Sequence[int] | Ids) -> None:
        """Forget these ids; unknown ones are fine."""
        self._rows = self._without(ids)

    def search(self, query: ArrayLike, k: int) -> list[Neighbour]:
        """Return the `k` nearest, best first, equal cosines by id; nothing for a query without direction."""
        rows, unit = self._rows, direction(query)
        return [] if unit is None else nearest(rows.ids, products(rows.matrix, unit), k)

    def cosines(self, query: ArrayLike, ids: Sequence[int] | Ids) -> dict[int, float]:
        """Return the cosine of each of `ids` that is present."""
        found, matrix = self.fetch(ids)
        return dict(zip(found.tolist(), cosines(matrix, query), strict=False))

    def fetch(self, ids: Sequence[int] | Ids) -> tuple[Ids, Matrix]:
        """Return the vectors of those of `ids` that are present, with their ids."""
        rows = self._rows
        places = places_of(rows.ids, ids)
        return rows.ids[places], rows.matrix[places]

    def _without(self, ids: Sequence[int] | Ids) -> _Rows:
        rows = self._rows
        gone = places_of(rows.ids, ids)
        if not len(gone):
            return rows
        return _Rows(ids=np.delete(rows.ids, gone), matrix=np.delete(rows.matrix, gone, axis=0))


def nearest(ids: Ids, cosines: Matrix, k: int) -> list[Neighbour]:
    """Return the `k` best of parallel `ids` and `cosines`, best first, equal ones by id."""
    places = np.arange(len(ids))
    if k < len(ids):
        places = np.flatnonzero(cosines >= np.partition(cosines, len(ids) - k)[len(ids) - k])
    places = places[np.lexsort((ids[places], -cosines[places]))][:k]
    return list(zip(ids[places].tolist(), cosines[places].tolist(), strict=True))


def unit_rows(matrix: Matrix) -> Matrix:
    """Return `matrix` with every row scaled to length 1; rows of zeros stay."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True).astype(np.float32)
    units: Matrix = np.divide(matrix, lengths, out=np.zeros_like(matrix), where=lengths > 0)
    return units


def cosines(matrix: Matrix, query: ArrayLike) -> list[float]:
    """Return the cosine of each row, a unit vector or zero, to a query; nothing for one without direction."""
    unit = direction(query)
    return [] if unit is None else products(matrix, unit).tolist()


def from_bytes(data: bytes | bytearray, dims: int) -> Matrix:
    """Return the matrix that little-endian float32 numbers make, `dims` of them a row."""
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False).reshape(-1, dims)


def places_of(present: Ids, wanted: Sequence[int] | Ids) -> NDArray[np.intp]:
    """Return where in `present`, which ascends, the ids are that are wanted and there."""
    # A set, because `np.unique` would load `numpy.ma`: 6 ms of the first search.
    ids = np.array(sorted(set(wanted)), dtype=np.int64)
    places = np.searchsorted(present, ids)
    inside = places < len(present)
    places, ids = places[inside], ids[inside]
    found: NDArray[np.intp] = places[present[places] == ids]
    return found


def direction(query: ArrayLike) -> Matrix | None:
    """Return the unit vector of a query; None for one without direction."""
    vector = np.asarray(query, dtype=np.float32)
    length = np.linalg.norm(vector)
    return (vector / length).astype(np.float32) if length > 0 else None


def products(matrix: Matrix, direction: Matrix) -> Matrix:
    """Return the cosine of each row, a unit vector or zero, to a unit vector."""
    # vecdot, not @: it takes one short dot product after the other, and OpenBLAS never spreads those over
    # threads. Its threads spin while they wait; on a busy machine that has cost 28 ms instead of 1.6.
    with np.errstate(invalid="ignore"):
        products: Matrix = np.vecdot(matrix, direction)
    # A damaged vector must be far from everything; as NaN it would hide all others.
    np.nan_to_num(products, copy=False, nan=-1.0, posinf=-1.0, neginf=-1.0)
    return np.clip(products, -1.0, 1.0, out=products)
