"""The ops log on a real disk: order, days, several writers, failures, retention, endings, and following."""

import asyncio
import gc
import gzip
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from composable_memory_ops_logs import (
    MemorySink,
    OpsEvent,
    OpsLog,
    OpsLogReader,
    OpsLogStats,
    QueryDelivered,
    SyncFileSkipped,
    trace,
)

HOUSE = Path(__file__).parents[2] / "ops_logs"
MARCH = datetime(2026, 3, 10, 12, tzinfo=UTC)
PATIENCE_S = 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def delivered(number: int) -> QueryDelivered:
    return QueryDelivered(result_count=number, paths=())


def lines_in(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()


def numbers(path: Path) -> list[int]:
    return [orjson.loads(line)["detail"]["resultCount"] for line in lines_in(path)]


def counts(events: Sequence[OpsEvent]) -> list[object]:
    return [event.detail["resultCount"] for event in events if isinstance(event.detail, Mapping)]


def names(folder: Path) -> list[str]:
    """Return the files of the log, without their indexes and the lock."""
    return sorted(path.name for path in folder.iterdir() if path.suffix not in (".idx", ".lock"))


def march_file(folder: Path) -> Path:
    return folder / "ops-2026-03-10.0001.jsonl"


def march_log(folder: Path, *, capacity: int = 10_000, redact: bool = True) -> OpsLog:
    return OpsLog(folder, clock=lambda: MARCH, capacity=capacity, redact=redact)


def writer_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ops-log-writer"]


class Gate:
    """A value whose text waits for the gate to open: it holds the writer that renders its event."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def __str__(self) -> str:
        self._reached.set()
        self._opened.wait(PATIENCE_S)
        return "gate"

    @property
    def event(self) -> QueryDelivered:
        return QueryDelivered(result_count=0, paths=(self,))  # type: ignore[arg-type]

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_S)

    def open(self) -> None:
        self._opened.set()


@contextmanager
def python(script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
    with subprocess.Popen([sys.executable, "-c", script, *arguments], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


# --- writing ------------------------------------------------------------------------------------------------


async def test_lines_stand_in_the_order_of_emission(folder: Path) -> None:
    async with march_log(folder) as log:
        for number in range(1500):
            log.emit(delivered(number))

    assert numbers(march_file(folder)) == list(range(1500))


async def test_the_directory_is_made_when_the_first_event_comes(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "ops-logs"
    async with march_log(folder) as log:
        assert not folder.exists()

        log.emit(delivered(1))
        assert await log.flush()

        assert numbers(march_file(folder)) == [1]


async def test_events_go_to_the_file_of_their_day_in_utc(folder: Path) -> None:
    midnight = datetime(2026, 4, 1, tzinfo=UTC)
    times = iter([midnight - timedelta(milliseconds=1), midnight, midnight + timedelta(days=31)])
    async with OpsLog(folder, clock=lambda: next(times), retention_days=365) as log:
        for number in range(3):
            log.emit(delivered(number))

    assert {name: numbers(folder / name) for name in names(folder)} == {
        "ops-2026-03-31.0001.jsonl.gz": [0],
        "ops-2026-04-01.0001.jsonl.gz": [1],
        "ops-2026-05-02.0001.jsonl": [2],
    }


async def test_threads_may_emit_at_once_and_each_keeps_its_order(folder: Path) -> None:
    def emit_many(log: OpsLog, name: str) -> None:
        for number in range(200):
            log.emit(SyncFileSkipped(path=name, reason=str(number)))

    async with march_log(folder) as log:
        with ThreadPoolExecutor(4) as pool:
            for name in "abcd":
                pool.submit(emit_many, log, name)

    details = [orjson.loads(line)["detail"] for line in march_file(folder).read_bytes().splitlines()]
    for name in "abcd":
        assert [int(one["reason"]) for one in details if one["path"] == name] == list(range(200))
    assert log.stats == OpsLogStats(emitted=800, written=800, dropped=0, last_error=None, listener_errors=0)


WRITE_MANY = """
import asyncio, sys
from pathlib import Path
from composable_memory_ops_logs import OpsLog, SyncFileSkipped

async def main():
    async with OpsLog(Path(sys.argv[1])) as log:
        for number in range(300):
            log.emit(SyncFileSkipped(path=sys.argv[2], reason=f"{number} " + "x" * (number * 37 % 5000)))
            if number % 10 == 0:
                await log.flush()

asyncio.run(main())
"""


def test_several_processes_append_whole_lines_to_one_file(folder: Path) -> None:
    with python(WRITE_MANY, str(folder), "a") as a, python(WRITE_MANY, str(folder), "b") as b:
        assert (a.wait(PATIENCE_S), b.wait(PATIENCE_S)) == (0, 0)

    lines = [line for name in names(folder) for line in lines_in(folder / name)]
    details = [orjson.loads(line)["detail"] for line in lines]
    for name in "ab":
        kept = [int(one["reason"].split()[0]) for one in details if one["path"] == name]
        assert kept == list(range(300))


async def test_secrets_are_masked_on_disk_and_not_for_listeners(folder: Path) -> None:
    detail = SyncFileSkipped(path="a.md", reason="login failed for postgres://me:hunter2@db")
    sink = MemorySink()
    async with march_log(folder) as log:
        log.subscribe(sink)
        for _ in range(2):
            log.emit(detail, session_key="token=hunter2")

    for line in march_file(folder).read_bytes().splitlines():
        event = orjson.loads(line)
        assert event["sessionKey"] == "token=***"
        assert event["detail"]["reason"] == "login failed for postgres://me:***@db"
    assert [event.detail for event in sink.events] == [detail, detail]


async def test_masking_can_be_switched_off(folder: Path) -> None:
    async with march_log(folder, redact=False) as log:
        log.emit(SyncFileSkipped(path="a.md", reason="password: hunter2"))

    assert b"password: hunter2" in march_file(folder).read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="permissions are a matter of POSIX")
async def test_only_the_owner_can_read_a_log(tmp_path: Path) -> None:
    folder = tmp_path / "ops-logs"
    async with march_log(folder) as log:
        log.emit(delivered(1))

    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(march_file(folder).stat().st_mode) & 0o077 == 0


# --- failing ------------------------------------------------------------------------------------------------


async def test_a_line_cut_by_a_crash_costs_only_itself(folder: Path) -> None:
    march_file(folder).write_bytes(b'{"id":"cut')
    async with march_log(folder) as log:
        log.emit(delivered(7))

    page = await asyncio.to_thread(OpsLogReader(folder).read)
    assert (counts(page.events), page.bad_lines) == ([7], 1)


EMIT_FOREVER = """
import sys
from itertools import count
from pathlib import Path
from composable_memory_ops_logs import OpsLog, QueryDelivered

log = OpsLog(Path(sys.argv[1]), capacity=500)
for number in count():
    log.emit(QueryDelivered(result_count=number, paths=["x" * (number % 3000)]))
"""


@pytest.mark.thorough
def test_a_killed_process_leaves_a_log_that_can_be_read_and_continued(folder: Path) -> None:
    for _ in range(3):
        before = size(folder)
        with python(EMIT_FOREVER, str(folder)) as process:
            while size(folder) < before + 200_000:
                assert process.poll() is None
    with python(WRITE_MANY, str(folder), "after") as process:
        assert process.wait(PATIENCE_S) == 0

    lines = [line for name in names(folder) for line in lines_in(folder / name)]
    bad = [line for line in lines if not is_json(line)]
    assert len(lines) > 300
    assert len(bad) <= 3  # at most one for each kill


async def test_a_path_that_cannot_be_written_is_counted_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "ops-logs"
    folder.write_text("in the way", encoding="utf-8")
    async with march_log(folder) as log:
        for number in range(3):
            log.emit(delivered(number))
            assert await log.flush()

        assert (log.stats.emitted, log.stats.written, log.stats.dropped) == (3, 0, 3)
        assert "NotADirectoryError" in str(log.stats.last_error)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_writing_goes_on_when_the_obstacle_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "ops-logs"
    folder.write_text("in the way", encoding="utf-8")
    async with march_log(folder) as log:
        log.emit(delivered(1))
        await log.flush()
        folder.unlink()
        log.emit(delivered(2))

    assert numbers(march_file(folder)) == [2]
    assert (log.stats.written, log.stats.dropped) == (1, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
async def test_a_full_disk_is_counted(folder: Path) -> None:
    march_file(folder).symlink_to("/dev/full")
    async with march_log(folder) as log:
        log.emit(delivered(1))
        await log.flush()

        assert log.stats.dropped == 1
        assert "No space left" in str(log.stats.last_error)


async def test_an_event_that_cannot_be_rendered_is_dropped_alone(folder: Path) -> None:
    loop: list[object] = []
    loop.append(loop)
    async with march_log(folder) as log:
        log.emit(delivered(1))
        log.emit(QueryDelivered(result_count=2, paths=loop))  # type: ignore[arg-type]
        log.emit(delivered(3))

    assert numbers(march_file(folder)) == [1, 3]
    assert (log.stats.written, log.stats.dropped) == (2, 1)


async def test_a_full_queue_drops_what_comes_later_and_tells_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with march_log(folder, capacity=5) as log:
        log.emit(gate.event)
        await gate.reached()
        for number in range(1, 10):
            log.emit(delivered(number))
        assert (log.stats.written, log.stats.dropped) == (0, 4)
        gate.open()

    assert numbers(march_file(folder)) == [0, 1, 2, 3, 4, 5]
    assert log.stats.last_error == "5 events were already waiting"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# --- retention ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "days", "kept"),
    [
        (datetime(2026, 1, 30, 23, 59, tzinfo=UTC), 30, ["2025-12", "2026-01-05.0001"]),
        (datetime(2026, 1, 31, 10, tzinfo=UTC), 30, ["2026-01-05.0001"]),
        (datetime(2026, 2, 4, tzinfo=UTC), 30, ["2026-01-05.0001"]),
        (datetime(2026, 2, 5, tzinfo=UTC), 30, []),
        (datetime(2026, 1, 7, tzinfo=UTC), 0, []),
        (datetime(2026, 2, 5, tzinfo=UTC), 36_500, ["2025-12", "2026-01-05.0001"]),
    ],
)
async def test_a_file_goes_when_its_day_or_month_has_been_over_long_enough(
    folder: Path, now: datetime, days: int, kept: Sequence[str]
) -> None:
    for name in ("2025-12", "2026-01-05.0001"):
        (folder / f"ops-{name}.jsonl").write_bytes(b"{}\n")
    async with OpsLog(folder, clock=lambda: now, retention_days=days) as log:
        log.emit(delivered(1))

    assert names(folder) == [*(f"ops-{name}.jsonl.gz" for name in kept), f"ops-{now:%Y-%m-%d}.0001.jsonl"]


async def test_a_log_that_stays_open_forgets_as_time_goes_on(folder: Path) -> None:
    (folder / "ops-2026-01.jsonl").touch()
    now = [datetime(2026, 2, 10, tzinfo=UTC)]
    async with OpsLog(folder, clock=lambda: now[0], retention_days=30) as log:
        log.emit(delivered(1))
        await log.flush()
        now[0] = datetime(2026, 3, 20, tzinfo=UTC)
        log.emit(delivered(2))

    assert names(folder) == ["ops-2026-03-20.0001.jsonl"]


async def test_retention_leaves_other_files_alone(folder: Path) -> None:
    others = {"notes.md", "ops-1999-13.jsonl", "ops-1999-01.jsonl.bak", "my-ops-1999-01.jsonl"}
    for name in others | {"ops-1999-01.jsonl"}:
        (folder / name).write_bytes(b"{}\n")
    async with march_log(folder) as log:
        log.emit(delivered(1))

    assert set(names(folder)) == others | {march_file(folder).name}


# --- ending -------------------------------------------------------------------------------------------------


async def test_no_thread_runs_before_the_first_event_or_without_a_directory(folder: Path) -> None:
    async with march_log(folder), OpsLog(None) as unwritten:
        unwritten.emit(delivered(1))

        assert writer_threads() == []


async def test_close_ends_the_thread_and_may_be_called_again(folder: Path) -> None:
    log = march_log(folder)
    log.emit(delivered(1))

    await log.close()
    await log.close()

    assert writer_threads() == []
    assert numbers(march_file(folder)) == [1]


async def test_a_log_that_was_never_used_can_be_closed(folder: Path) -> None:
    await march_log(folder).close()

    assert names(folder) == []


async def test_what_is_emitted_after_close_is_dropped_and_counted(folder: Path) -> None:
    sink = MemorySink()
    log = march_log(folder)
    log.subscribe(sink)
    await log.close()

    log.emit(delivered(1))

    assert log.stats == OpsLogStats(
        emitted=1, written=0, dropped=1, last_error="the log is closed", listener_errors=0
    )
    assert sink.actions == ["query.delivered"]
    assert writer_threads() == []


async def test_flush_gives_up_in_time_and_succeeds_later(folder: Path) -> None:
    gate = Gate()
    async with march_log(folder) as log:
        log.emit(gate.event)

        assert await log.flush(timeout_s=0.02) is False
        gate.open()
        assert await log.flush(timeout_s=PATIENCE_S) is True


async def test_a_cancelled_close_can_be_repeated(folder: Path) -> None:
    gate = Gate()
    log = march_log(folder)
    log.emit(gate.event)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await log.close()

    gate.open()
    await log.close()

    assert numbers(march_file(folder)) == [0]


async def test_a_forgotten_log_writes_what_it_has_and_its_thread_ends(folder: Path) -> None:
    log = march_log(folder)
    log.emit(delivered(1))
    [thread] = writer_threads()

    del log
    gc.collect()
    await asyncio.to_thread(thread.join, PATIENCE_S)

    assert not thread.is_alive()
    assert numbers(march_file(folder)) == [1]


EMIT_AND_LEAVE = """
import sys
from pathlib import Path
from composable_memory_ops_logs import OpsLog, QueryDelivered

log = OpsLog(Path(sys.argv[1]))
for number in range(50):
    log.emit(QueryDelivered(result_count=number, paths=[]))
"""


def test_a_program_that_does_not_close_its_log_loses_nothing(folder: Path) -> None:
    with python(EMIT_AND_LEAVE, str(folder)) as process:
        assert process.wait(PATIENCE_S) == 0

    assert [number for name in names(folder) for number in numbers(folder / name)] == list(range(50))


def test_importing_the_package_leaves_heavy_packages_alone() -> None:
    heavy = {"pydantic", "rich", "numpy"}
    with python(
        f"import sys, composable_memory_ops_logs; sys.exit(not {heavy}.isdisjoint(sys.modules))"
    ) as process:
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors by /proc")
async def test_opening_and_closing_leaves_no_descriptor_and_no_thread(folder: Path) -> None:
    async def once() -> tuple[int, int]:
        async with march_log(folder) as log:
            log.emit(delivered(1))
        return len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208 - as the kernel counts

    first = await once()
    for _ in range(20):
        last = await once()

    assert last == first


# --- following ----------------------------------------------------------------------------------------------


async def test_following_yields_the_last_events_and_then_new_ones(folder: Path) -> None:
    async with march_log(folder) as log, asyncio.timeout(PATIENCE_S):
        for number in range(3):
            log.emit(delivered(number))
        await log.flush()
        following = OpsLogReader(folder).follow(0.001, last=2)

        seen = [await anext(following), await anext(following)]
        log.emit(delivered(3))
        log.emit(delivered(4))
        seen += [await anext(following), await anext(following)]
        await following.aclose()

    assert counts(seen) == [1, 2, 3, 4]


async def test_following_goes_on_into_the_next_day_and_waits_for_whole_lines(folder: Path) -> None:
    now = [MARCH]
    async with OpsLog(folder, clock=lambda: now[0]) as log, asyncio.timeout(PATIENCE_S):
        log.emit(delivered(1))
        await log.flush()
        following = OpsLogReader(folder).follow(0.001, last=1)
        await anext(following)
        append(march_file(folder), b'{"half a line": ')

        now[0] += timedelta(days=31)
        log.emit(delivered(2))
        event = await anext(following)
        await following.aclose()

    assert (event.ts.month, event.detail) == (4, {"resultCount": 2, "paths": []})


async def test_following_a_log_that_does_not_exist_yet_waits_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    following = OpsLogReader(folder).follow(0.001)
    first = asyncio.ensure_future(anext(following))
    async with march_log(folder) as log, asyncio.timeout(PATIENCE_S):
        number = 0
        while not first.done():  # the log may appear before the follower has looked for the first time
            number += 1
            log.emit(delivered(number))
            await log.flush()
        await following.aclose()

    assert counts([first.result()])[0] in range(1, number + 1)


async def test_a_written_trace_is_read_back_whole(folder: Path) -> None:
    async with march_log(folder) as log:
        with trace(session_key="agent:main") as trace_id:
            log.emit(delivered(1), backend="builtin", duration_ms=1.25)
            log.emit(delivered(2), status="failure")
        log.emit(delivered(3))

    events = await asyncio.to_thread(OpsLogReader(folder).trace, trace_id[:8])

    assert [(e.backend, e.duration_ms, e.status, e.session_key) for e in events] == [
        ("builtin", 1.25, "success", "agent:main"),
        (None, None, "failure", "agent:main"),
    ]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True
