"""The PostgreSQL memory keeps the contract, and ranks as the builtin memory does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from composable_memory.interfaces import BackendServices, MemorySearchManager, SupportsSync
from composable_memory.testing import (
    AnswerContract,
    BackendContract,
    ForgetContract,
    Opener,
    ReadFileContract,
    SyncContract,
    WriteNote,
)
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.postgres import spec
from composable_memory_adapters.postgres.settings import PostgresSettings


class PostgresContract(BackendContract, AnswerContract, ForgetContract, ReadFileContract, SyncContract):
    """A workspace on a server, synced once from a folder."""

    capabilities = spec.capabilities
    embeds: ClassVar[bool] = False

    @pytest.fixture
    def open_backend(
        self, services: BackendServices, word_vectors: WordLlamaEmbedder, team_settings: PostgresSettings
    ) -> Opener[MemorySearchManager]:
        if self.embeds:
            services = replace(services, embedder=word_vectors, embedder_problem=None)

        @asynccontextmanager
        async def open_synced() -> AsyncIterator[MemorySearchManager]:
            async with spec.open(team_settings, services) as memory:
                assert isinstance(memory, SupportsSync)
                await memory.sync()
                yield memory

        return open_synced

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


class TestHybrid(PostgresContract):
    embeds = True


@pytest.mark.thorough
class TestKeywordsOnly(PostgresContract):
    """No embedder: words are searched all the same."""
