"""Static word vectors from the package `wordllama`: no network, no GPU, no wait.

A text's vector is the mean of its tokens' vectors. The model's two files are read from the package's folder;
the package itself is not imported, since that takes half a second and loads an HTTP client.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakValueDictionary

from pydantic import Field

from composable_memory.config.settings import SettingsModel
from composable_memory.errors import EmbedderUnavailable
from composable_memory.interfaces import EmbedderSpec
from composable_memory.supervision.resource import closing
from composable_memory.vector_values import EmbedderInput
from composable_memory_adapters.embedders.model_thread import ModelThread, package_folder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from tokenizers import Tokenizer

    Vectors = npt.NDArray[np.float32]

PROVIDER = "wordllama"
MODEL: Final = "l2_supercat_256"
DIMENSIONS = 256
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
TENSOR = "embedding.weight"

SLICE_TEXTS = 64
"""How many texts of a batch to embed at a time; a query may get in between two slices."""

SHORT_CHARS = 200
"""Texts up to this long are split without the library `tokenizers`; loading it takes a tenth of a search."""

KIND: Final = {
    "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
    "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
}  # fmt: skip
NORMALIZER: Final = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
"""The only kind of tokenizer that `ShortTexts` implements."""

INSTALL = "run `pip install wordllama`"
REINSTALL = "run `pip install --force-reinstall wordllama`"

_LOADED: "WeakValueDictionary[Path, _StaticModel]" = WeakValueDictionary()
_LOADING = Lock()


class WordLlamaSettings(SettingsModel):
    """Settings of the packaged word vectors: there is one model."""

    model: Literal["l2_supercat_256"] = Field(default=MODEL, description="The model.")


class WordLlamaEmbedder:
    """Static word vectors, 256 numbers per text; about 3,000 passages of 400 tokens a second on one core.

    The first call loads the model, which lives in a thread of its own until `close`.
    """

    id = PROVIDER
    model = MODEL
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self._thread = ModelThread[_StaticModel](PROVIDER, MODEL)

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        """Return the vector of one text."""
        return (await self.embed_batch([input]))[0]

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> list[list[float]]:
        """Return the vectors of several texts, in order.

        Raises:
            EmbedderUnavailable: the model cannot be loaded, or the embedder is closed.
        """
        vectors: list[list[float]] = []
        for at in range(0, len(inputs), SLICE_TEXTS):
            texts = [item.text for item in inputs[at : at + SLICE_TEXTS]]
            rows = await self._thread.run(_StaticModel.shared, partial(_StaticModel.embed, texts=texts))
            vectors += rows.tolist()
        return vectors

    async def close(self) -> None:
        """End the thread after the current slice; idempotent."""
        await self._thread.close()


class _StaticModel:
    """The two files in memory: a tokenizer, and a vector for each token.

    A single short text, which is all that a command embeds, is split here as long as the library is not
    loaded.
    """

    def __init__(self, file: bytes, table: "npt.NDArray[np.float16 | np.float32]") -> None:
        self._file = file
        self._short = ShortTexts.of(file)
        self._table = table

    @classmethod
    def shared(cls) -> "_StaticModel":
        """Return the model that another embedder of this process has loaded, or else load it."""
        folder = package_folder(PROVIDER, PROVIDER, MODEL, install=INSTALL)
        with _LOADING:
            if (model := _LOADED.get(folder)) is None:
                model = _LOADED[folder] = cls.load(folder)
        return model

    @classmethod
    def load(cls, folder: Path) -> "_StaticModel":
        """Read the model from the package's folder; never downloads anything."""
        try:
            return cls((folder / TOKENIZER).read_bytes(), _read_table(folder / WEIGHTS))
        except (ImportError, OSError, KeyError, TypeError, ValueError) as error:
            raise _unusable(error) from error

    def embed(self, texts: Sequence[str]) -> "Vectors":
        """Return one row per text, with unit length, or zeros for a blank text."""
        import numpy as np

        if len(texts) == SLICE_TEXTS:
            # Takes 90 ms once, which pays off for a thousand passages, but never for a few queries.
            self._table = self._table.astype(np.float32, copy=False)
        rows = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for row, ids in zip(rows, self._token_ids(texts), strict=True):
            if ids:
                self._table[ids].sum(axis=0, dtype=np.float32, out=row)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        np.divide(rows, lengths, out=rows, where=lengths > 0)
        return rows

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, none for a blank one; several texts are split on all cores."""
        sound = [_sound(text) for text in texts]
        short = self._short  # another thread may clear it
        if short is not None and len(sound) == 1 and short.takes(sound[0]):
            return [short.token_ids(sound[0])]
        self._short = None
        if len(sound) == 1:  # a query needs no threads
            return [self._tokenizer.encode(sound[0], add_special_tokens=False).ids]
        # Without the tokens' offsets, which take a third of the time.
        return [each.ids for each in self._tokenizer.encode_batch_fast(sound, add_special_tokens=False)]

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise _unusable(error) from error
        tokenizer = Tokenizer.from_buffer(self._file)
        tokenizer.no_truncation()
        return tokenizer


class ShortTexts:
    """Splits short texts into the same tokens as the library: byte-pair encoding with byte fallback.

    Adjacent pieces are merged in the order that the model has learnt. Unknown characters are split into the
    bytes of their UTF-8.
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[str], special: Sequence[str]) -> None:
        self._ids = ids
        self._ranks = dict(zip(merges, range(len(merges)), strict=True))
        self._special = special

    @classmethod
    def of(cls, file: bytes) -> "ShortTexts | None":
        """Build it from a tokenizer's file; None if the tokenizer is of another kind.

        Raises:
            ValueError: it is not JSON.
        """
        told = json.loads(file)
        model = told["model"]
        kind = {name: one for name, one in model.items() if name not in ("vocab", "merges")}
        is_known = kind == KIND and told.get("normalizer") == NORMALIZER
        is_joined = isinstance(next(iter(model["merges"]), ""), str)  # newer files have a list for each pair
        if not (is_known and is_joined) or told.get("pre_tokenizer") is not None:
            return None
        return cls(model["vocab"], model["merges"], [one["content"] for one in told["added_tokens"]])

    def takes(self, text: str) -> bool:
        """Return whether a text is short and contains no special token."""
        return len(text) <= SHORT_CHARS and not any(one in text for one in self._special)

    def token_ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ids, ranks = self._ids, self._ranks
        signs = f"▁{text}".replace(" ", "▁") if text else ""
        pieces: list[str] = []
        for sign in signs:
            pieces += [sign] if sign in ids else [f"<0x{byte:02X}>" for byte in sign.encode()]
        last = len(ranks)
        told = [ranks.get(f"{one} {other}", last) for one, other in pairwise(pieces)]
        while told and (rank := min(told)) < last:
            at = told.index(rank)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
            del told[at]
            if at > 0:
                told[at - 1] = ranks.get(f"{pieces[at - 1]} {pieces[at]}", last)
            if at < len(told):
                told[at] = ranks.get(f"{pieces[at]} {pieces[at + 1]}", last)
        return [ids[piece] for piece in pieces]


