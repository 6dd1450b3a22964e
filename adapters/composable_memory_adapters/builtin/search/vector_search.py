"""The half of a search that goes by meaning: the vector of the query, and the engine that looks around it."""

import asyncio
import math
from collections.abc import Sequence

from composable_memory.content import EmbedderInput
from composable_memory.errors import BackendUnavailable, DimensionMismatch, EmbeddingError
from composable_memory.interfaces import EmbedderAdapter
from composable_memory.types import VectorStatus
from composable_memory_adapters.builtin.asking import answer_within
from composable_memory_adapters.builtin.search.vector_leg import ResidentLeg, VectorLeg
from composable_memory_adapters.builtin.settings import VectorSettings
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.sqlite_file import SqliteFile

__all__ = ["VectorSearch"]


FAILURES_BEFORE_REST = 2
REST_S = 30.0
"""How long a provider that failed is not asked for the vectors of questions."""


class VectorSearch:
    """Embeds queries and finds passages near them. The engine is chosen by the first use, and stays."""

    def __init__(
        self,
        file: SqliteFile,
        *,
        settings: VectorSettings,
        embedder: EmbedderAdapter,
        space: EmbeddingSpace,
        embed_timeout_s: float,
        rest_s: float = REST_S,
    ) -> None:
        self._file = file
        self._settings = settings
        self._embedder = embedder
        self._space = space
        self._embed_timeout_s = embed_timeout_s
        self._rest_s = rest_s
        self._failures = 0
        self._rests_until = 0.0
        self._failure = ""
        self._leg: VectorLeg | None = None
        self._choosing = asyncio.Lock()
        self._engine_problem: str | None = None

    @property
    def engine(self) -> str | None:
        """Return the name of the engine that searches; None until it was used."""
        return self._leg.engine if self._leg else None

    @property
    def engine_problem(self) -> str | None:
        """Return what keeps the configured engine from working; None if nothing is known."""
        return self._engine_problem

    async def embed(self, text: str) -> Sequence[float] | None:
        """Return the vector of a query, or None if it has no direction.

        A provider that failed several times in a row is left alone for a while: questions are then answered
        by words at once.

        Raises:
            EmbeddingError: the provider failed, took too long, or returned what does not fit the index.
        """
        now = asyncio.get_running_loop().time
        if now() < self._rests_until:
            problem = f"it is asked again in {self._rests_until - now():.0f} s, since {self._failure}"
            raise EmbeddingError(self._space.provider, self._space.model, problem)
        try:
            vector = await self._ask(text)
        except EmbeddingError as error:
            self._failures, self._failure = self._failures + 1, str(error)
            if self._failures >= FAILURES_BEFORE_REST:
                self._rests_until = now() + self._rest_s
            raise
        self._failures = 0
        return vector

    async def _ask(self, text: str) -> Sequence[float] | None:
        space = self._space
        question = EmbedderInput(text=text, kind="query")
        vector = await answer_within(self._embed_timeout_s, self._embedder.embed(question), space)
        try:
            dims, length = len(vector), math.hypot(*vector)
        except TypeError as error:
            raise EmbeddingError(space.provider, space.model, "the query's vector is not a vector") from error
        if dims != space.dims:
            raise DimensionMismatch(space.provider, space.model, expected=space.dims, got=dims)
        if not math.isfinite(length):
            raise EmbeddingError(
                space.provider, space.model, "the query's vector has a number that is not finite"
            )
        return vector if length else None

    async def ready(self) -> VectorLeg:
        """Return the engine, with everything loaded that a search needs."""
        async with self._choosing:
            if self._leg is None:
                self._leg = await self._choose()
        leg = self._leg
        await leg.warm()
        return leg

    def forget(self) -> None:
        """Let go of the vectors in memory."""
        self._leg = None

    def status(self) -> VectorStatus:
        """Return whether vectors can be searched, as far as it was tried."""
        return VectorStatus(
            enabled=True,
            available=True if self._leg else None,
            extension_path=_extension_path() if self.engine == "sqlite-vec" else None,
            load_error=self._engine_problem,
            dims=self._space.dims,
        )

    async def _choose(self) -> VectorLeg:
        """Return the configured engine; where sqlite-vec cannot be loaded, what `auto` would choose."""
        engine = self._settings.engine
        if engine == "sqlite-vec":
            try:
                return await self._open_table()
            except BackendUnavailable as error:
                self._engine_problem = str(error)
        limits = {"exact": None, "bits": 0}
        limit = limits.get(engine, self._settings.exact_limit)
        return ResidentLeg(self._file, space=self._space, exact_limit=limit)

    async def _open_table(self) -> VectorLeg:
        from composable_memory_adapters.builtin.search.table_leg import TableLeg

        leg = TableLeg(self._file, space=self._space)
        await leg.warm()
        return leg


def _extension_path() -> str:
    from composable_memory_adapters.vectors.sqlite_vec import extension_path

    return extension_path()
