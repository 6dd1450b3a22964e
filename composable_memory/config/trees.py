"""Settings as nested mappings whose leaves know where they were set, and how to merge them."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from composable_memory_ops_logs.quick_dataclass import dataclass

Layer = Literal["default", "user", "workspace", "environment", "override"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was set. `line` is 1-based; if both are given, `file` names the `variable` to read."""

    layer: Layer
    file: Path | None = None
    line: int | None = None
    variable: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else str(self.file or "")
        variable = self.variable and f"environment variable {self.variable}"
        where = ", ".join(filter(None, (place, variable)))
        return where or {"override": "the caller"}.get(self.layer, self.layer)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is not a mapping, or an empty mapping, and where it was set.

    A leaf that `is_implied` follows from other settings, and gives way to an explicit value.
    """

    value: object
    origin: Origin
    is_implied: bool = False

    @property
    def is_empty(self) -> bool:
        """Return whether this is a section without content, such as one whose keys are all commented out."""
        return self.value is None or self.value == {}


Tree: TypeAlias = dict[str, "Tree | Leaf"]


VERBATIM = frozenset({"arguments", "body", "env", "headers", "headers_env", "params"})
"""Keys of a section with foreign names below them, which stay as written."""
NAMES_OF_VARIABLES = ("env", "headers_env")
"""Of these, the keys whose values are names of environment variables, whatever those contain."""


def tree_of(data: Mapping[str, object], origin: Origin, key: str = "") -> Tree:
    """Turn plain data at a key into a tree whose leaves all have the same origin."""
    names = ((setting_name(str(name), key), value) for name, value in data.items())
    return {
        name: tree_of(value, origin, join(key, name))
        if isinstance(value, Mapping) and value
        else Leaf(value, origin)
        for name, value in names
    }


def plain(tree: Tree | Leaf) -> object:
    """Return the content of a tree, without the origins."""
    return {key: plain(item) for key, item in tree.items()} if isinstance(tree, dict) else tree.value


def merge(low: Tree, high: Tree) -> Tree:
    """Overlay `high` on `low`; empty sections change nothing, nor do implied values replace explicit ones."""
    merged = dict(low)
    for key, item in high.items():
        below = merged.get(key)
        if isinstance(item, dict):
            merged[key] = merge(below, item) if isinstance(below, dict) else item
        elif below is None or not (item.is_implied or (item.is_empty and isinstance(below, dict))):
            merged[key] = item
    return merged


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield every leaf under its dotted key."""
    for name, item in tree.items():
        key = join(prefix, name)
        if isinstance(item, dict):
            yield from leaves(item, key)
        else:
            yield key, item


def without(tree: Tree, keys: Collection[str], prefix: str = "") -> Tree:
    """Return a tree without the leaves at these dotted keys, and without sections that become empty."""
    kept: Tree = {}
    for name, item in tree.items():
        key = join(prefix, name)
        if not isinstance(item, dict):
            kept |= {} if key in keys else {name: item}
        elif section := without(item, keys, key):
            kept[name] = section
    return kept


def origin_of(item: Tree | Leaf) -> Origin:
    """Return where the first value of a section was set; every section has one."""
    return item.origin if isinstance(item, Leaf) else origin_of(next(iter(item.values())))


def join(prefix: str, name: str) -> str:
    """Return the dotted key of `name` below `prefix`, which may be empty."""
    return f"{prefix}.{name}" if prefix else name


def names_variables(key: str) -> bool:
    """Return whether the values at and below a dotted key are names of variables, which are not secret."""
    return next(iter(_verbatim_in(key)), None) in NAMES_OF_VARIABLES


_CAMEL_CASE = re.compile("[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*")


def setting_name(name: str, key: str) -> str:
    """Return the name of a key below a dotted key, in snake_case if it is one of our names."""
    return name if _verbatim_in(key) else snake(name)


def _verbatim_in(key: str) -> list[str]:
    section = key.removeprefix("memory.").removeprefix("backends.")
    return [name for name in section.split(".")[1:] if name in VERBATIM]


def snake(key: str) -> str:
    """Return a `camelCase` key as `snake_case`; other keys, such as HTTP headers, stay as they are."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", key).lower() if _CAMEL_CASE.fullmatch(key) else key
