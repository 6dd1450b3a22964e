"""Remembers which files an export has written, so that it never touches one that is somebody else's.

An entry is written down before its file is, so that our files are known as ours whatever ends the process.
All of it looks at the disk: call it from a thread.
"""

import os
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = ["DRAFT_SUFFIX", "ExportEntry", "ExportJournal", "Stamp", "drafted", "stamp_of"]

DRAFT_SUFFIX = ".tmp"
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
NO_FOLLOW = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Stamp(NamedTuple):
    """How a file looks from outside; a change gives it another one, but for changes within a clock tick."""

    mtime_ns: int
    size: int


class ExportEntry(BaseModel):
    """A file that was written: its name, what it was made of and how, and how it looked then.

    `transcript` is percent-encoded, for file names need not be text. `seen` is the transcript's stamp from
    before it was read, `hash` the SHA-256 of what was written, `stamp` that of the file.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    transcript: str
    recipe: str
    seen: Stamp
    hash: str
    stamp: Stamp


class ExportJournal:
    """The entries of the files that lie beside `file`: the latest of each transcript, and those before it."""

    def __init__(self, file: Path) -> None:
        """Read what earlier runs have left; lines that are no entries are passed over.

        Raises:
            OSError: it is there and cannot be read; whose the files are is unknown then.
        """
        self._file = file
        self._entries: defaultdict[str, list[ExportEntry]] = defaultdict(list)
        self._is_settled = True
        for entry in _entries_in(self._file):
            self._is_settled &= entry.transcript not in self._entries
            self._entries[entry.transcript].append(entry)

    @property
    def transcripts(self) -> tuple[str, ...]:
        """Return all that have a file."""
        return tuple(self._entries)

    def latest(self, transcript: str) -> ExportEntry | None:
        """Return the last entry of a transcript."""
        entries = self._entries.get(transcript)
        return entries[-1] if entries else None

    def is_taken(self, name: str, *, transcript: str) -> bool:
        """Say whether the file of another transcript has this name, or one that differs in case alone."""
        return any(
            entries[-1].name.casefold() == name.casefold()
            for key, entries in self._entries.items()
            if key != transcript
        )

    def is_ours(self, name: str, *, transcript: str) -> bool:
        """Say whether the file `name` is as we wrote it for this transcript, or empty as we were stopped.

        Raises:
            OSError: it cannot be looked at.
        """
        path = self._file.with_name(name)
        entries = [entry for entry in self._entries.get(transcript, ()) if entry.name == name]
        found = stamp_of(path)
        if found is None or not entries:
            return False
        if found.size == 0 or any(entry.stamp == found for entry in entries):
            return True
        alike = [entry.hash for entry in entries if entry.stamp.size == found.size]
        return bool(alike) and _hash_of(path) in alike

    def note(self, entry: ExportEntry) -> None:
        """Write an entry down.

        Raises:
            OSError: it cannot be written; its file must not be either.
        """
        descriptor = os.open(self._file, APPEND, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"\n{entry.model_dump_json()}\n")  # a line that was torn before must not spoil it
        self._is_settled &= entry.transcript not in self._entries
        self._entries[entry.transcript].append(entry)

    def retract(self, entry: ExportEntry) -> None:
        """Take back the last entry of a transcript: its file was not written after all."""
        self._entries[entry.transcript].remove(entry)
        if not self._entries[entry.transcript]:
            del self._entries[entry.transcript]
        self._is_settled = False

    def forget(self, transcript: str) -> None:
        """Drop all entries of a transcript."""
        del self._entries[transcript]
        self._is_settled = False

    def settle(self) -> None:
        """Keep the latest entries alone, if there are others.

        Raises:
            OSError: that cannot be written; what was noted is.
        """
        if not self._is_settled:
            lines = [f"{entries[-1].model_dump_json()}\n" for entries in self._entries.values()]
            with drafted(self._file, "".join(lines).encode()) as draft:
                draft.replace(self._file)
            self._is_settled = True


def stamp_of(path: Path) -> Stamp | None:
    """Return how the regular file at `path` looks; None if there is none, or something else.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def drafted(path: Path, data: bytes) -> Iterator[Path]:
    """Yield a new file beside `path` that holds `data`, to be moved into its place; else it is gone again.

    Nobody else may read it. Its name begins like that of `path`.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}-", suffix=DRAFT_SUFFIX, dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        yield draft
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _entries_in(file: Path) -> Iterator[ExportEntry]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    for line in filter(None, text.split("\n")):
        with suppress(ValidationError):
            yield ExportEntry.model_validate_json(line)


def _hash_of(path: Path) -> str:
    descriptor = os.open(path, NO_FOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        return sha256(file.read()).hexdigest()
