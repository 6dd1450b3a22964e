"""A composite is a memory like those it is made of, so composites nest."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from composable_memory.interfaces import Capability, MemorySearchManager
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.testing import (
    SEED_NOTES,
    AnswerContract,
    BackendContract,
    InMemoryBackend,
    Opener,
    ReadFileContract,
)
from composable_memory_ops_logs import OpsLog

PATHS = list(SEED_NOTES)
FIRST_HALF = {path: SEED_NOTES[path] for path in PATHS[::2]}
SECOND_HALF = {path: SEED_NOTES[path] for path in PATHS[1::2]}


def composite_of(name: str, *managers: MemorySearchManager, ops_log: OpsLog) -> ComposableMemoryManager:
    entries = [ComposableBackendEntry(id=f"{n}", manager=manager) for n, manager in enumerate(managers)]
    return ComposableMemoryManager(entries, id=name, ops_log=ops_log)


class TestNestedComposite(BackendContract, AnswerContract, ReadFileContract):
    capabilities = frozenset({Capability.ANSWER, Capability.CALIBRATED, Capability.READ_FILE})

    @pytest.fixture
    def open_backend(self, ops_log: OpsLog) -> Opener[MemorySearchManager]:
        @asynccontextmanager
        async def open_composite() -> AsyncIterator[MemorySearchManager]:
            inner = composite_of("inner", InMemoryBackend(SECOND_HALF), ops_log=ops_log)
            async with composite_of("outer", InMemoryBackend(FIRST_HALF), inner, ops_log=ops_log) as outer:
                yield outer

        return open_composite

    async def test_it_declares_what_its_members_can_do(
        self, open_backend: Opener[MemorySearchManager]
    ) -> None:
        async with open_backend() as memory:
            assert isinstance(memory, ComposableMemoryManager)
            assert memory.capabilities == self.capabilities


class TestCompositeOfMemoriesThatShareTheirNotes(BackendContract, AnswerContract, ReadFileContract):
    capabilities = TestNestedComposite.capabilities

    @pytest.fixture
    def open_backend(self, ops_log: OpsLog) -> Opener[MemorySearchManager]:
        return lambda: composite_of("twins", InMemoryBackend(), InMemoryBackend(), ops_log=ops_log)
