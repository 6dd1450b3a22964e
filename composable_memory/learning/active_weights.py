"""The part of learning that every open memory needs: the active weights, and the latest results.

The weights come from the settings and the store and are passed to the running manager; changes by other
processes are followed. All this costs little if nothing is learnt.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial

from composable_memory.learning.context import LearningContext
from composable_memory.query.ranking import ActiveWeights, LiveWeights
from composable_memory.types import MemorySearchResult
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import AnswerGiven, ErrorInfo, OpsLog, OpsLogError, TakenFrom, trace
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsReport(ActiveWeights):
    """The active weights, and those of the settings.

    `since` is when an adopted table became active; None if the settings' own weights are.
    """

    base: WeightTable
    since: datetime | None = None


async def active_weights(context: LearningContext) -> WeightsReport:
    """Return the active weights, and why an adopted table is not active, if so.

    An adopted table stays active as long as the weights in the settings are those it was adopted under.
    """
    found = await context.stored_if_any(
        lambda store: (store.current(), store.running_experiment(context.memory_id))
    )
    stored, experiment = found or (None, None)
    base = context.base
    if stored is None or stored.table is None:
        return WeightsReport(table=base, base=base, experiment=experiment)
    if dict(stored.base) != dict(base.weights):
        problem = (
            f"{stored.table.version} is not used: the weights or the backends in the settings changed "
            f"after it was adopted; `cmem weights rollback {stored.table.version}` activates it again"
        )
        return WeightsReport(table=base, base=base, set_aside=problem, experiment=experiment)
    return WeightsReport(table=stored.table, base=base, since=stored.at, experiment=experiment)


async def activate(context: LearningContext, live: LiveWeights | None) -> WeightsReport:
    """Activate the stored weights, from the next query on, and return them.

    Raises:
        FeedbackError: the store cannot be read; the active weights stay.
    """
    report = await active_weights(context)
    if live is not None:
        live.put(report)
    return report


POLL_S = 2.0
"""How soon a change by another process becomes active here."""

SURVIVED = (FeedbackError, OpsLogError, OSError)
"""Errors that do not stop the background tasks of a memory."""

Sleep = Callable[[float], Awaitable[None]]
Refresh = Callable[[], Awaitable[object]]


@asynccontextmanager
async def follow_weights(context: LearningContext, refresh: Refresh) -> AsyncIterator[None]:
    """Call `refresh` whenever another process has changed the store, until the block ends."""
    async with running(context.ops_log, {"follow weights": follow(context, refresh, context.pause)}):
        yield


async def follow(context: LearningContext, refresh: Refresh, sleep: Sleep) -> None:
    """Activate changes by other processes until cancelled; `sleep` between checks."""
    seen: int | None = None
    while True:
        with suppress(*SURVIVED):  # the active weights stay; opening has already reported an unreadable store
            mark = await context.stored_if_any(lambda store: store.change_mark())
            if mark != seen:
                seen = mark
                await refresh()
        await sleep(POLL_S)


@asynccontextmanager
async def running(
    ops_log: OpsLog, work: Mapping[str, Coroutine[object, object, None]]
) -> AsyncIterator[None]:
    """Run tasks, given by name, until the block ends; one that fails is logged."""
    tasks = [asyncio.create_task(one, name=name) for name, one in work.items()]
    for task in tasks:
        task.add_done_callback(partial(_log_end, ops_log))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def log_failure(ops_log: OpsLog, step: str, error: BaseException) -> None:
    """Log that a step failed."""
    from composable_memory_ops_logs import LearningFailed  # a search does not need it

    with trace():
        ops_log.emit(LearningFailed(step=step, error=ErrorInfo.of(error)), status="failure")


def _log_end(ops_log: OpsLog, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log_failure(ops_log, task.get_name(), error)


KEPT_QUERIES = 64


class RecentResults:
    """The results of the latest queries of an open memory, by trace id."""

    def __init__(self) -> None:
        self._shown: OrderedDict[str, tuple[str, tuple[MemorySearchResult, ...]]] = OrderedDict()

    def note(self, query: str, trace_id: str, results: Sequence[MemorySearchResult]) -> None:
        """Remember the results of a query, dropping the oldest."""
        self._shown[trace_id] = (query, tuple(results))
        self._shown.move_to_end(trace_id)
        while len(self._shown) > KEPT_QUERIES:
            self._shown.popitem(last=False)

    def clear(self) -> None:
        """Forget all results."""
        self._shown.clear()

    def quoted_in(self, answer: str, trace_id: str) -> AnswerGiven | None:
        """Return the event with what an answer quotes from a query's results; None for an unknown query."""
        if trace_id not in self._shown:
            return None
        # Imported here: answers are seldom recorded, and everything else need not load what reads logs.
        from composable_memory_feedback.quoting import ShownText, quoted_places

        query, results = self._shown[trace_id]
        shown = [
            ShownText(TakenFrom(one.path, one.start_line, one.end_line, one.start_char or None), one.snippet)
            for one in results
        ]
        quoted = quoted_places(answer, shown, question=query)
        return AnswerGiven(query_trace_id=trace_id, chars=len(answer), quoted=quoted)
