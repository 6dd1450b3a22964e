"""The only importer of graphiti-core: writes to the graph, and reads episodes with a language model.

It is imported in a thread, without its telemetry and without the environment variables it would read.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.graphiti.database.requirements import INSTALL
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID

__all__ = ["load", "undisturbed"]

SILENCED = {"GRAPHITI_TELEMETRY_ENABLED": "false", "PYTHON_DOTENV_DISABLED": "1"}
HIDDEN = (
    "CHUNK_DENSITY_THRESHOLD",
    "CHUNK_MIN_TOKENS",
    "CHUNK_OVERLAP_TOKENS",
    "CHUNK_TOKEN_SIZE",
    "EMBEDDING_DIM",
    "SEMAPHORE_LIMIT",
    "USE_PARALLEL_RUNTIME",
)
"""Variables read at import: an invalid one would make the import fail."""

_one_at_a_time = Lock()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run a block that imports or opens graphiti-core, and restore the environment afterwards."""
    with _one_at_a_time:
        before = dict(os.environ)
        os.environ.update(SILENCED)
        for name in HIDDEN:
            os.environ.pop(name, None)
        try:
            yield
        finally:
            _restore(before)


def _restore(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


MODULES = ("core", "bridges", "chat", "episode_reader")


async def load() -> None:
    """Import graphiti-core and our modules that need it; later imports of them are free.

    The first call takes seconds, in a thread.

    Raises:
        BackendUnavailable: a package is missing.
    """
    await asyncio.to_thread(_load)


def _load() -> None:
    try:
        for module in MODULES:
            import_module(f"{__name__}.{module}")
    except ImportError as error:
        missing = f"the package {error.name or 'graphiti-core'} cannot be imported ({error})"
        raise BackendUnavailable(BACKEND_ID, missing, fix=INSTALL) from error
