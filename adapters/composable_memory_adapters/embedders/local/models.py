"""Resolves the settings to a model: its file, here or on a hub, and the prefixes that it was trained with."""

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from composable_memory.errors import EmbedderUnavailable
from composable_memory_adapters.embedders.local.gguf import GgufHeader, read_header
from composable_memory_adapters.embedders.local.settings import (
    DEFAULT_MODEL,
    HUB_PREFIX,
    PROVIDER,
    LocalSettings,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

DEFAULT_MAX_TOKENS = 2048
KNOWN_DIMENSIONS = {DEFAULT_MODEL: 768}
"""Lengths of the vectors of hub models, known before the file is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prefixes of questions and passages; `max_tokens` is how much of a text is worth reading."""

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
"""Patterns of model names and how such models were trained; the first that matches counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A model on a hub. Without a `file` its repository has to hold one that can be told from the others."""

    repository: str
    file: str | None
    folder: Path

    def on_disk(self) -> Path | None:
        """Return where the file is, None if it is not here. Looks at the disk."""
        if self.file is not None:
            path = self.folder / self.file
            return path if path.is_file() else None
        return min(self.folder.glob("*.gguf"), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """The model of the settings: `path` is None until the file of `hub` is here.

    `content` tells the file from others; that of a hub model is its name, before the download and after it.
    """

    name: str
    dimensions: int
    prompts: Prompts
    content: str
    path: Path | None = None
    hub: HubFile | None = None

    @property
    def fingerprint(self) -> str:
        """Return what the vectors depend on beside the model's name and their length."""
        prompts = self.prompts
        return json.dumps([self.content, prompts.query, prompts.document, prompts.max_tokens])


def local_model(settings: LocalSettings, state_dir: Path) -> LocalModel:
    """Return the model of the settings. Reads the head of its file, so call it in a thread.

    Raises:
        EmbedderUnavailable: there is no such file, it is not a model, or its vectors' length is not known.
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
        EmbedderUnavailable: it is not there, or not a model.
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
    """Return the prompts of a model of this name; those of instructed models have to be set."""
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
            "the length of its vectors is not known before it is downloaded",
            "set memory.embedding.providers.local.dimensions to it",
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
    """Return the path of the model's file, downloaded. Cancelling keeps what has arrived for the next time.

    Raises:
        EmbedderUnavailable: it could not be downloaded, and why.
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
    """Run the program to its end and return the last line of its errors; empty if it succeeded."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the program's folder is no place to import from
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
