"""The notes of a workspace for forgetting: finding statements in them, and cutting out lines.

Reads files: call it in a thread.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from composable_memory.errors import MemoryPathError
from composable_memory.forget.statement_matching import Statement, statements_of
from composable_memory.forget.transcript_messages import statements_in, transcript_file
from composable_memory.paths import has_memory_files, is_note, resolve_memory_file
from composable_memory.recall.retained_notes import note_data, note_files, note_text
from composable_memory.retain.note_file import problem_with_encoding


class NoteLine(NamedTuple):
    """A statement, and the note it is in."""

    path: str
    statement: Statement


class Notes:
    """The notes of a workspace (Markdown and text files), the documents that were added, and transcripts.

    Only notes are searched; messages in the folder `transcripts` are found by their place. `unread` are notes
    and folders that could not be read, with the reasons.
    """

    def __init__(
        self, workspace: Path, extra_paths: Sequence[str] = (), transcripts: Path | None = None
    ) -> None:
        self._root = Path(os.path.realpath(workspace))
        self.extra_paths = [Path(one) for one in extra_paths]
        if not has_memory_files(self._root):
            self.extra_paths.append(Path())
        self._transcripts = transcripts and Path(os.path.realpath(transcripts))
        self._documents: dict[str, list[Statement]] = {}
        self.unread: dict[str, str] = {}

    def saying(self, words: Sequence[str], is_wanted: Callable[[Statement], bool]) -> Iterator[NoteLine]:
        """Yield the wanted statements in notes that contain one of some words, in any case."""
        for path, *_ in note_files(self._root, map(str, self.extra_paths), self.unread):
            text = self.text(path)
            folded = text.casefold()
            if any(word in folded for word in words):
                yield from (NoteLine(path, one) for one in statements_of(text) if is_wanted(one))

    def text(self, path: str) -> str:
        """Return the text of a note; empty if it cannot be read."""
        try:
            return note_text(self.file(path))
        except FileNotFoundError:
            return ""
        except OSError as error:
            self.unread[path] = error.strerror or str(error)
            return ""

    def statements(self, path: str, first: int = 1, last: int | None = None) -> Sequence[Statement]:
        """Return the statements of a note or transcript, or of the parts of a document that were added.

        Of a transcript, which may be long, only the lines from `first` to `last` are read.
        """
        if transcript := self.transcript(path):
            return [*statements_in(transcript, first, last)]
        if self.is_document(path):
            return self._documents[path]
        return [*statements_of(self.text(path))]

    def is_document(self, path: str) -> bool:
        """Return whether parts of a document with this path were added."""
        return path in self._documents

    def transcript(self, path: str) -> Path | None:
        """Return the file of a transcript; None if the path is not one."""
        return transcript_file(path, self._transcripts)

    def add_document(self, path: str, first: int, last: int, text: str) -> None:
        """Add the text of some pages of a document; its statements are located by these pages."""
        said = (replace(one, start_line=first, end_line=last) for one in statements_of(text))
        self._documents.setdefault(path, []).extend(said)

    def why_uncut(self, path: str) -> str | None:
        """Return why lines cannot be cut out of a file, and what to do instead; None if they can."""
        if self.transcript(path):
            return None
        if not is_note(self.file(path).name):
            return "edit the file yourself; lines cannot be removed from documents"
        try:
            problem = problem_with_encoding(note_data(self.file(path)))
        except OSError:
            return None
        return problem and f"{problem[0]}; {problem[1]} and forget this again, or edit the file yourself"

    def has(self, path: str) -> bool:
        """Return whether a path is a note, in one of the places for notes."""
        try:
            resolve_memory_file(path, workspace=self._root, extra_paths=self.extra_paths)
        except MemoryPathError:
            return False
        return True

    def file(self, path: str) -> Path:
        """Return the file of a note."""
        return Path(os.path.normpath(self._root / path))


def without_lines(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text without some of its lines, given as 1-based pairs of first and last."""
    gone = {number for first, last in spans for number in range(first, last + 1)}
    lines = text.split("\n")
    kept = [line for number, line in enumerate(lines, 1) if number not in gone]
    if len(lines) in gone and kept and kept[-1]:
        kept.append("")  # the note ends with a line break as before
    return "\n".join(kept)
