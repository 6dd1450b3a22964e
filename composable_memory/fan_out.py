"""Asks several backends at the same time, each under its own deadline, and turns failures into answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from time import perf_counter

from composable_memory.breaker import Breaker, BreakerState
from composable_memory.entries import Seat
from composable_memory.errors import BackendError, BackendGarbled, BackendTimeout
from composable_memory.types import (
    MAX_SNIPPET_CHARS,
    BackendAnswer,
    Degradation,
    MemorySearchResult,
    Origin,
    SearchAnswer,
    SearchOptions,
)

__all__ = ["FanOut"]

CANCEL_GRACE_S = 0.002
"""How long a backend that ignores its cancellation is waited for before it is left behind."""


OnAnswer = Callable[[BackendAnswer, int], None]
"""Called with every answer as it comes in, and with the depth that was asked for."""


class FanOut:
    """Asks seats in parallel; knows the calls that ignored their cancellation, until they end."""

    def __init__(self) -> None:
        self._left_behind: set[asyncio.Task[BackendAnswer]] = set()

    async def ask_all(
        self, seats: Sequence[Seat], query: str, options: SearchOptions, on_answer: OnAnswer
    ) -> list[BackendAnswer]:
        """Return one answer per seat, in their order. No backend's failure or delay touches another's."""
        if not seats:
            return []
        # A breaker that is half-open now waits for the outcome of these very calls, not of older ones.
        trials = [seat.breaker for seat in seats if seat.breaker.state is BreakerState.HALF_OPEN]
        tasks = [asyncio.create_task(self._ask(seat, query, options, on_answer)) for seat in seats]
        patience_s = max(seat.entry.timeout_s for seat in seats) + CANCEL_GRACE_S
        try:
            await asyncio.wait(tasks, timeout=patience_s)
        except asyncio.CancelledError:
            await self._give_up(tasks, trials)
            raise
        for task in tasks:
            self._leave_behind(task)
        return [
            task.result() if task.done() else _overdue(seat, options, on_answer)
            for task, seat in zip(tasks, seats, strict=True)
        ]

    async def close(self) -> None:
        """Give calls that were left behind a last moment to end."""
        if self._left_behind:
            await asyncio.wait(self._left_behind, timeout=CANCEL_GRACE_S)

    async def _ask(
        self, seat: Seat, query: str, options: SearchOptions, on_answer: OnAnswer
    ) -> BackendAnswer:
        answer = await _bounded_answer(seat, query, options)
        if asyncio.current_task() not in self._left_behind:
            _take_in(seat, answer, options, on_answer)
        return answer

    async def _give_up(self, tasks: Sequence[asyncio.Task[BackendAnswer]], trials: Sequence[Breaker]) -> None:
        for task in tasks:
            self._leave_behind(task)
            task.cancel()
        for breaker in trials:
            breaker.record_cancelled()
        await asyncio.wait(tasks, timeout=CANCEL_GRACE_S)

    def _leave_behind(self, task: asyncio.Task[BackendAnswer]) -> None:
        if not task.done():
            self._left_behind.add(task)
            task.add_done_callback(self._left_behind.discard)


async def _bounded_answer(seat: Seat, query: str, options: SearchOptions) -> BackendAnswer:
    """Ask one backend under its deadline. Whatever goes wrong is in the answer."""
    entry = seat.entry
    started = perf_counter()
    try:
        async with asyncio.timeout(entry.timeout_s) as deadline:
            raw = await _answer_of(seat, query, options)
        results, garbled = _readable(entry.id, raw.results, options.max_results)
    # A backend may also cancel itself. When we cancelled it, its answer is no longer waited for.
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - every failure of a backend ends here
        return _failed(seat, error, perf_counter() - started, expired=deadline.expired())
    return BackendAnswer(
        backend_id=entry.id,
        results=results,
        degraded=(*raw.degraded, *garbled),
        took_ms=(perf_counter() - started) * 1000,
        engines=raw.engines,
    )


def _failed(seat: Seat, error: BaseException, elapsed_s: float, *, expired: bool) -> BackendAnswer:
    if not isinstance(error, Exception):
        error = BackendError(seat.entry.id, "search", "it was cancelled from within")
    elif expired and isinstance(error, TimeoutError):
        error = BackendTimeout(seat.entry.id, "search", limit_s=seat.entry.timeout_s, elapsed_s=elapsed_s)
    return BackendAnswer(backend_id=seat.entry.id, error=error, took_ms=elapsed_s * 1000)


def _overdue(seat: Seat, options: SearchOptions, on_answer: OnAnswer) -> BackendAnswer:
    elapsed_s = seat.entry.timeout_s + CANCEL_GRACE_S
    answer = _failed(seat, TimeoutError(), elapsed_s, expired=True)
    _take_in(seat, answer, options, on_answer)
    return answer


def _take_in(seat: Seat, answer: BackendAnswer, options: SearchOptions, on_answer: OnAnswer) -> None:
    """Let the breaker and the caller know of an answer that counts."""
    if answer.error is None:
        seat.breaker.record_success()
    else:
        seat.breaker.record_failure()
    on_answer(answer, options.max_results)


async def _answer_of(seat: Seat, query: str, options: SearchOptions) -> SearchAnswer:
    """Ask for an answer, or for bare results where that is all the backend knows.

    Raises:
        BackendGarbled: what came back is neither.
    """
    if seat.answerer is not None:
        answer = await seat.answerer.answer(query, options)
        if isinstance(answer, SearchAnswer):
            return answer
        raise BackendGarbled(seat.entry.id, "search", excerpt=repr(answer), expected="a SearchAnswer")
    results = await seat.entry.manager.search(query, options)
    if isinstance(results, list | tuple):
        return SearchAnswer(results=tuple(results))
    raise BackendGarbled(seat.entry.id, "search", excerpt=repr(results), expected="a list of results")


def _readable(
    backend_id: str, results: Sequence[MemorySearchResult], depth: int
) -> tuple[tuple[MemorySearchResult, ...], tuple[Degradation, ...]]:
    """Return at most `depth` sound results, best first, and a word on those that are not.

    Raises:
        BackendGarbled: there are results and none of them is sound.
    """
    sound = [result for result in results if _is_sound(result)]
    if results and not sound:
        raise BackendGarbled(
            backend_id, "search", excerpt=repr(results[0]), expected="results with finite scores"
        )
    if any(one.score < other.score for one, other in pairwise(sound)):
        sound.sort(key=lambda result: -result.score)
    first = tuple(map(_trimmed, sound[:depth]))
    rubbish = len(results) - len(sound)
    if not rubbish:
        return first, ()
    reason = f"{rubbish} of {len(results)} results could not be read and were left out"
    return first, (Degradation(backend_id=backend_id, code="garbled", reason=reason),)


def _trimmed(result: MemorySearchResult) -> MemorySearchResult:
    """Return a result as its type says: a snippet of the length allowed, a score that reads back the same."""
    if len(result.snippet) <= MAX_SNIPPET_CHARS and result.score.__class__ is float:
        return result
    return replace(result, snippet=result.snippet[:MAX_SNIPPET_CHARS], score=float(result.score))


def _is_sound(result: object) -> bool:
    """Say whether a result is what its type says; a stranger's backend may put anything into it."""
    if not isinstance(result, MemorySearchResult):
        return False
    try:
        return (
            isfinite(result.score)
            and 0 <= result.start_line <= result.end_line
            and result.start_char >= 0
            and result.path.__class__ is str is result.snippet.__class__
            and result.path != ""
            and (result.origin is None or _is_place(result.origin))
            and (result.metadata.__class__ is dict or isinstance(result.metadata, Mapping))
        )
    except TypeError:
        return False


def _is_place(origin: object) -> bool:
    return (
        isinstance(origin, Origin)
        and origin.path.__class__ is str
        and origin.start_line.__class__ is int is origin.end_line.__class__
        and 0 <= origin.start_line <= origin.end_line
    )
