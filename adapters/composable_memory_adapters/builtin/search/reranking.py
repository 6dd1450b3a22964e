"""The reranking stage: has a reranker judge the candidates, and read the index ahead in the background."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Protocol

from composable_memory.errors import ComposableMemoryError
from composable_memory.interfaces import (
    ProgressCallback,
    Reranker,
    RerankRequest,
    RerankServices,
    SupportsReadingAhead,
)
from composable_memory.registry import load_reranker
from composable_memory.types import MemorySyncProgressUpdate
from composable_memory_adapters.builtin.search import hybrid
from composable_memory_adapters.builtin.search.hybrid import FusedHit
from composable_memory_adapters.builtin.search.keyword_leg import KeywordAnswer
from composable_memory_adapters.builtin.search.ranking import ToJudge
from composable_memory_adapters.builtin.store import index_meta, read_queries
from composable_memory_adapters.rerankers import spec as late_interaction
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_adapters.text.forms import folded
from composable_memory_adapters.text.query_terms import KeywordQuery
from composable_memory_ops_logs.quick_dataclass import dataclass

TIMEOUT_S = 3.0
"""How long a query waits for the reranker before it is answered without."""

FIRST_TIMEOUT_S = 7.0
"""How long the first query waits: loading a model can take seconds on a busy machine."""

PASSAGES_A_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A reranker's scores for passages, 0 to 1, or why there are none."""

    relevances: Sequence[float] | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranked:
    """The candidates, rescored by the reranker `by`, or why they were not rescored (`problem`)."""

    fused: Sequence[FusedHit]
    by: str | None = None
    problem: str | None = None


class IndexTexts(Protocol):
    """The texts of an index, whatever stores it, for reading ahead."""

    async def collection(self) -> str:
        """Return a name for the index, made of letters, digits and `-`."""
        ...

    async def count(self) -> int:
        """Return the number of passages."""
        ...

    async def after(self, last: int, count: int) -> Sequence[tuple[int, str]]:
        """Return ids and texts of the next `count` passages after the id `last`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTexts:
    """Implements `IndexTexts` for an index file."""

    file: SqliteFile
    state_dir: Path

    async def collection(self) -> str:
        """Return the file's name, which names the workspace if in the default folder, else an id."""
        path = self.file.path
        if path.parent == self.state_dir / "memory":
            return re.sub(r"[^A-Za-z0-9-]", "-", path.stem)
        return re.sub(r"[^A-Za-z0-9]", "", await self.file.write(index_meta.identity))

    async def count(self) -> int:
        """Return the number of passages."""
        return (await self.file.read(read_queries.vector_counts)).passages

    async def after(self, last: int, count: int) -> Sequence[tuple[int, str]]:
        """Return ids and texts of the next `count` passages after the id `last`."""
        return await self.file.read(partial(read_queries.texts_after, last=last, count=count))


