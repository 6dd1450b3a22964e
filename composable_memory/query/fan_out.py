"""Asks several backends at the same time, each under its own deadline, and turns failures into values."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from math import isfinite
from operator import le
from sys import float_info
from types import NoneType
from typing import TypeGuard, TypeVar, get_args

from pydantic_core import to_json

from composable_memory.errors import BackendGarbled
from composable_memory.forget.tombstones import INSTEAD, Forgotten, Tombstones
from composable_memory.highlights import are_within, within
from composable_memory.interfaces import Capability
from composable_memory.paths import leads_outside, problem_with_text
from composable_memory.query.calibration import Calibration
from composable_memory.query.filters import filter_results
from composable_memory.query.routing import BackendHandle
from composable_memory.supervision.breaker import BreakerState
from composable_memory.supervision.deadline import BoundedCalls, Failure
from composable_memory.types import (
    MAX_SNIPPET_CHARS,
    BackendAnswer,
    Degradation,
    DegradationCode,
    MemorySearchResult,
    MemorySource,
    Origin,
    SearchAnswer,
    SearchOptions,
)
from composable_memory_ops_logs.plurals import counted

SCORE_TOLERANCE = 1e-6
"""A cosine in single precision may exceed 1 by this much; it is clipped to 1."""

DEEPER_TO_FILTER = 4
"""With filters, a backend that does not know them is asked for this many times more results."""

MAX_LEGS = 20
MAX_LEG_CHARS = 40
"""What a backend reports about its legs goes into the log and into charts: limit its length."""

T = TypeVar("T")

SOURCES = get_args(MemorySource)
CODES = get_args(DegradationCode)

OnAnswer = Callable[[BackendAnswer, int], None]
"""Called with each answer as it arrives, and the depth that was asked for."""


class FanOut:
    """Asks backends in parallel, each under its own deadline."""

    def __init__(self, forgotten: Forgotten | None = None) -> None:
        """Create a fan-out that drops whatever is `forgotten`, as of its last refresh, from every answer."""
        self._calls = BoundedCalls()
        self._forgotten = forgotten

    async def ask_all(
        self, handles: Sequence[BackendHandle], query: str, options: SearchOptions, on_answer: OnAnswer
    ) -> list[BackendAnswer]:
        """Return one answer per handle, in their order; no backend's failure or delay affects the others."""
        # A breaker that is half-open now must learn the outcome of these calls, not of earlier ones.
        probed = [handle.breaker for handle in handles if handle.breaker.state is BreakerState.HALF_OPEN]

        def start(handle: BackendHandle) -> asyncio.Future[BackendAnswer]:
            def record(outcome: SearchAnswer | Failure, took_s: float) -> BackendAnswer:
                answer = self._answer(handle.entry.id, outcome, took_s * 1000)
                if answer.error is None:
                    handle.breaker.record_success()
                else:
                    handle.breaker.record_failure()
                on_answer(answer, options.max_results)
                return answer

            asked = _validated_answer(handle, query, options)
            return self._calls.start(handle.entry.id, "search", asked, handle.entry.timeout_s, record)

        try:
            return await asyncio.gather(*map(start, handles))
        except asyncio.CancelledError:
            for breaker in probed:
                breaker.record_cancelled()
            raise

    async def close(self) -> None:
        """Cancel the calls that were left behind, and give them a last moment to end."""
        await self._calls.cancel()

    def _answer(self, backend_id: str, outcome: SearchAnswer | Failure, took_ms: float) -> BackendAnswer:
        if isinstance(outcome, Failure):
            return BackendAnswer(backend_id=backend_id, error=outcome.error, took_ms=took_ms)
        results = outcome.results
        if self._forgotten is not None and (stones := self._forgotten.known):
            results = tuple(_without_forgotten(results, stones))
        return BackendAnswer(
            backend_id=backend_id,
            results=results,
            degraded=outcome.degraded,
            engines=outcome.engines,
            legs=outcome.legs,
            took_ms=took_ms,
        )


