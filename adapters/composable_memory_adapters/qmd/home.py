"""The folders of a workspace's QMD, its environment, and its configured collections.

It is separate from a QMD that the user may run: it has its own configuration, index and cache. Only the
models are shared, because they are large.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

import yaml

from composable_memory.config.yaml_reader import PlainWords
from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import KeptStore
from composable_memory.paths import expanded
from composable_memory_adapters.qmd.installation import find_node
from composable_memory_adapters.qmd.settings import ModelSettings, QmdSettings
from composable_memory_adapters.qmd.types import BACKEND_ID, Collection, Home
from composable_memory_ops_logs.private_files import make_private_folder, replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

WRITTEN = "composable-memory.json"
"""Beside `index.yml`: records which of its entries are ours to remove."""

BUSY_TIMEOUT_MS = 30_000
"""How long QMD waits for another process that is writing its index."""

KEPT = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP", "CI"),
        *(
            "LD_LIBRARY_PATH",
            "DYLD_LIBRARY_PATH",
            "NODE_OPTIONS",
            "NODE_EXTRA_CA_CERTS",
            "NODE_USE_ENV_PROXY",
        ),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "HF_ENDPOINT", "HF_TOKEN"),
        *("QMD_EMBED_MODEL", "QMD_GENERATE_MODEL", "QMD_RERANK_MODEL"),
        *("QMD_FORCE_CPU", "QMD_LLAMA_GPU", "QMD_METAL_KEEP_RESIDENCY", "QMD_DISABLE_DARWIN_SAFE_EXIT"),
        *("QMD_EMBED_PARALLELISM", "QMD_EMBED_CONTEXT_SIZE", "QMD_EXPAND_CONTEXT_SIZE"),
        "QMD_RERANK_CONTEXT_SIZE",
    )
)
"""The part of our environment that QMD needs. API keys of other services are none of its business, and some
variables break it: with the NODE_CHANNEL_FD of a parent Node, QMD's Node does not start."""

KEPT_BEGINNINGS = ("LC_", "CUDA", "GGML", "HIP_", "ROCR_", "VK_")


def prepare_home(
    settings: QmdSettings,
    *,
    state_dir: Path,
    agent_id: str,
    workspace_id: str,
    environ: Mapping[str, str] = os.environ,
) -> Home:
    """Create the folders of a workspace's QMD, readable by their owner only, and return their paths.

    Writes to the disk.

    Raises:
        BackendUnavailable: they cannot be created.
    """
    root = state_dir.absolute() / "agents" / agent_id / f"{BACKEND_ID}-{workspace_id}"
    config, cache = root / "config", root / "cache"
    # One by one, because `mkdir` does not apply the mode to parents.
    folders = [root.parents[1], root.parent, root, config, cache, cache / "qmd"]
    if settings.sessions.enabled and settings.sessions.export_dir is None:
        folders.append(root / "sessions")
    try:
        for folder in folders:
            make_private_folder(folder)
        root.chmod(0o700)
    except OSError as error:
        raise _unusable(root, error) from error
    models = cache / "qmd" / "models"
    _share_models(models, _own_cache(environ) / "qmd" / "models")
    index = cache / "qmd" / "index.sqlite"
    return Home(
        root=root,
        config_file=config / "index.yml",
        index_file=index,
        models_dir=models,
        environ={
            **_kept(environ),
            "PATH": _path_with_node(environ),
            "XDG_CONFIG_HOME": str(config),
            "QMD_CONFIG_DIR": str(config),
            "XDG_CACHE_HOME": str(cache),
            "INDEX_PATH": str(index),
            "NODE_COMPILE_CACHE": str(cache / "node"),  # saves a third of the time of every command
            "QMD_SQLITE_BUSY_TIMEOUT": str(BUSY_TIMEOUT_MS),
            "NO_COLOR": "1",
        },
    )


def kept(state_dir: Path) -> tuple[KeptStore, ...]:
    """Return the folders of all workspaces with their sizes; reads them."""
    return tuple(
        KeptStore(
            workspace_id=root.name.removeprefix(f"{BACKEND_ID}-"),
            kind="qmd",
            path=root,
            bytes=sum(file.lstat().st_size for file in root.rglob("*") if file.is_file()),
            is_rebuildable=True,
        )
        for root in sorted(state_dir.glob(f"agents/*/{BACKEND_ID}-*"))
    )


