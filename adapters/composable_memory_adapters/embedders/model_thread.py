"""A dedicated thread for a model in this process, which the first call loads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, TypeVar

from composable_memory.errors import EmbedderUnavailable

ModelT = TypeVar("ModelT")
T = TypeVar("T")


class ModelThread(Generic[ModelT]):
    """Loads a model and runs all work with it, one call at a time, until it is closed.

    `provider` and `model` name it in errors. `free` releases memory that Python does not manage.
    """

    def __init__(self, provider: str, model: str, *, free: Callable[[ModelT], None] = lambda _: None) -> None:
        self._names = provider, model
        self._free = free
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=provider)
        self._loaded: ModelT | None = None
        self._is_closed = False

    async def run(self, load: Callable[[], ModelT], work: Callable[[ModelT], T]) -> T:
        """Run `work` on the model, which `load` creates on the first call.

        Raises:
            EmbedderUnavailable: it is closed, or was closed before the work began.
        """

        def in_thread() -> T:
            if self._is_closed:
                raise self.closed()
            if self._loaded is None:
                self._loaded = load()
            return work(self._loaded)

        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread, in_thread)
        except RuntimeError as error:  # raised by an executor that was shut down
            raise self.closed() from error
        return await future

    async def close(self) -> None:
        """Wait for running work and free the model; idempotent."""
        self._is_closed = True
        await asyncio.to_thread(self._thread.shutdown)
        if self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            await asyncio.to_thread(self._free, loaded)

    def closed(self) -> EmbedderUnavailable:
        """Return the error for a call after closing."""
        return EmbedderUnavailable(*self._names, "the embedder is closed", "open a new one")


def package_folder(package: str, provider: str, model: str, *, install: str) -> Path:
    """Return the folder of an installed package, without importing it.

    Raises:
        EmbedderUnavailable: it is not installed; `install` says how to install it.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderUnavailable(provider, model, f"the package {package} is not installed", install)
    return Path(spec.submodule_search_locations[0])