async def _validated_answer(handle: BackendHandle, query: str, options: SearchOptions) -> SearchAnswer:
    """Ask one backend, and validate its answer.

    Raises:
        Exception: whatever the backend raised.
        BackendGarbled: the answer is unreadable.
    """
    must_filter = bool(options.filters)
    deeper = options
    if must_filter:
        # A backend that does not filter may find few results that pass.
        deeper = replace(options, max_results=options.max_results * DEEPER_TO_FILTER)
    raw = await _raw_answer(handle, query, deeper)
    results, troubles = _valid_results(handle, raw.results, deeper.max_results)
    if must_filter and not raw.is_filtered:
        results, unknown = filter_results(results, options.filters)
        if unknown:
            troubles = (*troubles, _unfiltered(handle, unknown))
        elif not raw.results and not query.strip():
            troubles = (*troubles, _unlisted(handle))
    return SearchAnswer(
        results=results[: options.max_results],
        degraded=(*raw.degraded, *troubles),
        engines=raw.engines,
        legs=raw.legs,
    )


def _without_forgotten(
    results: Sequence[MemorySearchResult], stones: Tombstones
) -> Iterator[MemorySearchResult]:
    """Yield the results with forgotten text removed, without those that have nothing else in them."""
    for one in results:
        source: MemorySource = "memory" if one.start_line and one.source == "memory" else "sessions"
        snippet, text = stones.hide(one.snippet, source), stones.hide(one.text, source)
        facts = tuple(fact for fact in one.facts if stones.hide(fact.text, "sessions") == fact.text)
        if (snippet, text, facts) == (one.snippet, one.text, one.facts):
            yield one
        elif snippet.replace(INSTEAD, "").strip():
            yield replace(one, snippet=snippet, text=text, facts=facts, highlights=())


def _unfiltered(handle: BackendHandle, unknown: Sequence[str]) -> Degradation:
    reason = f"it cannot filter by {', '.join(unknown)}, so some of its results may not pass the filter"
    return Degradation(backend_id=handle.entry.id, code="not-filtered", reason=reason)


def _unlisted(handle: BackendHandle) -> Degradation:
    reason = "it cannot list by filters alone; add some words to the query"
    return Degradation(backend_id=handle.entry.id, code="not-filtered", reason=reason)


async def _raw_answer(handle: BackendHandle, query: str, options: SearchOptions) -> SearchAnswer:
    """Ask for an answer, or for bare results if that is all the backend supports.

    Raises:
        BackendGarbled: the reply is neither.
    """
    if handle.answerer is None:
        return SearchAnswer(results=_as_tuple(handle, await handle.entry.manager.search(query, options)))
    answer = await handle.answerer.answer(query, options)
    if not isinstance(answer, SearchAnswer):
        raise _garbled(handle, answer, "a SearchAnswer")
    if not isinstance(answer.engines, Mapping):
        raise _garbled(handle, answer.engines, "engines by name")
    if not _are_legs(answer.legs):
        raise _garbled(handle, answer.legs, "the beginning and the duration of legs by name")
    if not all(_is_degradation(one) for one in _as_tuple(handle, answer.degraded)):
        raise _garbled(handle, answer.degraded, "Degradations with a known code")
    return answer


def _as_tuple(handle: BackendHandle, found: Sequence[T]) -> tuple[T, ...]:
    if not isinstance(found, list | tuple):
        raise _garbled(handle, found, "a list")
    return tuple(found)


def _garbled(handle: BackendHandle, excerpt: object, expected: str) -> BackendGarbled:
    return BackendGarbled(handle.entry.id, "search", excerpt=repr(excerpt), expected=expected)


