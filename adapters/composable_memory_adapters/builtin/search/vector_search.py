"""The vector leg of a search: embeds the query, and finds its nearest neighbours in a vector store."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from composable_memory.errors import (
    BackendUnavailable,
    ComposableMemoryError,
    EmbeddingError,
    IndexProblem,
)
from composable_memory.interfaces import EmbedderAdapter, VectorAdapter, VectorServices
from composable_memory.registry import load_vectors
from composable_memory.types import VectorStatus
from composable_memory.vector_values import VectorQuery
from composable_memory_adapters.builtin.search.index_vectors import (
    IndexVectors,
    VectorFollower,
)
from composable_memory_adapters.builtin.search.ranking import Near
from composable_memory_adapters.builtin.settings import ENGINES, VectorSettings
from composable_memory_adapters.builtin.store import index_meta
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace, query_vector
from composable_memory_adapters.builtin.store.read_queries import HeldVectors
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory_adapters.vectors.mapped import MappedVectors

FAILURES_BEFORE_REST = 2
REST_S = 30.0
"""How long a failing provider is not asked for query vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """The open vector store, and the follower that keeps it in step with the index."""

    engine: str
    is_auto: bool
    """Whether the engine was chosen by the number of vectors."""
    store: VectorAdapter
    vectors: IndexVectors
    follower: VectorFollower


