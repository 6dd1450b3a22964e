"""The PostgreSQL memory keeps the contract, and ranks as the builtin memory does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
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
)
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.postgres import spec
from composable_memory_adapters.postgres.settings import PostgresSettings
from tests.notes import NotesInWorkspace


class PostgresContract(
    NotesInWorkspace, BackendContract, AnswerContract, ForgetContract, ReadFileContract, SyncContract
):
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


class TestHybrid(PostgresContract):
    embeds = True


@pytest.mark.thorough
class TestKeywordsOnly(PostgresContract):
    """No embedder: words are searched all the same."""
