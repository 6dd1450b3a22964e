"""Asks a logged question again as of another day; nothing of that is logged."""

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from composable_memory.learning import ReplayRun
from composable_memory.learning.logged import queries_of
from composable_memory.query.replay import Replayer
from composable_memory.types import SearchFilters
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_feedback.replay import PolicyChange, ReplayReport, changed, compared
from composable_memory_ops_logs import OpsLog, OpsLogReader, trace

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory


async def asked_on_another_day(
    memory: "Memory", trace_id: str, change: PolicyChange, *, days: int, k: int
) -> ReplayRun:
    """Return what becomes of a logged question that is asked `days` later, or earlier, under a change.

    The first `k` results are compared with those of the log, as they were ranked then.
    """
    before = (await queries_of(memory.context, traces=[trace_id])).queries
    after = await _asked(memory, trace_id, timedelta(days=days)) if before else None
    if after is None:
        return ReplayRun(
            report=ReplayReport(change=change, k=k, total=0, changed=0, queries=()), reproduced=0, total=0
        )
    ranker = Replayer()
    then, now = ranker(before[0], before[0].policy)[:k], ranker(after, changed(after, change))[:k]
    one = compared(after, then, now)
    shown = (one,) if one.is_changed else ()
    report = ReplayReport(change=change, k=k, total=1, changed=len(shown), queries=shown)
    return ReplayRun(report=report, reproduced=1, total=1)


async def _asked(memory: "Memory", trace_id: str, later: timedelta) -> LoggedQuery | None:
    events = await asyncio.to_thread(OpsLogReader(memory.ops_log_dir).trace, trace_id)
    start = next(one for one in events if one.action == "query.start")
    told: dict[str, Any] = {**start.detail} if isinstance(start.detail, Mapping) else {}
    moment = (datetime.fromisoformat(told["now"]) if told.get("now") else start.ts) + later
    folder = Path(await asyncio.to_thread(mkdtemp, prefix="cmem-"))
    try:
        async with OpsLog(folder) as log:
            with trace(session_key=start.session_key):
                await memory.manager.logging_to(log).query(
                    told["query"],
                    max_results=told.get("maxResults"),
                    min_score=told.get("minScore") or None,
                    session_key=start.session_key,
                    filters=_filters(told.get("filters") or {}),
                    now=moment,
                )
        found = await asyncio.to_thread(read_queries, folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return found.queries[-1] if found.queries else None


def _filters(told: Mapping[str, Any]) -> SearchFilters:
    """Return filters as they were logged."""
    given: dict[str, Any] = {
        name: datetime.fromisoformat(value) if isinstance(value, str) else tuple(value)
        for name, value in told.items()
        if name in {one.name for one in fields(SearchFilters)}
    }
    return SearchFilters(**given)