def _valid_results(
    handle: BackendHandle, answered: Sequence[MemorySearchResult], depth: int
) -> tuple[tuple[MemorySearchResult, ...], tuple[Degradation, ...]]:
    """Return at most `depth` valid results, best first, and a degradation if others were invalid.

    Raises:
        BackendGarbled: there are results, and none of them is valid.
    """
    found = _as_tuple(handle, answered)
    is_on_scale = _is_on_scale(handle)
    if _are_plain(found, is_on_scale=is_on_scale):
        return tuple(_best_first(found)[:depth]), ()
    has_extra_paths = cache(lambda: bool(handle.entry.manager.status().extra_paths))  # rarely needed
    sound, wrong = [], []
    for result in found:
        expected = _expected_of(result, is_on_scale, has_extra_paths)
        if expected is None:
            sound.append(result)
        else:
            wrong.append((result, expected))
    if wrong and not sound:
        raise _garbled(handle, *wrong[0])
    first = tuple(_trimmed(result, is_on_scale) for result in _best_first(sound)[:depth])
    if not wrong:
        return first, ()
    dropped = f"{len(wrong)} of {counted(len(answered), 'result')} dropped as invalid"
    reason = f"{dropped}: {_garbled(handle, *wrong[0]).problem}"
    return first, (Degradation(backend_id=handle.entry.id, code="garbled", reason=reason),)


def _best_first(results: Sequence[MemorySearchResult]) -> Sequence[MemorySearchResult]:
    scores = [one.score for one in results]
    return results if scores == sorted(scores, reverse=True) else sorted(results, key=lambda one: -one.score)


def _are_plain(results: Sequence[MemorySearchResult], *, is_on_scale: bool) -> bool:
    """Return whether a quick check finds all results valid, as in nearly all answers.

    Otherwise each result is checked on its own, which takes three times as long.
    """
    if not {MemorySearchResult}.issuperset(map(type, results)):
        return False
    if not results:
        return True
    lowest, highest = (0.0, 1.0) if is_on_scale else (-float_info.max, float_info.max)
    # One comprehension per attribute takes half the time of `attrgetter` with all of them, and `zip`.
    paths = [one.path for one in results]
    snippets = [one.snippet for one in results]
    texts = [one.text for one in results]
    scores = [one.score for one in results]
    starts = [one.start_line for one in results]
    ends = [one.end_line for one in results]
    within_lines = [one.start_char for one in results]
    metadata = [one.metadata for one in results]
    if not (
        {str}.issuperset(map(type, (*paths, *snippets, *texts)))
        and {int}.issuperset(map(type, (*starts, *ends, *within_lines)))
        and {float}.issuperset(map(type, scores))
        and {dict}.issuperset(map(type, metadata))
        and {str, NoneType}.issuperset([type(one.citation) for one in results])
        and all(map(lowest.__le__, scores))
        and all(map(highest.__ge__, scores))  # false for NaN
        and min(starts) >= 0 <= min(within_lines)
        and all(map(le, starts, ends))
        and max(lengths := [*map(len, snippets)]) <= MAX_SNIPPET_CHARS
        and all(map(SOURCES.__contains__, [one.source for one in results]))
        and all(one.origin is None or _is_origin(one.origin) for one in results)
        and all(map(are_within, [one.highlights for one in results], lengths))
        and all(map(_is_name_inside, paths))
    ):
        return False
    try:
        "".join([one for one in snippets if not one.isascii()]).encode()
        to_json(metadata)
    except ValueError:  # a lone surrogate, or a value that JSON cannot hold
        return False
    return True


def _trimmed(result: MemorySearchResult, is_on_scale: bool) -> MemorySearchResult:
    """Return a result as its type promises: a snippet within the limit, a score that survives JSON."""
    score = float(result.score)
    if is_on_scale and not 0.0 <= score <= 1.0:
        score = min(1.0, max(0.0, score))
    snippet = result.snippet[:MAX_SNIPPET_CHARS]
    if not snippet.isascii():
        snippet = snippet.encode(errors="replace").decode()  # a lone surrogate cannot be encoded
    highlights = within(result.highlights, len(snippet))
    text = result.text if isinstance(result.text, str) else ""
    if (
        snippet == result.snippet
        and score == result.score
        and result.score.__class__ is float
        and highlights == result.highlights
        and text is result.text
    ):
        return result
    return replace(result, snippet=snippet, score=score, highlights=highlights, text=text)


