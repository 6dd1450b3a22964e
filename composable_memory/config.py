"""Where settings come from: the layers, the trust each deserves, and the origin of every value.

Defaults, then the user's own file, the workspace's file, environment variables, and what the caller says; a
later layer wins. The layers are merged as plain data and validated once. A workspace may come from anywhere,
with a clone or an archive, so its file may set only what cannot do harm: see `_WORKSPACE_RULES`.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Literal, TypeAlias

import platformdirs
import yaml
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from composable_memory.errors import ConfigError
from composable_memory.interfaces import BackendSpec
from composable_memory.settings import BackendSection, Settings, check, is_secret, known_keys, section_key
from composable_memory.types import JsonValue

__all__ = [
    "LoadedSettings",
    "Origin",
    "SettingRow",
    "default_state_dir",
    "describe",
    "load_settings",
    "user_config_path",
    "validate_backend_options",
]

APP_NAME = "composable-memory"
CONFIG_VARIABLE = "COMPOSABLE_MEMORY_CONFIG"
STATE_VARIABLE = "COMPOSABLE_MEMORY_STATE_DIR"
VARIABLE_PREFIX = "COMPOSABLE_MEMORY__"
WORKSPACE_FILES = (".composable-memory.yaml", ".composable-memory.yml", "openclaw.yml", "openclaw.yaml")
MAX_FILE_BYTES = 2**20
MAX_YAML_VALUES = 10_000
MAX_YAML_DEPTH = 32
MAX_NAME = 128

Layer = Literal["default", "user", "workspace", "environment", "override"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was set. `line` is 1-based; with both given, `file` names the `variable` to read."""

    layer: Layer
    file: Path | None = None
    line: int | None = None
    variable: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else str(self.file or "")
        variable = self.variable and f"environment variable {self.variable}"
        where = ", ".join(filter(None, (place, variable)))
        return where or {"override": "the caller"}.get(self.layer, self.layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings, where each key that was set was set (by dotted key), and remarks for the user."""

    settings: Settings
    origins: Mapping[str, Origin] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting as it is shown to people; the value of a secret is hidden."""

    key: str
    value: JsonValue
    origin: Origin


def load_settings(
    workspace: Path,
    *,
    overrides: Mapping[str, object] | Settings | None = None,
    environ: Mapping[str, str] | None = None,
    user_file: Path | None = None,
) -> LoadedSettings:
    """Read and merge all layers. Reads files, so call it in a thread where an event loop runs.

    `overrides` has the shape of a file, with or without the root key `memory`. `user_file` stands in for the
    user's own file.

    Raises:
        ConfigError: a file cannot be read, a key is unknown or not allowed there, a value is out of range.
    """
    environ = os.environ if environ is None else environ
    own_file = user_file or user_config_path(environ)
    notes: list[str] = []
    layers = (
        _read_own_file(own_file, required=bool(user_file or environ.get(CONFIG_VARIABLE))),
        _read_workspace(workspace, own_file),
        _read_environment(environ),
        _read_overrides(overrides),
    )
    tree = reduce(_merge, (_with_secrets(layer, environ, notes) for layer in layers))
    origins = {key: leaf.origin for key, leaf in _leaves(tree, "memory")}
    settings = check(Settings, {"memory": _plain(tree)}, origins=origins)
    return LoadedSettings(settings=settings, origins=origins, notes=(*notes, *_remarks(settings, origins)))


def validate_backend_options(
    section: BackendSection, spec: BackendSpec, origins: Mapping[str, Origin] | None = None
) -> BaseModel:
    """Check the keys that only this backend knows by its own model.

    Raises:
        ConfigError: a key is unknown or its value is out of range.
    """
    key = section_key(spec.id)
    shared = known_keys(BackendSection, key)
    return check(spec.settings, section.options, key=key, origins=origins, also_known=shared)


def describe(
    loaded: LoadedSettings, options: Mapping[str, BaseModel] | None = None
) -> tuple[SettingRow, ...]:
    """Return every setting with its value and origin, defaults included and secrets hidden.

    `options` adds the validated settings of backends by id, so that their own defaults are shown as well.
    """
    default = Origin(layer="default")
    rows = dict(_leaves(_tree(loaded.settings.model_dump(), default)))
    for backend_id, model in (options or {}).items():
        rows |= _leaves(_tree(model.model_dump(), default), section_key(backend_id))
    return tuple(
        SettingRow(
            key=key,
            value=to_jsonable_python(leaf.value, fallback=str),
            origin=loaded.origins.get(key, leaf.origin),
        )
        for key, leaf in rows.items()
    )


def user_config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's own file, which need not exist."""
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named).expanduser()
    return _base_dir(environ, "XDG_CONFIG_HOME", platformdirs.user_config_path) / "config.yaml"


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Return the directory for indexes and logs, which need not exist."""
    if named := environ.get(STATE_VARIABLE):
        return Path(named).expanduser()
    return _base_dir(environ, "XDG_STATE_HOME", platformdirs.user_state_path)


def _base_dir(environ: Mapping[str, str], variable: str, otherwise: Callable[..., Path]) -> Path:
    base = Path(environ.get(variable, ""))
    return base / APP_NAME if base.is_absolute() else otherwise(APP_NAME, appauthor=False)


def _remarks(settings: Settings, origins: Mapping[str, Origin]) -> Iterator[str]:
    memory = settings.memory
    if memory.primary != memory.backend and (origin := origins.get("memory.backend")):
        yield f"memory.backend ({origin}) names {memory.backend!r}, which is disabled"


# Trees: nested mappings whose leaves know where they come from.


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A value that is not a mapping, and where it was set."""

    value: object
    origin: Origin


