"""Whatever QMD does wrong, a question ends in time with an answer or an error, and the next is answered."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.interfaces import BackendServices
from composable_memory.types import SearchAnswer
from composable_memory_adapters.qmd.backend import QmdMemory
from tests.integration.graphiti.processes import eventually
from tests.integration.qmd.conftest import OpenQmd, opener, settings_for, standing_of
from tests.integration.qmd.faulty_qmd import FAULTS, FaultyQmd, install
from tests.variants import variants

QUESTION = "ferry timetable Lindholm crossing"
LIMIT_MS = 8000
"""Where the limit is what is tested: long enough for a question on a busy machine."""
PATIENCE_S = 90.0
"""For a limit that does not hold; those that do are shorter."""
ENDLESS = {"drip", "hang"}

HARMLESS = ["long", "noise", "nul", "object"]
TOLD: dict[str, tuple[type[BackendError], str]] = {
    "crash": (BackendUnavailable, "Node 22"),
    "drip": (BackendTimeout, "limit"),
    "empty": (BackendGarbled, "expected a JSON array"),
    "enotdir": (BackendRejected, "ENOTDIR"),
    "flood": (BackendGarbled, "at most 4 MiB"),
    "hang": (BackendTimeout, "limit"),
    "locked": (BackendUnavailable, "busy"),
    "stderr-only": (BackendGarbled, "expected a JSON array"),
    "truncated": (BackendGarbled, "expected a JSON array"),
    "unknown-collection": (BackendRejected, "unknown collection"),
    "unknown-option": (BackendUnavailable, "unknown option"),
}


@pytest.fixture
def qmd(tmp_path: Path) -> FaultyQmd:
    """Return a double of QMD that fails as it is told to, and works until then."""
    return install(tmp_path / "faulty")


@pytest.fixture
async def memory(
    request: pytest.FixtureRequest, qmd: FaultyQmd, services: BackendServices
) -> AsyncIterator[QmdMemory]:
    """Return a memory over the double, which asks by a process for each question.

    Its limits are short only where a fault never ends by itself: elsewhere a busy machine would reach them.
    """
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    limits: dict[str, object] = {}
    if parameters.get("fault") in ENDLESS:
        limits["limits"] = {"timeout_ms": LIMIT_MS}
        limits["update"] = {"interval": 0, "update_timeout_ms": LIMIT_MS}
    async with opener(settings_for(qmd.command), services)(**limits) as memory:
        yield memory


async def asked(memory: QmdMemory) -> SearchAnswer:
    async with asyncio.timeout(PATIENCE_S):
        return await memory.answer(QUESTION)


def test_every_fault_is_tried() -> None:
    assert sorted([*HARMLESS, *TOLD]) == sorted(FAULTS)


@pytest.mark.parametrize("fault", variants(HARMLESS, "noise"))
async def test_what_stands_around_an_answer_does_no_harm(
    memory: QmdMemory, qmd: FaultyQmd, fault: str
) -> None:
    before = await asked(memory)
    qmd.will(fault)

    assert before.results
    assert await asked(memory) == before


@pytest.mark.parametrize("fault", variants(TOLD, "crash"))
async def test_a_fault_is_told_by_what_it_is_and_the_next_question_is_answered(
    memory: QmdMemory, qmd: FaultyQmd, fault: str
) -> None:
    before = await asked(memory)
    error, told = TOLD[fault]
    qmd.will(fault, times=1)

    with pytest.raises(error, match=told):
        await asked(memory)
    assert await asked(memory) == before


@pytest.mark.parametrize("fault", variants(["flood", "hang"], "hang"))
async def test_a_command_that_does_not_end_is_ended(memory: QmdMemory, qmd: FaultyQmd, fault: str) -> None:
    qmd.will(fault)
    with pytest.raises(BackendError):
        await asked(memory)

    assert not await asyncio.to_thread(running_in, qmd.folder)


@pytest.mark.parametrize("fault", variants(["crash", "hang", "locked"], "locked"))
async def test_an_update_that_fails_is_told_and_the_next_one_works(
    memory: QmdMemory, qmd: FaultyQmd, workspace: Path, fault: str
) -> None:
    before = await asked(memory)
    error, told = TOLD[fault]
    qmd.will(fault, on=["update"])
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(error, match=told):
            await memory.sync()
        meanwhile = await asked(memory)
        qmd.be_well()
        (workspace / "memory" / "2026-04-01.md").write_text("The lighthouse keeper has a parrot.\n")
        report = await memory.sync()

    assert meanwhile.results == before.results
    assert [one.code for one in meanwhile.degraded] == ["stale"]
    assert report.files_indexed == 1
    assert (await asked(memory)).degraded == ()


@pytest.mark.thorough
async def test_an_update_whose_report_cannot_be_read_leaves_the_answers(
    memory: QmdMemory, qmd: FaultyQmd
) -> None:
    before = await asked(memory)
    qmd.will("empty", on=["update"])
    await memory.sync()

    assert (await asked(memory)).results == before.results


@pytest.mark.thorough
async def test_a_daemon_that_hangs_is_passed_over_within_the_deadline(open_memory: OpenQmd) -> None:
    async with open_memory(daemon=True, limits={"timeout_ms": 12_000}) as memory:
        before = await asked(memory)
        daemon = pid_of_daemon(memory)
        os.kill(daemon, signal.SIGSTOP)
        try:
            meanwhile = await asked(memory)
        finally:
            os.kill(daemon, signal.SIGCONT)

        assert before.engines["qmd"] == "daemon"
        assert meanwhile.engines["qmd"] == "process"
        assert meanwhile.results == before.results


@pytest.mark.thorough
async def test_a_daemon_that_is_killed_is_passed_over_and_comes_back(open_memory: OpenQmd) -> None:
    async with open_memory(daemon=True) as memory:
        before = await asked(memory)
        killed = pid_of_daemon(memory)
        os.kill(killed, signal.SIGKILL)
        meanwhile = await asked(memory)
        await eventually(lambda: standing_of(memory)["daemon"]["pid"] not in (killed, None))
        await eventually(lambda: standing_of(memory)["daemon"]["state"] == "running")

        assert meanwhile.results == before.results
        assert await asked(memory) == before


def pid_of_daemon(memory: QmdMemory) -> int:
    pid = standing_of(memory)["daemon"]["pid"]
    assert isinstance(pid, int)
    return pid


def running_in(folder: Path) -> list[str]:
    """Return the commands of the processes that were started from a folder."""
    commands = []
    for told in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = told.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended meanwhile
            continue
        if any(word.startswith(str(folder)) for word in words):
            commands.append(" ".join(words))
    return commands
