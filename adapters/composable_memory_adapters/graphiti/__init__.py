"""The graph memory: facts about people and things with the time in which they hold, kept by Graphiti."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from composable_memory.interfaces import BackendServices, BackendSpec, Capability, MemorySearchManager
from composable_memory_adapters.graphiti.database.requirements import lacking
from composable_memory_adapters.graphiti.settings import GraphitiSettings

__all__ = ["GraphitiSettings", "spec"]

Open = Callable[[GraphitiSettings, BackendServices], AbstractAsyncContextManager[MemorySearchManager]]


@asynccontextmanager
async def _open(settings: GraphitiSettings, services: BackendServices) -> AsyncIterator[MemorySearchManager]:
    # Listing backends must not load a database's client, and loading one must not hold up the loop.
    open_graphiti = await asyncio.to_thread(_load)
    async with open_graphiti(settings, services) as memory:
        yield memory


def _load() -> Open:
    from composable_memory_adapters.graphiti.backend import open_graphiti

    return open_graphiti


spec = BackendSpec(
    id="graphiti",
    summary="Facts and relations with the time in which they hold, in a graph",
    settings=GraphitiSettings,
    open=_open,
    capabilities=frozenset(
        {
            Capability.ANSWER,
            Capability.CALIBRATED,
            Capability.FACTS,
            Capability.INGEST,
            Capability.READ_FILE,
            Capability.SYNC,
        }
    ),
    lacks=lacking,
)
