"""A memory with a fallback keeps the contract whichever of the two serves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from composable_memory.config.settings import SettingsModel
from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import BackendServices, BackendSpec, Capability, MemorySearchManager
from composable_memory.runtime.failover import FailoverMember, FallbackMemoryManager
from composable_memory.testing import (
    AnswerContract,
    BackendContract,
    InMemorySettings,
    Opener,
    ReadFileContract,
    SyncContract,
    in_memory_spec,
)
from composable_memory_adapters.builtin import spec as builtin_spec
from composable_memory_adapters.builtin.settings import BuiltinSettings
from tests.notes import NotesInWorkspace


@asynccontextmanager
async def open_nothing(
    settings: SettingsModel, services: BackendServices
) -> AsyncIterator[MemorySearchManager]:
    """Fail as a memory does whose program is not installed."""
    del settings, services
    raise BackendUnavailable("absent", "it is not installed", fix="install it")
    yield


absent_spec = BackendSpec(
    id="absent",
    summary="A memory that is not there.",
    settings=SettingsModel,
    open=open_nothing,
    capabilities=builtin_spec.capabilities,
)


def together(
    primary: BackendSpec,
    primary_settings: SettingsModel,
    fallback: BackendSpec,
    fallback_settings: SettingsModel,
    services: BackendServices,
) -> FallbackMemoryManager:
    return FallbackMemoryManager(
        FailoverMember(
            id=primary.id,
            open=lambda: primary.open(primary_settings, services),
            timeout_s=30,
            capabilities=primary.capabilities,
        ),
        FailoverMember(
            id=fallback.id,
            open=lambda: fallback.open(fallback_settings, services),
            timeout_s=30,
            capabilities=fallback.capabilities,
        ),
        ops_log=services.ops_log,
        clock=services.clock,
    )


class TestThePrimaryServes(BackendContract, AnswerContract, ReadFileContract):
    capabilities = in_memory_spec.capabilities

    @pytest.fixture
    def open_backend(self, services: BackendServices) -> Opener[MemorySearchManager]:
        return lambda: together(
            in_memory_spec, InMemorySettings(), in_memory_spec, InMemorySettings(notes={}), services
        )


class TestTheStandInServes(NotesInWorkspace, BackendContract, AnswerContract, ReadFileContract, SyncContract):
    """The primary is not installed, and the real builtin index answers in its place."""

    capabilities = frozenset(
        {Capability.ANSWER, Capability.CALIBRATED, Capability.READ_FILE, Capability.SYNC}
    )

    @pytest.fixture
    def open_backend(self, services: BackendServices) -> Opener[MemorySearchManager]:
        @asynccontextmanager
        async def open_and_sync() -> AsyncIterator[MemorySearchManager]:
            both = together(absent_spec, SettingsModel(), builtin_spec, BuiltinSettings(), services)
            async with both as memory:
                await memory.sync()
                assert memory.status().backend == "builtin"
                yield memory

        return open_and_sync
