"""The local embedder: a thread for the model, a task for its download, questions that never wait."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbedderUnavailable
from composable_memory.interfaces import EmbedderServices
from composable_memory_adapters.embedders import default_threads
from composable_memory_adapters.embedders.local.llama import LlamaModel
from composable_memory_adapters.embedders.local.models import LocalModel, download, header_of, local_model
from composable_memory_adapters.embedders.local.settings import PROVIDER, LocalSettings
from composable_memory_adapters.embedders.model_thread import ModelThread

RETRY_AFTER_S = 60.0
"""How long a download that failed is not tried again; its error is raised again instead."""


@asynccontextmanager
async def open_local(settings: LocalSettings, services: EmbedderServices) -> AsyncIterator["LocalEmbedder"]:
    """Yield the embedder of the configured model; nothing is downloaded or loaded yet.

    Raises:
        EmbedderUnavailable: there is no such model, or its vectors' length is not known.
    """
    model = await asyncio.to_thread(local_model, settings, services.state_dir)
    embedder = LocalEmbedder(model, settings, services)
    try:
        yield embedder
    finally:
        await embedder.close()


class LocalEmbedder:
    """A GGUF model. The first text downloads it, if it is not here, and loads it.

    While it is downloaded, passages wait and questions are refused at once, so that keywords answer them.
    """

    id = PROVIDER

    def __init__(self, model: LocalModel, settings: LocalSettings, services: EmbedderServices) -> None:
        self._about = model
        self._settings = settings
        self._services = services
        self._path = model.path
        self._download: asyncio.Task[Path | EmbedderUnavailable] | None = None
        self._retry_at = 0.0
        self._thread = ModelThread(PROVIDER, model.name, free=LlamaModel.close)
        self._is_closed = False

    @property
    def model(self) -> str:
        """Return the name of the model: that of its file, or the one it has on its hub."""
        return self._about.name

    @property
    def dimensions(self) -> int:
        """Return the length of the vectors."""
        return self._about.dimensions

    @property
    def fingerprint(self) -> str:
        """Return what else shapes the vectors beside the model's name: file, prefixes, truncation."""
        return self._about.fingerprint

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        """Return the vector of one text."""
        return (await self.embed_batch([input]))[0]

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> list[Sequence[float]]:
        """Return the vectors of several texts, in their order; a question gets its turn between two of them.

        Raises:
            EmbedderUnavailable: the model is not here yet or cannot be loaded, or the embedder is closed.
            EmbeddingError: the model failed.
        """
        return [await self._embed(item) for item in inputs]

    async def close(self) -> None:
        """Stop the download, wait for the text at work, free the model; closing again does nothing."""
        self._is_closed = True
        if self._download is not None:
            self._download.cancel()
            await asyncio.wait([self._download])
        await self._thread.close()

    async def _embed(self, item: EmbedderInput) -> Sequence[float]:
        if not item.text or item.text.isspace():
            return [0.0] * self.dimensions
        prompts = self._about.prompts
        prefix = prompts.query if item.kind == "query" else prompts.document
        path = self._path or await self._arrived(may_wait=item.kind != "query")
        text = prefix + item.text
        return await self._thread.run(partial(self._load, path), lambda model: model.embed(text))

    def _load(self, path: Path) -> LlamaModel:
        """Load the model, after a look at its header: a file of another length would spoil the index."""
        got = header_of(path, self.model).dimensions
        if got != self.dimensions:
            raise DimensionMismatch(PROVIDER, self.model, expected=self.dimensions, got=got)
        threads = self._settings.threads or default_threads()
        return LlamaModel(path, name=self.model, max_tokens=self._about.prompts.max_tokens, threads=threads)

    async def _arrived(self, *, may_wait: bool) -> Path:
        """Return the file of a hub model, started on its way if need be."""
        task = self._download
        if task is None or (task.done() and asyncio.get_running_loop().time() >= self._retry_at):
            if self._is_closed:
                raise self._thread.closed()
            task = self._download = asyncio.create_task(self._downloaded())
        if not task.done() and not may_wait:
            fix = "keywords answer until it is here; `cmem index` waits for it"
            raise EmbedderUnavailable(PROVIDER, self.model, "the model is being downloaded", fix)
        # Not awaited itself: a caller who is cancelled must not stop what others wait for.
        await asyncio.wait([task])
        if task.cancelled():
            raise self._thread.closed()
        outcome = task.result()
        if isinstance(outcome, EmbedderUnavailable):
            raise outcome
        self._path = outcome
        return outcome

    async def _downloaded(self) -> Path | EmbedderUnavailable:
        """Download the file; a failure is returned, since nobody may be waiting for it."""
        assert self._about.hub is not None, "a model without a path is one of a hub"
        try:
            return await download(
                self._about.hub,
                model=self.model,
                endpoint=self._settings.hub_url,
                environ=self._services.environ,
            )
        except EmbedderUnavailable as error:
            self._retry_at = asyncio.get_running_loop().time() + RETRY_AFTER_S
            return error
