"""Vectors kept in memory, each of which is compared with a query; and a store of records over them."""

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
"""One vector a row."""

GROUPS = 4
"""There are so many times more groups than scores wanted, so that few of the best share one."""

Neighbour: TypeAlias = tuple[int, float]
"""An id and its cosine to the query, in [-1, 1]."""


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
    places = np.flatnonzero(cosines >= at_least(cosines, k))
    places = places[np.lexsort((ids[places], -cosines[places]))][:k]
    return list(zip(ids[places].tolist(), cosines[places].tolist(), strict=True))


def at_least(scores: Matrix, count: int) -> float:
    """Return a number that at least `count` of the scores reach, and few more.

    It is that of the largest of groups: to part all scores takes ten times as long.
    """
    size = len(scores) // (GROUPS * count) if count > 0 else 0
    if size > 1:
        scores = scores[: size * GROUPS * count].reshape(size, -1).max(axis=0)
    at = len(scores) - count
    return float(np.partition(scores, at)[at]) if 0 < at < len(scores) else -np.inf


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
    length = np.sqrt(vector.dot(vector))
    return vector / length if length > 0 else None


def products(matrix: Matrix, direction: Matrix) -> Matrix:
    """Return the cosine of each row, a unit vector or zero, to a unit vector."""
    # vecdot, not @: it takes one short dot product after the other, and OpenBLAS never spreads those over
    # threads. Its threads spin while they wait; on a busy machine that has cost 28 ms instead of 1.6.
    with np.errstate(invalid="ignore"):
        products: Matrix = np.vecdot(matrix, direction)
    # A damaged vector must be far from everything; as NaN it would hide all others.
    products[~np.isfinite(products)] = -1.0
    return np.clip(products, -1.0, 1.0, out=products)


FIRST_NAMED_ROW = 2**62
"""Ids that are numbers are the rows of their vectors; the rows of all others begin here."""
MAX_DIGITS = 18
AT_ONCE = 2**20
"""No more numbers are compared at once, in a tenth of a millisecond; of more it is done in a thread."""
NO_METADATA: Mapping[str, JsonValue] = MappingProxyType({})


class InMemoryVectors:
    """Keeps records in memory; they are gone with the process.

    `dims` is the length of the vectors; without it the first record decides. An id that is a plain number, as
    an index has them, is the row of its vector; others need a dictionary.
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
        # A cancelled call lets go of the lock above while its thread still works.
        self._working = threading.Lock()

    def __len__(self) -> int:
        return len(self._vectors.ids)

    def plain(self) -> tuple[Ids, Matrix]:
        """Return the vectors that have no metadata and a number as their id, with these."""
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
            DimensionMismatch: a record has another length than those stored; nothing is stored then.
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
            DimensionMismatch: there are not as many numbers as the ids need; nothing is stored then.
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
        """Return the `top_k` nearest by cosine, best first, equal ones in the order they were stored.

        Raises:
            DimensionMismatch: the query has another length than the vectors stored.
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
        """Return the cosine of each of `ids` that is present; any thread may ask."""
        return self._vectors.cosines(query, ids)

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove the records with these ids; unknown ids are fine."""
        async with self._changing:
            rows = [row for id_ in ids if (row := self._known_row(id_)) is not None]
            for row in rows:
                self._rows.pop(self._names.pop(row, ""), None)
                self._metadata.pop(row, None)
            await asyncio.to_thread(self._remove, rows)

    async def health(self) -> Health:
        """Report how many vectors are kept; a store in memory is always there."""
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
        """Return the row of `id_`. Rows of names are never used twice: a search under way may know one."""
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
    """Return the rows of ids if all are numbers; in a third of the time that one after the other takes."""
    try:
        numbers = [*map(int, ids)]
    except ValueError:
        return None
    is_plain = [*map(str, numbers)] == ids and min(numbers) >= 0 and max(numbers) < 10**MAX_DIGITS
    return numbers if is_plain else None


def number_of(id_: str) -> int | None:
    """Return the row that an id names if it is a number as `str` writes it; None for any other id."""
    if id_.isdecimal() and id_.isascii() and len(id_) <= MAX_DIGITS and (id_[0] != "0" or id_ == "0"):
        return int(id_)
    return None


def satisfies(metadata: Mapping[str, JsonValue], wanted: Mapping[str, JsonValue]) -> bool:
    """Return whether `metadata` holds every wanted value. True is not 1, though Python calls them equal."""
    return all(
        key in metadata
        and metadata[key] == value
        and isinstance(metadata[key], bool) == isinstance(value, bool)
        for key, value in wanted.items()
    )
