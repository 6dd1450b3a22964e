"""Resolves the settings to a model: its file, here or on a hub, the header's contents, and its prefixes."""

import asyncio
import json
import re
import struct
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, TypeAlias

from composable_memory.errors import EmbedderUnavailable
from composable_memory_adapters.embedders.local.settings import (
    DEFAULT_MODEL,
    HUB_PREFIX,
    PROVIDER,
    LocalSettings,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

# --- the header of a file -----------------------------------------------------------------------------------

# The format is that of the ggml project, versions 2 and 3, little-endian: a magic number, three counts, then
# pairs of a name and a typed value. `gguf.GGUFReader` also reads the vocabulary: nine seconds and 700 MB for
# the 262,144 tokens of embeddinggemma, against two milliseconds here. llama.cpp can load just the vocabulary,
# but that takes 50 ms and half a second of imports, and does not give the length of the vectors.

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Maps a value's type in the file to its letter in `struct`."""

MAX_PAIRS = 100_000
MAX_TEXT_BYTES = 2**20
SAMPLE_BYTES = 2**20
"""How much of each end of a file goes into its digest: the header, and some of the weights."""

Value: TypeAlias = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """A model file's description; `digest` distinguishes its content from other files'."""

    architecture: str
    name: str
    dimensions: int
    digest: str


def read_header(path: Path) -> GgufHeader:
    """Read the header of the file at `path`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a model's GGUF file; the message says why.
    """
    with path.open("rb") as file:
        try:
            values = _read_values(file)
        except (struct.error, UnicodeDecodeError) as error:
            raise ValueError("it is damaged or incomplete") from error
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
        digest=digest,
    )


def _read_values(file: BinaryIO) -> dict[str, Value]:
    """Read the pairs up to the vocabulary, which is long and comes after the model's description."""
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
    """Read one value; skip a list."""
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
    """Return the size and a hash of both ends; hashing a whole model at every start would take too long."""
    size = file.seek(0, 2)
    file.seek(0)
    sample = sha256(file.read(SAMPLE_BYTES))
    file.seek(max(0, size - SAMPLE_BYTES))
    sample.update(file.read(SAMPLE_BYTES))
    return f"{size}-{sample.hexdigest()[:16]}"


# --- the model of the settings ------------------------------------------------------------------------------

DEFAULT_MAX_TOKENS = 2048
KNOWN_DIMENSIONS = {DEFAULT_MODEL: 768}
"""Lengths of hub models' vectors, known before their files are downloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prefixes of queries and passages; `max_tokens` is how much of a text is worth reading."""

    query: str = ""
    document: str = ""
    max_tokens: int = DEFAULT_MAX_TOKENS


