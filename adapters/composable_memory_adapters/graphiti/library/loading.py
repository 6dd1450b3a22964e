"""Loads graphiti-core where it holds nobody up, or says how to get it."""

import asyncio
from importlib import import_module

from composable_memory.errors import BackendUnavailable

__all__ = ["load"]

PACKAGE = "composable_memory_adapters.graphiti.library"
ROOMS = ("core", "embedding", "drivers", "saving", "chat", "episode_reader")
FIX = "pip install 'composable-memory[graphiti]'"


async def load() -> None:
    """Import graphiti-core and our rooms that stand on it; from then on they are imported at no cost.

    The first time takes seconds, in a thread.

    Raises:
        BackendUnavailable: a package is missing.
    """
    await asyncio.to_thread(_load)


def _load() -> None:
    try:
        for room in ROOMS:
            import_module(f"{PACKAGE}.{room}")
    except ImportError as error:
        missing = f"the package {error.name or 'graphiti-core'} cannot be imported ({error})"
        raise BackendUnavailable("graphiti", missing, fix=FIX) from error
