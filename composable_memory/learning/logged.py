"""What the log of one memory tells: its queries, what followed on them, and those that were judged.

Without a log that is a `FeedbackError`, and an `OpsLogError` where it cannot be read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TypeVar

from composable_memory.learning.context import LearningContext
from composable_memory.query.replay import can_be_ranked, is_reproduced
from composable_memory_feedback.advice.evidence import Case, cases_of
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.implicit_feedback import Uses
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.logged.logged_query import LoggedAnswer, LoggedQueries
from composable_memory_feedback.logged.reading import LineTest, QueryStream

STORED_AT_ONCE = 1000
"""So many judgements that use implies are handed on together."""

T = TypeVar("T")


def window(context: LearningContext, since: datetime | None) -> datetime:
    """Return from when on queries and judgements count: from `since`, or as far back as is set."""
    return since or context.clock() - timedelta(days=context.settings.window_days)


async def streamed(
    context: LearningContext,
    read: Callable[[QueryStream], T],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    traces: Collection[str] | None = None,
    wants: LineTest | None = None,
) -> T:
    """Return what `read` makes, in a thread, of the logged queries of this memory, newest first.

    What is not written yet is among them. A month of them need not fit into memory. With `traces` they are
    the queries of these alone, and little more is read.
    """

    def read_all(folder: Path) -> T:
        return read(
            QueryStream(
                folder,
                since=window(context, since),
                until=until,
                memory=context.memory_id,
                traces=None if traces is None else frozenset(traces),
                wants=wants,
                can_be_ranked=can_be_ranked,
            )
        )

    return await from_log(context, read_all)


async def queries_of(
    context: LearningContext,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    traces: Collection[str] | None = None,
) -> LoggedQueries:
    """Return the logged queries of this memory together, oldest first, or those of some traces."""
    return await streamed(context, QueryStream.together, since=since, until=until, traces=traces)


async def from_log(context: LearningContext, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of the folder of the log, in a thread."""
    return await asyncio.to_thread(read, await _log(context))


async def log_mark(context: LearningContext) -> Hashable:
    """Return a mark that changes with all that is logged, or said in transcripts; nothing is read for it.

    Raises:
        OSError: its folder cannot be looked at.
    """
    logged, transcripts = await from_log(context, _sizes), context.settings.transcripts_dir
    if transcripts is None:
        return logged
    return logged, await asyncio.to_thread(_sizes, transcripts.expanduser())


async def signals_of(
    context: LearningContext, *, since: datetime, answers: Sequence[LoggedAnswer] = ()
) -> AsyncIterator[Sequence[Judgement]]:
    """Yield what use implies of the results of this memory, part by part; `answers` are further ones."""

    def read(folder: Path) -> Iterator[Judgement]:
        uses = Uses(answers)
        stream = QueryStream(folder, since=since, memory=context.memory_id, wants=uses.may_tell_of)
        return uses.judgements(stream.with_traffic())

    found = await from_log(context, read)
    while part := await asyncio.to_thread(lambda: [*islice(found, STORED_AT_ONCE)]):
        yield part


async def judged_cases(context: LearningContext, *, since: datetime | None = None) -> list[Case]:
    """Return the logged queries that something relevant is known for."""
    judgements = await telling_judgements(context, since)
    traces = {one.trace_id for one in judgements}
    logged = await queries_of(context, since=since, traces=traces)
    # What is not ranked again as it was would say nothing of other weights.
    return await asyncio.to_thread(
        lambda: [case for case in cases_of(logged.queries, judgements) if is_reproduced(case.query)]
    )


async def telling_judgements(context: LearningContext, since: datetime | None = None) -> list[Judgement]:
    """Return the judgements of queries that something relevant is known for; no others can be scored."""
    first = window(context, since)
    return await context.stored_if_any(lambda store: store.judgements(since=first, of_relevant=True)) or []


def _sizes(folder: Path) -> Hashable:
    if not folder.is_dir():
        return frozenset()
    return frozenset((one.name, one.stat().st_size) for one in folder.iterdir())


async def _log(context: LearningContext) -> Path:
    if context.log_dir is None:
        raise FeedbackError(
            "nothing can be learnt without a log",
            subject="memory.ops_log.enabled is false",
            advice="set it to true; queries count from then on",
        )
    await context.ops_log.flush()
    return context.log_dir
