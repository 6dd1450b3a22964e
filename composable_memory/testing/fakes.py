"""Faulty parts for tests: a memory or an embedder for every way in which a real one can fail."""

import asyncio
from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import Any, cast

from composable_memory.content import EmbedderInput
from composable_memory.errors import BackendError, EmbedderUnavailable
from composable_memory.testing.corpus import SEED_NOTES
from composable_memory.testing.in_memory import FakeBackend, HashEmbedder, InMemoryBackend
from composable_memory.types import MemorySearchResult, SearchAnswer, SearchOptions


class SlowBackend(InMemoryBackend):
    """A working memory that takes `delay_s` seconds for each answer."""

    def __init__(
        self, delay_s: float, notes: Mapping[str, str] = SEED_NOTES, *, backend_id: str = "slow"
    ) -> None:
        super().__init__(notes, backend_id=backend_id)
        self.delay_s = delay_s

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Wait, then search."""
        await asyncio.sleep(self.delay_s)
        return await super().answer(query, options)


class FlakyBackend(InMemoryBackend):
    """A working memory whose first `failures` searches raise `error`; `asked` includes the failed ones."""

    def __init__(
        self,
        failures: int,
        notes: Mapping[str, str] = SEED_NOTES,
        *,
        error: Exception | None = None,
        backend_id: str = "flaky",
    ) -> None:
        super().__init__(notes, backend_id=backend_id)
        self.failures = failures
        self.error = error or BackendError(backend_id, "search", "it was asked to fail a few times")

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Fail while failures are left, then search."""
        if self.failures > 0:
            self.note_question(query, options)
            self.failures -= 1
            raise self.error
        return await super().answer(query, options)


class HangingBackend(FakeBackend):
    """A memory that never answers. The first search sets `started`, `cancelled` counts cancelled ones."""

    def __init__(self, *, backend_id: str = "hanging") -> None:
        super().__init__(backend_id)
        self.started = asyncio.Event()
        self.cancelled = 0

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Wait until cancelled."""
        self.note_question(query, options)
        self.started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError("nobody answers this future")


class RaisingBackend(FakeBackend):
    """A memory whose every search raises `error`."""

    def __init__(self, error: BaseException | None = None, *, backend_id: str = "raising") -> None:
        super().__init__(backend_id)
        self.error = error or BackendError(backend_id, "search", "it always fails")

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Raise the error."""
        self.note_question(query, options)
        raise self.error


_SOUND: dict[str, object] = {
    "path": "memory/good.md", "start_line": 1, "end_line": 1, "score": 0.5, "snippet": "a sound result"
}  # fmt: skip
_BROKEN: list[dict[str, object]] = [
    {"score": nan}, {"score": inf}, {"score": -0.5}, {"score": 7.0}, {"score": "high"}, {"score": None},
    {"path": None}, {"path": 3}, {"path": "../../outside.md"}, {"start_line": "one"}, {"end_line": None},
    {"start_line": 9, "end_line": 2}, {"start_line": -4}, {"snippet": None}, {"snippet": b"bytes"},
    {"snippet": "x" * 100_000},
]  # fmt: skip


def _rubbish() -> tuple[object, ...]:
    results = (MemorySearchResult(**cast("dict[str, Any]", _SOUND | change)) for change in [{}, *_BROKEN])
    return (None, *results, 42, "a string", {"path": "a dictionary"})


class RubbishBackend(FakeBackend):
    """A memory that returns one valid result, `memory/good.md`, among things that are not results.

    With `answer` it returns that instead, whatever it is: None, a number, a generator.
    """

    def __init__(self, answer: object = ..., *, backend_id: str = "rubbish") -> None:
        super().__init__(backend_id)
        self._answer = _rubbish() if answer is ... else answer

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return what no memory may return."""
        self.note_question(query, options)
        return cast("Sequence[MemorySearchResult]", self._answer)


class FloodBackend(FakeBackend):
    """A memory that returns `count` results, however few were asked for."""

    def __init__(self, count: int = 10_000, *, backend_id: str = "flood") -> None:
        super().__init__(backend_id)
        self.count = count

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return everything, best first."""
        self.note_question(query, options)
        return tuple(
            MemorySearchResult(
                path=f"memory/flood/{number:05}.md",
                start_line=1,
                end_line=1,
                score=1.0 - number / self.count,
                snippet=f"drop {number}",
            )
            for number in range(self.count)
        )


class FailingEmbedder(HashEmbedder):
    """An embedder that raises: at every call, or only at the first `failures`."""

    def __init__(
        self, failures: int | None = None, *, error: Exception | None = None, dimensions: int = 64
    ) -> None:
        super().__init__(dimensions)
        self.failures = failures
        self.error = error or EmbedderUnavailable(
            "hash", self.model, "it was asked to fail", "ask another one"
        )

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        """Raise while failures are left, then embed."""
        if self.failures is None:
            raise self.error
        if self.failures > 0:
            self.failures -= 1
            raise self.error
        return await super().embed(input)
