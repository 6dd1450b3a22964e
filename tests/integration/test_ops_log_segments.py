"""The files of an ops log: closed, compressed, indexed, bounded in size; nothing is lost or there twice."""

import asyncio
import gzip
import os
import random
import stat
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree
from subprocess import PIPE, Popen
from typing import Any, cast

import orjson
import pytest

from composable_memory_ops_logs import EventFilter, OpsEvent, OpsLog, OpsLogReader, SyncFileSkipped, trace
from composable_memory_ops_logs.file_sink import FileSink
from composable_memory_ops_logs.line_format import sealed
from composable_memory_ops_logs.retention import Judged
from composable_memory_ops_logs.segments import BLOCK_BYTES, read_index

DAY = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY, FILE = "2026-03-10", "ops-2026-03-10.0001"
SMALL = 64 * 1024
"""An open file is closed at this size where all may take a megabyte."""


def line(number: int, *, trace_id: str = "", at: datetime = DAY, chars: int = 100) -> bytes:
    """Return a line of the log; each is a second later than the one before."""
    ts = (at + timedelta(seconds=number)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    noise = random.Random(number).randbytes(chars // 2).hex()
    event: dict[str, object] = {
        "id": f"e{number}",
        "ts": ts,
        "action": "sync.file_skipped",
        "status": "success",
    }
    event |= {"traceId": trace_id or f"trace-{number:08}", "schemaVersion": 1}
    return orjson.dumps({**event, "detail": {"path": noise, "reason": str(number)}}) + b"\n"


def numbers(events: Iterable[OpsEvent]) -> list[int]:
    return [int(one.id[1:]) for one in events]


def all_in(folder: Path) -> list[int]:
    """Return the numbers of all lines, oldest first."""
    return numbers(OpsLogReader(folder).events())[::-1]


def sink_of(
    folder: Path, *, max_bytes: int = 10**6, days: int = 30, judged: Judged | None = None
) -> FileSink:
    return FileSink(folder, retention_days=days, max_bytes=max_bytes, judged=judged)


def do_chores(sink: FileSink, now: datetime = DAY) -> None:
    for _ in sink.retention.apply(now):
        pass


def fill(sink: FileSink, count: int, *, start: int = 0, chars: int = 4000) -> None:
    for number in range(start, start + count):
        sink.append(TODAY, [line(number, chars=chars)])


def suffixes(folder: Path) -> set[str]:
    return {one.name.partition(".")[2] for one in folder.glob("ops*")}


# --- closing ------------------------------------------------------------------------------------------------


def test_a_full_file_is_closed_and_another_one_begun(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    fill(sink, 40)
    do_chores(sink)

    assert suffixes(tmp_path) == {
        "0001.jsonl.gz", "0001.idx", "0002.jsonl.gz", "0002.idx", "0003.jsonl", "0003.idx", "lock",
    }  # fmt: skip
    assert all_in(tmp_path) == list(range(40))
    assert gzip.decompress((tmp_path / f"{FILE}.jsonl.gz").read_bytes()).startswith(line(0, chars=4000))


def test_the_files_of_a_day_are_closed_when_it_is_over(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    fill(sink, 3)
    do_chores(sink, DAY + timedelta(days=1))

    assert suffixes(tmp_path) == {"0001.jsonl.gz", "0001.idx", "lock"}
    assert all_in(tmp_path) == [0, 1, 2]


def test_who_did_not_see_that_a_file_was_closed_goes_on_in_another(tmp_path: Path) -> None:
    slow, quick = sink_of(tmp_path), sink_of(tmp_path)
    fill(slow, 2)
    do_chores(quick, DAY + timedelta(days=1))
    fill(slow, 2, start=2)
    fill(quick, 2, start=4)

    assert suffixes(tmp_path) == {"0001.jsonl.gz", "0001.idx", "0002.jsonl", "0002.idx", "lock"}
    assert all_in(tmp_path) == list(range(6))


def test_of_several_processes_one_does_the_chores(tmp_path: Path) -> None:
    sink, other = sink_of(tmp_path), sink_of(tmp_path)
    fill(sink, 20)
    under_way = sink.retention.apply(DAY)
    next(under_way)

    do_chores(other)

    assert not list(tmp_path.glob("*.gz"))
    under_way.close()
    do_chores(other)
    assert len(list(tmp_path.glob("*.gz"))) == 1


def test_lines_of_a_day_that_is_being_closed_go_to_its_next_file(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    fill(sink, 2)
    under_way = sink.retention.apply(DAY + timedelta(days=1))
    next(under_way)

    fill(sink, 2, start=2)
    for _ in under_way:
        pass

    assert suffixes(tmp_path) >= {"0001.jsonl.gz", "0002.jsonl"}
    assert all_in(tmp_path) == list(range(4))


def test_chores_that_are_broken_off_leave_all_as_it_was(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    fill(sink, 20)
    before = suffixes(tmp_path)
    under_way = sink.retention.apply(DAY)
    next(under_way)
    under_way.close()

    assert suffixes(tmp_path) == before | {"lock"}
    assert all_in(tmp_path) == list(range(20))


def test_a_process_that_was_killed_when_all_but_the_old_file_was_done_leaves_no_line_twice(
    tmp_path: Path,
) -> None:
    sink = sink_of(tmp_path)
    fill(sink, 3)
    whole = (tmp_path / f"{FILE}.jsonl").read_bytes()
    do_chores(sink, DAY + timedelta(days=1))
    (tmp_path / f"{FILE}.jsonl").write_bytes(whole)
    (tmp_path / f"{FILE}.jsonl.gz.tmp").write_bytes(b"half a file")

    assert all_in(tmp_path) == [0, 1, 2]
    fill(sink, 2, start=3)
    assert all_in(tmp_path) == list(range(5))
    do_chores(sink, DAY + timedelta(days=1))
    assert suffixes(tmp_path) == {"0001.jsonl.gz", "0001.idx", "0002.jsonl.gz", "0002.idx", "lock"}
    assert all_in(tmp_path) == list(range(5))


@pytest.mark.skipif(os.name != "posix", reason="permissions are a matter of POSIX")
def test_only_the_owner_can_read_what_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    sink = sink_of(folder)
    fill(sink, 20)
    do_chores(sink)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}


# --- the bound ----------------------------------------------------------------------------------------------


def test_the_oldest_goes_first_and_all_take_no_more_than_the_bound(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    for start in range(0, 600, 20):
        fill(sink, 20, start=start)
        do_chores(sink)

    left = all_in(tmp_path)
    assert sum(one.stat().st_size for one in tmp_path.glob("ops*")) <= 10**6 + 2 * SMALL
    assert left == list(range(left[0], 600))
    assert 0 < left[0] < 500


def test_lines_of_judged_traces_stay_and_are_there_once(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, judged=lambda: {"trace-00000003", "trace-00000030", "elsewhere"})
    fill(sink, 600)
    do_chores(sink)

    left = all_in(tmp_path)
    first = left[2]
    assert left == [3, 30, *range(first, 600)]
    assert first > 30
    assert numbers(OpsLogReader(tmp_path).trace("trace-00000003")) == [3]
    do_chores(sink, DAY + timedelta(days=60))
    assert all_in(tmp_path)[:2] == [3, 30]
    do_chores(sink, DAY + timedelta(days=400))
    assert not {3, 30} & {*all_in(tmp_path)}, "they go with the judgements"


def test_lines_of_judged_traces_take_as_much_again_as_the_log_may_and_no_more(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, max_bytes=20_000, judged=lambda: {f"trace-{n:08}" for n in range(0, 2400, 100)})
    for start in range(0, 2400, 600):
        fill(sink, 600, start=start)
        do_chores(sink)
    do_chores(sink)

    kept = [path.stat().st_size for path in tmp_path.glob("*.kept.jsonl.gz")]
    assert kept
    assert sum(kept) <= 20_000


def test_what_is_kept_does_not_count_before_the_file_itself_is_gone(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    fill(sink, 3)
    (tmp_path / f"{FILE}.kept.jsonl.gz").write_bytes(gzip.compress(line(1)))

    assert all_in(tmp_path) == [0, 1, 2]


def test_nothing_is_deleted_while_nobody_can_say_what_was_judged(tmp_path: Path) -> None:
    def cannot_say() -> Sequence[str]:
        raise OSError("the store is damaged")

    sink = sink_of(tmp_path, judged=cannot_say)
    fill(sink, 600)

    with pytest.raises(OSError, match="damaged"):
        do_chores(sink)
    assert all_in(tmp_path) == list(range(600))


async def test_a_log_names_what_it_could_not_do_and_goes_on(tmp_path: Path) -> None:
    def cannot_say() -> Sequence[str]:
        raise OSError("the store is damaged")

    (tmp_path / "ops-2025-01-01.0001.jsonl").write_bytes(line(1))
    async with OpsLog(tmp_path, clock=lambda: DAY, judged=cannot_say) as log:
        log.emit(SyncFileSkipped(path="a.md", reason="gone"))

    assert "the store is damaged" in str(log.stats.last_error)
    assert (log.stats.written, log.stats.dropped) == (1, 0)


# --- the index ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of two closed days, the first in several blocks, and one that is open."""
    folder = tmp_path_factory.mktemp("log")
    sink = sink_of(folder, max_bytes=10**9)
    for number in range(3):
        at = DAY + timedelta(days=number)
        lines = [line(one, at=at, chars=2000, trace_id=f"{number}-{one:06}") for one in range(1500 >> number)]
        sink.append(at.date().isoformat(), lines)
    do_chores(sink, DAY + timedelta(days=2))
    assert (folder / f"{FILE}.jsonl.gz").stat().st_size > BLOCK_BYTES
    return folder


def spoil(index: Path, how: str) -> None:
    data = index.read_bytes()
    match how:
        case "missing":
            index.unlink()
        case "cut":
            index.write_bytes(data[: len(data) // 2])
        case "damaged":
            index.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
        case "of another file":
            index.write_bytes(index.with_name("ops-2026-03-11.0001.idx").read_bytes())


@pytest.mark.parametrize("how", ["sound", "missing", "cut", "damaged", "of another file"])
def test_an_index_only_saves_time(two_days: Path, how: str) -> None:
    index, reader = two_days / f"{FILE}.idx", OpsLogReader(two_days)
    sound = index.read_bytes()
    spoil(index, how)

    since = DAY + timedelta(seconds=1490)
    late = EventFilter(start=since, end=DAY + timedelta(hours=1))
    assert numbers(reader.read(late).events) == list(range(1499, 1489, -1))
    assert numbers(reader.trace("0-000700")) == [700]
    assert numbers(reader.trace("1-000700")) == [700]
    assert numbers(reader.trace("2-000300")) == [300]
    assert reader.trace("0-001500") == []
    assert numbers(reader.read(EventFilter(trace_id="0-000001")).events) == [1]
    assert len(list(reader.events())) == 1500 + 750 + 375
    assert index.read_bytes() == sound


@pytest.mark.parametrize("lost", [slice(-1, None), slice(1, 2)], ids=["at the end", "in the middle"])
def test_whole_blocks_that_a_closed_file_lost_are_told_of(
    two_days: Path, tmp_path: Path, lost: slice
) -> None:
    folder = copytree(two_days, tmp_path / "log")
    closed = folder / f"{FILE}.jsonl.gz"
    with closed.open("rb") as file:
        index = read_index(folder / f"{FILE}.idx", file)
    assert index is not None
    data = closed.read_bytes()
    stored = [data[one.at : one.at + one.stored] for one in index.blocks]
    del stored[lost]
    closed.write_bytes(b"".join(stored))

    for _ in range(2):  # it is told every time, not only to who comes first
        bad: list[int] = []
        reader = OpsLogReader(folder, on_bad_line=lambda bad=bad: bad.append(1))  # type: ignore[misc]
        left = len(list(reader.events()))
        assert len(bad) == 1
        assert 750 + 375 < left < 1500 + 750 + 375


def test_whole_lines_that_an_open_file_lost_are_told_of_also_when_it_is_closed(tmp_path: Path) -> None:
    sinks = sink_of(tmp_path), sink_of(tmp_path)
    for number in range(12):
        sinks[number % 2].append(TODAY, [sealed(line(number))])
    assert (all_in(tmp_path), OpsLogReader(tmp_path).damage()) == (list(range(12)), [])

    path = tmp_path / f"{FILE}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[2:5], *lines[7:]]))  # two gaps: at the start and in the middle
    for _ in range(2):
        bad: list[int] = []
        reader = OpsLogReader(tmp_path, on_bad_line=lambda bad=bad: bad.append(1))  # type: ignore[misc]
        assert numbers(reader.events())[::-1] == [2, 3, 4, *range(7, 12)]
        assert len(bad) == 2
        (told,) = reader.damage()
        assert FILE in told
        do_chores(sinks[0], DAY + timedelta(days=1))
    assert not path.exists()


@pytest.mark.parametrize("left", [7, 0], ids=["some are left", "none is left"])
def test_whole_lines_that_an_open_file_lost_at_its_end_are_told_of_once_whatever_comes_after(
    tmp_path: Path, left: int
) -> None:
    sink = sink_of(tmp_path)
    for number in range(12):
        sink.append(TODAY, [sealed(line(number))])
    path = tmp_path / f"{FILE}.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))

    def told_of() -> int:
        page, damage = OpsLogReader(tmp_path).read(), OpsLogReader(tmp_path).damage()
        assert numbers(page.events)[::-1] == kept
        assert [FILE in one for one in damage] == [True] * page.bad_lines
        return page.bad_lines

    kept = [*range(left)]
    assert told_of() == 1
    closed = copytree(tmp_path, tmp_path / "closed")
    do_chores(sink_of(closed), DAY + timedelta(days=1))
    assert len(OpsLogReader(closed).damage()) == 1
    for other in (sink, sink_of(tmp_path), sink):
        other.append(TODAY, [sealed(line(len(kept)))])
        kept.append(len(kept))
        assert told_of() == 1
    do_chores(sink, DAY + timedelta(days=1))
    assert told_of() == 1
    assert not path.exists()


def test_a_line_that_was_cut_at_the_end_of_an_open_file_counts_once(tmp_path: Path) -> None:
    for number in range(3):
        sink_of(tmp_path).append(TODAY, [sealed(line(number))])
    path = tmp_path / f"{FILE}.jsonl"
    os.truncate(path, path.stat().st_size - 5)
    for kept in ([0, 1], [0, 1, 2], [0, 1, 2, 3]):
        page = OpsLogReader(tmp_path).read()
        assert (numbers(page.events)[::-1], page.bad_lines) == (kept, 1)
        sink_of(tmp_path).append(TODAY, [sealed(line(len(kept)))])


def test_a_line_that_lost_its_checksum_and_is_no_event_is_told_of(tmp_path: Path) -> None:
    lines = [sealed(line(number)) for number in range(3)]
    lines[1] = lines[1].replace(b'"crc32":', b'"crc32";')
    (tmp_path / f"{FILE}.jsonl").write_bytes(b"".join(lines))

    assert OpsLogReader(tmp_path).read().bad_lines == 1
    assert len(OpsLogReader(tmp_path).damage()) == 1


def test_a_trace_is_found_without_reading_the_rest(two_days: Path) -> None:
    closed = two_days / f"{FILE}.jsonl.gz"
    whole = closed.read_bytes()
    damaged = whole[:50] + bytes(1000) + whole[1050:]  # in the first of three blocks
    closed.write_bytes(damaged)
    try:
        assert numbers(OpsLogReader(two_days).trace("0-001400")) == [1400]
        bad: list[None] = []
        readable = list(OpsLogReader(two_days, on_bad_line=lambda: bad.append(None)).events())
        assert 750 + 375 < len(readable) < 1500 + 750 + 375
        assert len(bad) == 1
    finally:
        closed.write_bytes(whole)


# --- processes ----------------------------------------------------------------------------------------------

WRITE = """
import asyncio, os, sys
from pathlib import Path
from composable_memory_ops_logs import OpsLog, SyncFileSkipped

async def main():
    async with OpsLog(Path(sys.argv[1]), max_bytes=5_000_000) as log:
        for number in range(100_000):
            log.emit(SyncFileSkipped(path=sys.argv[2], reason=f"{number} " + "x" * 3000))
            if number % 20 == 19 and await log.flush() and not log.stats.dropped:
                os.write(1, f"{number}\\n".encode())

asyncio.run(main())
"""


@pytest.mark.thorough
def test_no_acknowledged_line_is_lost_or_there_twice_when_writers_are_killed_while_files_are_closed(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "ops_logs")}
    told: dict[str, int] = {}
    for name in "abcd":
        with Popen(
            [sys.executable, "-c", WRITE, str(tmp_path), name], env=environment, stdout=PIPE
        ) as process:
            assert process.stdout is not None
            for _ in range(30):
                told[name] = int(process.stdout.readline())
            process.kill()

    found: dict[str, list[int]] = {name: [] for name in told}
    for event in OpsLogReader(tmp_path).events():
        wire: dict[str, Any] = {**cast("Any", event.detail)}
        found[wire["path"]].append(int(wire["reason"].split()[0]))
    for name, last in told.items():
        assert found[name][::-1] == list(range(len(found[name])))
        assert len(found[name]) > last


async def test_following_goes_on_when_files_are_closed(tmp_path: Path) -> None:
    now = [DAY]
    async with OpsLog(tmp_path, clock=lambda: now[0]) as log, asyncio.timeout(30):
        following, seen = OpsLogReader(tmp_path).follow(0.001, last=1), list[str]()
        for number in range(6):
            with trace(f"trace-{number}"):
                log.emit(SyncFileSkipped(path="a.md", reason=str(number)))
            await log.flush()
            seen.append((await anext(following)).trace_id)
            now[0] += timedelta(days=number % 2)
        await following.aclose()

    assert seen == [f"trace-{number}" for number in range(6)]
