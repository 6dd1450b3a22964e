"""Parses the text of a settings file (YAML, JSON5) into a tree whose leaves know their line."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

import yaml

from composable_memory.config.trees import Layer, Leaf, Origin, Tree, join, plain, setting_name, snake
from composable_memory.errors import ConfigError
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_YAML_VALUES = 10_000
MAX_YAML_DEPTH = 32
MAX_NAME = 128
MAX_PATH = 4_096
WORKSPACES = "workspaces"
"""The key beside `memory` in the user's own file."""


def parse(text: str, file: Path, layer: Layer, *, foreign: Collection[str] | None = None) -> dict[str, Tree]:
    """Return the content of `file` under `memory`, and under each dotted key in `foreign` that it has.

    `foreign` are keys of another program. Without it the file is entirely ours, and anything else in it that
    is not a section is returned under a blank key. JSON5 is accepted too. The user's own file may have
    settings for single folders under `workspaces`: by folder, and below that as under `memory`.

    Raises:
        ConfigError: it is not valid YAML, is too large, or is ours and has other content.
    """
    root = _compose(_json_as_yaml(text) if file.suffix == ".json" else text, file)
    if root is None or root.tag == f"{_CORE}null":
        return {"memory": {}}
    reader = _NodeReader(file, layer)
    found: dict[str, Tree] = {"memory": {}}
    for name, node, origin in reader.pairs(root, ""):
        if name == "memory":
            found[name] = _section(reader.read(node, name, origin))
        elif name == WORKSPACES and layer == "user":
            found[name] = {}
            for folder, inner, at in reader.pairs(node, name, longest=MAX_PATH):
                if not (Path(folder).is_absolute() or folder.startswith("~")):
                    problem = "expected an absolute path, or one that begins with ~"
                    raise ConfigError(f"{name}.{folder}", problem, origin=str(at))
                found[name][folder] = _section(reader.read(inner, "memory", at))
        elif foreign is None:
            raise ConfigError(name, "unknown key; all settings are under `memory:`", origin=str(origin))
    for key in foreign or ():
        for node, origin in reader.find(root, key.split(".")):
            read = reader.read(node, key, origin)
            found[key] = read if isinstance(read, dict) else {"": read}
    return found


def _section(read: Tree | Leaf) -> Tree:
    match read:
        case dict():
            return read
        case Leaf(is_empty=True):
            return {}
    raise ConfigError("memory", "expected keys and values below it", origin=str(read.origin))


_JSON_PARTS = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(//[^\n]*|/\*.*?\*/)|([:\t])""", re.DOTALL)
"""A string in JSON5, a comment, and what YAML misreads unless a space follows, or misreads anyway."""


def _json_as_yaml(text: str) -> str:
    """Convert JSON5 to YAML with the same line numbers."""

    def part(found: re.Match[str]) -> str:
        quoted, comment, mark = found.groups()
        if quoted is not None:
            return str(quoted.replace(r"\/", "/"))
        return re.sub(r"[^\n]", " ", comment) if comment else f"{mark.strip()} "

    return _JSON_PARTS.sub(part, text)


def _compose(text: str, file: Path) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError("memory", f"not valid YAML: {error.problem}", origin=f"{file}:{line}") from error
    except yaml.YAMLError as error:
        raise ConfigError("memory", f"not valid YAML: {error}", origin=str(file)) from error


_CORE = "tag:yaml.org,2002:"


class PlainWords(yaml.resolver.BaseResolver):
    """Resolves plain words as YAML 1.2 does, in which `on`, `no` and `12:30` are strings."""


for _kind, _pattern, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", "[-+]?(?:0|[1-9][0-9]{0,18})", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    PlainWords.add_implicit_resolver(_CORE + _kind, re.compile(f"(?:{_pattern})$"), _first)


class _Loader(yaml.SafeLoader):
    """Composes nodes with the plain words of YAML 1.2, within limits.

    The C loader is not used: deeply nested text overflows its stack and kills the process.
    """

    yaml_implicit_resolvers = PlainWords.yaml_implicit_resolvers

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

    def read(self, node: yaml.Node, key: str, origin: Origin) -> Tree | Leaf:
        """Return the tree below `key`.

        A node that is visited twice is an alias; a few aliases of aliases can make a tree of any size.
        """
        if id(node) in self.seen:
            raise ConfigError(key, "YAML aliases are not supported; write the value out", origin=str(origin))
        self.seen.add(id(node))
        match node:
            case yaml.MappingNode(tag=tag, value=[]) if tag == f"{_CORE}map":
                return Leaf({}, origin)
            case yaml.MappingNode(tag=tag) if tag == f"{_CORE}map":
                return {
                    name: self.read(item, join(key, name), at) for name, item, at in self.pairs(node, key)
                }
            case yaml.SequenceNode(tag=tag) if tag == f"{_CORE}seq":
                items = (self.read(item, f"{key}.{index}", origin) for index, item in enumerate(node.value))
                return Leaf([plain(item) for item in items], origin)
            case yaml.ScalarNode(tag=tag) if tag in _CONVERSIONS:
                with suppress(KeyError, ValueError):
                    return Leaf(_CONVERSIONS[tag](node.value), origin)
        raise ConfigError(key, f"cannot be read as {node.tag!r:.200}", origin=str(origin))

    def pairs(
        self, node: yaml.Node, key: str, *, longest: int = MAX_NAME
    ) -> Iterator[tuple[str, yaml.Node, Origin]]:
        """Yield each name of a mapping in snake_case, its value, and its origin."""
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(key or "memory", "expected keys and values", origin=str(self.origin(node)))
        names: set[str] = set()
        for name_node, value_node in node.value:
            name = setting_name(str(name_node.value), key)
            origin = self.origin(name_node)
            if not name.isprintable() or len(name) > longest:  # it would appear in messages on a terminal
                raise ConfigError(key or "memory", f"{name!r:.200} is no key", origin=str(origin))
            if name in names:
                raise ConfigError(join(key, name), "set twice in this file", origin=str(origin))
            names.add(name)
            yield name, value_node, origin

    def find(self, node: yaml.Node, path: Sequence[str]) -> Iterator[tuple[yaml.Node, Origin]]:
        """Yield the nodes at a path of names, in which `*` is every entry of a list, with their origins."""
        name, *rest = path
        match node:
            case yaml.SequenceNode() if name == "*":
                entries = [(item, self.origin(item)) for item in node.value]
            case yaml.MappingNode():
                entries = [(item, self.origin(at)) for at, item in node.value if snake(str(at.value)) == name]
            case _:
                entries = []
        for item, origin in entries:
            yield from self.find(item, rest) if rest else ((item, origin),)

    def origin(self, node: yaml.Node) -> Origin:
        """Return where a node begins."""
        return Origin(layer=self.layer, file=self.file, line=node.start_mark.line + 1)
