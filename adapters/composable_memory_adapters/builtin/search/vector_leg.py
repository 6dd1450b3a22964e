"""Search by meaning among the live passages, with vectors in memory that are kept in step with the index.

Vectors keep the ids of the embedding cache, so passages with the same text share one. The first search after
a change of `meta.revision` fetches the vectors that are new and drops those that no passage uses any more.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from composable_memory_adapters.builtin.store import queries
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.sqlite_file import Connection, SqliteFile

if TYPE_CHECKING:
    from composable_memory_adapters.vectors.resident import Fetch, Matrix, Neighbour, ResidentVectors

__all__ = ["ResidentLeg", "VectorFinding", "VectorLeg", "in_batches", "with_passages"]

T = TypeVar("T")

VECTORS_PER_STATEMENT = 8192
"""How many vectors are fetched at once: between two statements a cancelled search can stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorFinding:
    """Passages near a query, best first, as (passage id, cosine), and how many could be found at all."""

    neighbours: "tuple[Neighbour, ...]"
    counts: queries.VectorCounts


class VectorLeg(Protocol):
    """The vectors of an index file. Once `warm` has returned, readers may `search` and compute `cosines`."""

    @property
    def engine(self) -> str | None:
        """Return the name of the engine that answers; None until something was loaded."""
        ...

    async def warm(self) -> None:
        """Get ready for a search; quick when nothing changed."""
        ...

    def search(self, connection: Connection, query: Sequence[float], k: int) -> VectorFinding:
        """Return the passages of the `k` nearest vectors, and of all that share one of them."""
        ...

    def cosines(
        self, connection: Connection, query: Sequence[float], passage_ids: Sequence[int]
    ) -> dict[int, float]:
        """Return the cosine of each of these passages that has a vector."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What is in memory, and which revision of the file it mirrors."""

    vectors: "ResidentVectors"
    revision: int
    counts: queries.VectorCounts


class ResidentLeg:
    """Keeps the live vectors in memory: exact up to `exact_limit` of them, as sign bits above.

    An `exact_limit` of None means exact at any size.
    """

    def __init__(self, file: SqliteFile, *, space: EmbeddingSpace, exact_limit: int | None) -> None:
        self._file = file
        self._space = space
        self._exact_limit = exact_limit
        self._loaded: _Loaded | None = None
        self._arriving: ResidentVectors | None = None
        self._first_load = asyncio.Lock()
        self._changing = threading.Lock()

    @property
    def engine(self) -> str | None:
        """Return the name of the engine that answers; None until vectors were loaded."""
        return self._loaded.vectors.engine if self._loaded else None

    async def warm(self) -> None:
        """Load the vectors; concurrent calls share one load, and the next takes over from a cancelled one."""
        if self._loaded is None:
            async with self._first_load:
                if self._loaded is None:
                    await self._file.read(self._load)

    def search(self, connection: Connection, query: Sequence[float], k: int) -> VectorFinding:
        """Return the passages of the `k` nearest vectors, and of all that share one of them."""
        loaded = self._current(connection)
        found = loaded.vectors.search(query, k, self._fetch(connection, loaded))
        return VectorFinding(neighbours=with_passages(connection, found), counts=loaded.counts)

    def cosines(
        self, connection: Connection, query: Sequence[float], passage_ids: Sequence[int]
    ) -> dict[int, float]:
        """Return the cosine of each of these passages that has a vector."""
        embedding_of = queries.embedding_ids_of(connection, passage_ids)
        loaded = self._current(connection)
        fetch = self._fetch(connection, loaded)
        cosines = loaded.vectors.cosines(query, list(embedding_of.values()), fetch)
        return {passage: cosines[id_] for passage, id_ in embedding_of.items() if id_ in cosines}

    def _load(self, connection: Connection) -> None:
        # A cancelled load lets go of its thread only at the next statement, so the one after it waits here.
        with self._changing:
            self._refresh(connection)

    def _current(self, connection: Connection) -> _Loaded:
        """Return what is in memory, brought up to date unless another thread is at it."""
        loaded = self._loaded
        assert loaded is not None
        if queries.revision(connection) == loaded.revision or not self._changing.acquire(blocking=False):
            return loaded
        try:
            return self._refresh(connection)
        finally:
            self._changing.release()

    def _refresh(self, connection: Connection) -> _Loaded:
        """Make the vectors in memory those of the file. What a cancelled refresh has fetched stays of use."""
        live = queries.live_embedding_ids(connection)
        vectors = self._arriving = self._vectors_for(len(live))
        known = set(vectors.ids.tolist())
        vectors.remove(sorted(known.difference(live)))
        for ids in in_batches([id_ for id_ in live if id_ not in known], VECTORS_PER_STATEMENT):
            vectors.add(*self._rows(queries.vectors_in_space(connection, ids, self._space)))
        self._loaded = _Loaded(
            vectors=vectors,
            revision=queries.revision(connection),
            counts=queries.vector_counts(connection),
        )
        return self._loaded

    def _vectors_for(self, count: int) -> "ResidentVectors":
        """Return the vectors to go on with: those at hand, or an empty set of another engine."""
        # Imported here, in the reading thread, since numpy would cost every keyword search 0.1 s.
        from composable_memory_adapters.vectors.resident import ExactVectors, SignBits

        kind = ExactVectors if self._exact_limit is None or count <= self._exact_limit else SignBits
        if self._arriving is not None and self._arriving.engine == kind.engine:
            return self._arriving
        return kind(self._space.dims)

    def _fetch(self, connection: Connection, loaded: _Loaded) -> "Fetch":
        """Return how to get stored vectors. In a file that has moved on, some of them may be gone."""
        from composable_memory_adapters.vectors.resident import from_bytes

        dims = self._space.dims
        if queries.revision(connection) == loaded.revision:
            return lambda ids: (ids, from_bytes(queries.vectors_at(connection, ids.tolist(), dims), dims))
        return lambda ids: self._rows(queries.vectors(connection, ids.tolist(), dims))

    def _rows(self, stored: tuple[Sequence[int], Sequence[bytes]]) -> "tuple[Sequence[int], Matrix]":
        from composable_memory_adapters.vectors.resident import from_bytes

        ids, blobs = stored
        return ids, from_bytes(b"".join(blobs), self._space.dims)


def with_passages(connection: Connection, neighbours: "Sequence[Neighbour]") -> "tuple[Neighbour, ...]":
    """Return passages with cosines for embeddings with cosines, in the same order."""
    holders = queries.passages_of_embeddings(connection, [id_ for id_, _ in neighbours])
    return tuple((passage, cosine) for id_, cosine in neighbours for passage in holders.get(id_, ()))


def in_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield `items` in runs of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))
