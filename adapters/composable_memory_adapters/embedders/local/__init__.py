"""A GGUF model in this process, by llama.cpp: nothing leaves the machine, and any embedding model will do.

The modules: `settings`, `models` (which file, what its header says, its download from a hub by
`download_process`), `llama` (the loaded model), `embedder` (the `EmbedderAdapter`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from composable_memory.interfaces import EmbedderAdapter, EmbedderServices, EmbedderSpec
from composable_memory_adapters.embedders.local.settings import INSTALL, PROVIDER, LocalSettings

__all__ = ["LocalSettings", "spec"]

Open = Callable[[LocalSettings, EmbedderServices], AbstractAsyncContextManager[EmbedderAdapter]]


@asynccontextmanager
async def _open(settings: LocalSettings, services: EmbedderServices) -> AsyncIterator[EmbedderAdapter]:
    open_local = await asyncio.to_thread(_load)
    async with open_local(settings, services) as embedder:
        yield embedder


def _load() -> Open:
    # Listing providers is part of every command, and most of them never come here.
    from composable_memory_adapters.embedders.local.embedder import open_local

    return open_local


def _missing() -> str | None:
    return None if find_spec("llama_cpp") else f"the package llama-cpp-python is not installed; {INSTALL}"


def _lacks(settings: LocalSettings, services: EmbedderServices) -> str | None:
    """Return what is missing. `auto` needs a file that is there: nobody gets a download unasked."""
    if settings.reference is None:
        return "no model file is set; name one in memory.embedding.providers.local.model_path"
    path = settings.path_of(services.state_dir)
    if path is None:
        return f"{settings.reference} is on a hub; name a file, or set memory.embedding.provider to 'local'"
    return None if Path.is_file(path) else f"there is no file {path}"


spec = EmbedderSpec(
    id=PROVIDER,
    summary="A GGUF model in this process, by llama.cpp: private, any language, as good as the model.",
    settings=LocalSettings,
    open=_open,
    local=True,
    missing=_missing,
    lacks=_lacks,
)