_Tree: TypeAlias = dict[str, "_Tree | _Leaf"]

_CAMEL_CASE = re.compile("[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*")


def _snake(key: str) -> str:
    """Return a `camelCase` key as `snake_case`; other keys, such as HTTP headers, stay as they are."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", key).lower() if _CAMEL_CASE.fullmatch(key) else key


def _tree(data: Mapping[str, object], origin: Origin) -> _Tree:
    """Return plain data as a tree whose leaves all have one origin."""
    return {
        _snake(str(name)): _tree(value, origin) if isinstance(value, Mapping) else _Leaf(value, origin)
        for name, value in data.items()
    }


def _plain(tree: _Tree | _Leaf) -> object:
    return {key: _plain(item) for key, item in tree.items()} if isinstance(tree, dict) else tree.value


def _merge(low: _Tree, high: _Tree) -> _Tree:
    """Lay `high` over `low`. Null over a section says nothing: all its keys are commented out."""
    merged = dict(low)
    for key, item in high.items():
        below = merged.get(key)
        if not isinstance(below, dict):
            merged[key] = item
        elif isinstance(item, dict):
            merged[key] = _merge(below, item)
        elif item.value is not None:
            merged[key] = item
    return merged


def _leaves(tree: _Tree, prefix: str = "") -> Iterator[tuple[str, _Leaf]]:
    """Yield every leaf under its dotted key."""
    for name, item in tree.items():
        key = _join(prefix, name)
        if isinstance(item, dict):
            yield from _leaves(item, key)
        else:
            yield key, item


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


# Secrets


def _with_secrets(
    tree: _Tree, environ: Mapping[str, str], notes: list[str], prefix: str = "memory", *, hidden: bool = False
) -> _Tree:
    """Hide the values of secret keys, and put in those that a `..._env` key names a variable for."""
    result: _Tree = {}
    for name, item in tree.items():
        key = _join(prefix, name)
        stem = name.removesuffix("_env")
        if isinstance(item, dict):
            result[name] = _with_secrets(item, environ, notes, key, hidden=hidden or _hides(name))
        elif stem == name or not is_secret(stem):
            result[name] = _hide(item, key, notes, hidden=hidden or _hides(name))
        elif stem in tree:
            raise ConfigError(key, f"{stem} is set as well; keep one of them", origin=str(item.origin))
        elif secret := environ.get(str(item.value)):
            origin = replace(item.origin, variable=str(item.value))
            result[stem] = _Leaf(SecretStr(secret), origin)
        else:
            notes.append(f"{key} ({item.origin}) names {item.value}, a variable that is not set")
    return result


def _hides(name: str) -> bool:
    return name == "headers" or is_secret(name)


def _hide(leaf: _Leaf, key: str, notes: list[str], *, hidden: bool) -> _Leaf:
    value = _hidden(leaf.value, hidden=hidden)
    if value != leaf.value and leaf.origin.layer == "user":
        notes.append(f"{key} ({leaf.origin}) is a secret in a file; {key}_env could name a variable instead")
    return replace(leaf, value=value)


def _hidden(value: object, *, hidden: bool) -> object:
    match value:
        case dict():
            return {name: _hidden(item, hidden=hidden or _hides(name)) for name, item in value.items()}
        case list():
            return [_hidden(item, hidden=hidden) for item in value]
        case str() | int() | float() if hidden:
            return SecretStr(str(value))
    return value


# Layers


def _read_own_file(file: Path, *, required: bool) -> _Tree:
    tree = _read_file(file, "user")
    if tree is None and required:
        raise ConfigError("memory", "there is no such file", origin=str(file))
    return tree or {}


def _read_workspace(workspace: Path, own_file: Path) -> _Tree:
    """Read the first of the workspace's files, unless it is the one that the user named as their own."""
    for name in WORKSPACE_FILES:
        file = workspace / name
        if _is_same_file(file, own_file):
            return {}
        tree = _read_file(file, "workspace")
        if tree is not None:
            _refuse_harmful(tree, workspace, own_file)
            return tree
    return {}


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return False