def _is_on_scale(handle: BackendHandle) -> bool:
    """Return whether the backend's scores can be trusted to be in [0, 1]."""
    return handle.entry.calibration is Calibration.AUTO and Capability.CALIBRATED in handle.capabilities


def _expected_of(result: object, is_on_scale: bool, has_extra_paths: Callable[[], bool]) -> str | None:
    """Return what was expected instead of an invalid result; None if it is valid.

    A third-party backend may return anything. Every result of every answer is checked here, so the cheap
    checks that nearly always pass come first.
    """
    if not isinstance(result, MemorySearchResult):
        return "a MemorySearchResult"
    if not (_is_number(result.score) and isfinite(result.score)):
        return "finite scores"
    if is_on_scale and not -SCORE_TOLERANCE <= result.score <= 1.0 + SCORE_TOLERANCE:
        return "scores from 0 to 1; for any others set the backend's calibration to max, min-max or rank"
    if not _are_lines(result.start_line, result.end_line):
        return "whole line numbers, the first not after the last"
    if not (isinstance(result.start_char, int) and result.start_char >= 0):
        return "a place in a line from 0 on"
    if not isinstance(result.snippet, str):
        return "a snippet of text"
    if not _may_name(result.path, has_extra_paths):
        return "a path inside the workspace"
    if result.origin is not None and not _is_origin(result.origin):
        return "an origin that names a file"
    if result.source not in SOURCES or not isinstance(result.citation, (str, NoneType)):
        return f"a source ({', '.join(SOURCES)}) and at most a citation"
    if result.metadata.__class__ is not dict and not isinstance(result.metadata, Mapping):
        return "metadata by name"
    if result.metadata:
        to_json(dict(result.metadata), fallback=str)  # raises for what JSON cannot hold
    return None


def _is_origin(origin: object) -> bool:
    """Return whether this is a valid origin. Any path will do: ingested files keep their own."""
    return (
        isinstance(origin, Origin)
        and _is_name(origin.path)
        and _are_lines(origin.start_line, origin.end_line)
    )


def _is_number(value: object) -> bool:
    return value.__class__ is float or isinstance(value, (int, float))


def _are_lines(start: object, end: object) -> bool:
    return isinstance(start, int) and isinstance(end, int) and 0 <= start <= end


def _may_name(path: object, has_extra_paths: Callable[[], bool]) -> bool:
    """Return whether a result may have this path; only backends with extra paths may leave the workspace."""
    if not _is_name(path):
        return False
    return not leads_outside(path) or has_extra_paths()


@lru_cache(maxsize=4096)
def _is_name_inside(path: str) -> bool:
    """Return whether a path names a file in the workspace. Cached: the same files come up again and again."""
    return _is_name(path) and not leads_outside(path)


def _is_name(path: object) -> TypeGuard[str]:
    return isinstance(path, str) and problem_with_text(path) is None


def _are_legs(legs: object) -> bool:
    return (
        isinstance(legs, Mapping)
        and len(legs) <= MAX_LEGS
        and all(isinstance(name, str) and len(name) <= MAX_LEG_CHARS for name in legs)
        and all(map(_is_span, legs.values()))
    )


def _is_span(one: object) -> bool:
    return (
        isinstance(one, tuple)
        and len(one) == 2
        and all(isinstance(ms, int | float) and isfinite(ms) and ms >= 0 for ms in one)
    )


def _is_degradation(one: object) -> bool:
    return isinstance(one, Degradation) and one.code in CODES and isinstance(one.reason, str)
