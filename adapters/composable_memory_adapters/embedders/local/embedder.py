"""The local embedder: a thread for the model, a task for its download, and queries that never wait for it.

The model is called through the C interface of llama.cpp. The class `Llama` of llama-cpp-python (0.3.36) is
not used: while loading a model it redirects the whole process's standard output to nowhere, losing an MCP
server's answers, and it allocates a score for every word of the vocabulary for every token, two gigabytes
with embeddinggemma.
"""

import asyncio
import ctypes
import math
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from types import ModuleType

from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbedderUnavailable, EmbeddingError
from composable_memory.interfaces import EmbedderServices
from composable_memory.supervision.resource import closing
from composable_memory_adapters.embedders import default_threads
from composable_memory_adapters.embedders.local.models import LocalModel, download, header_of, local_model
from composable_memory_adapters.embedders.local.settings import INSTALL, PROVIDER, LocalSettings
from composable_memory_adapters.embedders.model_thread import ModelThread

ERROR_LEVEL = 4
MEAN_POOLING = 1
CHARACTERS_PER_TOKEN = 64
"""More than any token of natural text has; text beyond this many per token would be truncated anyway."""

RETRY_AFTER_S = 60.0
"""How long a failed download is not retried; its error is raised again instead."""


class LlamaModel:
    """A loaded model, for one thread at a time: two concurrent calls crash the process.

    Reads at most `max_tokens` of a text, and never more than the model was trained for.
    """

    def __init__(self, path: Path, *, name: str, max_tokens: int, threads: int) -> None:
        self._name = name
        self._llama = _library(name)
        self._errors, _ = _silenced(self._llama)
        self._model = self._load(path)
        self._context = None
        try:
            trained = self._llama.llama_model_n_ctx_train(self._model)
            self._max_tokens = min(max_tokens, trained or max_tokens)
            self._context = self._open_context(threads)
        except EmbedderUnavailable:
            self.close()
            raise
        self._vocabulary = self._llama.llama_model_get_vocab(self._model)

    @property
    def dimensions(self) -> int:
        """Return the length of the vectors."""
        return int(self._llama.llama_model_n_embd(self._model))

    def embed(self, text: str) -> list[float]:
        """Return the vector of a text that is not blank, scaled to length 1.

        Raises:
            EmbeddingError: the model failed, or its vector has no direction.
        """
        tokens = self._tokens(text)
        vector = self._run(tokens)
        length = math.hypot(*vector)
        if not math.isfinite(length) or not length:
            raise EmbeddingError(PROVIDER, self._name, "the model gave a vector without a direction")
        return [value / length for value in vector]

    def close(self) -> None:
        """Free the memory; idempotent."""
        context, model = self._context, self._model
        self._context = self._model = None
        if context is not None:
            self._llama.llama_free(context)
        if model is not None:
            self._llama.llama_model_free(model)

    def _load(self, path: Path) -> object:
        self._llama.llama_backend_init()
        options = self._llama.llama_model_default_params()
        model = self._llama.llama_model_load_from_file(str(path).encode(), options)
        if model is None:
            raise self._unusable(f"{path} cannot be loaded")
        return model

    def _open_context(self, threads: int) -> object:
        """Open a context that takes a whole text at once; in parts, only the last would give the vector."""
        options = self._llama.llama_context_default_params()
        options.embeddings = True
        options.n_seq_max = 1
        options.n_ctx = options.n_batch = options.n_ubatch = self._max_tokens
        options.n_threads = options.n_threads_batch = threads
        context = self._llama.llama_init_from_model(self._model, options)
        if context is not None and self._llama.llama_pooling_type(context) == 0:
            # The file does not specify how token vectors are pooled.
            self._llama.llama_free(context)
            options.pooling_type = MEAN_POOLING
            context = self._llama.llama_init_from_model(self._model, options)
        if context is None:
            raise self._unusable("there is not enough memory to run the model")
        return context

    def _unusable(self, problem: str) -> EmbedderUnavailable:
        message = " ".join(self._errors)[:300]
        fix = "check that the file is a complete embedding model and that llama-cpp-python is up to date"
        problem = f"{problem} ({message})" if message else problem
        return EmbedderUnavailable(PROVIDER, self._name, problem, fix)

    def _tokens(self, text: str) -> Sequence[int]:
        """Return the tokens of a text, truncated to what the model reads, but keeping its end token."""
        data = text[: self._max_tokens * CHARACTERS_PER_TOKEN].encode("utf-8", "replace")
        tokens = self._tokenized(data, len(data) + 16)
        if len(tokens) <= self._max_tokens:
            return tokens
        ends = self._llama.llama_vocab_is_control(self._vocabulary, tokens[-1])
        return [*tokens[: self._max_tokens - 1], tokens[-1]] if ends else tokens[: self._max_tokens]

    def _tokenized(self, data: bytes, room: int) -> Sequence[int]:
        """Split a text into tokens; words that look like control tokens are treated as words."""
        tokens = (self._llama.llama_token * room)()
        count = self._llama.llama_tokenize(self._vocabulary, data, len(data), tokens, room, True, False)
        return self._tokenized(data, -count) if count < 0 else tokens[:count]

    def _run(self, tokens: Sequence[int]) -> Sequence[float]:
        if memory := self._llama.llama_get_memory(self._context):
            self._llama.llama_memory_clear(memory, True)
        array = (self._llama.llama_token * len(tokens))(*tokens)
        batch = self._llama.llama_batch_get_one(array, len(tokens))
        self._errors.clear()
        status = self._llama.llama_decode(self._context, batch)
        vector = None if status else self._llama.llama_get_embeddings_seq(self._context, 0)
        if not vector:
            message = " ".join(self._errors)[:300] or f"status {status}"
            raise EmbeddingError(PROVIDER, self._name, f"llama.cpp failed: {message}")
        values: list[float] = vector[: self.dimensions]
        return values


