"""Writes the transcripts of sessions as Markdown files that QMD can index, with secrets masked.

Files that we did not write, or that somebody has changed since, are never touched: several agents and their
people may share the folder. All of it looks at the disk: call it from a thread.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import IO
from urllib.parse import quote_from_bytes

from composable_memory.paths import opened_file
from composable_memory.transcripts import masked_line, messages_of
from composable_memory_adapters.qmd.maintenance.export_journal import (
    DRAFT_SUFFIX,
    ExportEntry,
    ExportJournal,
    Stamp,
    drafted,
    stamp_of,
)
from composable_memory_ops_logs.redaction import REDACTION_VERSION

__all__ = ["ExportReport", "export_sessions"]

RECIPE = f"session-1/redaction-{REDACTION_VERSION}"
"""How files are made; those that were made otherwise are made anew."""

JOURNAL = ".composable-memory"
TRANSCRIPT_SUFFIX = ".jsonl"
MAX_LINE_BYTES = 16 * 1024 * 1024
BLOCK_BYTES = 64 * 1024
MAX_NAME_BYTES = 160
"""Leaves room for what tells names apart: file systems take 255."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """How many files were written, left as they were and removed, and what went wrong."""

    written: int = 0
    unchanged: int = 0
    removed: int = 0
    problems: tuple[str, ...] = ()


def export_sessions(
    source_dir: Path,
    export_dir: Path,
    *,
    retention_days: float | None,
    now: datetime,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> ExportReport:
    """Write a file for each transcript directly in `source_dir`; what cannot be done is told in the report.

    Of a transcript that is gone, or did not change for `retention_days`, the file is removed. A missing
    `source_dir` says nothing about its transcripts: it may be on a disk that is away. As soon as
    `is_cancelled`, what is left is left for another time.
    """
    run = _Export(Path(os.path.realpath(source_dir)), export_dir, is_cancelled)
    oldest = 0.0 if retention_days is None else now.timestamp() - retention_days * DAY_S
    try:
        run.complete(oldest)
    except OSError as error:
        run.problems.append(f"the export of sessions to {export_dir} stopped: {_why(error)}")
    return run.report()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transcript:
    """A transcript that was found; `key` names it in the journal."""

    path: Path
    key: str
    seen: Stamp

    @property
    def stem(self) -> str:
        return self.path.name.removesuffix(TRANSCRIPT_SUFFIX)


class _Stopped(Exception):
    """The one who exports does not want to any more."""


class _Export:
    """One export from beginning to end, and what it has done so far."""

    def __init__(self, source: Path, folder: Path, is_cancelled: Callable[[], bool]) -> None:
        self._source = source
        self._folder = folder
        self._is_cancelled = is_cancelled
        # A journal for each folder of transcripts, so that no two agents ever write to the same one.
        mark = sha256(os.fsencode(source)).hexdigest()[:8]
        self._journal_file = folder / f"{JOURNAL}-{mark}.journal"
        self._written = self._unchanged = self._removed = 0
        self.problems: list[str] = []

    def report(self) -> ExportReport:
        return ExportReport(
            written=self._written,
            unchanged=self._unchanged,
            removed=self._removed,
            problems=tuple(self.problems),
        )

    def complete(self, oldest: float) -> None:
        found = self._transcripts()
        if found is None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        journal = ExportJournal(self._journal_file)
        wanted = {one.key: one for one in found if one.seen.mtime_ns >= oldest * 1e9}
        try:
            for one in wanted.values():
                with self._attempt(one.path.name):
                    self._export(one, journal)
            for key in journal.transcripts:
                if key not in wanted:
                    with self._attempt(key):
                        self._remove(key, journal)
        except _Stopped:
            pass
        finally:
            journal.settle()

    def _transcripts(self) -> list[_Transcript] | None:
        """Return the transcripts in the order of their names; None if their folder is not there."""
        try:
            with os.scandir(self._source) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(TRANSCRIPT_SUFFIX))
        except FileNotFoundError:
            return None
        found = []
        for name in names:
            path = self._source / name
            if (seen := stamp_of(path)) is not None:
                found.append(_Transcript(path=path, key=quote_from_bytes(os.fsencode(name)), seen=seen))
        return found

    def _sweep(self) -> None:
        """Remove drafts that were left when a process was killed."""
        for path in self._folder.glob(f"{self._journal_file.name}-*{DRAFT_SUFFIX}"):
            path.unlink(missing_ok=True)

    @contextmanager
    def _attempt(self, name: str) -> Iterator[None]:
        """Let what goes wrong with one transcript keep nobody from the others."""
        if self._is_cancelled():
            raise _Stopped
        try:
            yield
        except OSError as error:
            self.problems.append(f"session {masked_line(name)}: {_why(error)}")

    # --- one transcript -------------------------------------------------------------------------------------

    def _export(self, one: _Transcript, journal: ExportJournal) -> None:
        before = journal.latest(one.key)
        is_known = before is not None and (before.recipe, before.seen) == (RECIPE, one.seen)
        if before is not None and is_known and stamp_of(self._folder / before.name) == before.stamp:
            self._unchanged += 1
            return
        data = _rendered(one, self._is_cancelled)
        target, is_new = self._place(one, before, journal)
        entry = ExportEntry(
            name=target.name,
            transcript=one.key,
            recipe=RECIPE,
            seen=one.seen,
            hash=sha256(data).hexdigest(),
            stamp=stamp_of(target) or Stamp(0, 0),
        )
        if before is not None and (before.hash, before.stamp) == (entry.hash, entry.stamp):
            journal.note(entry)  # only the transcript looks other than it did
            self._unchanged += 1
        else:
            self._write(target, data, entry, journal, is_new=is_new)
            self._written += 1

    def _place(
        self, one: _Transcript, before: ExportEntry | None, journal: ExportJournal
    ) -> tuple[Path, bool]:
        """Return where the file of a transcript goes, and whether nothing is there yet."""
        if before is not None:
            target = self._folder / before.name
            if journal.is_ours(before.name, transcript=one.key):
                return target, False
            if not os.path.lexists(target):
                return target, True
            self.problems.append(f"{target}: somebody has changed it; it stays, and another is written")
        for name in _names(one.stem):
            target = self._folder / name
            if not os.path.lexists(target) and not journal.is_taken(name, transcript=one.key):
                return target, True
        raise AssertionError("there is always one more name")

    def _write(
        self, target: Path, data: bytes, entry: ExportEntry, journal: ExportJournal, *, is_new: bool
    ) -> None:
        with drafted(self._journal_file, data) as draft:
            entry = entry.model_copy(update={"stamp": stamp_of(draft)})
            journal.note(entry)
            try:
                if is_new:
                    target.touch(mode=0o600, exist_ok=False)  # fails if somebody was quicker
                draft.replace(target)
            except OSError:
                journal.retract(entry)
                raise

    def _remove(self, key: str, journal: ExportJournal) -> None:
        entry = journal.latest(key)
        assert entry is not None
        target = self._folder / entry.name
        if journal.is_ours(entry.name, transcript=key):
            target.unlink()
            self._removed += 1
        elif os.path.lexists(target):
            self.problems.append(f"{target}: somebody has changed it, so it stays though its session is gone")
        journal.forget(key)


# --- what a file says ---------------------------------------------------------------------------------------


def _rendered(one: _Transcript, is_cancelled: Callable[[], bool]) -> bytes:
    """Return the file of a transcript: a heading, and a line for each message.

    Raises:
        OSError: the transcript cannot be read, or is larger than 256 MB.
    """
    lines: list[str] = []
    with opened_file(one.path) as (descriptor, _), os.fdopen(descriptor, "rb", closefd=False) as file:
        for line in _lines(file):
            if is_cancelled():
                raise _Stopped
            lines.extend(
                f"{said.speaker}: {words}" for said in messages_of(line) if (words := masked_line(said.text))
            )
    text = "\n".join(lines) or "(empty)"
    return f"# Session {masked_line(one.stem)}\n\n{text}\n".encode()


def _lines(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a transcript that may be messages; one that is too long to hold is none."""
    while line := file.readline(MAX_LINE_BYTES):
        is_whole = len(line) < MAX_LINE_BYTES or line.endswith(b"\n")
        while not line.endswith(b"\n") and (rest := file.readline(BLOCK_BYTES)):
            line = rest
        if is_whole and b'"role"' in line:
            yield line.decode("utf-8-sig", "replace")


# --- what a file is called ----------------------------------------------------------------------------------


def _names(stem: str) -> Iterator[str]:
    """Yield names for the file of a transcript, the first the best; all are plain, and none is hidden."""
    plain = re.sub(r"[^\w .-]", "_", stem)
    plain = re.sub(r"^[ .-]", "_", plain)
    short = plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    if short != stem:
        short = f"{short}-{sha256(os.fsencode(stem)).hexdigest()[:8]}"
    yield f"{short or 'session'}.md"
    for number in count(2):
        yield f"{short or 'session'}-{number}.md"


def _why(error: OSError) -> str:
    return error.strerror or str(error)
