"""What the log of one memory contains: its queries, what followed them, and which were judged.

Without a log, all of this raises a `FeedbackError`; if it cannot be read, an `OpsLogError`.
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
"""Batch size for judgements implied by use."""

T = TypeVar("T")


def window(context: LearningContext, since: datetime | None) -> datetime:
    """Return the time from which queries and judgements count: `since`, or the configured window."""
    return since or context.clock() - timedelta(days=context.settings.window_days)


async def stream_queries(
    context: LearningContext,
    read: Callable[[QueryStream], T],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    traces: Collection[str] | None = None,
    wants: LineTest | None = None,
) -> T:
    """Return `read(queries)`, called in a thread with the logged queries of this memory, newest first.

    They include those not written yet, and are streamed, as a month of them may not fit into memory. With
    `traces`, only the queries of these traces are read, and little else.
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
    """Return the logged queries of this memory, oldest first, or only those of some traces."""
    return await stream_queries(context, QueryStream.together, since=since, until=until, traces=traces)


async def from_log(context: LearningContext, read: Callable[[Path], T]) -> T:
    """Return `read(folder)`, called in a thread with the folder of the log."""
    return await asyncio.to_thread(read, await _log(context))


async def log_mark(context: LearningContext) -> Hashable:
    """Return a mark that changes whenever something is logged, or added to a transcript; reads no file.

    Raises:
        OSError: the folder cannot be listed.
    """
    logged, transcripts = await from_log(context, _sizes), context.settings.transcripts_dir
    if transcripts is None:
        return logged
    return logged, await asyncio.to_thread(_sizes, transcripts.expanduser())


async def signals_of(
    context: LearningContext, *, since: datetime, answers: Sequence[LoggedAnswer] = ()
) -> AsyncIterator[Sequence[Judgement]]:
    """Yield the judgements implied by use, in batches; `answers` are further answers to consider."""

    def read(folder: Path) -> Iterator[Judgement]:
        uses = Uses(answers)
        stream = QueryStream(folder, since=since, memory=context.memory_id, wants=uses.may_have_followers)
        return uses.judgements(stream.with_traffic())

    found = await from_log(context, read)
    while part := await asyncio.to_thread(lambda: [*islice(found, STORED_AT_ONCE)]):
        yield part


async def judged_cases(context: LearningContext, *, since: datetime | None = None) -> list[Case]:
    """Return the logged queries with at least one relevant judgement."""
    judgements = await scorable_judgements(context, since)
    traces = {one.trace_id for one in judgements}
    logged = await queries_of(context, since=since, traces=traces)
    # A query whose ranking cannot be reproduced would say nothing about other weights.
    return await asyncio.to_thread(
        lambda: [case for case in cases_of(logged.queries, judgements) if is_reproduced(case.query)]
    )


async def scorable_judgements(context: LearningContext, since: datetime | None = None) -> list[Judgement]:
    """Return the judgements of queries with at least one relevant result; no others can be scored."""
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