def _library(model: str) -> ModuleType:
    try:
        import llama_cpp
    except ImportError as error:
        problem = f"the package llama-cpp-python is not installed ({error})"
        raise EmbedderUnavailable(PROVIDER, model, problem, INSTALL) from error
    except (OSError, RuntimeError) as error:  # its shared library does not fit this machine
        problem = f"llama-cpp-python cannot be loaded ({error})"
        raise EmbedderUnavailable(PROVIDER, model, problem, INSTALL) from error
    library: ModuleType = llama_cpp
    return library


@cache
def _silenced(llama: ModuleType) -> tuple["deque[str]", object]:
    """Redirect what llama.cpp would write to the terminal; return its last errors, and the callback.

    The cache keeps the callback alive for as long as llama.cpp may call it.
    """
    errors: deque[str] = deque(maxlen=8)

    def note(level: int, text: bytes, _data: object) -> None:
        if level == ERROR_LEVEL:
            errors.append(text.decode("utf-8", "replace").strip())

    callback = llama.llama_log_callback(note)
    llama.llama_log_set(callback, ctypes.c_void_p(0))
    return errors, callback


@asynccontextmanager
async def open_local(settings: LocalSettings, services: EmbedderServices) -> AsyncIterator["LocalEmbedder"]:
    """Open the embedder of the configured model, without downloading or loading anything yet.

    Raises:
        EmbedderUnavailable: there is no such model, or the length of its vectors is unknown.
    """
    model = await asyncio.to_thread(local_model, settings, services.state_dir)
    async with closing(LocalEmbedder(model, settings, services)) as embedder:
        yield embedder


class LocalEmbedder:
    """A GGUF model. The first text downloads it, if necessary, and loads it.

    During the download, passages wait, and queries are refused at once, so that keywords answer them.
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
        """Return the model's name: that of its file, or its name on its hub."""
        return self._about.name

    @property
    def dimensions(self) -> int:
        """Return the length of the vectors."""
        return self._about.dimensions

    @property
    def fingerprint(self) -> str:
        """Return what else affects the vectors besides the model's name: file, prefixes, truncation."""
        return self._about.fingerprint

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        """Return the vector of one text."""
        return (await self.embed_batch([input]))[0]

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> list[Sequence[float]]:
        """Return the vectors of several texts, in order; a query may get in between two of them.

        Raises:
            EmbedderUnavailable: the model is not here yet or cannot be loaded, or the embedder is closed.
            EmbeddingError: the model failed.
        """
        return [await self._embed(item) for item in inputs]

    async def close(self) -> None:
        """Stop the download, wait for the current text, and free the model; idempotent."""
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
        path = self._path or await self._downloaded_path(may_wait=item.kind != "query")
        text = prefix + item.text
        return await self._thread.run(partial(self._load, path), lambda model: model.embed(text))

    def _load(self, path: Path) -> LlamaModel:
        """Load the model, checking its header first: vectors of another length would corrupt the index."""
        got = header_of(path, self.model).dimensions
        if got != self.dimensions:
            raise DimensionMismatch(PROVIDER, self.model, expected=self.dimensions, got=got)
        threads = self._settings.threads or default_threads()
        return LlamaModel(path, name=self.model, max_tokens=self._about.prompts.max_tokens, threads=threads)

    async def _downloaded_path(self, *, may_wait: bool) -> Path:
        """Return the file of a hub model, starting its download if needed."""
        task = self._download
        if task is None or (task.done() and asyncio.get_running_loop().time() >= self._retry_at):
            if self._is_closed:
                raise self._thread.closed()
            task = self._download = asyncio.create_task(self._downloaded())
        if not task.done() and not may_wait:
            fix = "until it arrives, searches use keywords only; `cmem index` waits for it"
            raise EmbedderUnavailable(PROVIDER, self.model, "the model is being downloaded", fix)
        # The task is not awaited directly: a cancelled caller must not stop it for the others.
        await asyncio.wait([task])
        if task.cancelled():
            raise self._thread.closed()
        outcome = task.result()
        if isinstance(outcome, EmbedderUnavailable):
            raise outcome
        self._path = outcome
        return outcome

    async def _downloaded(self) -> Path | EmbedderUnavailable:
        """Download the file; failures are returned, since nobody may be waiting."""
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
