"""The builtin memory: Markdown notes of a workspace in one SQLite file, searched by words and meaning."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from composable_memory.interfaces import BackendServices, BackendSpec, Capability, MemorySearchManager
from composable_memory_adapters.builtin.settings import BuiltinSettings

__all__ = ["BuiltinSettings", "spec"]

Open = Callable[[BuiltinSettings, BackendServices], AbstractAsyncContextManager[MemorySearchManager]]


@asynccontextmanager
async def _open(settings: BuiltinSettings, services: BackendServices) -> AsyncIterator[MemorySearchManager]:
    # Listing backends must not load a database, and loading one must not hold up the loop.
    open_builtin = await asyncio.to_thread(_load)
    async with open_builtin(settings, services) as memory:
        yield memory


def _load() -> Open:
    from composable_memory_adapters.builtin.backend import open_builtin

    return open_builtin


spec = BackendSpec(
    id="builtin",
    summary="Markdown notes of the workspace, searched by words and by meaning",
    settings=BuiltinSettings,
    open=_open,
    capabilities=frozenset({Capability.ANSWER, Capability.CALIBRATED, Capability.READ_FILE, Capability.SYNC}),
)
