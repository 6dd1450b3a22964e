"""The QMD memory comes and goes without a trace, shares its home, and outlives what happens to its parts."""

import asyncio
import gc
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import BackendServices
from composable_memory.types import SearchAnswer
from composable_memory_adapters.qmd.backend import QmdMemory, open_qmd
from composable_memory_adapters.qmd.transport import daemon as daemon_module
from composable_memory_ops_logs import utc_now
from tests.integration.graphiti.processes import children, eventually, is_running
from tests.integration.qmd.conftest import OpenQmd, SettingsWith, daemon_running, standing_of
from tests.rounds import rounds

QUESTION = "ferry timetable Lindholm crossing"
ANSWER = "memory/2026-03-02.md"
ROUNDS = rounds(4, explore=20)


def pid_of_daemon(memory: QmdMemory) -> int:
    pid = standing_of(memory)["daemon"]["pid"]
    assert isinstance(pid, int)
    return pid


def index_of(memory: QmdMemory) -> Path:
    return Path(str(standing_of(memory)["index"]["file"]))


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - iterdir would keep one open while it counts


def threads_besides(before: set[threading.Thread]) -> list[str]:
    """Return the names of new threads; the loop's own pool may grow, it ends with the loop."""
    new = [thread.name for thread in threading.enumerate() if thread not in before]
    return [name for name in new if not name.startswith("asyncio_")]


def first_path(answer: SearchAnswer) -> str:
    return answer.results[0].path


# --- closing ---


@pytest.mark.thorough
@pytest.mark.parametrize("daemon", [True, False], ids=["daemon", "process"])
async def test_closing_during_a_search_ends_it_with_an_answer_or_a_clear_error(
    open_memory: OpenQmd, daemon: bool
) -> None:
    before = children()
    async with open_memory(daemon=daemon) as memory:
        searches = [asyncio.create_task(memory.answer(QUESTION)) for _ in range(4)]
        await asyncio.sleep(0)
        await memory.close()
        ends = await asyncio.gather(*searches, return_exceptions=True)
        with pytest.raises(BackendUnavailable, match="closed"):
            await memory.answer(QUESTION)

    for end in ends:
        assert isinstance(end, BackendUnavailable) or (isinstance(end, SearchAnswer) and end.results)
    assert children() == before


async def test_closing_during_a_sync_ends_it(open_memory: OpenQmd) -> None:
    before = children()
    async with open_memory(sync=False) as memory:
        syncing = asyncio.create_task(memory.sync())
        await eventually(lambda: children() != before)
        await memory.close()

        with pytest.raises(BackendUnavailable, match="closed"):
            await syncing
    assert children() == before


@pytest.mark.thorough
async def test_a_cancelled_search_leaves_the_memory_usable_and_no_process(open_memory: OpenQmd) -> None:
    async with open_memory() as memory:
        before = children()
        searching = asyncio.create_task(memory.answer(QUESTION))
        await eventually(lambda: children() != before)
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching

        assert children() == before
        assert first_path(await memory.answer(QUESTION)) == ANSWER


@pytest.mark.thorough
@pytest.mark.timeout(120)
async def test_memories_that_open_and_close_leave_neither_thread_nor_descriptor_nor_process(
    open_memory: OpenQmd,
) -> None:
    async def use(*, daemon: bool) -> None:
        async with open_memory(daemon=daemon, sync=False) as memory:
            await memory.answer(QUESTION)

    async with open_memory():
        pass
    for daemon in (True, False):  # what imported packages open once and keep
        await use(daemon=daemon)
    gc.collect()
    before = children(), open_descriptors()
    threads = set(threading.enumerate())

    for number in range(ROUNDS):
        await use(daemon=number % 2 == 0)
    gc.collect()

    assert threads_besides(threads) == []
    assert (children(), open_descriptors()) == before
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("qmd")] == []


# --- two at once ---


@pytest.mark.thorough
async def test_two_memories_of_one_workspace_share_a_daemon_and_an_index(
    open_memory: OpenQmd, workspace: Path
) -> None:
    async with open_memory(daemon=True) as one, open_memory(daemon=True, sync=False) as other:
        (workspace / "memory" / "bird.md").write_text("The parrot is called Bosun.\n", encoding="utf-8")
        await asyncio.gather(one.sync(), other.sync())
        answers = await asyncio.gather(*(memory.answer("parrot Bosun") for memory in (one, other) * 4))

        assert {first_path(answer) for answer in answers} == {"memory/bird.md"}
        daemon = pid_of_daemon(one)
        assert daemon == pid_of_daemon(other)
    await eventually(lambda: not is_running(daemon))


@pytest.mark.thorough
async def test_one_that_closes_leaves_the_other_with_a_daemon(open_memory: OpenQmd) -> None:
    async with open_memory(daemon=True) as first, open_memory(daemon=True, sync=False) as second:
        left = pid_of_daemon(first)
        await first.close()
        meanwhile = await second.answer(QUESTION)
        await eventually(lambda: standing_of(second)["daemon"]["pid"] not in (left, None))
        await daemon_running(second)
        after = await second.answer(QUESTION)

    assert (first_path(meanwhile), after.engines["qmd"]) == (ANSWER, "daemon")
    await eventually(lambda: not is_running(left))


# --- a new database ---


@pytest.mark.thorough
async def test_after_a_damaged_database_was_set_aside_the_daemon_has_the_new_one(
    open_memory: OpenQmd,
) -> None:
    async with open_memory(daemon=True) as memory:
        old = pid_of_daemon(memory)
        damage(index_of(memory))
        report = await memory.sync(force=True)
        meanwhile = await memory.answer(QUESTION)
        await eventually(lambda: standing_of(memory)["daemon"]["pid"] not in (old, None))
        await daemon_running(memory)
        after = await memory.answer(QUESTION)

    assert "index.sqlite.damaged" in report.problems[0]
    assert first_path(meanwhile) == ANSWER
    assert (after.engines["qmd"], after.results) == ("daemon", meanwhile.results)


@pytest.mark.thorough
async def test_a_database_that_a_single_command_has_renewed_reaches_the_daemon(
    open_memory: OpenQmd,
    qmd_settings: SettingsWith,
    services: BackendServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon_module, "POLL_S", 0.1)  # or nobody would look for five seconds
    command = replace(services, clock=utc_now, is_long_lived=False)
    async with open_memory(daemon=True) as staying:
        old = pid_of_daemon(staying)
        damage(index_of(staying))
        async with open_qmd(qmd_settings(), command) as memory:
            await memory.sync(force=True)
            answer = await memory.answer(QUESTION)
        await eventually(lambda: standing_of(staying)["daemon"]["pid"] not in (old, None))
        await daemon_running(staying)
        after = await staying.answer(QUESTION)

    assert after.engines["qmd"] == "daemon"
    assert answer.results == after.results != ()


def damage(index: Path) -> None:
    """Overwrite a database that a daemon has open."""
    for part in ("-wal", "-shm"):
        index.with_name(index.name + part).unlink(missing_ok=True)
    index.write_bytes(b"This is no database. " * 500)
