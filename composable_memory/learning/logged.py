"""What the log of one memory tells: its queries, what followed on them, and those that were judged."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from composable_memory.learning.desk import LearningDesk
from composable_memory.replaying import can_be_ranked, is_reproduced
from composable_memory_feedback.advice.evidence import Case, cases_of
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.logged import LoggedQueries, Traffic, read_queries, read_traffic

__all__ = ["from_log", "judged_cases", "log_mark", "queries_of", "traffic_of", "window"]

UNKNOWN_RANKING = "ranked in a way that this version does not know"

T = TypeVar("T")


def window(desk: LearningDesk, since: datetime | None) -> datetime:
    """Return from when on queries and judgements count: from `since`, or as far back as is set."""
    return since or desk.clock() - timedelta(days=desk.settings.window_days)


async def queries_of(
    desk: LearningDesk, *, since: datetime | None = None, until: datetime | None = None
) -> LoggedQueries:
    """Return the logged queries of this memory, with what is not written yet.

    Raises:
        FeedbackError: there is no log.
        OpsLogError: the log cannot be read.
    """
    folder = await _log(desk)
    logged = await asyncio.to_thread(
        read_queries, folder, since=window(desk, since), until=until, memory=desk.mark
    )
    return _rankable(logged)


async def from_log(desk: LearningDesk, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of the folder of the log, in a thread.

    Raises:
        FeedbackError: there is no log.
        OpsLogError: the log cannot be read.
    """
    return await asyncio.to_thread(read, await _log(desk))


async def log_mark(desk: LearningDesk) -> Hashable:
    """Return a mark that changes with all that is logged, or said in transcripts; nothing is read for it.

    Raises:
        FeedbackError: there is no log.
        OSError: its folder cannot be looked at.
    """
    logged, transcripts = await from_log(desk, _sizes), desk.settings.transcripts_dir
    if transcripts is None:
        return logged
    return logged, await asyncio.to_thread(_sizes, transcripts.expanduser())


async def traffic_of(desk: LearningDesk, *, since: datetime) -> Traffic:
    """Return the logged queries of this memory with what followed on them.

    Raises:
        FeedbackError: there is no log.
        OpsLogError: the log cannot be read.
    """
    return await asyncio.to_thread(read_traffic, await _log(desk), since=since, memory=desk.mark)


async def judged_cases(
    desk: LearningDesk, *, since: datetime | None = None, until: datetime | None = None
) -> list[Case]:
    """Return the logged queries that something relevant is known for.

    Raises:
        FeedbackError: there is no log, or the store cannot be read.
        OpsLogError: the log cannot be read.
    """
    logged = await queries_of(desk, since=since, until=until)
    first = window(desk, since)
    judgements = await desk.stored_if_any(lambda store: store.judgements(since=first))
    return await asyncio.to_thread(_exact_cases, logged, judgements or ())


def _sizes(folder: Path) -> Hashable:
    if not folder.is_dir():
        return frozenset()
    return frozenset((one.name, one.stat().st_size) for one in folder.iterdir())


def _exact_cases(logged: LoggedQueries, judgements: Sequence[Judgement]) -> list[Case]:
    """Return the judged queries; what is not ranked again as it was would say nothing of other weights."""
    return [case for case in cases_of(logged.queries, judgements) if is_reproduced(case.query)]


def _rankable(logged: LoggedQueries) -> LoggedQueries:
    """Leave out queries that were ranked by the words of another version."""
    known = tuple(filter(can_be_ranked, logged.queries))
    if len(known) == len(logged.queries):
        return logged
    strange = {UNKNOWN_RANKING: len(logged.queries) - len(known)}
    return replace(logged, queries=known, incomplete={**logged.incomplete, **strange})


async def _log(desk: LearningDesk) -> Path:
    if desk.log_dir is None:
        raise FeedbackError(
            "nothing can be learnt without a log",
            subject="memory.ops_log.enabled is false",
            advice="set it to true; queries count from then on",
        )
    await desk.ops_log.flush()
    return desk.log_dir
