"""Vectors in memory, searched by comparing each with the query; and a record store on top of them."""

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from composable_memory.errors import DimensionMismatch
from composable_memory.types import JsonValue
from composable_memory.vector_values import Health, VectorMatch, VectorQuery, VectorQueryResult, VectorRecord
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

Ids: TypeAlias = NDArray[np.int64]
Matrix: TypeAlias = NDArray[np.float32]
"""One vector per row."""

GROUPS = 4
"""How many groups per wanted score, so that few of the best scores share a group."""

Neighbour: TypeAlias = tuple[int, float]
"""An id and its cosine to the query, in [-1, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Ids in ascending order, and their vectors."""

    ids: Ids
    matrix: Matrix


class ExactVectors:
    """Vectors of one dimension, unit length or zero, as float32; each search compares all of them.

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
        """Store row i of `matrix` under `ids[i]`, replacing what that id held; ids must be distinct."""
        if matrix.shape != (len(ids), self.dims):
            raise ValueError(f"{len(ids)} ids need a matrix of {(len(ids), self.dims)}, got {matrix.shape}")
        new, old = np.array(ids, dtype=np.int64), self._without(ids)
        if len(old.ids):
            new, matrix = np.concatenate([old.ids, new]), np.concatenate([old.matrix, matrix])
        order = np.argsort(new)
        self._rows = _Rows(ids=new[order], matrix=np.asarray(matrix[order], dtype=np.float32))

    def remove(self, ids: Sequence[int] | Ids) -> None:
        """Remove these ids; unknown ones are ignored."""
        self._rows = self._without(ids)

    def search(self, query: ArrayLike, k: int) -> list[Neighbour]:
        """Return the `k` nearest, best first, ties by id; none if the query has no direction."""
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
    """Return the `k` best of parallel `ids` and `cosines`, best first, ties by id."""
    places = np.flatnonzero(cosines >= at_least(cosines, k))
    places = places[np.lexsort((ids[places], -cosines[places]))][:k]
    return list(zip(ids[places].tolist(), cosines[places].tolist(), strict=True))


def at_least(scores: Matrix, count: int) -> float:
    """Return a threshold that at least `count` scores reach, and few more.

    Only the largest score of each group is partitioned: partitioning all takes ten times as long.
    """
    size = len(scores) // (GROUPS * count) if count > 0 else 0
    if size > 1:
        scores = scores[: size * GROUPS * count].reshape(size, -1).max(axis=0)
    at = len(scores) - count
    return float(np.partition(scores, at)[at]) if 0 < at < len(scores) else -np.inf


def unit_rows(matrix: Matrix) -> Matrix:
    """Return `matrix` with every row scaled to length 1; zero rows stay zero."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True).astype(np.float32)
    units: Matrix = np.divide(matrix, lengths, out=np.zeros_like(matrix), where=lengths > 0)
    return units


def cosines(matrix: Matrix, query: ArrayLike) -> list[float]:
    """Return the cosine of each row, a unit vector or zero, to a query; none if that has no direction."""
    unit = direction(query)
    return [] if unit is None else products(matrix, unit).tolist()


def from_bytes(data: bytes | bytearray, dims: int) -> Matrix:
    """Return a matrix of little-endian float32 numbers, `dims` per row."""
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False).reshape(-1, dims)


def places_of(present: Ids, wanted: Sequence[int] | Ids) -> NDArray[np.intp]:
    """Return the positions in `present`, which is sorted, of those `wanted` ids that it contains."""
    # A set, because `np.unique` would load `numpy.ma`: 6 ms of the first search.
    ids = np.array(sorted(set(wanted)), dtype=np.int64)
    places = np.searchsorted(present, ids)
    inside = places < len(present)
    places, ids = places[inside], ids[inside]
    found: NDArray[np.intp] = places[present[places] == ids]
    return found


def direction(query: ArrayLike) -> Matrix | None:
    """Return the unit vector of a query; None if it has no direction."""
    vector = np.asarray(query, dtype=np.float32)
    length = np.sqrt(vector.dot(vector))
    return vector / length if length > 0 else None


