"""Adds a backend to the text of a settings file without changing anything else in it (pure)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from composable_memory.config.trees import plain
from composable_memory.config.yaml_reader import WORKSPACES, parse
from composable_memory.connect import json_text
from composable_memory.errors import ConfigError
from composable_memory.types import JsonValue


class UnsafeEdit(Exception):
    """The text cannot be edited without risk to its other content."""


Section = Mapping[str, JsonValue]


def with_section(
    text: str, file: Path, backend_id: str, section: Section, workspace: Path | None = None
) -> str:
    """Return the text of `file` with one more backend, for all workspaces or for one only.

    Raises:
        ConfigError: the file cannot be read, or already has the backend.
        UnsafeEdit: something else in it would change.
    """
    before = _content(text, file)
    path = (*((WORKSPACES, str(workspace)) if workspace else ("memory",)), "backends", backend_id)
    for place in {("memory",), path[:-2]}:
        _require_absent(before, place, backend_id, file)
    after = (
        json_text.with_value(text, path, section) if file.suffix == ".json" else _in_yaml(text, path, section)
    )
    if not _has_content(after, file, _with_value(before, path, dict(section))):
        raise UnsafeEdit
    return after


def as_yaml(backend_id: str, section: Section) -> str:
    """Return a section as lines of YAML, as they are written under `backends`."""
    return _dumped({backend_id: dict(section)})


def _has_content(text: str, file: Path, wanted: Mapping[str, Any]) -> bool:
    try:
        return _content(text, file) == wanted
    except ConfigError:
        return False


def _content(text: str, file: Path) -> dict[str, Any]:
    return {name: plain(item) for name, item in parse(text, file, "user").items()}


def _require_absent(content: Mapping[str, Any], place: tuple[str, ...], backend_id: str, file: Path) -> None:
    for name in place:
        content = content.get(name) or {}
    there = content.get("backends") or {}
    if not isinstance(there, dict):
        raise ConfigError("memory.backends", "expected keys and values below it", origin=str(file))
    if backend_id in there or backend_id in content:
        raise ConfigError(f"memory.backends.{backend_id}", "it already exists", origin=str(file))


def _with_value(content: Mapping[str, Any], path: tuple[str, ...], value: JsonValue) -> dict[str, Any]:
    """Return the file's content with one more value."""
    name, *rest = path
    return {**content, name: _with_value(content.get(name) or {}, tuple(rest), value) if rest else value}


def _in_yaml(text: str, path: tuple[str, ...], section: Section) -> str:
    """Insert a section into YAML, before the first key of the innermost existing mapping, or at its end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    at_end = text + ("" if not text or text.endswith("\n") else newline)
    node, depth = yaml.compose(text, Loader=yaml.SafeLoader), 0
    if node is None:
        return at_end + _lines(path, section, "", newline)
    while isinstance(inner := _member(node, path[depth]), yaml.MappingNode) and inner.value:
        node, depth = inner, depth + 1
    if not isinstance(node, yaml.MappingNode) or node.flow_style or inner is not None:
        raise UnsafeEdit
    mark = node.value[0][0].start_mark
    lines = _lines(path[depth:], section, " " * mark.column, newline)
    if depth == 0:
        return at_end + lines
    begin = mark.index - mark.column
    return text[:begin] + lines + text[begin:]


def _member(node: yaml.Node, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)


def _lines(path: tuple[str, ...], section: Section, margin: str, newline: str) -> str:
    """Return the lines of a section below the keys that lead to it."""
    nested: JsonValue = dict(section)
    for name in reversed(path):
        nested = {name: nested}
    return "".join(f"{margin}{line}{newline}" for line in _dumped(nested).splitlines())


def _dumped(value: JsonValue) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1_000)
