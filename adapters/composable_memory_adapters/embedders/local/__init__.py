"""A GGUF model run in this process by llama.cpp: nothing leaves the machine, and any embedding model works.

The modules: `settings`; `models` (finds the file, reads its header, downloads it from a hub by
`download_process`); `embedder` (the loaded model and the `EmbedderAdapter`).
"""

from importlib.util import find_spec
from pathlib import Path

from composable_memory.interfaces import EmbedderServices, EmbedderSpec
from composable_memory.supervision.resource import lazy_open
from composable_memory_adapters.embedders.local.settings import INSTALL, PROVIDER, LocalSettings

__all__ = ["LocalSettings", "spec"]


def _missing() -> str | None:
    return None if find_spec("llama_cpp") else f"the package llama-cpp-python is not installed; {INSTALL}"


def _lacks(settings: LocalSettings, services: EmbedderServices) -> str | None:
    """Return what is missing. For `auto` the file must exist: nothing is downloaded unasked."""
    if settings.reference is None:
        return "no model file is set; name one in memory.embedding.providers.local.model_path"
    path = settings.path_of(services.state_dir)
    if path is None:
        return (
            f"{settings.reference} is on a model hub; give a file, or set memory.embedding.provider to "
            f"'local'"
        )
    return None if Path.is_file(path) else f"there is no file {path}"


spec = EmbedderSpec(
    id=PROVIDER,
    summary="A GGUF model run in this process by llama.cpp: private; languages and quality depend on the "
    "model.",
    settings=LocalSettings,
    open=lazy_open("composable_memory_adapters.embedders.local.embedder:open_local"),
    local=True,
    missing=_missing,
    lacks=_lacks,
)