def _read_environment(environ: Mapping[str, str]) -> _Tree:
    """Read the variables that stand for keys; an empty one counts as not set."""
    tree: _Tree = {}
    seen: dict[str, str] = {}
    for variable in sorted(environ):
        if variable.startswith(VARIABLE_PREFIX) and (text := environ[variable]):
            names = variable.removeprefix(VARIABLE_PREFIX).lower().removeprefix("memory__").split("__")
            key = ".".join(("memory", *names))
            origin = Origin(layer="environment", variable=variable)
            if seen.setdefault(key, variable) != variable:
                raise ConfigError(key, f"set by {seen[key]} as well", origin=str(origin))
            branch = _branch(names, _value_of_variable(key, text, origin))
            tree = _merge(tree, _tree(branch, origin))
    return tree


def _value_of_variable(key: str, text: str, origin: Origin) -> object:
    """Return the text, or what it says in JSON if it looks like a list or a mapping."""
    if not text.startswith(("[", "{")) or is_secret(key.rpartition(".")[2]):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(key, f"not valid JSON: {error}", origin=str(origin)) from error


def _branch(names: Sequence[str], value: object) -> Mapping[str, object]:
    return {names[0]: _branch(names[1:], value) if names[1:] else value}


def _read_overrides(overrides: Mapping[str, object] | Settings | None) -> _Tree:
    data = overrides.model_dump(exclude_unset=True) if isinstance(overrides, Settings) else overrides or {}
    origin = Origin(layer="override")
    below = data["memory"] if set(data) == {"memory"} else data
    if not isinstance(below, Mapping):
        raise ConfigError("memory", "expected keys and values below it", origin=str(origin))
    return _tree(below, origin)


# What a workspace may say

_Objection: TypeAlias = Callable[[object, Path], str | None]


def _anything(value: object, workspace: Path) -> str | None:  # noqa: ARG001 - the shape of a rule
    return None


def _only(*allowed: object) -> _Objection:
    words = " or ".join(json.dumps(each) for each in allowed)
    return lambda value, _: None if value in allowed else f"a workspace may only say {words} here"


def _inside(value: object, workspace: Path) -> str | None:
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, str):
            return f"{entry!r:.200} is not a path"
        if not _leads_inside(entry, workspace):
            return f"{entry!r:.200} leads out of the workspace"
    return None


