"""A log that an earlier version wrote, a file a month, is read, replayed and taken over."""

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from composable_memory.query.replay import Replayer, is_reproduced
from composable_memory.query.waterfall import waterfall
from composable_memory_feedback.logged.logged_query import LoggedRead
from composable_memory_feedback.logged.reading import QueryStream, read_queries
from composable_memory_ops_logs import EventFilter, OpsLog, OpsLogReader, QueryDelivered
from composable_memory_ops_logs.events import JsonValue

OLD_LOG = Path(__file__).parent / "old_log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(OLD_LOG, tmp_path / "log")


def write_on(folder: Path, now: datetime, *, max_bytes: int = 10**9) -> None:
    """Let the present version log something."""

    async def emit() -> None:
        async with OpsLog(folder, clock=lambda: now, retention_days=365, max_bytes=max_bytes) as log:
            log.emit(QueryDelivered(result_count=1, paths=[]))

    asyncio.run(emit())


def in_full(folder: Path) -> list[JsonValue]:
    reader = OpsLogReader(folder)
    return [
        (one.id, one.ts.isoformat(), one.action, dict(cast("Any", one.detail))) for one in reader.events()
    ]


def test_its_queries_are_read_and_ranked_again_to_the_byte(folder: Path) -> None:
    logged, ranker = read_queries(folder), Replayer()

    assert (len(logged.queries), logged.incomplete) == (4, {})
    assert all(map(is_reproduced, logged.queries))
    assert [one.near != frozenset() for one in logged.queries] == [True] * 4
    plain = [one for one in logged.queries if one.experiment is None]
    assert [tuple(ranker(one, one.policy)) for one in plain] == [one.shown for one in plain]
    traffic = QueryStream(folder).with_traffic()
    assert len([one for one in traffic if isinstance(one, LoggedRead)]) == 1


def test_its_traces_are_shown(folder: Path) -> None:
    (first, *_) = read_queries(folder).queries

    drawn = waterfall(OpsLogReader(folder).trace(first.trace_id[:8]))

    assert drawn.query == "which port does the dock controller use?"
    assert {step.backend for step in drawn.steps} == {None, "builtin", "qmd", "graphiti"}
    assert len(drawn.results) == 6


def test_once_its_months_are_over_it_is_compressed_and_says_the_same(folder: Path) -> None:
    before = in_full(folder)
    write_on(folder, datetime(2026, 5, 1, tzinfo=UTC))

    assert {one.name for one in folder.glob("ops-2026-0[34]*")} == {
        "ops-2026-03.jsonl.gz", "ops-2026-03.idx", "ops-2026-04.jsonl.gz", "ops-2026-04.idx",
    }  # fmt: skip
    assert in_full(folder)[1:] == before
    assert all(map(is_reproduced, read_queries(folder).queries))
    april = OpsLogReader(folder).read(
        EventFilter(start=datetime(2026, 4, 1, tzinfo=UTC), action="query.start")
    )
    assert [one.ts.month for one in april.events] == [4]


def test_the_file_of_this_month_stays_for_an_earlier_version_that_still_runs(folder: Path) -> None:
    write_on(folder, datetime(2026, 4, 20, tzinfo=UTC), max_bytes=1)

    assert (folder / "ops-2026-04.jsonl").read_bytes() == (OLD_LOG / "ops-2026-04.jsonl").read_bytes()
    assert not list(folder.glob("ops-2026-03*"))
