"""Erases texts from the files of a log: ids, places, scores and times of every line stay.

A file is rewritten beside itself and replaced when complete. An open file is closed that way: a process that
waits to append to it begins another.
"""

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson

from composable_memory_ops_logs.line_format import is_whole, sealed, to_line
from composable_memory_ops_logs.private_files import lock_file
from composable_memory_ops_logs.retention import maintenance_lock, write_closed_at_once
from composable_memory_ops_logs.segments import Segment, blocks_of, closed_blocks, noted_length, segments_in

Mask = Callable[[str], str]
"""Returns a text with what has to go masked; the same text if there is nothing."""
T = TypeVar("T")
PLACES = frozenset(
    ("traceId", "trace_id", "queryId", "query_id", "ts", "at", "path", "paths", "backendAttribution")
)
"""Fields with ids, times and places, in many of which the year of a forgotten line would match."""


def erase(
    directory: Path,
    mask: Mask,
    *,
    words: Collection[str],
    is_of: Callable[[str], bool],
    is_rehearsal: bool = False,
) -> int:
    """Mask the texts of all lines that contain one of `words`, in lower case; return the number of lines.

    The log is shared by all memories of a state folder: lines of traces that begin in a memory for which
    `is_of` is false are left alone. In a rehearsal nothing is changed.

    Raises:
        OSError: a file cannot be read or written; those before it are done, and can be done again.
    """
    if not directory.is_dir():
        return 0
    eraser = _Eraser(mask, words, is_of)
    with maintenance_lock(directory, is_patient=True):
        return sum(_erase_in(segment, eraser, is_rehearsal) for segment in segments_in(directory))


class _Eraser:
    def __init__(self, mask: Mask, words: Collection[str], is_of: Callable[[str], bool]) -> None:
        self._mask = mask
        self._words = tuple(words)
        self._is_of = is_of
        self._of_others: set[object] = set()
        self._changed = 0

    def block(self, lines: bytes) -> bytes:
        """Return complete lines with what has to go masked."""
        if not self._is_suspect(lines) and b'"query.start"' not in lines:
            return lines
        return b"".join(map(self._line, lines.splitlines(keepends=True)))

    def count(self, blocks: Iterable[bytes]) -> int:
        """Return how many lines change."""
        before = self._changed
        for block in blocks:
            self.block(block)
        return self._changed - before

    def _line(self, line: bytes) -> bytes:
        is_start = b'"query.start"' in line
        if not is_start and not self._is_suspect(line):
            return line
        try:
            if not is_whole(line):
                raise ValueError("it is damaged")
            wire = orjson.loads(line)
            trace, detail = wire["traceId"], wire["detail"]
            if is_start:  # a trace restored into another memory has one for each memory
                is_ours = self._is_of(detail.get("memory") or "")
                (self._of_others.discard if is_ours else self._of_others.add)(trace)
        except (AttributeError, LookupError, TypeError, ValueError):  # unreadable
            if not self._is_suspect(line):
                return line
            self._changed += 1
            return b""
        if trace in self._of_others or (masked := masked_value(detail, self._mask, kept=PLACES)) == detail:
            return line
        self._changed += 1
        for name in ("at", "crc32"):
            wire.pop(name, None)
        return sealed(to_line({**wire, "detail": masked}))

    def _is_suspect(self, lines: bytes) -> bool:
        text = lines.decode("utf-8", "replace").casefold()
        return any(word in text for word in self._words)


def masked_value(value: T, mask: Mask, *, kept: Collection[str] = ()) -> T:
    """Return a JSON value with all its texts masked, except for field names and the values of `kept` fields.

    If fields are kept, so is the path at the start of a list that represents a place.
    """
    result: Any = value
    match value:
        case str():
            result = mask(value)
        case [str() as path, int() as line, *rest] if kept:
            result = [path, line, *masked_value(rest, mask, kept=kept)]
        case list():
            result = [masked_value(one, mask, kept=kept) for one in value]
        case dict():
            result = {
                key: one if key in kept else masked_value(one, mask, kept=kept) for key, one in value.items()
            }
    return cast("T", result)


def _erase_in(segment: Segment, eraser: _Eraser, is_rehearsal: bool) -> int:
    found = 0
    for path in (segment.closed_path, segment.kept_path):
        if path.exists() and (changes := eraser.count(closed_blocks(path))):
            found += changes
            if not is_rehearsal:
                _write(path, map(eraser.block, closed_blocks(path)))
    if segment.closed_path.exists():
        return found
    with suppress(FileNotFoundError), segment.open_path.open("r+b") as file:
        lock_file(file.fileno())
        noted = noted_length(segment)
        if os.fstat(file.fileno()).st_nlink and (changes := eraser.count(blocks_of(file, noted))):
            found += changes
            if not is_rehearsal:
                file.seek(0)
                _write(segment.closed_path, map(eraser.block, blocks_of(file, noted)))
                segment.open_path.unlink()
    return found


def _write(path: Path, blocks: Iterable[bytes]) -> None:
    write_closed_at_once(path, filter(None, blocks))
