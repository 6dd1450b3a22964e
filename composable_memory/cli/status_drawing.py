"""Draws the status of a memory, whatever its backend says of itself: labels and values, blocks and tables."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import groupby
from typing import TypeAlias

from composable_memory.cli.screen import say
from composable_memory.tools import ProviderStatus

__all__ = ["Row", "known_rows", "show_fields", "show_rows"]

Row: TypeAlias = tuple[str, str]
"""A label and a value; a block has no value, and what is in it is labelled with two more spaces in front."""

LONG_ITEM = 40
"""A list with an item longer than so many characters has a line for each."""

LONG_LINE = 100
"""What has parts, and is longer than so many characters on one line, becomes a block."""


def show_fields(title: str, status: ProviderStatus) -> None:
    """Write every field of a status under a title; what the backend adds on its own comes last."""
    say(title, bold=True)
    show_rows([row for name in ProviderStatus.model_fields for row in _rows(name, getattr(status, name))])


def known_rows(status: ProviderStatus) -> list[Row]:
    """Return what a status says of the model, the index and the fallback, and what its backend adds."""
    told = {name: getattr(status, name) for name in _TOLD_IN_SHORT}
    return [row for name, value in told.items() if value not in (None, {}) for row in _rows(name, value)]


_TOLD_IN_SHORT = ("provider", "model", "files", "chunks", "dirty", "db_path", "fallback", "custom")


def show_rows(rows: Sequence[Row]) -> None:
    """Write labels and values, the values of one block in one column."""
    for row, width in zip(rows, _widths([label for label, _ in rows]), strict=True):
        say(f"  {row[0].ljust(width)}  {row[1]}".rstrip())


def _rows(name: str, value: object) -> Iterator[Row]:
    """Yield the lines of a field; what is in one of ours is named after both."""
    label = _words(name)
    if is_dataclass(value):
        for inner, part in _parts(value).items():
            yield f"{label} {_words(inner)}", _text(inner, part)
    elif isinstance(value, Mapping) and value:
        yield from _block(label, value)
    else:
        yield from _part(label, name, value)


def _block(label: str, parts: Mapping[str, object]) -> Iterator[Row]:
    """Yield a title, and below it every part: on a line, as a table, or as a block of its own."""
    yield label, ""
    for name, part in parts.items():
        inner = f"{' ' * (_depth(label) + 2)}{_words(name)}"
        yield from _part(inner, name, part)


def _part(label: str, name: str, value: object) -> Iterator[Row]:
    if isinstance(value, Mapping) and not _fits_on_a_line(value):
        yield from _block(label, value)
    elif not isinstance(value, list | tuple) or not value:
        yield label, _text(name, value)
    elif all(map(_has_parts, value)):
        yield from _table(label, [_parts(one) for one in value])
    else:
        yield from _list(label, [_text("", one) for one in value])


def _list(label: str, items: Sequence[str]) -> Iterator[Row]:
    if any(len(one) > LONG_ITEM for one in items):
        yield from zip((label, *[" " * _depth(label)] * len(items)), items, strict=False)
    else:
        yield label, ", ".join(items)


def _table(label: str, rows: Sequence[Mapping[str, object]]) -> Iterator[Row]:
    """Yield a head and a line for each row, in columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [list(map(_words, names)), *([_text(name, row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield label, "  ".join(map(str.ljust, line, widths)).rstrip()
        label = " " * _depth(label)


def _widths(labels: Sequence[str]) -> list[int]:
    """Return for every label the width of the longest in the same run of labels of one depth."""
    runs = [list(run) for _, run in groupby(labels, _depth)]
    return [width for run in runs for width in [max(map(len, run))] * len(run)]


def _depth(label: str) -> int:
    return len(label) - len(label.lstrip())


def _has_parts(value: object) -> bool:
    return isinstance(value, Mapping) or is_dataclass(value)


def _fits_on_a_line(parts: Mapping[str, object]) -> bool:
    is_deep = any(isinstance(part, Mapping | list | tuple) and part for part in parts.values())
    return not is_deep and len(_text("", parts)) <= LONG_LINE


def _parts(value: object) -> Mapping[str, object]:
    """Return what is in a value that has parts; `from_` is written without its underscore."""
    if isinstance(value, Mapping):
        return value
    assert is_dataclass(value)
    return {one.name.rstrip("_"): getattr(value, one.name) for one in fields(value)}


def _text(name: str, value: object) -> str:
    """Return a value on one line; in one with parts, what is not known is left out."""
    match value:
        case None | "" | [] | ():
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() if name.endswith("bytes"):
            return _size(value)
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(_text("", one) for one in value)
        case _ if _has_parts(value):
            known = {inner: part for inner, part in _parts(value).items() if part is not None}
            return ", ".join(f"{_words(inner)} {_text(inner, part)}" for inner, part in known.items()) or "-"
    return str(value)


def _size(count: float) -> str:
    """Return a number of bytes as people say it."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.{0 if unit == 'bytes' else 1}f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _words(name: str) -> str:
    """Return the words of a name, be it written `like_this` or `likeThis`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").lower()