def products(matrix: Matrix, direction: Matrix) -> Matrix:
    """Return the cosine of each row, a unit vector or zero, to a unit vector."""
    # vecdot, not @: it computes one short dot product at a time, which OpenBLAS never spreads over threads.
    # Its threads spin while waiting; on a busy machine that took 28 ms instead of 1.6.
    with np.errstate(invalid="ignore"):
        products: Matrix = np.vecdot(matrix, direction)
    # A damaged vector must be far from everything; as NaN it would displace all others.
    products[~np.isfinite(products)] = -1.0
    return np.clip(products, -1.0, 1.0, out=products)


FIRST_NAMED_ROW = 2**62
"""Numeric ids are used as row numbers; the rows of all other ids start here."""
MAX_DIGITS = 18
AT_ONCE = 2**20
"""Up to this many numbers are compared in place, in a tenth of a millisecond; more in a thread."""
NO_METADATA: Mapping[str, JsonValue] = MappingProxyType({})


class InMemoryVectors:
    """Keeps records in memory, for as long as the process lives.

    `dims` is the length of the vectors; by default the first record decides. An id that is a plain number, as
    an index uses, is itself the row of its vector; other ids need a dictionary.
    """

    engine = "exact"

    def __init__(self, dims: int | None = None) -> None:
        self._dims = dims
        self._vectors = ExactVectors(dims or 0)
        self._rows: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._next_row = FIRST_NAMED_ROW
        self._metadata: dict[int, Mapping[str, JsonValue]] = {}
        self._changing = asyncio.Lock()
        # A cancelled call releases the lock above while its thread is still working.
        self._working = threading.Lock()

    def __len__(self) -> int:
        return len(self._vectors.ids)

    def plain(self) -> tuple[Ids, Matrix]:
        """Return the vectors with numeric ids and no metadata, and these ids."""
        rows = self._vectors.ids
        return self._vectors.fetch(
            [row for row in rows.tolist() if row < FIRST_NAMED_ROW and row not in self._metadata]
        )

    async def ids(self) -> Sequence[str]:
        """Return the ids of all records."""
        return [self._id_of(row) for row in self._vectors.ids.tolist()]

    async def upsert(self, records: Sequence[VectorRecord]) -> None:
        """Store `records`, replacing those with the same id.

        Raises:
            DimensionMismatch: a record's length differs from that of the stored ones; nothing is stored.
        """
        latest = {record.id: record for record in records}
        if not latest:
            return
        async with self._changing:
            matrix = self._matrix(record.values for record in latest.values())
            rows = [self._row_of(id_) for id_ in latest]
            await asyncio.to_thread(self._add, rows, unit_rows(matrix))
            for row, record in zip(rows, latest.values(), strict=True):
                self._metadata.pop(row, None)
                if record.metadata:
                    self._metadata[row] = record.metadata

    async def upsert_packed(self, ids: Sequence[str], numbers: bytes) -> None:
        """Store vectors without metadata, of unit length or zero, packed as float32.

        Raises:
            DimensionMismatch: the amount of numbers does not fit the ids; nothing is stored.
        """
        if not ids:
            return
        async with self._changing:
            dims = self._dims or len(numbers) // (4 * len(ids))
            if len(numbers) != 4 * dims * len(ids):
                raise DimensionMismatch("memory", "vectors", expected=dims * len(ids), got=len(numbers) // 4)
            rows = _numbers(ids) or [self._row_of(id_) for id_ in ids]
            await asyncio.to_thread(lambda: self._add(rows, from_bytes(numbers, dims)))
            for row in rows if self._metadata else ():
                self._metadata.pop(row, None)

    async def query(self, query: VectorQuery) -> VectorQueryResult:
        """Return the `top_k` nearest by cosine, best first, ties in the order they were stored.

        Raises:
            DimensionMismatch: the query's length differs from that of the stored vectors.
        """
        if not len(self) or query.top_k < 1:
            return VectorQueryResult()
        vector = np.asarray(query.vector, dtype=np.float32)
        if len(vector) != self._dims:
            raise DimensionMismatch("memory", "vectors", expected=self._dims or 0, got=len(vector))
        rows = self._rows_within(query.filter) if query.filter else None
        if len(self) * len(vector) > AT_ONCE:
            found = await asyncio.to_thread(self._nearest, vector, query.top_k, rows)
        else:
            found = self._nearest(vector, query.top_k, rows)
        told = self._metadata.get
        matches = [
            VectorMatch(id=self._id_of(row), score=cosine, metadata=told(row, NO_METADATA))
            for row, cosine in found
            if row < FIRST_NAMED_ROW or row in self._names
        ]
        return VectorQueryResult(matches=tuple(matches))

    def cosines(self, query: ArrayLike, ids: Sequence[int]) -> dict[int, float]:
        """Return the cosine of each of `ids` that is present; may be called from any thread."""
        return self._vectors.cosines(query, ids)

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove the records with these ids; unknown ids are ignored."""
        async with self._changing:
            rows = [row for id_ in ids if (row := self._known_row(id_)) is not None]
            for row in rows:
                self._rows.pop(self._names.pop(row, ""), None)
                self._metadata.pop(row, None)
            await asyncio.to_thread(self._remove, rows)

    async def health(self) -> Health:
        """Report the number of vectors; a store in memory is always available."""
        return Health(ok=True, message=f"{counted(len(self), 'vector')} in memory")

    def _add(self, rows: Sequence[int], matrix: Matrix) -> None:
        with self._working:
            if self._vectors.dims != matrix.shape[1]:  # the first record decides
                self._vectors = ExactVectors(matrix.shape[1])
            self._vectors.add(rows, matrix)
            self._dims = matrix.shape[1]

    def _remove(self, rows: Sequence[int]) -> None:
        with self._working:
            self._vectors.remove(rows)

    def _nearest(self, vector: Matrix, k: int, within: Sequence[int] | None) -> Sequence[Neighbour]:
        if within is None:
            return self._vectors.search(vector, k)
        cosines = self._vectors.cosines(vector, within)
        return sorted(cosines.items(), key=lambda found: (-found[1], found[0]))[:k]

    def _row_of(self, id_: str) -> int:
        """Return the row of `id_`. Rows of names are never reused: a running search may refer to one."""
        row = self._known_row(id_)
        if row is None:
            row, self._next_row = self._next_row, self._next_row + 1
            self._rows[id_], self._names[row] = row, id_
        return row

    def _known_row(self, id_: str) -> int | None:
        number = number_of(id_)
        return self._rows.get(id_) if number is None else number

    def _id_of(self, row: int) -> str:
        return str(row) if row < FIRST_NAMED_ROW else self._names[row]

    def _matrix(self, vectors: Iterable[Sequence[float]]) -> Matrix:
        rows = list(vectors)
        dims = len(rows[0]) if self._dims is None else self._dims
        for row in rows:
            if len(row) != dims:
                raise DimensionMismatch("memory", "vectors", expected=dims, got=len(row))
        return np.array(rows, dtype=np.float32)

    def _rows_within(self, wanted: Mapping[str, JsonValue]) -> list[int]:
        return [row for row, metadata in self._metadata.items() if satisfies(metadata, wanted)]


def _numbers(ids: Sequence[str]) -> list[int] | None:
    """Return the rows of ids if all are numbers; takes a third of the time of converting them one by one."""
    try:
        numbers = [*map(int, ids)]
    except ValueError:
        return None
    is_plain = [*map(str, numbers)] == ids and min(numbers) >= 0 and max(numbers) < 10**MAX_DIGITS
    return numbers if is_plain else None


def number_of(id_: str) -> int | None:
    """Return the row for an id that is a number as `str` formats it; None for any other id."""
    if id_.isdecimal() and id_.isascii() and len(id_) <= MAX_DIGITS and (id_[0] != "0" or id_ == "0"):
        return int(id_)
    return None


def satisfies(metadata: Mapping[str, JsonValue], wanted: Mapping[str, JsonValue]) -> bool:
    """Return whether `metadata` has every wanted value. True is not 1, though Python calls them equal."""
    return all(
        key in metadata
        and metadata[key] == value
        and isinstance(metadata[key], bool) == isinstance(value, bool)
        for key, value in wanted.items()
    )
