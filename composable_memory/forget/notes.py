"""The notes of a workspace as forgetting sees them: which say something, and cutting lines out of one.

Reads and writes files, so call it in a thread.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from composable_memory.forget.wording import Statement, statements_of
from composable_memory.paths import (
    MAIN_FILES,
    MEMORY_FOLDER,
    extra_root,
    has_memory_files,
    is_left_out,
    is_note,
    opened_file,
    relative_key,
)

BANK_FOLDER = "bank"


class NoteLine(NamedTuple):
    """A statement, and the note it stands in."""

    path: str
    statement: Statement


class Notes:
    """The Markdown and text files that are notes of a workspace."""

    def __init__(self, workspace: Path, extra_paths: Sequence[str] = ()) -> None:
        self._root = Path(os.path.realpath(workspace))
        self._extras = [extra_root(Path(one), self._root) for one in extra_paths]

    def paths(self) -> Iterator[str]:
        """Yield the names of all notes."""
        seen = set[Path]()
        for root in self._roots():
            for file in _files_in(root):
                if is_note(file.name) and not file.is_symlink() and file not in seen:
                    seen.add(file)
                    yield relative_key(file, self._root)

    def saying(self, words: Sequence[str], is_wanted: Callable[[Statement], bool]) -> Iterator[NoteLine]:
        """Yield the statements that are wanted, from notes that hold one of some words in whatever case."""
        for path in self.paths():
            text = self.text(path)
            folded = text.casefold()
            if any(word in folded for word in words):
                yield from (NoteLine(path, one) for one in statements_of(text) if is_wanted(one))

    def text(self, path: str) -> str:
        """Return the text of a note; none where it cannot be read, or is not UTF-8."""
        try:
            return self._bytes(path)[0].decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            return ""

    def lines(self, path: str, start_line: int, end_line: int) -> bytes:
        """Return the bytes of some lines, with their breaks."""
        try:
            return b"\n".join(self._bytes(path)[0].split(b"\n")[start_line - 1 : end_line])
        except OSError:
            return b""

    def has(self, path: str) -> bool:
        """Return whether there is a note of this name, in one of the places of notes."""
        target = self._target(path)
        return is_note(target.name) and any(target.is_relative_to(root) for root in self._roots())

    def _bytes(self, path: str) -> tuple[bytes, os.stat_result]:
        with (
            opened_file(self._target(path)) as (descriptor, found),
            os.fdopen(os.dup(descriptor), "rb") as file,
        ):
            return file.read(), found

    def _target(self, path: str) -> Path:
        return Path(os.path.normpath(self._root / path))

    def _roots(self) -> list[Path]:
        if self._root in self._extras or not has_memory_files(self._root):
            return [self._root, *self._extras]
        named = (*MAIN_FILES, MEMORY_FOLDER, BANK_FOLDER)
        return [*(self._root / one for one in named), *self._extras]


def _files_in(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    for folder, below, files in os.walk(root):
        below[:] = sorted(one for one in below if not is_left_out(one))
        yield from (Path(folder, one) for one in sorted(files) if not is_left_out(one))


def without_lines(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text without some of its lines, given as pairs of first and last, from 1."""
    gone = {number for first, last in spans for number in range(first, last + 1)}
    lines = text.split("\n")
    kept = [line for number, line in enumerate(lines, 1) if number not in gone]
    if len(lines) in gone and kept and kept[-1]:
        kept.append("")  # the note ends with a line break as before
    return "\n".join(kept)
