"""Keeps a memory at the weights that other processes put in force; costs little where nothing is learnt."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

from composable_memory.learning.context import LearningContext
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs import ErrorInfo, LearningFailed, OpsLog, OpsLogError, trace

__all__ = ["SURVIVED", "Sleep", "follow", "goes_on", "tell_failure", "weights_followed"]

LOOK_S = 2.0
"""How soon a change that another process made is in force here."""

SURVIVED = (FeedbackError, OpsLogError, OSError)
"""What the background of a memory goes on after."""

Sleep = Callable[[float], Awaitable[None]]
Refresh = Callable[[], Awaitable[object]]


@asynccontextmanager
async def weights_followed(context: LearningContext, refresh: Refresh) -> AsyncIterator[None]:
    """Call `refresh` whenever another process changed the store, until the block is left."""
    async with goes_on(context.ops_log, {"follow weights": follow(context, refresh, asyncio.sleep)}):
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
async def goes_on(
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
    with trace():
        ops_log.emit(LearningFailed(step=step, error=ErrorInfo.of(error)), status="failure")


def _tell_end(ops_log: OpsLog, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        tell_failure(ops_log, task.get_name(), error)
