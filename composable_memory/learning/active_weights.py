"""What every open memory does for learning: the active weights, and what was shown lately.

The weights are found by the settings and the store, and handed to the running manager; changes that other
processes make are followed. That costs little where nothing is learnt.
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
    """The weights in force, and those of the settings.

    `since` is when an adopted table came into force; None where the settings' own are.
    """

    base: WeightTable
    since: datetime | None = None


async def active_weights(context: LearningContext) -> WeightsReport:
    """Return the weights in force, and why an adopted table is not, if so.

    An adopted table counts as long as the settings say of the weights what they said when it was adopted.
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
            f"{stored.table.version} is set aside: the weights or the backends of the settings changed "
            f"after it was adopted; `cmem weights rollback {stored.table.version}` puts it in force again"
        )
        return WeightsReport(table=base, base=base, set_aside=problem, experiment=experiment)
    return WeightsReport(table=stored.table, base=base, since=stored.at, experiment=experiment)


async def activate(context: LearningContext, live: LiveWeights | None) -> WeightsReport:
    """Put in force what the store says, for the next query, and return it.

    Raises:
        FeedbackError: the store cannot be read; what was in force stays.
    """
    report = await active_weights(context)
    if live is not None:
        live.put(report)
    return report


LOOK_S = 2.0
"""How soon a change that another process made is in force here."""

SURVIVED = (FeedbackError, OpsLogError, OSError)
"""What the background of a memory goes on after."""

Sleep = Callable[[float], Awaitable[None]]
Refresh = Callable[[], Awaitable[object]]


@asynccontextmanager
async def follow_weights(context: LearningContext, refresh: Refresh) -> AsyncIterator[None]:
    """Call `refresh` whenever another process changed the store, until the block is left."""
    async with running(context.ops_log, {"follow weights": follow(context, refresh, context.pause)}):
        yield


async def follow(context: LearningContext, refresh: Refresh, sleep: Sleep) -> None:
    """Put in force what other processes change, until it is cancelled; `sleep` between two looks."""
    seen: int | None = None
    while True:
        with suppress(*SURVIVED):  # what was in force stays; opening has told of a store that cannot be read
            mark = await context.stored_if_any(lambda store: store.change_mark())
            if mark != seen:
                seen = mark
                await refresh()
        await sleep(LOOK_S)


@asynccontextmanager
async def running(
    ops_log: OpsLog, work: Mapping[str, Coroutine[object, object, None]]
) -> AsyncIterator[None]:
    """Have work go on, by its names, until the block is left; what ends of itself by an error is logged."""
    tasks = [asyncio.create_task(one, name=name) for name, one in work.items()]
    for task in tasks:
        task.add_done_callback(partial(_tell_end, ops_log))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def tell_failure(ops_log: OpsLog, step: str, error: BaseException) -> None:
    """Log that a step failed."""
    from composable_memory_ops_logs import LearningFailed  # a search does without

    with trace():
        ops_log.emit(LearningFailed(step=step, error=ErrorInfo.of(error)), status="failure")


def _tell_end(ops_log: OpsLog, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        tell_failure(ops_log, task.get_name(), error)


KEPT_QUERIES = 64


class RecentResults:
    """The results of the latest queries of an open memory, by trace id."""

    def __init__(self) -> None:
        self._shown: OrderedDict[str, tuple[str, tuple[MemorySearchResult, ...]]] = OrderedDict()

    def note(self, query: str, trace_id: str, results: Sequence[MemorySearchResult]) -> None:
        """Remember what a query showed; the oldest is forgotten for it."""
        self._shown[trace_id] = (query, tuple(results))
        self._shown.move_to_end(trace_id)
        while len(self._shown) > KEPT_QUERIES:
            self._shown.popitem(last=False)

    def clear(self) -> None:
        """Forget all of them."""
        self._shown.clear()

    def quoted_in(self, answer: str, trace_id: str) -> AnswerGiven | None:
        """Return the event that tells what an answer quotes of a query; None if the query is not known."""
        if trace_id not in self._shown:
            return None
        # Few record answers; all others need not wait for what reads logs.
        from composable_memory_feedback.quoting import ShownText, quoted_places

        query, results = self._shown[trace_id]
        shown = [
            ShownText(TakenFrom(one.path, one.start_line, one.end_line, one.start_char or None), one.snippet)
            for one in results
        ]
        quoted = quoted_places(answer, shown, question=query)
        return AnswerGiven(query_trace_id=trace_id, chars=len(answer), quoted=quoted)
