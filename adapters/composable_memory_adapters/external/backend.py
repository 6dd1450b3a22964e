"""A backend for a foreign memory: queries it, reads its answer, and reports what was left out."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from pydantic import JsonValue

from composable_memory.citations import read_citation
from composable_memory.errors import (
    BackendTimeout,
    BackendUnavailable,
    MemoryPathError,
    UnsupportedOperation,
)
from composable_memory.interfaces import Capability, Clock
from composable_memory.paths import FOREIGN
from composable_memory.time.windows import window_of
from composable_memory.types import (
    Degradation,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchAnswer,
    SearchOptions,
    format_citation,
)
from composable_memory_adapters.excerpts import excerpt
from composable_memory_adapters.external.answer_reader import (
    Hit,
    Reading,
    compared,
    found_names,
    is_small,
    joined,
    read_answer,
    results_of,
    text_of,
)
from composable_memory_adapters.external.settings import MAX_QUERY, AnswerSettings, within
from composable_memory_adapters.text.query_terms import KeywordQuery, analyse
from composable_memory_adapters.text.relevance import StemCache
from composable_memory_ops_logs import redact, utc_now

T = TypeVar("T")

CAPABILITIES = frozenset({Capability.ANSWER, Capability.CALIBRATED, Capability.RAW_ANSWER, Capability.RETAIN})

MAX_WORDS = 8
"""How many words of a query are sent one by one."""
USE_S = 15.0
"""Time limit for reading or adding one thing, in seconds."""
MOST_KEPT = 300
"""How many recent results can be read whole without another request."""
RESERVED = frozenset({"bank", "file", "memory", "sessions"})
"""Ids under which results would look like files of the workspace."""


class Source(Protocol):
    """The connection to a foreign memory. Cancelling a call leaves it usable."""

    provider: str
    """Its name in the status."""
    found: Mapping[str, JsonValue]
    """Settings that spell out what it has detected."""

    async def ask(self, query: str, limit: int) -> JsonValue:
        """Return its answer as JSON, or as a text.

        Raises:
            BackendError: it did not answer, refused, or sent an unreadable answer.
        """
        ...

    async def use(self, what: Literal["read", "add"], words: Mapping[str, str]) -> JsonValue:
        """Have it read `path`, or add `text`, and return its reply; None without settings for that.

        Raises:
            BackendError: it did not answer, or refused.
        """
        ...

    async def close(self) -> None:
        """Release everything; idempotent."""
        ...


class ExternalMemory:
    """Implements `MemorySearchManager` and `SupportsAnswer` for a `Source`.

    Raises:
        BackendUnavailable: its id could be mistaken for a folder of notes, or a drive.
    """

    def __init__(
        self, source: Source, settings: AnswerSettings, *, backend_id: str, clock: Clock = utc_now
    ) -> None:
        if backend_id in RESERVED or len(backend_id) == 1:
            what = f"the id {backend_id!r} could be mistaken for a folder of notes, or a drive"
            raise BackendUnavailable(backend_id, what, fix="give it a different id in the settings")
        self._source = source
        self._settings = settings
        self._id = backend_id
        self._clock = clock
        self._is_closed = False
        self._stems = StemCache(MOST_KEPT)
        self._calls: set[asyncio.Task[Any]] = set()
        self._answered: dict[str, tuple[str, str, str]] = {}
        """The latest results by citation: the path here, the path or id there, and the text."""

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the results, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Query it, and report what could not be read.

        Raises:
            BackendError: the foreign memory failed.
        """
        options = options or SearchOptions()
        asked = query.encode("utf-8", "replace").decode().replace("\0", " ").strip()[:MAX_QUERY]
        if not asked:
            self._require_open("search")
            return SearchAnswer(results=())
        limit = max(self._settings.limit, options.max_results)
        analysed = analyse(asked)
        answers = [await self._ask(one, limit) for one in self._asked(asked, analysed)]
        if all(map(is_small, answers)):
            reading, hits, results = self._read(answers, analysed, options)
        else:
            reading, hits, results = await asyncio.to_thread(self._read, answers, analysed, options)
        for hit, one in zip(hits, results, strict=True):
            citation = format_citation(one.path, one.start_line, one.end_line)
            self._answered.pop(citation, None)  # reinserted below, so that the latest come last
            self._answered[citation] = hit.path, hit.place, hit.text
        for citation in [*self._answered][:-MOST_KEPT]:
            del self._answered[citation]
        return SearchAnswer(
            results=results,
            degraded=tuple(self._dropped(reading)),
            engines={"external": self._source.provider},
        )

    async def raw_answer(self, query: str) -> JsonValue:
        """Return the foreign memory's unparsed answer.

        Raises:
            BackendError: the foreign memory failed.
        """
        asked = self._asked(query, analyse(query))
        answers = {one: await self._ask(one, self._settings.limit) for one in asked}
        return answers if self._settings.ask_by == "words" else next(iter(answers.values()))

    async def found_settings(self, query: str) -> Mapping[str, JsonValue]:
        """Return settings that spell out what was detected.

        Raises:
            BackendError: the foreign memory failed.
        """
        settings = self._settings
        asked = next(iter(self._asked(query, analyse(query))), query)
        answer = await self._ask(asked, settings.limit)
        found_at, names = await asyncio.to_thread(found_names, answer, settings.results)
        given = settings.map.model_dump(exclude_none=True)
        results = {} if settings.results or not found_at else {"results": found_at}
        return {**self._source.found, **results, **({"map": {**names, **given}} if names else {})}

    async def _ask(self, query: str, limit: int) -> JsonValue:
        self._require_open("search")
        return await self._until_closed(self._source.ask(query, limit), "search")

    def _as_of(self, options: SearchOptions) -> datetime:
        """Return the time that a query is about: the end of the period it names, but not a future time."""
        now = options.now or self._clock()
        window = window_of(options.intent.time_hints, now) if options.intent else None
        return min(window.end, now) if window else now

    def _asked(self, text: str, query: KeywordQuery) -> Sequence[str]:
        """Return the queries to send: the whole question, or its words, which may be none."""
        if self._settings.ask_by == "words":
            return query.terms[:MAX_WORDS]
        return (within(text, self._settings.query_limit),)

    def _read(
        self, answers: Sequence[JsonValue], query: KeywordQuery, options: SearchOptions
    ) -> tuple[Reading, Sequence[Hit], tuple[MemorySearchResult, ...]]:
        """Return the merged answers, the hits to return, and their results."""
        settings = self._settings
        reading = joined(
            [
                read_answer(
                    answer,
                    backend_id=self._id,
                    results_at=settings.results,
                    names=settings.map,
                    score_is=settings.score_is,
                    empty=settings.empty,
                )
                for answer in answers
            ]
        )
        hits = compared(reading.hits, query, self._stems)
        good = [hit for hit in hits if (hit.score or 0.0) >= options.min_score][: options.max_results]
        return reading, good, results_of(good, query, self._as_of(options))

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return the text of a result: what the server reads there, or else the last passage found there.

        Line numbers apply to what the server reads; a passage is returned whole.

        Raises:
            BackendError: the server failed.
            MemoryPathError: it cannot be read.
            UnsupportedOperation: it is not the path of a result.
        """
        self._require_open("read_file")
        if not rel_path.startswith(f"{self._id}{FOREIGN}"):
            raise UnsupportedOperation(self._id, "read_file")
        cited = read_citation(rel_path)
        path = cited.path if cited else rel_path
        latest = (one for one in reversed(self._answered.values()) if one[0] == path)
        path, place, passage = self._answered.get(rel_path) or next(latest, (path, "", ""))
        given = {"path": place or path.partition(FOREIGN)[2]}
        answer = await self._until_closed(self._used("read", given), "read_file")
        if whole := await asyncio.to_thread(text_of, answer, self._settings.map):
            if cited and cited.path == path and cited.start_line and not from_line:
                from_line, lines = cited.start_line, lines or cited.end_line - cited.start_line + 1
            return MemoryFileSlice(path=path, text=excerpt(whole, from_line, lines))
        if not passage:
            found = "its `read_tool` finds nothing there" if answer is not None else "it has no `read_tool`"
            raise MemoryPathError(path, f"{found}, and no result of late was from there; ask for it again")
        return MemoryFileSlice(path=path, text=passage)

    def retains(self) -> bool:
        """Return whether the settings have notes remembered here written to it too."""
        return self._settings.writes

    async def retain(self, text: str, place: str) -> None:
        """Write a sentence to it.

        Raises:
            BackendError: it could not be written, or the settings do not say how.
        """
        self._require_open("retain")
        given = {"text": text, "path": place}
        if await self._until_closed(self._used("add", given), "retain") is None:
            fix = "set its `add_tool` (mcp) or `add` (http), or remove `writes`"
            raise BackendUnavailable(self._id, "nothing says how to write to it", fix=fix)

    async def _used(self, what: Literal["read", "add"], words: Mapping[str, str]) -> JsonValue:
        try:
            async with asyncio.timeout(USE_S):
                return await self._source.use(what, words)
        except TimeoutError:
            raise BackendTimeout(self._id, what, limit_s=USE_S, elapsed_s=USE_S) from None

    def status(self) -> MemoryProviderStatus:
        """Return its id and provider."""
        return MemoryProviderStatus(backend=self._id, provider=self._source.provider)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Report that nothing is embedded here."""
        self._require_open("probe")
        return MemoryEmbeddingProbeResult(ok=False, error="it does its own embedding, if any")

    async def probe_vector_availability(self) -> bool:
        """Return False: no vectors are searched here."""
        self._require_open("probe")
        return False

    async def close(self) -> None:
        """Cancel running calls and release the source; idempotent."""
        self._is_closed = True
        for call in self._calls:
            call.cancel()
        await self._source.close()

    def _require_open(self, operation: str) -> None:
        if self._is_closed:
            raise BackendUnavailable(
                self._id, "it is closed", fix="open the memory again", operation=operation
            )

    async def _until_closed(self, call: Coroutine[object, object, T], operation: str) -> T:
        """Return the result of a call; closing the memory cancels it."""
        task = asyncio.create_task(call, name=f"ask {self._id}")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            return await task
        except asyncio.CancelledError:
            self._require_open(operation)
            raise

    def _dropped(self, reading: Reading) -> list[Degradation]:
        """Return what could not be read in an answer, and the settings that would help."""
        reasons = []
        keys, results_at = redact(reading.keys or "none"), self._settings.results
        if reading.complaint:
            reasons.append(f"it answered without results: {redact(reading.complaint)[:300]}")
        elif reading.dropped:
            counted = f"{reading.dropped} of its results have no recognisable text"
            where = f" at {reading.found_at!r}" if reading.found_at else ""
            reasons.append(
                f"{counted}{where}, the first has the keys {keys}; set `map.text` to the one with the text"
            )
        elif reading.keys is not None:
            where = f"at {results_at!r}, which `results` names" if results_at else "where they usually are"
            reasons.append(f"there are no results {where}; its answer has the keys {keys}; correct `results`")
        if reading.bad_scores:
            counted = f"{reading.bad_scores} of its scores are not usable numbers"
            reasons.append(f"{counted}, so its results are ranked by their order; see `map.score`")
        return [Degradation(backend_id=self._id, code="garbled", reason=one) for one in reasons]