def _leads_inside(entry: str, workspace: Path) -> bool:
    try:
        # Backends may strip what surrounds a path; " /etc" must not pass as a folder of that name.
        target = (workspace / Path(entry.strip()).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, no such home, a zero byte
        return False
    return target.is_relative_to(workspace.resolve())


_OTHER_BACKEND = r"(?:graphiti|qmd|backends\.[a-z0-9_-]+)"

_WORKSPACE_RULES: tuple[tuple[re.Pattern[str], _Objection], ...] = (
    (re.compile(r"citations|query\..+"), _anything),
    (re.compile(r"backend"), _only("builtin")),
    (re.compile(r"embedding\.provider"), _only("auto", "none", "local", "wordllama")),
    (re.compile(r"builtin\.(?:enabled|weight|timeout_ms|calibration|sources)"), _anything),
    (re.compile(r"builtin\.(?:chunking|query|sync|cache)(?:\..+)?"), _anything),
    (re.compile(r"builtin\.extra_paths"), _inside),
    (re.compile(rf"{_OTHER_BACKEND}\.enabled"), _only(False)),
    (re.compile(rf"{_OTHER_BACKEND}\.weight"), _anything),
)
"""Keys that cannot start programs, reach hosts, read files elsewhere or cost money, and what they may say."""


def _refuse_harmful(tree: _Tree, workspace: Path, own_file: Path) -> None:
    for key, leaf in _leaves(tree):
        if problem := _objection(key, leaf.value, workspace):
            advice = f"set it in {own_file}, or name this file in {CONFIG_VARIABLE} if you trust it"
            raise ConfigError(f"memory.{key}", f"{problem}; {advice}", origin=str(leaf.origin))


def _objection(key: str, value: object, workspace: Path) -> str | None:
    if value is None and "." not in key:
        return None  # a section whose keys are all commented out
    for pattern, rule in _WORKSPACE_RULES:
        if pattern.fullmatch(key):
            return rule(value, workspace)
    return "a file of the workspace may not set this"


# Files


def _read_file(file: Path, layer: Layer) -> _Tree | None:
    """Return what a file says under `memory`, or None if there is no file."""
    text = _read_text(file)
    if text is None:
        return None
    root = _compose(text, file)
    if root is None or root.tag == f"{_CORE}null":
        return {}
    reader = _NodeReader(file, layer)
    tree: _Tree | _Leaf = {}
    for name, node, origin in reader.pairs(root, ""):
        if name == "memory":
            tree = reader.read(node, name, origin)
        elif not file.name.startswith("openclaw."):
            raise ConfigError(name, "unknown key; everything stands under `memory:`", origin=str(origin))
    match tree:
        case dict():
            return tree
        case _Leaf(value=None):
            return {}
    raise ConfigError("memory", "expected keys and values below it", origin=str(tree.origin))


def _read_text(file: Path) -> str | None:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise ConfigError("memory", "not a regular file", origin=str(file))
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError("memory", f"cannot be read: {error.strerror}", origin=str(file)) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError("memory", f"larger than {MAX_FILE_BYTES} bytes", origin=str(file))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("memory", "not text in UTF-8", origin=f"{file}:{line}") from error


def _compose(text: str, file: Path) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError("memory", f"not valid YAML: {error.problem}", origin=f"{file}:{line}") from error
    except yaml.YAMLError as error:
        raise ConfigError("memory", f"not valid YAML: {error}", origin=str(file)) from error


class _Loader(yaml.SafeLoader):
    """Composes nodes with the plain words of YAML 1.2, where `on` and `no` are texts, and within bounds.

    The loader in C is not used: text that is nested deeply enough overflows its stack and ends the process.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._values += 1
        self._depth += 1
        if self._values > MAX_YAML_VALUES or self._depth > MAX_YAML_DEPTH:
            mark = parent.start_mark if parent else None
            raise yaml.composer.ComposerError(None, None, "too many values", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_CORE = "tag:yaml.org,2002:"

_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", "[-+]?(?:0|[1-9][0-9]{0,18})", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(_CORE + _kind, re.compile(f"(?:{_pattern})$"), _first)

_CONVERSIONS: Mapping[str, Callable[[str], object]] = {
    f"{_CORE}null": lambda _: None,
    f"{_CORE}bool": lambda text: {"true": True, "false": False}[text.lower()],
    f"{_CORE}int": int,
    f"{_CORE}float": float,
    f"{_CORE}str": str,
}


@dataclass(frozen=True, slots=True)
class _NodeReader:
    """Turns the nodes of one file into a tree whose leaves know their line."""

    file: Path
    layer: Layer
    seen: set[int] = field(default_factory=set)

    def read(self, node: yaml.Node, key: str, origin: Origin) -> _Tree | _Leaf:
        """Return the tree below `key`.

        A node that is met twice stands behind an alias; a few aliases of aliases make a tree of any size.
        """
        if id(node) in self.seen:
            raise ConfigError(key, "YAML aliases are not read; write the value out", origin=str(origin))
        self.seen.add(id(node))
        match node:
            case yaml.MappingNode(tag=tag) if tag == f"{_CORE}map":
                return {
                    name: self.read(item, _join(key, name), at) for name, item, at in self.pairs(node, key)
                }
            case yaml.SequenceNode(tag=tag) if tag == f"{_CORE}seq":
                items = (self.read(item, f"{key}.{index}", origin) for index, item in enumerate(node.value))
                return _Leaf([_plain(item) for item in items], origin)
            case yaml.ScalarNode(tag=tag) if tag in _CONVERSIONS:
                with suppress(KeyError, ValueError):
                    return _Leaf(_CONVERSIONS[tag](node.value), origin)
        raise ConfigError(key, f"cannot be read as {node.tag!r:.200}", origin=str(origin))

    def pairs(self, node: yaml.Node, key: str) -> Iterator[tuple[str, yaml.Node, Origin]]:
        """Yield each name of a mapping in snake_case, what stands there, and its origin."""
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(key or "memory", "expected keys and values", origin=str(self.origin(node)))
        names: set[str] = set()
        for name_node, value_node in node.value:
            name = _snake(str(name_node.value))
            origin = self.origin(name_node)
            if not name.isprintable() or len(name) > MAX_NAME:  # it would end up in messages on a terminal
                raise ConfigError(key or "memory", f"{name!r:.200} is no key", origin=str(origin))
            if name in names:
                raise ConfigError(_join(key, name), "set twice in this file", origin=str(origin))
            names.add(name)
            yield name, value_node, origin

    def origin(self, node: yaml.Node) -> Origin:
        """Return where a node begins."""
        return Origin(layer=self.layer, file=self.file, line=node.start_mark.line + 1)
