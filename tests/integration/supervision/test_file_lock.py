"""The lock between processes: one holder, no blocked loop, and free again however the holder ends."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from composable_memory.errors import BackendUnavailable
from composable_memory.supervision.file_lock import file_lock, hold_lock
from tests.integration.graphiti.processes import HOUSES, PATIENCE_S

HOLDER = """
import asyncio, sys
from pathlib import Path
from composable_memory.supervision.file_lock import file_lock

async def main():
    async with file_lock(Path(sys.argv[1]), owner="test", patience_s=0.0) as is_ours:
        print(is_ours, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / "work.lock"


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - iterdir would keep one open while it counts


async def is_free(lock_file: Path) -> bool:
    async with file_lock(lock_file, owner="test", patience_s=0.0) as is_ours:
        return is_ours


async def test_only_one_holds_the_lock(lock_file: Path) -> None:
    async with (
        file_lock(lock_file, owner="test", patience_s=0.0) as first,
        file_lock(lock_file, owner="test", patience_s=0.1) as second,
    ):
        assert (first, second) == (True, False)


async def test_the_lock_is_free_after_the_block(lock_file: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with file_lock(lock_file, owner="test", patience_s=0.0):
            _ = 1 / 0

    assert await is_free(lock_file)


async def test_who_waits_gets_the_lock_when_it_is_given_back(lock_file: Path) -> None:
    order = []

    async def wait() -> None:
        async with file_lock(lock_file, owner="test", patience_s=PATIENCE_S) as is_ours:
            order.append(("second", is_ours))

    async with file_lock(lock_file, owner="test", patience_s=0.0):
        waiting = asyncio.create_task(wait())
        assert not await is_free(lock_file)
        order.append(("first", True))
    await waiting

    assert order == [("first", True), ("second", True)]


async def test_the_death_of_its_holder_frees_the_lock(lock_file: Path) -> None:
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDER, str(lock_file)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, HOUSES))},
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert await asyncio.wait_for(holder.stdout.readline(), PATIENCE_S) == b"True\n"
    assert not await is_free(lock_file)

    holder.kill()
    await holder.communicate()

    assert await is_free(lock_file)


async def test_a_process_that_was_started_meanwhile_does_not_keep_the_lock(lock_file: Path) -> None:
    async with file_lock(lock_file, owner="test", patience_s=0.0):
        sleeper = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        assert await is_free(lock_file)
    finally:
        sleeper.kill()
        await sleeper.wait()


async def test_being_cancelled_at_any_moment_leaves_the_lock_free(lock_file: Path) -> None:
    async def hold() -> None:
        async with file_lock(lock_file, owner="test", patience_s=PATIENCE_S):
            await asyncio.Event().wait()

    assert await is_free(lock_file)
    before = open_descriptors()

    for turns in range(20):
        holding = asyncio.create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        # A thread may still be about to take it, for nobody, and gives it back.
        async with file_lock(lock_file, owner="test", patience_s=PATIENCE_S) as is_ours:
            assert is_ours

    async with asyncio.timeout(PATIENCE_S):
        while open_descriptors() != before:  # noqa: ASYNC110 - descriptors that are closed tell nobody
            await asyncio.sleep(0.005)


async def test_a_place_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"no-such-folder/work\.lock cannot be locked"):
        await is_free(tmp_path / "no-such-folder" / "work.lock")


def test_a_child_that_inherits_the_lock_holds_it_on(lock_file: Path) -> None:
    with hold_lock(lock_file) as lock, hold_lock(lock_file) as second:
        assert lock is not None
        assert second is None
        child = subprocess.Popen(["sleep", "600"], stdin=lock)
    try:
        with hold_lock(lock_file) as while_it_lives:
            assert while_it_lives is None
    finally:
        child.kill()
        child.wait()
    with hold_lock(lock_file) as afterwards:
        assert afterwards is not None
