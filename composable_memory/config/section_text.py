"""Enters a backend in the text of a settings file, and keeps everything else as it is (pure)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from composable_memory.config.trees import Tree, plain
from composable_memory.config.yaml_reader import parse
from composable_memory.connect import json_text
from composable_memory.errors import ConfigError
from composable_memory.types import JsonValue


class UnsafeEdit(Exception):
    """The text cannot be changed without a risk for what is in it."""


Section = Mapping[str, JsonValue]


def with_section(text: str, file: Path, backend_id: str, section: Section) -> str:
    """Return the text of `file` with one more backend.

    Raises:
        ConfigError: the file cannot be read, or the backend is there already.
        UnsafeEdit: something else in it would change.
    """
    before = _content(text, file)
    _require_mappings(before, backend_id, file)
    path = ("memory", "backends", backend_id)
    after = (
        json_text.with_value(text, path, section) if file.suffix == ".json" else _in_yaml(text, path, section)
    )
    wanted = {**before, "backends": {**(before.get("backends") or {}), backend_id: dict(section)}}
    if not _says(after, file, wanted):
        raise UnsafeEdit
    return after


def as_yaml(backend_id: str, section: Section) -> str:
    """Return a section as lines of YAML, as they stand under `backends`."""
    return yaml.safe_dump({backend_id: dict(section)}, sort_keys=False, allow_unicode=True, width=1_000)


def _says(text: str, file: Path, wanted: Mapping[str, Any]) -> bool:
    try:
        return _content(text, file) == wanted
    except ConfigError:
        return False


def _content(text: str, file: Path) -> dict[str, Any]:
    tree: Tree = parse(text, file, "user")["memory"]
    return {name: plain(item) for name, item in tree.items()}


def _require_mappings(content: Mapping[str, Any], backend_id: str, file: Path) -> None:
    there = content.get("backends") or {}
    if not isinstance(there, dict):
        raise ConfigError("memory.backends", "expected keys and values below it", origin=str(file))
    if backend_id in there or backend_id in content:
        raise ConfigError(f"memory.backends.{backend_id}", "it is there already", origin=str(file))


def _in_yaml(text: str, path: tuple[str, ...], section: Section) -> str:
    """Return YAML with a section before the first key of the innermost mapping that is there."""
    newline = "\r\n" if "\r\n" in text else "\n"
    node, depth = yaml.compose(text, Loader=yaml.SafeLoader), 0
    if node is None:
        gap = "" if not text or text.endswith("\n") else newline
        return text + gap + _lines(path, section, "", newline)
    while isinstance(inner := _member(node, path[depth]), yaml.MappingNode) and inner.value:
        node, depth = inner, depth + 1
    if not isinstance(node, yaml.MappingNode) or node.flow_style or inner is not None:
        raise UnsafeEdit
    mark = node.value[0][0].start_mark
    begin = mark.index - mark.column
    return text[:begin] + _lines(path[depth:], section, " " * mark.column, newline) + text[begin:]


def _member(node: yaml.Node, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)


def _lines(path: tuple[str, ...], section: Section, margin: str, newline: str) -> str:
    heads = [f"{margin}{'  ' * depth}{name}:" for depth, name in enumerate(path[:-1])]
    inner = margin + "  " * len(heads)
    body = [f"{inner}{line}" for line in as_yaml(path[-1], section).splitlines()]
    return "".join(line + newline for line in [*heads, *body])
