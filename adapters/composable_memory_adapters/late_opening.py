"""Opens a backend whose modules are imported only then: listing backends must not load them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from composable_memory.interfaces import BackendServices, MemorySearchManager, OpenBackend

__all__ = ["opened_late"]


def opened_late(load: Callable[[], OpenBackend]) -> OpenBackend:
    """Return what opens a backend by what `load` returns; it is called in a thread, for importing takes time.

    The loop is not held up by it.
    """

    @asynccontextmanager
    async def open_backend(
        settings: Any,
        services: BackendServices,
    ) -> AsyncIterator[MemorySearchManager]:
        opener = await asyncio.to_thread(load)
        async with opener(settings, services) as memory:
            yield memory

    return open_backend
