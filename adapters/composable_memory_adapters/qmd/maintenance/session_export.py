"""Exports session transcripts as Markdown files that QMD can index, with secrets masked.

Files that we did not write, or that somebody has changed since, are never touched: several agents and their
users may share the folder.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import IO
from urllib.parse import quote_from_bytes

from composable_memory.interfaces import BackendServices, HideForgotten, hide_nothing
from composable_memory.paths import opened_file
from composable_memory.state.folders import file_name_of
from composable_memory.supervision.file_lock import file_lock
from composable_memory.supervision.tasks import until_done
from composable_memory.transcripts import masked_line, messages_of
from composable_memory_adapters.qmd.maintenance.export_journal import (
    ExportEntry,
    ExportJournal,
    Stamp,
    stamp_of,
)
from composable_memory_adapters.qmd.settings import SessionExportSettings
from composable_memory_adapters.qmd.types import BACKEND_ID, Home
from composable_memory_ops_logs.private_files import make_private_folder
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.redaction.redactor import REDACTION_VERSION

RECIPE = f"session-1/redaction-{REDACTION_VERSION}"
"""The version of the export format; files with another one are exported again."""

JOURNAL = ".composable-memory"
TRANSCRIPT_SUFFIX = ".jsonl"
MAX_LINE_BYTES = 16 * 1024 * 1024
BLOCK_BYTES = 64 * 1024
DAY_S = 86_400.0
LOCK_PATIENCE_S = 5.0
"""How long to wait while another process exports the same sessions; its files will do for us."""


@dataclass(slots=True, kw_only=True)
class ExportReport:
    """How many files were written, left unchanged and removed, and what went wrong."""

    written: int = 0
    unchanged: int = 0
    removed: int = 0
    problems: tuple[str, ...] = ()


class SessionExporter:
    """Exports an agent's sessions into a folder that QMD indexes, if the settings say so."""

    def __init__(self, settings: SessionExportSettings, *, home: Home, services: BackendServices) -> None:
        self._settings = settings
        self._home = home
        self._services = services

    @property
    def folder(self) -> Path | None:
        """Return the folder of the exported sessions; None if they are not exported."""
        if not self._settings.enabled:
            return None
        if self._settings.export_dir is None:
            return self._home.root / "sessions"
        return self._services.state_dir / self._settings.export_dir.expanduser()

    @property
    def transcripts(self) -> Path | None:
        """Return the folder of the transcripts, which need not exist; None if they are not exported."""
        if not self._settings.enabled:
            return None
        state_dir = self._services.state_dir
        if self._settings.dir is not None:
            return state_dir / self._settings.dir.expanduser()
        return state_dir / "agents" / file_name_of(self._services.agent_id) / "sessions"

    async def open(self) -> None:
        """Create the folder of the exported sessions, so that QMD finds it from the start."""
        if self.folder is not None:
            with suppress(OSError):  # the next export reports it
                await asyncio.to_thread(make_private_folder, self.folder)

    async def export(self, *, anew: bool = False) -> ExportReport:
        """Export what has changed, or with `anew` what would now come out differently; failures are reported.

        Raises:
            BackendUnavailable: the lock file cannot be opened.
        """
        source, folder = self.transcripts, self.folder
        if source is None or folder is None:
            return ExportReport()
        async with file_lock(
            self._home.root / "export.lock", owner=BACKEND_ID, patience_s=LOCK_PATIENCE_S
        ) as is_ours:
            return await self._export(source, folder, anew) if is_ours else ExportReport()

    async def _export(self, source: Path, folder: Path, anew: bool) -> ExportReport:
        """Export in a thread; if cancelled, return only after the thread has stopped."""
        stop = threading.Event()
        export = partial(
            export_sessions,
            source,
            folder,
            retention_days=self._settings.retention_days,
            now=self._services.clock(),
            is_cancelled=stop.is_set,
            hide=self._services.hide,
            anew=anew,
        )
        work = asyncio.create_task(asyncio.to_thread(export), name="qmd-export")
        cancelled = await until_done(work, when_cancelled=stop.set)
        if cancelled is not None:
            raise cancelled
        return work.result()


def export_sessions(
    source_dir: Path,
    export_dir: Path,
    *,
    retention_days: float | None,
    now: datetime,
    is_cancelled: Callable[[], bool] = lambda: False,
    hide: HideForgotten = hide_nothing,
    anew: bool = False,
) -> ExportReport:
    """Write a file for each transcript directly in `source_dir`; failures are in the report. Blocks.

    The file of a transcript that is gone, or has not changed for `retention_days`, is removed. If
    `source_dir` is missing, nothing is removed: it may be on a disk that is not mounted. As soon as
    `is_cancelled` returns true, the rest is left for the next time. What `hide` blanks is not exported;
    `anew` also checks unchanged transcripts.
    """
    run = _Export(Path(os.path.realpath(source_dir)), export_dir, is_cancelled, hide, anew=anew)
    oldest = 0.0 if retention_days is None else now.timestamp() - retention_days * DAY_S
    try:
        run.complete(oldest)
    except OSError as error:
        run.report.problems += (f"the export of sessions to {export_dir} stopped: {_why(error)}",)
    return run.report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transcript:
    """A transcript file; `key` is its name in the journal."""

    path: Path
    key: str
    seen: Stamp

    @property
    def stem(self) -> str:
        return self.path.name.removesuffix(TRANSCRIPT_SUFFIX)


