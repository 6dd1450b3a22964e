"""The fakes keep the contracts, which shows that the contracts can be kept."""

from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from composable_memory.forget.report import Forgetting, Holding
from composable_memory.interfaces import (
    BackendServices,
    Capability,
    EmbedderAdapter,
    GraphAdapter,
    MemorySearchManager,
)
from composable_memory.testing import (
    AnswerContract,
    BackendContract,
    EmbedderContract,
    ForgetContract,
    GraphContract,
    HashEmbedder,
    InMemoryBackend,
    InMemoryGraph,
    InMemorySettings,
    Opener,
    ReadFileContract,
    WriteNote,
    in_memory_spec,
)


class TestInMemoryBackend(BackendContract, AnswerContract, ReadFileContract):
    capabilities = in_memory_spec.capabilities

    @pytest.fixture
    def open_backend(self, services: BackendServices) -> Opener[MemorySearchManager]:
        return lambda: in_memory_spec.open(InMemorySettings(), services)


class ForgettingMemory(InMemoryBackend):
    """Keeps what it was told of a note until it is to forget lines of it."""

    async def write(self, path: str, text: str | None) -> None:
        self._notes.setdefault(path, text or "")

    async def holdings(self, wanted: Forgetting) -> Sequence[Holding]:
        count = sum(line in self._notes.get(path, "") for path in wanted.paths for line in wanted.texts)
        return (Holding(store=self.id, what="lines", count=count),)

    async def erase(self, wanted: Forgetting) -> Sequence[Holding]:
        found = await self.holdings(wanted)
        for path in wanted.paths:
            kept = [row for row in self._notes.get(path, "").split("\n") if row not in wanted.texts]
            self._notes[path] = "\n".join(kept)
        return found


class TestForgettingMemory(ForgetContract):
    capabilities = frozenset({*in_memory_spec.capabilities, Capability.FORGET})
    memory: ForgettingMemory

    @pytest.fixture
    def open_backend(self) -> Opener[MemorySearchManager]:
        self.memory = ForgettingMemory()
        return lambda: nullcontext(self.memory)

    @pytest.fixture
    def write_note(self) -> WriteNote:
        return self.memory.write


class TestHashEmbedder(EmbedderContract):
    @pytest.fixture
    def open_embedder(self) -> Opener[EmbedderAdapter]:
        return lambda: nullcontext(HashEmbedder())


class TestInMemoryGraph(GraphContract):
    @pytest.fixture
    def open_graph(self) -> Opener[GraphAdapter]:
        return lambda: nullcontext(InMemoryGraph())