_FAMILIES: tuple[tuple[str, Prompts], ...] = (
    ("embeddinggemma", Prompts(query="task: search result | query: ", document="title: none | text: ")),
    ("nomic-embed", Prompts(query="search_query: ", document="search_document: ")),
    (r"\be5-", Prompts(query="query: ", document="passage: ")),
    # Trained on short texts: on conversations, 256 tokens of each passage found more than 512 did (nDCG@10
    # 0.52 against 0.48), in half the time.
    ("minilm", Prompts(max_tokens=256)),
)
"""Patterns of model names, with the prompts such models were trained with; the first match counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A model on a hub. Without a `file`, its repository must contain exactly one suitable file."""

    repository: str
    file: str | None
    folder: Path

    def on_disk(self) -> Path | None:
        """Return the path of the file; None if it is not here. Reads the disk."""
        if self.file is not None:
            path = self.folder / self.file
            return path if path.is_file() else None
        return min(self.folder.glob("*.gguf"), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """The configured model; `path` is None until the file of `hub` has been downloaded.

    `content` distinguishes the file from others; for a hub model it is the name, before and after the
    download.
    """

    name: str
    dimensions: int
    prompts: Prompts
    content: str
    path: Path | None = None
    hub: HubFile | None = None

    @property
    def fingerprint(self) -> str:
        """Return what the vectors depend on besides the model's name and their length."""
        prompts = self.prompts
        return json.dumps([self.content, prompts.query, prompts.document, prompts.max_tokens])


def local_model(settings: LocalSettings, state_dir: Path) -> LocalModel:
    """Return the configured model. Reads the file's header, so call it in a thread.

    Raises:
        EmbedderUnavailable: there is no such file, it is not a model, or the length of its vectors is
        unknown.
    """
    path = settings.path_of(state_dir)
    if path is None:
        return _hub_model(settings, state_dir)
    header = header_of(path, path.name)
    return LocalModel(
        name=path.name,
        dimensions=header.dimensions,
        prompts=_prompts(settings, f"{header.name} {header.architecture} {path.name}"),
        content=header.digest,
        path=path,
    )


def header_of(path: Path, model: str) -> GgufHeader:
    """Read the header of a model's file.

    Raises:
        EmbedderUnavailable: it does not exist, or is not a model.
    """
    try:
        return read_header(path)
    except FileNotFoundError as error:
        fix = "check memory.embedding.providers.local.model_path"
        raise EmbedderUnavailable(PROVIDER, model, f"there is no file {path}", fix) from error
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise EmbedderUnavailable(PROVIDER, model, problem, "name a file that can be read") from error
    except ValueError as error:
        problem = f"{path} cannot be used: {error}"
        raise EmbedderUnavailable(PROVIDER, model, problem, "name the GGUF file of a model") from error


def prompts_for(name: str) -> Prompts:
    """Return the prompts for a model of this name; those of instruction-tuned models must be configured."""
    name = name.lower().replace("_", "-")
    if "instruct" in name:
        return Prompts()
    return next((prompts for pattern, prompts in _FAMILIES if re.search(pattern, name)), Prompts())


def _hub_model(settings: LocalSettings, state_dir: Path) -> LocalModel:
    reference = settings.reference or DEFAULT_MODEL
    name = reference.removeprefix(HUB_PREFIX)
    organisation, repository, *file = name.split("/")
    hub = HubFile(
        repository=f"{organisation}/{repository}",
        file="/".join(file) or None,
        folder=settings.folder(state_dir) / f"{organisation}--{repository}",
    )
    path = hub.on_disk()
    known = header_of(path, name).dimensions if path else KNOWN_DIMENSIONS.get(reference)
    dimensions = known or settings.dimensions
    if dimensions is None:
        raise EmbedderUnavailable(
            PROVIDER,
            name,
            "the length of its vectors is unknown until it is downloaded",
            "set memory.embedding.providers.local.dimensions",
        )
    return LocalModel(
        name=name,
        dimensions=dimensions,
        prompts=_prompts(settings, name),
        content=name,
        path=path,
        hub=hub,
    )


def _prompts(settings: LocalSettings, name: str) -> Prompts:
    known = prompts_for(name)
    return Prompts(
        query=known.query if settings.query_prefix is None else settings.query_prefix,
        document=known.document if settings.document_prefix is None else settings.document_prefix,
        max_tokens=settings.n_ctx or known.max_tokens,
    )


PROGRAM = Path(__file__).with_name("download_process.py")
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


async def download(hub: HubFile, *, model: str, endpoint: str | None, environ: Mapping[str, str]) -> Path:
    """Download the model's file and return its path. If cancelled, a partial download is kept for next time.

    Raises:
        EmbedderUnavailable: it could not be downloaded; the message says why.
    """
    request = {
        "repository": hub.repository,
        "file": hub.file,
        "folder": str(hub.folder),
        "endpoint": endpoint and endpoint.rstrip("/"),
    }
    problem = await _run(json.dumps(request).encode(), {**environ, **QUIET})
    path = await asyncio.to_thread(hub.on_disk)
    if path is None:
        raise EmbedderUnavailable(
            PROVIDER,
            model,
            f"the model could not be downloaded: {problem or 'it is not where it should be'}",
            "check the network and the model's name, or download it yourself and set"
            " memory.embedding.providers.local.model_path",
        )
    return path


async def _run(request: bytes, environ: Mapping[str, str]) -> str:
    """Run the program and return the last line of its error output; empty if it succeeded."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # nothing must be imported from the program's folder
        str(PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    try:
        _, errors = await process.communicate(request)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    if process.returncode == 0:
        return ""
    return lines[-1].strip()[:300] if lines else f"the download ended with status {process.returncode}"