class Reranking:
    """Calls the reranker named in the settings, opening it on first use.

    If the settings say `auto` and the extra is not installed, there is no reranker, and nothing is reported.
    """

    def __init__(
        self, texts: IndexTexts, *, choice: str, state_dir: Path, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._texts = texts
        self._timeout_s = timeout_s
        self._next_timeout_s = FIRST_TIMEOUT_S
        self._choice = choice
        self._state_dir = state_dir
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._reranker: Reranker | None = None
        self._problem: str | None = None
        self._is_off = choice == "off"
        self._reading: asyncio.Task[None] | None = None
        self._read_revision: int | None = None

    @property
    def name(self) -> str:
        """Return the id of the reranker."""
        return late_interaction.id if self._choice == "auto" else self._choice

    async def is_on(self) -> bool:
        """Return whether queries should be reranked, even if the reranker turns out to be unusable."""
        if not self._is_off and self._choice == "auto" and self._reranker is None:
            self._is_off = await asyncio.to_thread(late_interaction.missing) is not None
        return not self._is_off

    async def rerank(
        self, found: ToJudge, query: str, keywords: KeywordQuery, by_words: KeywordAnswer | None
    ) -> Reranked:
        """Rescore candidates with the reranker's judgement of the best of them."""
        if not found.texts:
            return Reranked(fused=found.fused)
        judgement = await self.judge(query, _weights(keywords, by_words), [*found.texts.values()])
        if judgement.relevances is None:
            return Reranked(fused=found.fused, problem=judgement.problem)
        judged = dict(zip(found.texts, judgement.relevances, strict=True))
        return Reranked(fused=hybrid.reranked(found.fused, judged), by=self.name)

    async def judge(self, query: str, weights: Mapping[str, float], passages: Sequence[str]) -> Judgement:
        """Score passages with the reranker; any error becomes the judgement's `problem`."""
        request = RerankRequest(query=query, passages=passages, weights=weights)
        limit_s, self._next_timeout_s = self._next_timeout_s, self._timeout_s
        try:
            async with asyncio.timeout(limit_s):
                reranker = await self._opened()
                found = await reranker.rerank(request)
        except TimeoutError:
            return Judgement(problem=f"{self.name}: no answer after {limit_s:g} s")
        except Exception as error:  # noqa: BLE001 - a reranker of another package may raise anything
            return Judgement(problem=_described(self.name, error))
        if found is None:
            hint = self._problem or "passages are still being read by the reranker; `cmem index` continues"
            return Judgement(problem=f"{self.name}: {hint}")
        if not _is_sound(found, len(passages)):
            expected = f"{len(passages)} numbers from 0 to 1"
            return Judgement(problem=f"{self.name}: it did not return {expected}")
        return Judgement(relevances=found)

    def follow(self, revision: int) -> None:
        """Start reading ahead in the background, unless this revision of the index was already read."""
        if self._reading is None and revision != self._read_revision:
            self._reading = asyncio.create_task(self._read_in_background(revision), name="rerank-read-ahead")

    async def read_all(self, progress: ProgressCallback | None = None) -> str | None:
        """Let the reranker read all passages of the index, if it can; return any problem."""
        try:
            reranker = await self._opened()
            if isinstance(reranker, SupportsReadingAhead):
                await reranker.read_ahead(self._passages(progress))
        except Exception as error:  # noqa: BLE001 - a reranker of another package may raise anything
            return _described(f"{self.name}, reading ahead", error)
        return None

    async def close(self) -> None:
        """Stop reading ahead and close the reranker; idempotent."""
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
        self._is_off, self._reranker = True, None
        await self._stack.aclose()

    async def _read_in_background(self, revision: int) -> None:
        try:
            self._problem = await self.read_all()
        finally:
            self._read_revision, self._reading = revision, None

    async def _opened(self) -> Reranker:
        async with self._opening:
            if self._reranker is None:
                spec = late_interaction
                if self._choice != "auto":
                    spec = await asyncio.to_thread(load_reranker, self._choice)
                collection = await self._texts.collection()
                services = RerankServices(collection=collection, state_dir=self._state_dir)
                self._reranker = await self._stack.enter_async_context(spec.open(services))
            return self._reranker

    async def _passages(self, progress: ProgressCallback | None) -> AsyncIterator[Sequence[str]]:
        """Yield the texts of the index in order of their ids."""
        last = done = 0
        total = await self._texts.count()

        def tell() -> None:
            if progress is not None:
                label = "reading for reranking"
                progress(MemorySyncProgressUpdate(completed=done, total=total, label=label))

        tell()
        while rows := await self._texts.after(last, PASSAGES_A_BATCH):
            yield [text for _, text in rows]
            last, done = rows[-1][0], done + len(rows)
            tell()


def _weights(keywords: KeywordQuery, found: KeywordAnswer | None) -> Mapping[str, float]:
    """Return the weight of each word of the query, if the keyword index knows it.

    A word in no passage may be a synonym of one that is, so it gets the average weight.
    """
    if found is None or not any(found.rarities):
        return {}
    ordinary = fmean(rarity for rarity in found.rarities if rarity)
    told = zip(keywords.terms, found.rarities, strict=True)
    return {folded(term): rarity or ordinary for term, rarity in told}


def _described(what: str, error: Exception) -> str:
    if isinstance(error, ComposableMemoryError):
        return f"{what}: {error}"
    return f"{what}: {type(error).__name__}: {error}".removesuffix(": ")


def _is_sound(found: object, count: int) -> bool:
    try:
        numbers = [float(one) for one in found]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return False
    return len(numbers) == count and all(isfinite(one) and 0.0 <= one <= 1.0 for one in numbers)
