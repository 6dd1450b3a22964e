"""Loads settings: the layers, how far each is trusted, and the origin of every value.

Defaults, then the user's own file, the workspace's file, environment variables, and the caller's arguments; a
later layer wins. The layers are merged as plain data and validated once. `trust` decides what a workspace's
file may set, `validation` where the section of a backend may be.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from pathlib import Path

import platformdirs
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from composable_memory.config.settings import (
    DEFAULT_BACKEND,
    BackendSection,
    MemorySettings,
    Settings,
)
from composable_memory.config.settings_files import FileLayer, parse_file, read_settings_file, read_workspace
from composable_memory.config.trees import (
    Leaf,
    Origin,
    Tree,
    join,
    leaves,
    merge,
    names_variables,
    plain,
    tree_of,
)
from composable_memory.config.validation import (
    all_known_keys,
    check,
    check_sections,
    hide,
    hides,
    ids_of_sections,
    is_secret,
    known_keys,
    place_sections,
)
from composable_memory.errors import ConfigError
from composable_memory.interfaces import BackendSpec, EmbedderSpec
from composable_memory.paths import homeless
from composable_memory.registry import Registry, discover_backends
from composable_memory.types import JsonValue
from composable_memory_ops_logs import redact_value
from composable_memory_ops_logs.quick_dataclass import dataclass

APP_NAME = "composable-memory"
CONFIG_VARIABLE = "COMPOSABLE_MEMORY_CONFIG"
STATE_VARIABLE = "COMPOSABLE_MEMORY_STATE_DIR"
VARIABLE_PREFIX = "COMPOSABLE_MEMORY__"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings, where each key was set (by dotted key), and remarks for the user."""

    settings: Settings
    origins: Mapping[str, Origin] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting for display; the value of a secret is hidden."""

    key: str
    value: JsonValue
    origin: Origin


def load_settings(
    workspace: Path,
    *,
    overrides: Mapping[str, object] | Settings | None = None,
    environ: Mapping[str, str] | None = None,
    user_file: Path | None = None,
    state_dir: Path | None = None,
    registry: Registry | None = None,
) -> LoadedSettings:
    """Read and merge all layers. Reads files: call it in a thread when an event loop is running.

    `overrides` has the shape of a settings file, with or without the root key `memory`. `user_file` replaces
    the user's own file. `state_dir` records which workspace files the user trusts; it defaults to that of
    `environ`. `registry` lists the available backends; it defaults to those installed.

    Raises:
        ConfigError: a file cannot be read, a key is unknown or not allowed there, a value is out of range.
    """
    environ = os.environ if environ is None else environ
    registry = discover_backends() if registry is None else registry
    own_file = user_file or user_config_path(environ)
    notes: list[str] = []
    installed = ids_of_sections(registry)
    is_named = bool(user_file or environ.get(CONFIG_VARIABLE))
    own = _read_own_file(own_file, installed, workspace, required=is_named)
    shared = read_workspace(
        workspace,
        registry,
        own_file=own_file,
        state_dir=(state_dir or default_state_dir(environ)).expanduser(),
    )
    layers = (
        own.tree,
        shared.tree,
        _read_environment(environ, installed),
        _read_overrides(overrides, installed),
    )
    tree = reduce(merge, (_resolve_secrets(layer, environ, notes) for layer in layers))
    for key, leaf in leaves(tree, "memory"):
        for one in leaf.value if isinstance(leaf.value, list) else [leaf.value]:
            if isinstance(one, str) and not is_secret(key) and (problem := homeless(one)):
                raise ConfigError(key, problem, origin=str(leaf.origin))
    settings = checked_settings(tree, registry)
    origins = {key: leaf.origin for key, leaf in leaves(tree, "memory")}
    origins = {**dict(_implied(settings, origins)), **origins}
    notes += [*own.notes, *shared.notes, *_remarks(settings, origins)]
    return LoadedSettings(settings=settings, origins=origins, notes=tuple(notes))


def checked_settings(tree: Tree, registry: Registry) -> Settings:
    """Validate the tree under `memory`, with a section for every installed backend.

    Raises:
        ConfigError: a key is unknown or its value is out of range.
    """
    check_sections(tree, registry)
    ids = ids_of_sections(registry)
    data = {"memory": {**dict.fromkeys(ids), **{key: plain(item) for key, item in tree.items()}}}
    origins = {key: leaf.origin for key, leaf in leaves(tree, "memory")}
    return check(Settings, data, origins=origins, also_known=all_known_keys(registry))


def validate_backend_options(
    memory: MemorySettings, spec: BackendSpec, origins: Mapping[str, Origin] | None = None
) -> BaseModel:
    """Validate a backend's own keys by its own model.

    Raises:
        ConfigError: a key is unknown or its value is out of range.
    """
    key = memory.section_key(spec.id)
    shared = known_keys(BackendSection, key)
    options = memory.section(spec.id).options
    return check(spec.settings, options, key=key, origins=origins, also_known=shared)


def validate_provider_options(
    spec: EmbedderSpec, loaded: LoadedSettings, *, model: str | None = None
) -> BaseModel:
    """Validate the keys of an embedding provider by its own model; `model` overrides the configured one.

    Raises:
        ConfigError: a key is unknown or its value is out of range.
    """
    key = f"memory.embedding.providers.{spec.id}"
    options = dict(loaded.settings.memory.embedding.providers.get(spec.id, {}))
    origins = dict(loaded.origins)
    if model is not None:
        options["model"] = model
        if origin := origins.get("memory.embedding.model"):
            origins[f"{key}.model"] = origin
    return check(spec.settings, options, key=key, origins=origins)


def describe(
    loaded: LoadedSettings, options: Mapping[str, BaseModel] | None = None
) -> tuple[SettingRow, ...]:
    """Return every setting with its value and origin, including defaults, with secrets hidden.

    `options` adds the validated settings of backends by id, so that their own defaults are shown too.
    """
    default = Origin(layer="default")
    rows = dict(leaves(tree_of(loaded.settings.model_dump(), default)))
    for backend_id, model in (options or {}).items():
        rows |= leaves(tree_of(model.model_dump(), default), loaded.settings.memory.section_key(backend_id))
    return tuple(
        SettingRow(
            key=key,
            value=redact_value(to_jsonable_python(leaf.value, fallback=str)),
            origin=loaded.origins.get(key, leaf.origin),
        )
        for key, leaf in rows.items()
    )


def user_config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's own settings file, which may not exist."""
    if named := environ.get(CONFIG_VARIABLE):
        return _expand(CONFIG_VARIABLE, named)
    return _base_dir(environ, "XDG_CONFIG_HOME", platformdirs.user_config_path) / "config.yaml"


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder for indexes and logs, which may not exist."""
    if named := environ.get(STATE_VARIABLE):
        return _expand(STATE_VARIABLE, named)
    return _base_dir(environ, "XDG_STATE_HOME", platformdirs.user_state_path)


def _expand(variable: str, named: str) -> Path:
    if problem := homeless(named):
        raise ConfigError(variable, problem)
    return Path(named).expanduser()


def _base_dir(environ: Mapping[str, str], variable: str, otherwise: Callable[..., Path]) -> Path:
    base = Path(environ.get(variable, ""))
    return base / APP_NAME if base.is_absolute() else otherwise(APP_NAME, appauthor=False)


def _implied(settings: Settings, origins: Mapping[str, Origin]) -> Iterator[tuple[str, Origin]]:
    """Yield the keys whose values follow from the choice of `memory.backend`, with its origin."""
    origin, memory = origins.get("memory.backend"), settings.memory
    if origin is None:
        return
    if memory.section(memory.backend).enabled:
        yield f"{memory.section_key(memory.backend)}.enabled", origin
    if not memory.section(DEFAULT_BACKEND).enabled:
        yield f"{memory.section_key(DEFAULT_BACKEND)}.enabled", origin
    if memory.fallback == "none":
        yield "memory.fallback", origin


def _remarks(settings: Settings, origins: Mapping[str, Origin]) -> Iterator[str]:
    memory = settings.memory
    if memory.primary != memory.backend and (origin := origins.get("memory.backend")):
        yield f"memory.backend ({origin}) names {memory.backend!r}, which is disabled"


# Secrets


def _resolve_secrets(
    tree: Tree, environ: Mapping[str, str], notes: list[str], prefix: str = "memory", *, hidden: bool = False
) -> Tree:
    """Hide the values of secret keys, and resolve `..._env` keys from the variables they name."""
    result: Tree = {}
    for name, item in tree.items():
        key = join(prefix, name)
        stem = name.removesuffix("_env")
        if isinstance(item, dict) and names_variables(key):
            result[name] = item
        elif isinstance(item, dict):
            result[name] = _resolve_secrets(item, environ, notes, key, hidden=hidden or hides(name))
        elif stem == name or not is_secret(stem):
            result[name] = _hide(item, key, notes, hidden=hidden or hides(name))
        elif stem in tree:
            raise ConfigError(key, f"{stem} is set as well; keep one of them", origin=str(item.origin))
        elif secret := environ.get(str(item.value)):
            origin = replace(item.origin, variable=str(item.value))
            result[stem] = Leaf(SecretStr(secret), origin)
        else:
            notes.append(f"{key} ({item.origin}) names {item.value}, a variable that is not set")
    return result


def _hide(leaf: Leaf, key: str, notes: list[str], *, hidden: bool) -> Leaf:
    value = hide(leaf.value, hidden=hidden)
    if value != leaf.value and leaf.origin.layer == "user":
        notes.append(f"{key} ({leaf.origin}) is a secret in a file; {key}_env can name a variable instead")
    return replace(leaf, value=value)


# Layers


def _read_own_file(file: Path, installed: Collection[str], workspace: Path, *, required: bool) -> FileLayer:
    found = read_settings_file(file)
    if found is None and required:
        raise ConfigError("memory", "there is no such file", origin=str(file))
    return parse_file(found, "user", installed, workspace) if found else FileLayer(tree={})


def _read_environment(environ: Mapping[str, str], installed: Collection[str]) -> Tree:
    """Read the environment variables that set keys; an empty one counts as unset."""
    tree: Tree = {}
    seen: dict[str, str] = {}
    for variable in sorted(environ):
        if variable.startswith(VARIABLE_PREFIX) and (text := environ[variable]):
            names = variable.removeprefix(VARIABLE_PREFIX).lower().removeprefix("memory__").split("__")
            key = ".".join(("memory", *names))
            origin = Origin(layer="environment", variable=variable)
            if seen.setdefault(key, variable) != variable:
                raise ConfigError(key, f"set by {seen[key]} as well", origin=str(origin))
            branch = _branch(names, _parse_variable(key, text, origin))
            tree = merge(tree, tree_of(branch, origin))
    return place_sections(tree, installed)


def _parse_variable(key: str, text: str, origin: Origin) -> object:
    """Return the text, or its value if it looks like a JSON list or mapping."""
    if not text.startswith(("[", "{")) or is_secret(key.rpartition(".")[2]):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(key, f"not valid JSON: {error}", origin=str(origin)) from error


def _branch(names: Sequence[str], value: object) -> Mapping[str, object]:
    return {names[0]: _branch(names[1:], value) if names[1:] else value}


def _read_overrides(overrides: Mapping[str, object] | Settings | None, installed: Collection[str]) -> Tree:
    data = overrides.model_dump(exclude_unset=True) if isinstance(overrides, Settings) else overrides or {}
    origin = Origin(layer="override")
    below = data["memory"] if set(data) == {"memory"} else data
    if not isinstance(below, Mapping):
        raise ConfigError("memory", "expected keys and values below it", origin=str(origin))
    return place_sections(tree_of(below, origin), installed)