class _Stopped(Exception):
    """The export was cancelled."""


class _Export:
    """One run of the export, and what it has done so far."""

    def __init__(
        self, source: Path, folder: Path, is_cancelled: Callable[[], bool], hide: HideForgotten, *, anew: bool
    ) -> None:
        self._hide = hide
        self._anew = anew
        self._source = source
        self._folder = folder
        self._is_cancelled = is_cancelled
        # One journal per folder of transcripts, so that two agents never write to the same one.
        digest = sha256(os.fsencode(source)).hexdigest()[:8]
        self._journal_file = folder / f"{JOURNAL}-{digest}.journal"
        self.report = ExportReport()

    def complete(self, oldest: float) -> None:
        found = self._transcripts()
        if found is None:
            return
        make_private_folder(self._folder)
        journal = ExportJournal(self._journal_file)
        journal.remove_drafts()
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
        """Return the transcripts sorted by name; None if their folder is missing."""
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

    @contextmanager
    def _attempt(self, name: str) -> Iterator[None]:
        """Turn an error of one transcript into a problem, so that the others are exported."""
        if self._is_cancelled():
            raise _Stopped
        try:
            yield
        except OSError as error:
            self.report.problems += (f"session {masked_line(name)}: {_why(error)}",)

    # --- one transcript -------------------------------------------------------------------------------------

    def _export(self, one: _Transcript, journal: ExportJournal) -> None:
        before = journal.latest(one.key)
        is_same = before is not None and (before.recipe, before.seen) == (RECIPE, one.seen)
        is_known = is_same and not self._anew
        if before is not None and is_known and stamp_of(self._folder / before.name) == before.stamp:
            self.report.unchanged += 1
            return
        data = self._hide(_rendered(one, self._is_cancelled), "sessions").encode()
        target, is_new = journal.place(one.key, one.stem)
        if before is not None and target.name != before.name:
            changed = self._folder / before.name
            self.report.problems += (
                f"{changed}: somebody has changed it; it is kept, and another is written",
            )
        entry = ExportEntry(
            name=target.name,
            transcript=one.key,
            recipe=RECIPE,
            seen=one.seen,
            hash=sha256(data).hexdigest(),
            stamp=stamp_of(target) or Stamp(0, 0),
        )
        if before is not None and (before.hash, before.stamp) == (entry.hash, entry.stamp):
            journal.note(entry)  # only the transcript's stamp has changed
            self.report.unchanged += 1
        else:
            journal.write(target, data, entry, is_new=is_new)
            self.report.written += 1

    def _remove(self, key: str, journal: ExportJournal) -> None:
        entry = journal.latest(key)
        assert entry is not None
        target = self._folder / entry.name
        if journal.is_ours(entry.name, transcript=key):
            target.unlink()
            self.report.removed += 1
        elif os.path.lexists(target):
            self.report.problems += (
                f"{target}: somebody has changed it, so it is kept although its session is gone",
            )
        journal.forget(key)


# --- the Markdown -------------------------------------------------------------------------------------------


def _rendered(one: _Transcript, is_cancelled: Callable[[], bool]) -> str:
    """Return the Markdown of a transcript: a heading, and a line for each message.

    Raises:
        OSError: the transcript cannot be read, or is larger than 256 MB.
    """
    lines: list[str] = []
    with opened_file(one.path) as (descriptor, _), os.fdopen(descriptor, "rb", closefd=False) as file:
        for line in _lines(file):
            if is_cancelled():
                raise _Stopped
            lines.extend(
                f"{message.speaker}: {text}"
                for message in messages_of(line)
                if (text := masked_line(message.text))
            )
    text = "\n".join(lines) or "(empty)"
    return f"# Session {masked_line(one.stem)}\n\n{text}\n"


def _lines(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a transcript that may be messages, without those over the size limit."""
    while line := file.readline(MAX_LINE_BYTES):
        is_whole = len(line) < MAX_LINE_BYTES or line.endswith(b"\n")
        while not line.endswith(b"\n") and (rest := file.readline(BLOCK_BYTES)):
            line = rest
        if is_whole and b'"role"' in line:
            yield line.decode("utf-8-sig", "replace")


def _why(error: OSError) -> str:
    return error.strerror or str(error)