def write_collections(home: Home, collections: Iterable[Collection], models: ModelSettings) -> bool:
    """Write the collections into QMD's configuration, and return whether that changed anything; blocks.

    QMD reads it at its next `update`. What others have added stays: collections, contexts, models that are
    not in the settings. If nothing of ours changed, nothing is written.

    Raises:
        BackendUnavailable: the configuration cannot be read or written.
    """
    file = home.config_file
    before, now = read_config(file), _Ours.written_in(file.parent)
    ours = _Ours(
        collections={one.name: {"path": str(one.path), "pattern": one.pattern} for one in collections},
        models=chosen_models(models),
    )
    after = before | {"collections": ours.among_collections(mapping_at(before, "collections", file), now)}
    if named := ours.among_models(mapping_at(before, "models", file), now):
        after["models"] = named
    else:
        after.pop("models", None)
    try:
        if after != before:
            write_config(file, after)
        if ours != now:
            ours.remember(home)
    except OSError as error:
        raise _unusable(home.root, error) from error
    return after != before


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ours:
    """Our part of QMD's configuration: folders and patterns of collections, and models."""

    collections: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def written_in(cls, folder: Path) -> "_Ours":
        """Return our part as last written; empty if that is no longer known."""
        try:
            known = json.loads((folder / WRITTEN).read_text(encoding="utf-8"))
            return cls(collections=dict(known["collections"]), models=dict(known["models"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def remember(self, home: Home) -> None:
        """Record our part."""
        known = {"collections": self.collections, "models": self.models}
        text = json.dumps(known, ensure_ascii=False, indent=2)
        replace_file(home.config_file.parent / WRITTEN, text.encode(), survives="kill")

    def among_collections(self, there: Mapping[str, object], last: "_Ours") -> dict[str, object]:
        """Return the collections to configure, with those of others and what others added to ours."""
        gone = last.collections.keys() - self.collections.keys()
        kept = {name: entry for name, entry in there.items() if name not in gone}
        return kept | {name: {**_entry(kept.get(name)), **entry} for name, entry in self.collections.items()}

    def among_models(self, there: Mapping[str, object], last: "_Ours") -> dict[str, object]:
        """Return the models to configure, without ours that are no longer in the settings."""
        left = {role: name for role, name in there.items() if (role, name) not in last.models.items()}
        return {**left, **self.models}


def _entry(there: object) -> dict[str, object]:
    return {str(key): value for key, value in there.items()} if isinstance(there, dict) else {}


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name in KEPT or name.startswith(KEPT_BEGINNINGS)
    }


def _path_with_node(environ: Mapping[str, str]) -> str:
    """Return the PATH with a suitable Node first, for a command that searches for one itself."""
    path = environ.get("PATH", os.defpath)
    try:
        return os.pathsep.join([str(Path(find_node(environ)).parent), path])
    except BackendUnavailable:  # `find_command` reports it
        return path


def _own_cache(environ: Mapping[str, str]) -> Path:
    """Return the user's cache folder; the XDG standard ignores a relative one."""
    named = Path(environ.get("XDG_CACHE_HOME", ""))
    return named if named.is_absolute() else Path(environ.get("HOME") or Path.home()) / ".cache"


def _share_models(ours: Path, shared: Path) -> None:
    """Link `ours` to the user's models; if that is not possible, QMD keeps its own."""
    with contextlib.suppress(OSError):
        make_private_folder(shared)
        ours.symlink_to(shared, target_is_directory=True)


def _unusable(root: Path, error: OSError) -> BackendUnavailable:
    return BackendUnavailable(
        BACKEND_ID,
        f"its folder {root} cannot be used ({error.strerror or error})",
        fix="make it writable, or choose another state folder",
    )


Config = dict[str, object]

# Words must keep the meaning that they have for QMD, which reads YAML 1.2.


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = PlainWords.yaml_implicit_resolvers


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = PlainWords.yaml_implicit_resolvers


def read_config(file: Path) -> Config:
    """Parse `file`; a missing or empty one counts as an empty mapping. Reads the disk.

    Raises:
        BackendUnavailable: it cannot be read, or is not a YAML mapping.
    """
    try:
        config = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise _unreadable(file, str(error).partition("\n")[0]) from error
    except (AttributeError, LookupError) as error:  # PyYAML raises this for a tag that does not fit its value
        raise _unreadable(file, "a tag in it does not match its value") from error
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise _unreadable(file, "it has no keys and values")
    return config


def write_config(file: Path, config: Mapping[str, object]) -> None:
    """Replace `file` atomically, so that nobody reads half of it.

    Raises:
        OSError: it cannot be written.
    """
    text = yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)
    replace_file(file, text.encode(), survives="kill")


def mapping_at(config: Mapping[str, object], key: str, file: Path) -> Config:
    """Return the mapping under `key`, with string keys; an empty one if it is missing.

    Raises:
        BackendUnavailable: the value is not a mapping.
    """
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _unreadable(file, f"`{key}` has no keys and values")
    return {str(name): item for name, item in value.items()}


def chosen_models(models: ModelSettings) -> dict[str, str]:
    """Return the models in the settings by role, with `~` expanded, which QMD does not do."""
    named: dict[str, str | None] = models.model_dump()
    return {role: expanded(name) for role, name in named.items() if name}


def _unreadable(file: Path, problem: str) -> BackendUnavailable:
    return BackendUnavailable(
        BACKEND_ID,
        f"its list of collections {file} cannot be used ({problem})",
        fix="repair that file, or delete it and it is recreated",
    )
