"""The QMD memory keeps the contract over a daemon that stays, and with a process for every question."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from composable_memory.interfaces import MemorySearchManager
from composable_memory.testing import (
    SEED_QUESTIONS,
    AnswerContract,
    BackendContract,
    Opener,
    ReadFileContract,
    SyncContract,
    WriteNote,
)
from composable_memory_adapters.qmd import spec
from tests.integration.qmd.conftest import (  # noqa: F401 - fixtures
    OpenQmd,
    open_memory,
    qmd_command,
    qmd_settings,
)


class QmdContract(BackendContract, AnswerContract, SyncContract):
    """The QMD memory with the seeded notes in it."""

    capabilities = spec.capabilities
    way: ClassVar[str]

    @pytest.fixture
    def open_backend(self, open_memory: OpenQmd) -> Opener[MemorySearchManager]:
        @asynccontextmanager
        async def open_seeded() -> AsyncIterator[MemorySearchManager]:
            async with open_memory(daemon=self.way == "daemon") as memory:
                yield memory

        return open_seeded

    @pytest.fixture
    def write_note(self, workspace: Path) -> WriteNote:
        def write(path: str, text: str | None) -> None:
            target = workspace / path
            if text is None:
                target.unlink()
            else:
                target.write_text(text, encoding="utf-8", newline="")

        async def write_note(path: str, text: str | None) -> None:
            await asyncio.to_thread(write, path, text)

        return write_note

    async def test_questions_go_the_way_that_is_meant(self, open_memory: OpenQmd) -> None:
        async with open_memory(daemon=self.way == "daemon") as memory:
            answer = await memory.answer("ferry timetable")

            assert answer.engines["qmd"] == self.way


class TestDaemon(QmdContract):
    """A server on this machine answers, as in a memory that stays open."""

    way = "daemon"


class TestProcess(QmdContract, ReadFileContract):
    """Every question is a process, as in a single command, so fewer are asked; files are read here alone."""

    way = "process"
    questions = SEED_QUESTIONS[::5]  # English and Chinese
