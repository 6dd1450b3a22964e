"""Finds out which models QMD would use, and which of them are on this machine.

QMD downloads a missing model silently, and without a network it keeps trying for twelve minutes. So whatever
needs a model checks here first.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from composable_memory.types import JsonValue
from composable_memory_adapters.qmd.home import chosen_models, mapping_at, read_config
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.types import Home

DEFAULTS = {
    "embed": "hf:ggml-org/embeddinggemma-300M-GGUF/embeddinggemma-300M-Q8_0.gguf",
    "generate": "hf:tobil/qmd-query-expansion-1.7B-gguf/qmd-query-expansion-1.7B-q4_k_m.gguf",
    "rerank": "hf:ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF/qwen3-reranker-0.6b-q8_0.gguf",
}
"""QMD's default by role; only needed before QMD's first run, which writes it into its configuration."""

MAGIC = b"GGUF"
USUAL_QUANTIZATION = "Q4_K_M"
HUB = re.compile(r"(?:hf|huggingface):(?://)?|(?:hf|huggingface)\.co/", re.IGNORECASE)
ADDRESS = re.compile(r"https?://", re.IGNORECASE)
PAGE = re.compile(r"https://(?:huggingface|hf)\.co/([^/]+/[^/]+)/(?:resolve|blob|raw)/([^/]+)/([^?]+)")
ANY_COUNT = "-00001-of-*"
SPLIT = re.compile(r"-\d{5}-of-(\d{5})(?=\.gguf$)")


def missing_models(home: Home, settings: QmdSettings, *, needed: Iterable[str]) -> tuple[str, ...]:
    """Return the `needed` roles (`embed`, `generate`, `rerank`) whose model is not on this machine.

    Reads the disk.
    """
    names = _names(home, settings)
    return tuple(role for role in needed if _file_of(names[role], home.models_dir) is None)


def describe_models(home: Home, settings: QmdSettings) -> tuple[dict[str, JsonValue], ...]:
    """Return for each role the `name` of its model and its `file`, which is None if it is missing.

    Reads the disk.
    """
    files = {role: (name, _file_of(name, home.models_dir)) for role, name in _names(home, settings).items()}
    return tuple(
        {"role": role, "name": name, "file": None if file is None else str(file)}
        for role, (name, file) in files.items()
    )


def _names(home: Home, settings: QmdSettings) -> Mapping[str, str]:
    """Return the model of each role, from where QMD gets it: settings, configuration, environment."""
    chosen = chosen_models(settings.models)
    written = mapping_at(read_config(home.config_file), "models", home.config_file)
    return {
        role: str(
            chosen.get(role) or written.get(role) or home.environ.get(f"QMD_{role.upper()}_MODEL") or default
        )
        for role, default in DEFAULTS.items()
    }


def _file_of(name: str, folder: Path) -> Path | None:
    """Return the file of a model, or its first part; None if one is missing or is not a model."""
    for candidate in _file_names(name):
        for file in _candidates(folder, candidate):
            if all(_is_model(part) for part in _parts(file)):
                return file
    return None


def _candidates(folder: Path, name: str) -> Iterable[Path]:
    """Return the file with that name, or the candidates for the first part of a split model."""
    stem, any_count, _ = name.partition(ANY_COUNT)
    if not any_count:
        return [folder / name]
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return []
    beginning = f"{stem}-00001-of-"
    return [file for file in files if file.name.startswith(beginning) and SPLIT.search(file.name)]


def _parts(file: Path) -> list[Path]:
    split = SPLIT.search(file.name)
    if split is None:
        return [file]
    head, tail, count = file.name[: split.start()], file.name[split.end() :], int(split[1])
    return [file.with_name(f"{head}-{n:05}-of-{count:05}{tail}") for n in range(1, count + 1)]


def _is_model(file: Path) -> bool:
    # It may be a proxy's error page; QMD deletes such a file and downloads it again.
    try:
        with file.open("rb") as start:
            return start.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _file_names(name: str) -> list[str]:
    """Return the file names under which node-llama-cpp stores a model; a path names itself."""
    if hub := HUB.match(name):
        return _names_of_hub(name[hub.end() :])
    if page := PAGE.match(name):
        place, branch, path = map(unquote, page.groups())
        return _names_of_hub(f"{place}/{path}#{branch}")
    if ADDRESS.match(name):
        return [unquote(urlsplit(name).path.rpartition("/")[2])]
    return [name]


def _names_of_hub(address: str) -> list[str]:
    """Return the names for `user/model/file.gguf`, `user/model:quantization` or `user/model`."""
    user, _, rest = address.partition("/")
    model, _, path = rest.partition("/")
    if path:
        path, _, branch = path.partition("#")
        *folders, file = path.split("/")
        return [_prefix(user, model, "" if branch == "main" else branch, folders, file) + file]
    model, _, tag = model.partition(":")
    stem = re.sub("-gguf$", "", model, flags=re.IGNORECASE)
    prefix = _prefix(user, model, "", [], f"{stem}.gguf")
    endings = [f".{tag.strip().upper()}"] if tag and tag != "latest" else [f".{USUAL_QUANTIZATION}", ""]
    return [f"{prefix}{stem}{ending}{count}.gguf" for ending in endings for count in ("", ANY_COUNT)]


def _prefix(user: str, model: str, branch: str, folders: list[str], file: str) -> str:
    """Return the prefix of a file name: the parts of its origin that the name itself does not contain."""
    stem = SPLIT.sub("", file).lower().removesuffix(".gguf")
    family = model.lower().removesuffix("-gguf")
    names_model = family != model.lower() and stem.startswith(family) and not branch
    if folders and folders[-1].lower() in (stem, file.lower().removesuffix(".gguf")):
        folders = folders[:-1]
    parts = ["hf", user, "" if names_model else model, branch, "__".join(folders)]
    return "_".join(part for part in parts if part) + "_"
