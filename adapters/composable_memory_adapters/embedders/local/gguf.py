"""Reads the header of a GGUF file: what has to be known of a model before it is loaded.

The format is that of the ggml project, versions 2 and 3, little-endian: a magic, three counts, then pairs of
a name and a typed value. `gguf.GGUFReader` reads the vocabulary as well: nine seconds and 700 MB for the
262,144 tokens of embeddinggemma, against two milliseconds here. llama.cpp can load the vocabulary alone, but
that takes 50 ms and half a second of imports, and leaves the length of the vectors out.
"""

import struct
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, TypeAlias

from composable_memory_ops_logs.quick_dataclass import dataclass

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type of a value in the file to its letter in `struct`."""

MAX_PAIRS = 100_000
MAX_TEXT_BYTES = 2**20
SAMPLE_BYTES = 2**20
"""How much of either end of a file goes into its digest: the header, and some of the weights."""

Value: TypeAlias = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """The description of a model in its file; `digest` tells its content from that of other files."""

    architecture: str
    name: str
    dimensions: int
    context_length: int
    digest: str


def read_header(path: Path) -> GgufHeader:
    """Read the header of the file at `path`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not the GGUF file of a model, and why.
    """
    with path.open("rb") as file:
        try:
            values = _read_values(file)
        except (struct.error, UnicodeDecodeError) as error:
            raise ValueError("it is damaged or was not copied to its end") from error
        digest = _digest(file)
    architecture = str(values.get("general.architecture", ""))
    dimensions = values.get(f"{architecture}.embedding_length")
    context = values.get(f"{architecture}.context_length")
    if not isinstance(dimensions, int) or not isinstance(context, int) or dimensions < 1 or context < 1:
        raise ValueError("it does not hold a model that embeds texts")
    return GgufHeader(
        architecture=architecture,
        name=str(values.get("general.name", "")),
        dimensions=dimensions,
        context_length=context,
        digest=digest,
    )


def _read_values(file: BinaryIO) -> dict[str, Value]:
    """Read the pairs up to the vocabulary, which is long and comes after what describes the model."""
    if file.read(4) != MAGIC:
        raise ValueError("it is not a GGUF file")
    version, _tensors, pairs = _unpack(file, "IQQ")
    if version not in VERSIONS:
        raise ValueError(f"it is a GGUF file of version {version}; readable are 2 and 3")
    values: dict[str, Value] = {}
    for _ in range(min(int(pairs), MAX_PAIRS)):
        key = _text(file)
        if key.startswith("tokenizer."):
            break
        (kind,) = _unpack(file, "I")
        value = _value(file, int(kind))
        if value is not None:
            values[key] = value
    return values


def _value(file: BinaryIO, kind: int) -> Value | None:
    """Read one value; a list is passed over."""
    if kind == STRING:
        return _text(file)
    if kind in NUMBERS:
        number: int | float = _unpack(file, NUMBERS[kind])[0]
        return number
    if kind != ARRAY:
        raise ValueError(f"it holds a value of the unknown type {kind}")
    inner, count = _unpack(file, "IQ")
    if int(inner) in NUMBERS:
        file.seek(struct.calcsize(NUMBERS[int(inner)]) * int(count), 1)
    else:
        for _ in range(int(count)):
            _value(file, int(inner))
    return None


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    if length > MAX_TEXT_BYTES:
        raise ValueError("it is damaged")
    data = file.read(int(length))
    if len(data) < length:
        raise struct.error("too short")
    return data.decode("utf-8")


def _unpack(file: BinaryIO, letters: str) -> tuple[int, ...]:
    shape = struct.Struct(f"<{letters}")
    return shape.unpack(file.read(shape.size))


def _digest(file: BinaryIO) -> str:
    """Return the size with a hash of both ends; to hash all of a model would take long at every opening."""
    size = file.seek(0, 2)
    file.seek(0)
    sample = sha256(file.read(SAMPLE_BYTES))
    file.seek(max(0, size - SAMPLE_BYTES))
    sample.update(file.read(SAMPLE_BYTES))
    return f"{size}-{sample.hexdigest()[:16]}"
