"""The QMD memory: Markdown searched by the QMD command, which runs beside us and keeps its own index."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from composable_memory.interfaces import BackendServices, BackendSpec, Capability, MemorySearchManager
from composable_memory_adapters.qmd.asking import mcporter
from composable_memory_adapters.qmd.machine import installation
from composable_memory_adapters.qmd.settings import QmdSettings

__all__ = ["QmdSettings", "spec"]

Open = Callable[[QmdSettings, BackendServices], AbstractAsyncContextManager[MemorySearchManager]]


@asynccontextmanager
async def _open(settings: QmdSettings, services: BackendServices) -> AsyncIterator[MemorySearchManager]:
    # Listing backends must not load an HTTP client, and loading one must not hold up the loop.
    open_qmd = await asyncio.to_thread(_load)
    async with open_qmd(settings, services) as memory:
        yield memory


def _load() -> Open:
    from composable_memory_adapters.qmd.backend import open_qmd

    return open_qmd


def _lacking(settings: QmdSettings) -> str | None:
    """Return what these settings need that is not installed, and the line that installs it."""
    without_mcporter = installation.lacking(settings)
    if without_mcporter is None and settings.mcporter.enabled:
        return mcporter.lacking(settings.mcporter)
    return without_mcporter


spec = BackendSpec(
    id="qmd",
    summary="Markdown of the workspace and of any other folder, searched by the QMD command",
    settings=QmdSettings,
    open=_open,
    capabilities=frozenset({Capability.ANSWER, Capability.CALIBRATED, Capability.READ_FILE, Capability.SYNC}),
    lacks=_lacking,
)
