"""One process at a time does the work that a lease is for, and a dead one holds nobody up."""

import asyncio
import json
import os
import selectors
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from composable_memory.supervision.lease import LIFETIME_S, RENEW_S, Lease, LeaseRow
from composable_memory_adapters.sqlite_file import Connection, SqliteFile

T = TypeVar("T")

ROW: LeaseRow[Connection] = LeaseRow(
    lambda connection: connection.execute("SELECT holder FROM lease").get,
    lambda connection, holder: connection.execute("UPDATE lease SET holder = ?", (holder,)),
)


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqliteFile]:
    async with SqliteFile.open(tmp_path / "shared.sqlite") as opened:
        await opened.write(lambda connection: connection.execute("CREATE TABLE lease (holder TEXT)"))
        await opened.write(lambda connection: connection.execute("INSERT INTO lease VALUES (NULL)"))
        yield opened


@pytest.fixture
def lease(file: SqliteFile) -> Lease[Connection]:
    return Lease(ROW, file.write, name="test")


async def write_holder(file: SqliteFile, **changes: object) -> None:
    """Make the present lease another's, by changing some of what it says."""
    names = ("token", "host", "pid", "started", "until")

    def change(connection: Connection) -> None:
        stored = dict(zip(names, json.loads(ROW.read(connection) or ""), strict=True))
        ROW.write(connection, json.dumps([*{**stored, **changes}.values()]))

    await file.write(change)


async def test_a_lease_is_held_by_one_at_a_time_and_free_afterwards(
    file: SqliteFile, lease: Lease[Connection]
) -> None:
    async with lease.acquire() as first, lease.acquire() as second:
        assert (first, second) == (True, False)
    async with lease.acquire() as third:
        assert third
    assert await file.read(ROW.is_free)


async def test_a_lease_that_was_not_renewed_is_free(file: SqliteFile, lease: Lease[Connection]) -> None:
    async with lease.acquire():
        await write_holder(file, token="another", until=0.0)

        assert await file.read(ROW.is_free)


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a dead process cannot be told from a living one")
async def test_the_lease_of_a_process_that_has_ended_is_free(
    file: SqliteFile, lease: Lease[Connection]
) -> None:
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    async with lease.acquire():
        await write_holder(file, token="another", pid=ended.pid)

        async with lease.acquire() as is_ours:
            assert is_ours


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells when a process began")
async def test_the_lease_of_an_earlier_process_with_our_number_is_free(
    file: SqliteFile, lease: Lease[Connection]
) -> None:
    async with lease.acquire():
        await write_holder(file, token="another", started="1")

        assert await file.read(ROW.is_free)


async def test_a_lease_from_before_the_clock_was_set_back_is_free(
    file: SqliteFile, lease: Lease[Connection]
) -> None:
    async with lease.acquire():
        await write_holder(file, token="another", host="elsewhere", until=time.time() + 1_000_000)

        assert await file.read(ROW.is_free)


async def test_what_is_no_lease_is_free(file: SqliteFile, lease: Lease[Connection]) -> None:
    for written in ("", "no", "[]", "[1, 2]", '{"a": 1}', '["t", "h", "p", null, "u"]'):
        await file.write(lambda connection, written=written: ROW.write(connection, written))  # type: ignore[misc]

        assert await file.read(ROW.is_free), written
        async with lease.acquire() as is_ours:
            assert is_ours


async def test_a_caller_who_is_cancelled_while_acquiring_leaves_it_free(
    file: SqliteFile, lease: Lease[Connection]
) -> None:
    hold, held = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_connection: Connection) -> bool:
        loop.call_soon_threadsafe(held.set)
        hold.wait(30)
        return False

    async def acquire() -> None:
        async with lease.acquire():
            pass

    blocked = asyncio.create_task(file.write(slow))
    await held.wait()
    acquiring = asyncio.create_task(acquire())
    await asyncio.sleep(0)  # its write now stands in the queue behind the slow one
    acquiring.cancel()
    hold.set()
    await blocked
    with pytest.raises(asyncio.CancelledError):
        await acquiring

    assert await file.read(ROW.is_free)


async def test_a_lease_of_another_machine_is_believed(file: SqliteFile, lease: Lease[Connection]) -> None:
    async with lease.acquire():
        await write_holder(file, token="another", host="elsewhere", pid=2**22 + 1)

        assert not await file.read(ROW.is_free)


async def test_a_lease_that_was_taken_over_is_not_released_by_its_first_holder(
    file: SqliteFile, lease: Lease[Connection]
) -> None:
    async with lease.acquire():
        await write_holder(file, token="another")

    assert not await file.read(ROW.is_free)


# --- over time, in a loop whose clock jumps to the next timer ---


class _HastySelector(selectors.DefaultSelector):
    now = 0.0
    in_threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or (timeout > 0 and self.in_threads):  # what a thread brings wakes it
            return super().select(None)
        found = super().select(0)
        if not found:
            self.now += max(0.0, timeout)
        return found


class HastyLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _HastySelector()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


class Cell:
    """A lease in memory, which notes at what time it was written."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HastyLoop)
        self.clock = loop.clock
        self.holder: str | None = None
        self.written: list[float] = []
        row: LeaseRow[Cell] = LeaseRow(lambda cell: cell.holder, Cell.write)
        self.lease = Lease(row, self.transact, name="test")

    def write(self, holder: str | None) -> None:
        self.holder = holder
        self.written.append(self.clock.now)

    async def transact(self, work: "Callable[[Cell], T]") -> T:
        self.clock.in_threads += 1
        try:
            return await asyncio.to_thread(work, self)
        finally:
            self.clock.in_threads -= 1


def test_the_holder_renews_its_lease_well_before_it_runs_out_and_then_no_more() -> None:
    async def hold() -> None:
        cell = Cell()
        async with cell.lease.acquire():
            await asyncio.sleep(3.5 * RENEW_S)
        await asyncio.sleep(3 * RENEW_S)

        assert cell.written == [0.0, RENEW_S, 2 * RENEW_S, 3 * RENEW_S, 3.5 * RENEW_S]
        assert cell.holder is None
        assert 2 * RENEW_S < LIFETIME_S

    _run(hold)


def _run(main: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        runner.run(main())  # type: ignore[arg-type]
        loop = runner.get_loop()
        assert isinstance(loop, HastyLoop)
        loop.clock.in_threads += 1  # closing waits for the threads, from Python 3.12 on under a time limit
