"""Settings as nested mappings whose leaves know where they were set, and how to lay one over another."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["Layer", "Leaf", "Origin", "Tree", "join", "leaves", "merge", "plain", "snake", "tree_of"]

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


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is not a mapping, and where it was set."""

    value: object
    origin: Origin


Tree: TypeAlias = dict[str, "Tree | Leaf"]


def tree_of(data: Mapping[str, object], origin: Origin) -> Tree:
    """Return plain data as a tree whose leaves all have one origin."""
    return {
        snake(str(name)): tree_of(value, origin) if isinstance(value, Mapping) else Leaf(value, origin)
        for name, value in data.items()
    }


def plain(tree: Tree | Leaf) -> object:
    """Return what a tree says, without the origins."""
    return {key: plain(item) for key, item in tree.items()} if isinstance(tree, dict) else tree.value


def merge(low: Tree, high: Tree) -> Tree:
    """Lay `high` over `low`. Null over a section says nothing: all its keys are commented out."""
    merged = dict(low)
    for key, item in high.items():
        below = merged.get(key)
        if not isinstance(below, dict):
            merged[key] = item
        elif isinstance(item, dict):
            merged[key] = merge(below, item)
        elif item.value is not None:
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


def join(prefix: str, name: str) -> str:
    """Return the dotted key of `name` below `prefix`, which may be empty."""
    return f"{prefix}.{name}" if prefix else name


_CAMEL_CASE = re.compile("[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*")


def snake(key: str) -> str:
    """Return a `camelCase` key as `snake_case`; other keys, such as HTTP headers, stay as they are."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", key).lower() if _CAMEL_CASE.fullmatch(key) else key
