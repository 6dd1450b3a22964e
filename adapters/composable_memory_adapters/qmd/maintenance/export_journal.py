"""Writes exported files and records which ones are ours, so that an export never touches other files.

An entry is recorded before its file is written, so that our files are recognised however the process ends.
All functions access the disk: call them from a thread.
"""

import os
import re
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

DRAFT_SUFFIX = ".tmp"
MAX_NAME_BYTES = 160
"""Leaves room for a suffix that makes the name unique: file systems allow 255."""
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
NO_FOLLOW = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Stamp(NamedTuple):
    """Modification time and size of a file, which any change alters, except within one clock tick."""

    mtime_ns: int
    size: int


class ExportEntry(BaseModel):
    """An exported file: its name, its source, the recipe, and its stamp when written.

    `transcript` is percent-encoded, because file names need not be text. `seen` is the transcript's stamp
    from before it was read, `hash` the SHA-256 of what was written, `stamp` that of the written file.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    transcript: str
    recipe: str
    seen: Stamp
    hash: str
    stamp: Stamp


class ExportJournal:
    """The exported files in the folder of `file`, with the latest and earlier entries of each transcript."""

    def __init__(self, file: Path) -> None:
        """Read the entries of earlier runs; lines that are not entries are ignored.

        Raises:
            OSError: it exists but cannot be read, so nobody knows whose the files are.
        """
        self._file = file
        self._entries: defaultdict[str, list[ExportEntry]] = defaultdict(list)
        self._is_settled = True
        for entry in _entries_in(self._file):
            self._is_settled &= entry.transcript not in self._entries
            self._entries[entry.transcript].append(entry)

    @property
    def transcripts(self) -> tuple[str, ...]:
        """Return the transcripts that have an exported file."""
        return tuple(self._entries)

    def latest(self, transcript: str) -> ExportEntry | None:
        """Return the last entry of a transcript."""
        entries = self._entries.get(transcript)
        return entries[-1] if entries else None

    def is_ours(self, name: str, *, transcript: str) -> bool:
        """Return whether the file `name` is as we wrote it, or empty because we were interrupted."""
        path = self._file.with_name(name)
        entries = [entry for entry in self._entries.get(transcript, ()) if entry.name == name]
        found = stamp_of(path)
        if found is None or not entries:
            return False
        if found.size == 0 or any(entry.stamp == found for entry in entries):
            return True
        hashes = [entry.hash for entry in entries if entry.stamp.size == found.size]
        return bool(hashes) and _hash_of(path) in hashes

    def place(self, transcript: str, stem: str) -> tuple[Path, bool]:
        """Return the path for the file of a transcript, and whether nothing is there yet.

        A file that somebody has changed since we wrote it is left alone; the path is then a new one.
        """
        before = self.latest(transcript)
        if before is not None:
            target = self._file.with_name(before.name)
            if self.is_ours(before.name, transcript=transcript):
                return target, False
            if not os.path.lexists(target):
                return target, True
        for name in _names(stem):
            target = self._file.with_name(name)
            if not os.path.lexists(target) and not self._is_taken(name, transcript=transcript):
                return target, True
        raise AssertionError("there is always one more name")

    def write(self, target: Path, data: bytes, entry: ExportEntry, *, is_new: bool) -> None:
        """Record `entry`, then put `data` at `target` atomically.

        Raises:
            OSError: it cannot be written, or something has appeared at a `target` that was new.
        """
        with _draft(self._file, data) as draft:
            entry = entry.model_copy(update={"stamp": stamp_of(draft)})
            self.note(entry)
            try:
                if is_new:
                    target.touch(mode=0o600, exist_ok=False)  # fails if somebody else was faster
                draft.replace(target)
            except OSError:
                self._retract(entry)
                raise

    def note(self, entry: ExportEntry) -> None:
        """Record an entry."""
        descriptor = os.open(self._file, APPEND, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"\n{entry.model_dump_json()}\n")  # after a torn line, start a new one
        self._is_settled &= entry.transcript not in self._entries
        self._entries[entry.transcript].append(entry)

    def forget(self, transcript: str) -> None:
        """Drop all entries of a transcript."""
        del self._entries[transcript]
        self._is_settled = False

    def settle(self) -> None:
        """Drop all but the latest entry of each transcript."""
        if not self._is_settled:
            lines = [f"{entries[-1].model_dump_json()}\n" for entries in self._entries.values()]
            with _draft(self._file, "".join(lines).encode()) as draft:
                draft.replace(self._file)
            self._is_settled = True

    def remove_drafts(self) -> None:
        """Remove drafts left behind by a killed process."""
        for path in self._file.parent.glob(f"{self._file.name}-*{DRAFT_SUFFIX}"):
            path.unlink(missing_ok=True)

    def _retract(self, entry: ExportEntry) -> None:
        """Drop the last entry of a transcript, because its file was not written after all."""
        self._entries[entry.transcript].remove(entry)
        if not self._entries[entry.transcript]:
            del self._entries[entry.transcript]
        self._is_settled = False

    def _is_taken(self, name: str, *, transcript: str) -> bool:
        """Return whether the file of another transcript has this name, ignoring case."""
        return any(
            entries[-1].name.casefold() == name.casefold()
            for key, entries in self._entries.items()
            if key != transcript
        )


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of the regular file at `path`; None if it is missing or something else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def _draft(path: Path, data: bytes) -> Iterator[Path]:
    """Yield a new private file beside `path` with `data`; it is removed unless the block moves it away."""
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


def _names(stem: str) -> Iterator[str]:
    """Yield file names for a transcript, best first; all are plain, and none is hidden."""
    plain = re.sub(r"[^\w .-]", "_", stem)
    plain = re.sub(r"^[ .-]", "_", plain)
    short = plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    if short != stem:
        short = f"{short}-{sha256(os.fsencode(stem)).hexdigest()[:8]}"
    yield f"{short or 'session'}.md"
    for number in count(2):
        yield f"{short or 'session'}-{number}.md"
