"""What was judged stays in the log of a memory when its days are over, and can still be learnt from."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.learning import open_learning
from composable_memory.query.replay import is_reproduced
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_ops_logs import OpsLogReader

SPRING = datetime(2026, 3, 10, 12, tzinfo=UTC)
QUESTION = "which port does the dock controller use?"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "MEMORY.md").write_text("The dock controller answers on port 4711.\n", encoding="utf-8")
    return folder


async def ask(notes: Path, state: Path, at: datetime, *, times: int = 1, is_judged: bool = False) -> str:
    """Ask some times, judge the first answer, and return its trace."""
    async with open_memory(notes, state_dir=state, environ={}, clock=lambda: at) as memory:
        await memory.sync()
        traces = [(await memory.query(QUESTION)).trace_id for _ in range(times)]
        if is_judged:
            await memory.ops_log.flush()
            await memory.learning.judging.judge(traces[0], "1", relevance=1.0)
    return traces[0]


async def change_weights(notes: Path, state: Path, at: datetime) -> None:
    async with open_learning(notes, state_dir=state, environ={}, clock=lambda: at) as learning:
        await learning.weights.set({"builtin": 0.9}, actor="somebody")


@pytest.mark.parametrize("use", [ask, change_weights])
async def test_a_judged_query_outlives_its_days_and_its_neighbours_do_not(
    notes: Path, tmp_path: Path, use: Callable[[Path, Path, datetime], Awaitable[object]]
) -> None:
    state = tmp_path / "state"
    judged = await ask(notes, state, SPRING, times=3, is_judged=True)
    await use(notes, state, SPRING + timedelta(days=60))

    folder = state / "ops-logs"
    logged = await asyncio.to_thread(read_queries, folder, until=SPRING + timedelta(days=1))
    assert [one.trace_id for one in logged.queries] == [judged]
    assert is_reproduced(logged.queries[0])
    events = await asyncio.to_thread(OpsLogReader(folder).trace, judged[:8])
    assert {"query.start", "query.backend_result", "query.merged"} <= {one.action for one in events}
