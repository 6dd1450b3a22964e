"""Indexes notes into one set of tables: finds what changed, writes it, and removes what is gone.

Each step returns once its transaction is committed, and does not depend on who calls it, or why.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import field, replace
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from composable_memory.interfaces import Clock
from composable_memory.paths import Reading
from composable_memory_adapters.builtin.notes.changed_notes import (
    FAULTS,
    ChangedNote,
    Drafter,
    DraftGroup,
    FileState,
    gone_notes,
)
from composable_memory_adapters.builtin.notes.documents import Document, note_suffixes
from composable_memory_adapters.builtin.notes.note_files import (
    Places,
    ScannedFile,
    ScanReport,
    is_gitignored,
    scan,
)
from composable_memory_adapters.builtin.notes.sessions import Transcript
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import index_writes, message_times
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.index_meta import milliseconds
from composable_memory_adapters.builtin.store.index_writes import KnownFiles, Tally
from composable_memory_adapters.builtin.store.schema import Tables
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_ops_logs.quick_dataclass import dataclass

GROUP_REMOVALS = 200
TRUSTED_S = 300.0
"""How long notes not named by the watch are assumed to be unchanged."""


@dataclass(slots=True, kw_only=True)
class NotesPass:
    """One pass over the notes: what was found on disk, and what has been done so far.

    The first `done` of the `changed` notes have been handled. `unread` maps the key of each note that could
    not be read to the reason; `incomplete` does so for those read only in part, or whose encoding was
    guessed, now or earlier. `must_repeat` is set if a note changed, or another process wrote, during the
    pass.
    """

    scan: ScanReport = field(default_factory=lambda: ScanReport(files=(), unreadable={}))
    changed: Sequence[ChangedNote] = ()
    gone: Mapping[str, FileState] = field(default_factory=dict)
    incomplete: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    done: int = 0
    must_repeat: bool = False
    tally: Tally = field(default_factory=Tally)

    @property
    def is_written(self) -> bool:
        """Return whether all changed notes have been handled."""
        return self.done == len(self.changed)

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Return the files and folders that could not be read, with the reasons."""
        return {**self.scan.unreadable, **self.unread}

    @property
    def faults(self) -> Mapping[str, str]:
        """Return everything that could not be read, or only in part, now or earlier, with the reasons."""
        partly = {
            key: why for key, why in sorted(self.incomplete.items()) if why != FAULTS[Reading.AS_WESTERN]
        }
        return {**partly, **self.unreadable}

    @property
    def western(self) -> list[str]:
        """Return the notes in which some bytes were read as Windows-1252, now or earlier."""
        return sorted(key for key, why in self.incomplete.items() if why == FAULTS[Reading.AS_WESTERN])

    def add(self, group: DraftGroup, written: Tally) -> None:
        """Record a group of notes that was read and written."""
        self.done = group.end
        self.must_repeat |= group.vanished or bool(written.overtaken)
        self.unread |= group.unread
        for draft in group.drafts:
            self.incomplete.pop(draft.key, None)
            if problem := draft.fault:
                self.incomplete[draft.key] = problem
        self.tally.add(written)


class Look(NamedTuple):
    """The files in the index (None: same as at the last look), those on disk, and when the look began."""

    known: KnownFiles | None
    found: ScanReport
    looked_at: float