class VectorSearch:
    """Embeds queries and finds nearby vectors in a store, which is opened on first use and stays open.

    `state_dir` is where another package's store may keep files; without it, no such store can be opened.
    """

    def __init__(
        self,
        file: SqliteFile,
        *,
        settings: VectorSettings,
        embedder: EmbedderAdapter,
        space: EmbeddingSpace,
        embed_timeout_s: float,
        load_timeout_s: float = 0.0,
        state_dir: Path | None = None,
        rest_s: float = REST_S,
    ) -> None:
        self._file = file
        self._settings = settings
        self._by_size = settings.model_copy(update={"engine": "auto"})
        self._embedder = embedder
        self._space = space
        self._embed_timeout_s = embed_timeout_s
        self._first_timeout_s = max(embed_timeout_s, load_timeout_s)
        self._has_answered = False
        self._state_dir = state_dir
        self._rest_s = rest_s
        self._failures = 0
        self._rests_until = 0.0
        self._failure = ""
        self._opened: _Opened | None = None
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._engine_problem: str | None = None

    @property
    def engine(self) -> str | None:
        """Return the engine that searches; None until first used."""
        if self._opened is None or self._opened.vectors.followed is None:
            return None
        return self._opened.engine

    @property
    def engine_problem(self) -> str | None:
        """Return why the configured engine does not work; None if no problem is known."""
        return self._engine_problem

    @property
    def held(self) -> HeldVectors | None:
        """Return the vectors in memory, as of the state of the index that was last followed."""
        if self._opened is None or self._opened.engine not in ENGINES:
            return None
        return self._opened.store if isinstance(self._opened.store, HeldVectors) else None

    @property
    def has_failed(self) -> bool:
        """Return whether the provider's last call failed, or the configured engine does not work."""
        return self._failures > 0 or self._engine_problem is not None

    async def embed(self, text: str) -> Sequence[float] | None:
        """Return the vector of a query; None if it has no direction.

        A provider that fails several times in a row is not called for a while: queries are then answered by
        keywords at once.

        Raises:
            EmbeddingError: the provider failed, timed out, or returned a vector that does not fit the index.
        """
        now = asyncio.get_running_loop().time
        if now() < self._rests_until:
            problem = f"it will be retried in {self._rests_until - now():.0f} s, since {self._failure}"
            raise EmbeddingError(self._space.provider, self._space.model, problem)
        try:
            limit_s = self._embed_timeout_s if self._has_answered else self._first_timeout_s
            vector = await query_vector(self._embedder, self._space, text, within_s=limit_s)
        except EmbeddingError as error:
            self._failures, self._failure = self._failures + 1, str(error)
            if self._failures >= FAILURES_BEFORE_REST:
                self._rests_until = now() + self._rest_s
            raise
        self._failures, self._has_answered = 0, True
        return vector

    async def warm(self) -> None:
        """Open the store and fill it with all vectors; quick if already done."""
        await self._ready()

    async def near(self, vector: Sequence[float], k: int) -> Near:
        """Return the `k` nearest vectors; those in memory may lag behind the index.

        Other stores catch up first, as far as they can; see `catch_up`.

        Raises:
            BackendUnavailable: another package's store failed or timed out.
            IndexProblem: the index cannot be read.
        """
        opened = await self._ready()
        # Searching vectors in memory takes less time than checking whether the index has changed.
        if opened.engine != "exact" and not await opened.vectors.is_current():
            await self.catch_up()
            opened = await self._ready()
        followed = opened.vectors.followed
        assert followed is not None
        asked = VectorQuery(vector=vector, top_k=k)
        if opened.engine in ENGINES:
            found = await opened.store.query(asked)
        else:
            with self._blaming(opened.engine):
                found = await asyncio.wait_for(opened.store.query(asked), self._embed_timeout_s)
        return Near(
            vector=vector,
            embeddings=[(int(match.id), match.score) for match in found.matches if match.id.isdecimal()],
            engine=opened.engine,
            followed=followed,
        )

    async def catch_up(self) -> bool:
        """Let the store catch up with the index; return False if another search is doing so."""
        opened = await self._ready()
        with self._blaming(opened.engine):
            has_followed = await opened.follower.catch_up()
        if self._opened is opened and self._is_outdated(opened):
            self._opened = None
        return has_followed

    async def close(self) -> None:
        """Close the store and release the vectors in memory; idempotent."""
        self._opened = None
        await self._stack.aclose()

    def status(self) -> VectorStatus:
        """Return whether vectors can be searched, as far as that was tried."""
        return VectorStatus(
            enabled=True,
            available=True if self._opened else None,
            engine=self.engine,
            extension_path=_extension_path() if self.engine == "sqlite-vec" else None,
            load_error=self._engine_problem,
            dims=self._space.dims,
        )

    async def _ready(self) -> _Opened:
        if self._opened is not None and self._opened.vectors.followed is not None:
            return self._opened
        async with self._opening:
            opened = self._opened = self._opened or await self._choose()
        with self._blaming(opened.engine):
            await opened.follower.begin()
        return opened

    def _is_outdated(self, opened: _Opened) -> bool:
        """Return whether the index has outgrown its store, or the store may hold purged vectors."""
        followed = opened.vectors.followed
        if followed is None:
            return False
        fitting = self._by_size.engine_for(followed.counts.with_vector)
        has_outgrown = opened.is_auto and opened.engine == "exact" != fitting
        return has_outgrown or opened.vectors.forgotten not in (None, followed.forgotten)

    async def _choose(self) -> _Opened:
        """Open the configured engine; if that fails, the one that `auto` would choose."""
        vectors = IndexVectors(self._file, self._space)
        count = (await vectors.state()).counts.with_vector
        engine = self._settings.engine_for(count)
        try:
            store = await self._open_store(engine, vectors)
        except IndexProblem:
            raise
        except ComposableMemoryError as error:
            self._engine_problem = str(error)
            engine = self._by_size.engine_for(count)
            store = await self._open_store(engine, vectors)
        follower = VectorFollower(vectors, store)
        is_auto = engine != self._settings.engine
        return _Opened(engine=engine, is_auto=is_auto, store=store, vectors=vectors, follower=follower)

    async def _open_store(self, engine: str, vectors: IndexVectors) -> VectorAdapter:
        if engine == "sqlite-vec":
            return await self._open_table()
        if engine not in ENGINES:
            return await self._open_foreign(engine)
        if engine == "exact":
            await vectors.note_forgotten()
            return await asyncio.to_thread(_exact, self._file.path, self._space.dims)
        key = await vectors.key()
        store = await asyncio.to_thread(_mapped, self._file.path, key, vectors)
        await store.open()
        return store

    async def _open_table(self) -> VectorAdapter:
        from composable_memory_adapters.vectors.sqlite_vec import SqliteVecVectors

        table = SqliteVecVectors(self._file, dims=self._space.dims)
        await table.ids()  # fails here if the extension cannot be loaded
        return table

    async def _open_foreign(self, engine: str) -> VectorAdapter:
        if self._state_dir is None:
            problem = "it has no folder for its files"
            raise BackendUnavailable(engine, problem, fix="open the memory with one", operation="open")
        index = await self._file.write(index_meta.identity)
        services = VectorServices(
            collection=f"{index}-{self._space.provider_key}",
            dimensions=self._space.dims,
            state_dir=self._state_dir,
        )
        spec = await asyncio.to_thread(load_vectors, engine)
        with self._blaming(engine):
            return await self._stack.enter_async_context(spec.open(services))

    @contextmanager
    def _blaming(self, engine: str) -> Iterator[None]:
        """Turn whatever another package's store raises into one error that names it."""
        try:
            yield
        except ComposableMemoryError:
            raise
        except Exception as error:  # a store of another package may raise anything
            if engine in ENGINES:
                raise
            problem = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise BackendUnavailable(
                engine, problem, fix="set store.vector.engine to auto", operation="search vectors"
            ) from error


# Imported late, in a thread: numpy would cost every keyword search 0.1 s.


def _exact(index: Path, dims: int) -> VectorAdapter:
    from composable_memory_adapters.vectors import int8_file
    from composable_memory_adapters.vectors.in_memory import InMemoryVectors

    with suppress(OSError):
        int8_file.remove(int8_file.place_beside(index))
    return InMemoryVectors(dims)


def _mapped(index: Path, key: str, vectors: IndexVectors) -> "MappedVectors":
    from composable_memory_adapters.vectors import int8_file
    from composable_memory_adapters.vectors.mapped import MappedVectors

    return MappedVectors(int8_file.place_beside(index), key=key, dims=vectors.space.dims, stored=vectors)


def _extension_path() -> str:
    from composable_memory_adapters.vectors.sqlite_vec import extension_path

    return extension_path()
