"""Opening and closing a memory leaves nothing behind: no thread, no file descriptor, no task."""

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.interfaces import BackendServices
from composable_memory_adapters.builtin.backend import BuiltinMemory
from composable_memory_adapters.builtin.notes.note_scope import choose
from composable_memory_adapters.builtin.settings import BuiltinSettings
from tests.rounds import rounds

ROUNDS = rounds(10, explore=50)
DESCRIPTORS = Path("/proc/self/fd") if Path("/proc/self/fd").is_dir() else Path("/dev/fd")


def open_descriptors() -> int:
    return len(os.listdir(DESCRIPTORS))  # noqa: PTH208 - iterdir would keep one open while it counts


def threads_besides(before: set[threading.Thread]) -> list[str]:
    """Return the names of new threads; the loop's own pool may grow, it ends with the loop."""
    new = [thread.name for thread in threading.enumerate() if thread not in before]
    return [name for name in new if not name.startswith("asyncio_")]


async def ended_besides(before: set[threading.Thread]) -> None:
    """Return when no thread is there but those."""
    async with asyncio.timeout(30):
        while threads_besides(before):  # noqa: ASYNC110 - a thread that ends tells nobody
            await asyncio.sleep(0.01)


async def use_once(workspace: Path, state_dir: Path, *, then: Callable[[], object] = bool) -> None:
    async with open_memory(workspace, state_dir) as memory:
        await memory.sync()
        await memory.search("ferry harbour")
        then()


@pytest.fixture
async def threads(workspace: Path, state_dir: Path) -> set[threading.Thread]:
    """Return the threads that stay after first use: those of imported packages and of the loop."""
    await use_once(workspace, state_dir)
    return set(threading.enumerate())


@pytest.mark.thorough
@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="the system does not list its descriptors")
async def test_many_memories_leave_no_thread_and_no_descriptor(
    workspace: Path, state_dir: Path, threads: set[threading.Thread]
) -> None:
    for _ in range(3):  # what imported packages open once and keep
        await use_once(workspace, state_dir)
    gc.collect()
    descriptors = open_descriptors()

    for _ in range(ROUNDS):
        await use_once(workspace, state_dir)
    gc.collect()

    assert threads_besides(threads) == []
    assert open_descriptors() <= descriptors


async def test_a_closed_memory_leaves_no_task(workspace: Path, state_dir: Path) -> None:
    await use_once(workspace, state_dir)

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_memory_whose_block_raises_is_closed_all_the_same(
    workspace: Path, state_dir: Path, threads: set[threading.Thread]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use_once(workspace, state_dir, then=fail)

    assert threads_besides(threads) == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("turns", [0, 1, 3, 9, 27, 81])
async def test_a_memory_that_is_cancelled_while_it_opens_leaves_nothing(
    workspace: Path, state_dir: Path, threads: set[threading.Thread], turns: int
) -> None:
    opening = asyncio.create_task(use_once(workspace, state_dir))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])

    await ended_besides(threads)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_close_that_is_cancelled_releases_everything_all_the_same(services: BackendServices) -> None:
    before = set(threading.enumerate())
    scope = await asyncio.to_thread(choose, BuiltinSettings(), services)
    memory = BuiltinMemory(BuiltinSettings(), replace(services, is_long_lived=True), scope)
    await memory.open()
    await memory.sync()
    closing = asyncio.create_task(memory.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    await ended_besides(before)