@dataclass(slots=True)
class Glance:
    """The result of the last full look, so that the next can stop at once if it sees the same.

    `versions` are those of the index at that time, as each connection counts them. Updates of named paths
    keep `scan`, `incomplete` and `unread` (the paths that could not be read) current. `places` indexes the
    files in `scan` by path, once needed.
    """

    scan: ScanReport | None = None
    looked_at: float = -math.inf
    places: Places | None = None
    drafter: Drafter | None = None
    incomplete: dict[str, str] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    versions: WeakKeyDictionary[Connection, int] = field(default_factory=WeakKeyDictionary)

    @property
    def is_recent(self) -> bool:
        """Return whether the last full look is recent enough to trust that notes not named are unchanged."""
        return time.monotonic() - self.looked_at <= TRUSTED_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Writes notes into `tables`; new chunks reuse stored vectors of `space`, by default the index's."""

    file: SqliteFile
    tables: Tables
    workspace: Path
    transcripts: Path | None
    settings: BuiltinSettings
    drafter: Drafter
    space: EmbeddingSpace | None
    clock: Clock
    glance: Glance = field(default_factory=Glance)

    def look(self, connection: Connection) -> Look:
        """Return the files in the index, then those on disk.

        In this order, a file that only the index has is gone, and one that another process adds meanwhile is
        not mistaken for gone. Needs a reading connection: a writing one does not see its own writes in
        `data_version`.
        """
        looked_at = time.monotonic()
        seen = self.glance.versions if self.glance.drafter == self.drafter else {}
        known = index_writes.known_files(connection, self.tables, seen=seen)
        connection.execute("ROLLBACK")  # a scan may take long, and must not hold back a WAL checkpoint
        return Look(known, self._scan(), looked_at)

    async def compare(self, look: Look) -> NotesPass:
        """Compare all notes with the index."""
        known, found, self.glance.looked_at = look
        if known is None:
            if found is self.glance.scan:
                return NotesPass(scan=found, incomplete=self.glance.incomplete)
            known = await self.file.read(index_writes.known_files, self.tables)
            assert known is not None
            if self.glance.versions.get(known.connection) != known.version:
                found = await asyncio.to_thread(self._scan)  # the index was written in between
        return await asyncio.to_thread(self._compared, found, known)

    def update(self, connection: Connection, paths: Set[str]) -> NotesPass | None:
        """Write or remove the changed notes among some paths, in a transaction that replaces the caller's.

        Notes that could not be read before are tried again too. Whatever is too much for one transaction is
        left for `write_group` and `remove_gone`. Returns None if a path may be something other than a note in
        a folder that had notes before.
        """
        glance = self.glance
        if glance.scan is None or not glance.is_recent:
            return None
        if glance.places is None:
            glance.places = Places.of(glance.scan)
        places = glance.places
        named = places.named(paths | glance.unread, note_suffixes(self.settings.documents))
        if named is None:
            return None
        known = index_writes.file_states(connection, self.tables, [file.key for file in named])
        connection.execute("ROLLBACK")  # the disk may be slow: hold no transaction meanwhile
        found = self._look_again(named, places)
        changed = self.drafter.changed(replace(glance.scan, files=found or ()), known)
        are_read = not self.settings.documents  # documents are read by child processes, not here
        group = self.drafter.group(changed, 0) if changed and are_read else None
        connection.execute("BEGIN IMMEDIATE")
        if found is None:
            return None
        there = {file.path: file for file in found}
        gone = [file for file in named if file.path not in there]
        is_same = not gone and there.keys() <= places.files.keys()
        places.files.update(there)
        for file in gone:
            places.files.pop(file.path, None)
            glance.incomplete.pop(file.key, None)
        if not is_same:
            # This scan must equal no later one: notes that were not named may have changed as well.
            glance.scan = replace(glance.scan, files=places.files.values(), listed=None)
        notes = NotesPass(
            scan=glance.scan,
            changed=changed,
            gone={file.key: known[file.key] for file in gone if file.key in known},
            incomplete=glance.incomplete,
        )
        if group is not None:
            self._count(notes, group, self._write(connection, group))
        if 0 < len(notes.gone) <= GROUP_REMOVALS:
            notes.tally.removed, notes.gone = self._remove(connection, notes.gone), {}
        return notes

    def _look_again(self, named: Sequence[ScannedFile], places: Places) -> tuple[ScannedFile, ...] | None:
        """Return the current state of some notes; None if only a scan can tell."""
        if (found := places.look_again(named)) is None:
            return None
        new = [Path(file.path) for file in found if file.path not in places.files]
        if len(places.files) + len(new) > self.settings.max_files:
            return None
        if any(is_gitignored(path, self.workspace, self.settings.extra_paths) for path in new):
            return None
        return found

    async def write_group(self, notes: NotesPass) -> None:
        """Read, cut and write the next changed notes in one transaction."""
        read = await self._read_documents(notes) if self.settings.documents else {}
        group = await asyncio.to_thread(self.drafter.group, notes.changed, notes.done, read)
        self._count(notes, group, await self.file.write(self._write, group))

    def _write(self, connection: Connection, group: DraftGroup) -> Tally:
        times = {
            one.key: one.note.times
            for one in group.drafts
            if isinstance(one.note, Transcript) and one.chunks is not None
        }
        if times:
            message_times.store(connection, times)
        return index_writes.write_drafts(
            connection,
            self.tables,
            group.drafts,
            space=self.space,
            has_keywords=self.settings.store.fts.enabled,
            now_ms=milliseconds(self.clock()),
        )

    def _count(self, notes: NotesPass, group: DraftGroup, written: Tally) -> None:
        tried = [found for found, _ in notes.changed[notes.done : group.end]]
        self.glance.unread.difference_update(one.path for one in tried)
        self.glance.unread.update(one.path for one in tried if one.key in group.unread)
        notes.add(group, written)

    async def remove_gone(self, notes: NotesPass) -> None:
        """Remove the files that are gone from the disk, in several transactions if there are many."""
        gone = list(notes.gone.items())
        for start in range(0, len(gone), GROUP_REMOVALS):
            part = dict(gone[start : start + GROUP_REMOVALS])
            notes.tally.removed += await self.file.write(self._remove, part)

    def _remove(self, connection: Connection, gone: Mapping[str, FileState]) -> int:
        return index_writes.remove_files(connection, self.tables, gone, now_ms=milliseconds(self.clock()))

    async def _read_documents(self, notes: NotesPass) -> dict[str, Document | OSError]:
        """Read the next changed documents."""
        # Imported late: no other kind of note needs a child process.
        from composable_memory_adapters.builtin.sync.document_texts import read_next

        return await read_next(self.file, notes.changed, notes.done)

    def _scan(self) -> ScanReport:
        return scan(
            self.workspace,
            self.settings.extra_paths,
            sources=self.settings.sources,
            transcripts=self.transcripts,
            suffixes=note_suffixes(self.settings.documents),
            most=self.settings.max_files,
            before=self.glance.scan,
        )

    def _compared(self, found: ScanReport, known: KnownFiles) -> NotesPass:
        gone, problems = gone_notes(found, known.files), known.problems
        notes = NotesPass(
            scan=found,
            changed=self.drafter.changed(found, known.files),
            gone=gone,
            incomplete={
                key: problems.get(key) or FAULTS[seen.reading]
                for key, seen in known.files.items()
                if not (key in gone or (seen.reading == Reading.WHOLE and key not in problems))
            },
        )
        self._remember(notes, known)
        return notes

    def _remember(self, notes: NotesPass, known: KnownFiles) -> None:
        glance = self.glance
        has_news = bool(notes.changed or notes.gone)
        if notes.scan is not glance.scan:
            glance.places = None
        if has_news or notes.scan is not glance.scan or self.drafter != glance.drafter:
            glance.versions.clear()
        glance.scan, glance.drafter, glance.incomplete = notes.scan, self.drafter, notes.incomplete
        glance.unread.clear()
        if not has_news:
            glance.versions[known.connection] = known.version
