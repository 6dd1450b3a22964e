"""Hands contents to every backend that takes them, concurrently, and collects their reports."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from composable_memory.content import IngestReport
from composable_memory.interfaces import SupportsIngest
from composable_memory_ops_logs import current_trace_id, trace


async def hand_over(
    takers: Mapping[str, SupportsIngest],
    give: Callable[[SupportsIngest], Awaitable[IngestReport]],
    count: int,
) -> dict[str, IngestReport]:
    """Return one report a backend; a backend that raises has one that says so, for all `count` contents.

    Raises:
        BackendError: every one of them raised.
    """
    with trace():
        outcomes = await asyncio.gather(*map(give, takers.values()), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failures and len(failures) == len(outcomes):
            raise failures[0]
        lost = IngestReport(run_id=current_trace_id() or "", failed=count)
    return {
        backend_id: replace(lost, problems=(str(outcome) or repr(outcome),))
        if isinstance(outcome, BaseException)
        else outcome
        for backend_id, outcome in zip(takers, outcomes, strict=True)
    }
