"""A store of vectors in memory that compares every one of them with the query."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from composable_memory.content import Health, VectorMatch, VectorQuery, VectorQueryResult, VectorRecord
from composable_memory.errors import DimensionMismatch
from composable_memory.types import JsonValue
from composable_memory_adapters.vectors.resident import ExactVectors, Matrix, Neighbour, unit_rows

__all__ = ["BruteForceVectors", "satisfies"]


class BruteForceVectors:
    """Keeps records in memory; exact, and gone with the process.

    `dims` is the length of the vectors; without it the first record decides.
    """

    def __init__(self, dims: int | None = None) -> None:
        self._dims = dims
        self._vectors = ExactVectors(dims or 0)
        self._records: dict[int, VectorRecord] = {}
        self._rows: dict[str, int] = {}
        self._next_row = 0
        self._changing = asyncio.Lock()

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
            if self._dims is None:
                self._dims = matrix.shape[1]
                self._vectors = ExactVectors(self._dims)
            rows = [self._row(id_) for id_ in latest]
            await asyncio.to_thread(self._vectors.add, rows, unit_rows(matrix))
            self._records |= dict(zip(rows, latest.values(), strict=True))
            self._rows |= dict(zip(latest, rows, strict=True))

    async def query(self, query: VectorQuery) -> VectorQueryResult:
        """Return the `top_k` nearest by cosine, best first, equal ones in the order they were stored.

        Raises:
            DimensionMismatch: the query has another length than the vectors stored.
        """
        if not self._records or query.top_k < 1:
            return VectorQueryResult()
        vector = self._matrix([query.vector])[0]
        found = await asyncio.to_thread(self._nearest, vector, query.top_k, self._rows_within(query.filter))
        records = self._records
        return VectorQueryResult(
            matches=tuple(
                VectorMatch(id=record.id, score=cosine, metadata=record.metadata)
                for row, cosine in found
                if (record := records.get(row))
            )
        )

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove the records with these ids; unknown ids are fine."""
        async with self._changing:
            rows = [row for id_ in ids if (row := self._rows.pop(id_, None)) is not None]
            for row in rows:
                del self._records[row]
            await asyncio.to_thread(self._vectors.remove, rows)

    async def health(self) -> Health:
        """Say how many vectors are kept; a store in memory is always there."""
        return Health(ok=True, message=f"{len(self._records)} vectors in memory")

    def _row(self, id_: str) -> int:
        """Return the row of `id_`. Rows are never used twice, so a search under way cannot mistake one."""
        row = self._rows.get(id_)
        if row is None:
            row, self._next_row = self._next_row, self._next_row + 1
        return row

    def _matrix(self, vectors: Iterable[Sequence[float]]) -> Matrix:
        rows = list(vectors)
        dims = len(rows[0]) if self._dims is None else self._dims
        for row in rows:
            if len(row) != dims:
                raise DimensionMismatch("brute-force", "vectors", expected=dims, got=len(row))
        return np.array(rows, dtype=np.float32)

    def _rows_within(self, wanted: Mapping[str, JsonValue] | None) -> list[int] | None:
        if not wanted:
            return None
        return [row for row, record in self._records.items() if satisfies(record.metadata, wanted)]

    def _nearest(self, vector: Matrix, k: int, within: Sequence[int] | None) -> Sequence[Neighbour]:
        if within is None:
            return self._vectors.search(vector, k)
        cosines = self._vectors.cosines(vector, within)
        return sorted(cosines.items(), key=lambda found: (-found[1], found[0]))[:k]


def satisfies(metadata: Mapping[str, JsonValue], wanted: Mapping[str, JsonValue]) -> bool:
    """Say whether `metadata` holds every wanted value. True is not 1, though Python calls them equal."""
    return all(
        key in metadata
        and metadata[key] == value
        and isinstance(metadata[key], bool) == isinstance(value, bool)
        for key, value in wanted.items()
    )
