"""The builtin memory keeps the contract at each of its four levels, from hybrid down to disabled."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import pytest

from composable_memory.interfaces import BackendServices, MemorySearchManager, SupportsSync
from composable_memory.testing import (
    SEED_QUESTIONS,
    AnswerContract,
    BackendContract,
    ForgetContract,
    HashEmbedder,
    Opener,
    ReadFileContract,
    SyncContract,
)
from composable_memory_adapters.builtin import spec
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from tests.notes import NotesInWorkspace

OFF = {"enabled": False}


class BuiltinContract(NotesInWorkspace, BackendContract, AnswerContract, ReadFileContract, SyncContract):
    """The builtin memory, synced once, with the settings and the embedder of a level."""

    capabilities = spec.capabilities
    options: ClassVar[Mapping[str, object]] = {}
    embeds: ClassVar[bool] = False

    @pytest.fixture
    def open_backend(
        self, services: BackendServices, word_vectors: WordLlamaEmbedder
    ) -> Opener[MemorySearchManager]:
        if self.embeds:
            services = replace(services, embedder=word_vectors, embedder_problem=None)
        settings = BuiltinSettings.model_validate(self.options)

        @asynccontextmanager
        async def open_level() -> AsyncIterator[MemorySearchManager]:
            async with spec.open(settings, services) as memory:
                assert isinstance(memory, SupportsSync)
                await memory.sync()
                yield memory

        return open_level


class TestHybrid(BuiltinContract, ForgetContract):
    embeds = True


class TestKeywordsOnly(BuiltinContract):
    """No embedder: keywords are indexed and searched all the same."""


@pytest.mark.thorough
class TestVectorsOnly(BuiltinContract):
    embeds = True
    options: ClassVar = {"store": {"fts": OFF}}
    questions = SEED_QUESTIONS[:-1]  # the packaged model knows no Chinese


@pytest.mark.thorough
class TestDisabled(BuiltinContract):
    """Neither keywords nor vectors: empty answers that say why."""

    options: ClassVar = {"store": {"fts": OFF, "vector": OFF}}
    questions = ()


class TestHybridOverAnyEmbedder(BuiltinContract):
    """An embedder from elsewhere, with other dimensions, is as good as the packaged one."""

    @pytest.fixture
    def services(self, services: BackendServices) -> BackendServices:
        return replace(services, embedder=HashEmbedder(dimensions=48), embedder_problem=None)
