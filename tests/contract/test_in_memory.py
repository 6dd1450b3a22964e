"""The fakes keep the contracts, which shows that the contracts can be kept."""

from contextlib import nullcontext

import pytest

from composable_memory.interfaces import BackendServices, EmbedderAdapter, GraphAdapter, MemorySearchManager
from composable_memory.testing import (
    AnswerContract,
    BackendContract,
    EmbedderContract,
    GraphContract,
    HashEmbedder,
    InMemoryGraph,
    InMemorySettings,
    Opener,
    ReadFileContract,
    in_memory_spec,
)


class TestInMemoryBackend(BackendContract, AnswerContract, ReadFileContract):
    capabilities = in_memory_spec.capabilities

    @pytest.fixture
    def open_backend(self, services: BackendServices) -> Opener[MemorySearchManager]:
        return lambda: in_memory_spec.open(InMemorySettings(), services)


class TestHashEmbedder(EmbedderContract):
    @pytest.fixture
    def open_embedder(self) -> Opener[EmbedderAdapter]:
        return lambda: nullcontext(HashEmbedder())


class TestInMemoryGraph(GraphContract):
    @pytest.fixture
    def open_graph(self) -> Opener[GraphAdapter]:
        return lambda: nullcontext(InMemoryGraph())
