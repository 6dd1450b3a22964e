"""A loaded GGUF model: texts to tokens to vectors, by the C interface of llama.cpp.

The class `Llama` of llama-cpp-python (0.3.36) is not used: while it loads a model it redirects the standard
output of the whole process to nowhere, so that answers of an MCP server are lost, and it allocates a score of
every word of the vocabulary for every token, two gigabytes with embeddinggemma.
"""

import ctypes
import math
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from composable_memory.errors import EmbedderUnavailable, EmbeddingError
from composable_memory_adapters.embedders.local.settings import INSTALL, PROVIDER

ERROR_LEVEL = 4
MEAN_POOLING = 1
CHARACTERS_PER_TOKEN = 64
"""More than any token of natural text has; what is beyond so many for each token would be cut off anyway."""


class LlamaModel:
    """A loaded model, for one thread at a time: two calls at once end the process.

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
        """Return the vector of a text that is not blank, with the length 1.

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
        """Free the memory; calling it again does nothing."""
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
        """Open a context that takes a whole text at once; of one in parts, the last would give the vector."""
        options = self._llama.llama_context_default_params()
        options.embeddings = True
        options.n_seq_max = 1
        options.n_ctx = options.n_batch = options.n_ubatch = self._max_tokens
        options.n_threads = options.n_threads_batch = threads
        context = self._llama.llama_init_from_model(self._model, options)
        if context is not None and self._llama.llama_pooling_type(context) == 0:
            # The file does not say how the vectors of its tokens become one.
            self._llama.llama_free(context)
            options.pooling_type = MEAN_POOLING
            context = self._llama.llama_init_from_model(self._model, options)
        if context is None:
            raise self._unusable("there is no room for the model at work")
        return context

    def _unusable(self, problem: str) -> EmbedderUnavailable:
        message = " ".join(self._errors)[:300]
        fix = "check that the file is a whole model for embedding and that llama-cpp-python is recent"
        problem = f"{problem} ({message})" if message else problem
        return EmbedderUnavailable(PROVIDER, self._name, problem, fix)

    def _tokens(self, text: str) -> Sequence[int]:
        """Return the tokens of a text, cut to what the model reads; the token that ends a text is kept."""
        data = text[: self._max_tokens * CHARACTERS_PER_TOKEN].encode("utf-8", "replace")
        tokens = self._tokenized(data, len(data) + 16)
        if len(tokens) <= self._max_tokens:
            return tokens
        ends = self._llama.llama_vocab_is_control(self._vocabulary, tokens[-1])
        return [*tokens[: self._max_tokens - 1], tokens[-1]] if ends else tokens[: self._max_tokens]

    def _tokenized(self, data: bytes, room: int) -> Sequence[int]:
        """Split a text; words in it that look like control tokens are taken as words."""
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
    except (OSError, RuntimeError) as error:  # its shared library does not fit the machine
        problem = f"llama-cpp-python cannot be loaded ({error})"
        raise EmbedderUnavailable(PROVIDER, model, problem, INSTALL) from error
    library: ModuleType = llama_cpp
    return library


@cache
def _silenced(llama: ModuleType) -> tuple["deque[str]", object]:
    """Take over what llama.cpp would write to the terminal; return its last errors, and the callback.

    The cache keeps the callback for as long as llama.cpp may call it.
    """
    errors: deque[str] = deque(maxlen=8)

    def note(level: int, text: bytes, _data: object) -> None:
        if level == ERROR_LEVEL:
            errors.append(text.decode("utf-8", "replace").strip())

    callback = llama.llama_log_callback(note)
    llama.llama_log_set(callback, ctypes.c_void_p(0))
    return errors, callback
