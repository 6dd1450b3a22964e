"""The QMD memory keeps the contract over a daemon that stays, and with a process for every question."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from composable_memory.interfaces import MemorySearchManager
from composable_memory.testing import (
    SEED_NOTES,
    SEED_QUESTIONS,
    AnswerContract,
    BackendContract,
    ForgetContract,
    Opener,
    ReadFileContract,
    SyncContract,
)
from composable_memory.testing.contracts.opening import BackendSuite
from composable_memory_adapters.qmd import spec
from composable_memory_adapters.qmd.backend import QmdMemory
from tests.contract.in_short import InShort
from tests.integration.qmd.conftest import (  # noqa: F401 - fixtures
    OpenQmd,
    open_memory,
    qmd_command,
    qmd_settings,
)
from tests.notes import NotesInWorkspace


@pytest.fixture(scope="class")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what the tests of a class share."""
    return tmp_path_factory.mktemp("shared")


class QmdBackend(BackendSuite):
    """The QMD memory over notes that nobody changes, so that its tests share one index."""

    capabilities = spec.capabilities
    way: ClassVar[str]

    @pytest.fixture
    def workspace(self, shared: Path) -> Path:
        folder = shared / "workspace"
        for path, text in SEED_NOTES.items():
            target = folder / path
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", newline="")
        return folder

    @pytest.fixture
    def state_dir(self, shared: Path) -> Path:
        folder = shared / "state"
        folder.mkdir(exist_ok=True)
        return folder

    @pytest.fixture
    def open_backend(self, open_memory: OpenQmd, state_dir: Path) -> Opener[MemorySearchManager]:
        is_indexed = any(state_dir.glob("agents/*/*/upkeep.json"))

        @asynccontextmanager
        async def open_seeded() -> AsyncIterator[MemorySearchManager]:
            async with open_memory(daemon=self.way == "daemon", sync=not is_indexed) as memory:
                yield memory

        return open_seeded

    async def test_questions_go_the_way_that_is_meant(
        self, open_backend: Opener[MemorySearchManager]
    ) -> None:
        async with open_backend() as memory:
            assert isinstance(memory, QmdMemory)
            answer = await memory.answer("ferry timetable")

            assert answer.engines["qmd"] == self.way


class QmdContract(QmdBackend, BackendContract, AnswerContract): ...


@pytest.mark.thorough
class TestDaemon(QmdContract, ReadFileContract):
    """A server on this machine answers, as in a memory that stays open."""

    way = "daemon"


class TestInShort(QmdBackend, InShort):
    """What every run tries of these contracts."""

    way = "daemon"
    test_what_is_not_a_note_is_refused = ReadFileContract.test_what_is_not_a_note_is_refused


@pytest.mark.thorough
class TestProcess(QmdContract):
    """Every question is a process, as in a single command, so fewer are asked."""

    way = "process"
    questions = SEED_QUESTIONS[::5]  # English and Chinese


@pytest.mark.thorough
class TestChangingNotes(NotesInWorkspace, SyncContract, ForgetContract):
    """The server answers from an index that is updated beside it, and every test has an index of its own."""

    capabilities = spec.capabilities

    @pytest.fixture
    def open_backend(self, open_memory: OpenQmd) -> Opener[MemorySearchManager]:
        return lambda: open_memory(daemon=True)
