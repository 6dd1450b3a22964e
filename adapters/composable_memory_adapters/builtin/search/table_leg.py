"""Search by meaning with sqlite-vec: the live vectors in a KNN table of the index file.

The table follows `meta.revision` as the vectors in memory do, only that what is new is written into it, in
batches, before the first search after a change.
"""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from composable_memory_adapters.builtin.search.vector_leg import VectorFinding, in_batches, with_passages
from composable_memory_adapters.builtin.store import queries
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_adapters.vectors import sqlite_vec

__all__ = ["TABLE", "TableLeg"]

TABLE = "chunks_vec"

ROWS_PER_TRANSACTION = 2000
"""How many vectors are written at once, so that a sync never waits long for its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """How the table differs from the live vectors of a revision of the file."""

    revision: int
    counts: queries.VectorCounts
    has_table: bool
    missing: Sequence[int]
    gone: Sequence[int]


class TableLeg:
    """Keeps the live vectors in a table of sqlite-vec, which compares all of them exactly."""

    engine = "sqlite-vec"

    def __init__(self, file: SqliteFile, *, space: EmbeddingSpace) -> None:
        self._file = file
        self._space = space
        self._filled: _Difference | None = None
        self._filling = asyncio.Lock()

    async def warm(self) -> None:
        """Bring the table up to date; while one caller fills it, others search what is there."""
        if self._filled and (self._filling.locked() or await self._is_current(self._filled)):
            return
        async with self._filling:
            if self._filled is None or not await self._is_current(self._filled):
                self._filled = await self._fill()

    def search(self, connection: Connection, query: Sequence[float], k: int) -> VectorFinding:
        """Return the passages of the `k` nearest vectors, and of all that share one of them."""
        assert self._filled is not None
        sqlite_vec.load(connection)
        found = sqlite_vec.nearest(connection, TABLE, self._blob(query), k)
        return VectorFinding(neighbours=with_passages(connection, found), counts=self._filled.counts)

    def cosines(
        self, connection: Connection, query: Sequence[float], passage_ids: Sequence[int]
    ) -> dict[int, float]:
        """Return the cosine of each of these passages that has a vector."""
        sqlite_vec.load(connection)
        embedding_of = queries.embedding_ids_of(connection, passage_ids)
        ids = sorted(set(embedding_of.values()))
        cosines = dict(sqlite_vec.nearest(connection, TABLE, self._blob(query), len(ids), among=ids))
        return {passage: cosines[id_] for passage, id_ in embedding_of.items() if id_ in cosines}

    async def _is_current(self, filled: _Difference) -> bool:
        return await self._file.read(queries.revision) == filled.revision

    async def _fill(self) -> _Difference:
        difference = await self._file.read(self._compare)
        if not difference.has_table:
            await self._file.write(partial(self._replace, old=(), new=()))
        for ids in in_batches(difference.gone, ROWS_PER_TRANSACTION):
            await self._file.write(partial(self._replace, old=ids, new=()))
        for ids in in_batches(difference.missing, ROWS_PER_TRANSACTION):
            await self._file.write(partial(self._replace, old=ids, new=ids))
        return difference

    def _compare(self, connection: Connection) -> _Difference:
        sqlite_vec.load(connection)
        live = queries.live_embedding_ids(connection)
        has_table = sqlite_vec.stored_dims(connection, TABLE) == self._space.dims
        stored = sqlite_vec.stored_ids(connection, TABLE) if has_table else set[int]()
        return _Difference(
            revision=queries.revision(connection),
            counts=queries.vector_counts(connection),
            has_table=has_table,
            missing=[id_ for id_ in live if id_ not in stored],
            gone=sorted(stored.difference(live)),
        )

    def _replace(self, connection: Connection, *, old: Sequence[int], new: Sequence[int]) -> None:
        """Take `old` out and put `new` in; another process may have done either already."""
        sqlite_vec.load(connection)
        sqlite_vec.create_table(connection, TABLE, self._space.dims)
        sqlite_vec.delete(connection, TABLE, old)
        ids, blobs = queries.vectors_in_space(connection, new, self._space)
        sqlite_vec.insert(connection, TABLE, zip(ids, blobs, strict=True))

    def _blob(self, query: Sequence[float]) -> bytes:
        return struct.pack(f"<{self._space.dims}f", *query)
