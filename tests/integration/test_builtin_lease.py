"""One process at a time does the long work, and a dead one holds nobody up."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from composable_memory_adapters.builtin.store import index_meta, lease, schema
from composable_memory_adapters.sqlite_file import Connection, SqliteFile


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqliteFile]:
    async with SqliteFile.open(tmp_path / "index.sqlite") as opened:
        await schema.ensure(opened)
        yield opened


async def write_holder(file: SqliteFile, **changes: object) -> None:
    """Make the present lease another's, by changing some of what it says."""
    names = ("token", "host", "pid", "started", "until")

    def change(connection: Connection) -> None:
        stored = dict(zip(names, json.loads(index_meta.value(connection, "lease") or ""), strict=True))
        index_meta.set_value(connection, "lease", json.dumps([*{**stored, **changes}.values()]))

    await file.write(change)


async def test_the_lease_is_held_by_one_at_a_time_and_free_afterwards(file: SqliteFile) -> None:
    async with lease.take(file) as first, lease.take(file) as second:
        assert (first, second) == (True, False)
    async with lease.take(file) as third:
        assert third
    assert await file.read(lease.is_free)


async def test_a_lease_that_was_not_renewed_is_free(file: SqliteFile) -> None:
    async with lease.take(file):
        await write_holder(file, token="another", until=0.0)

        assert await file.read(lease.is_free)


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a dead process cannot be told from a living one")
async def test_a_lease_of_a_process_that_has_ended_is_free(file: SqliteFile) -> None:
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    async with lease.take(file):
        await write_holder(file, token="another", pid=ended.pid)

        assert await file.read(lease.is_free)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells when a process began")
async def test_a_lease_of_an_earlier_process_with_our_number_is_free(file: SqliteFile) -> None:
    async with lease.take(file):
        await write_holder(file, token="another", started="1")

        assert await file.read(lease.is_free)


async def test_a_lease_from_before_the_clock_was_set_back_is_free(file: SqliteFile) -> None:
    async with lease.take(file):
        await write_holder(file, token="another", host="elsewhere", until=time.time() + 1_000_000)

        assert await file.read(lease.is_free)


async def test_whoever_is_cancelled_while_taking_the_lease_leaves_it_free(file: SqliteFile) -> None:
    hold, held = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(connection: object) -> bool:
        loop.call_soon_threadsafe(held.set)
        hold.wait(30)
        return False

    async def take() -> None:
        async with lease.take(file):
            pass

    blocked = asyncio.create_task(file.write(slow))
    await held.wait()
    taking = asyncio.create_task(take())
    await asyncio.sleep(0)  # its write now stands in the queue behind the slow one
    taking.cancel()
    hold.set()
    await blocked
    with pytest.raises(asyncio.CancelledError):
        await taking

    assert await file.read(lease.is_free)


async def test_a_lease_of_another_machine_is_believed(file: SqliteFile) -> None:
    async with lease.take(file):
        await write_holder(file, token="another", host="elsewhere", pid=2**22 + 1)

        assert not await file.read(lease.is_free)


async def test_a_lease_that_was_taken_over_is_not_given_back_by_the_first_holder(file: SqliteFile) -> None:
    async with lease.take(file):
        await write_holder(file, token="another")

    assert not await file.read(lease.is_free)