def _unusable(error: Exception) -> EmbedderUnavailable:
    return EmbedderUnavailable(PROVIDER, MODEL, f"the model cannot be loaded ({error})", REINSTALL)


def _sound(text: str) -> str:
    """Replace lone surrogates, which the tokenizer refuses, by question marks; a blank text becomes empty."""
    if text.isspace():
        return ""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _read_table(path: Path) -> "npt.NDArray[np.float16]":
    """Map the single tensor of a safetensors file: a length, a JSON header, and the numbers."""
    import numpy as np

    with path.open("rb") as file:
        header_length = int.from_bytes(file.read(8), "little")
        tensor = json.loads(file.read(header_length))[TENSOR]
    tokens, dimensions = tensor["shape"]
    if tensor["dtype"] != "F16" or dimensions != DIMENSIONS:
        raise ValueError(f"{path.name} holds {tensor['dtype']} x {dimensions}")
    begin = 8 + header_length + tensor["data_offsets"][0]
    return np.memmap(path, dtype="<f2", mode="r", offset=begin, shape=(tokens, dimensions))


def _missing() -> str | None:
    return None if find_spec(PROVIDER) else f"the package wordllama is not installed; {INSTALL}"


spec = EmbedderSpec(
    id=PROVIDER,
    summary="Static word vectors from a package: offline, small and fast; best for English.",
    settings=WordLlamaSettings,
    open=lambda _settings, _services: closing(WordLlamaEmbedder()),
    local=True,
    trusted=True,
    languages=frozenset({"en"}),
    missing=_missing,
)
