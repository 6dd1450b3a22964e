"""Brings the index up to date with the notes.

A run looks at all notes, writes text and keywords of those that changed, removes those that are gone, and
then embeds what has no vector yet. Every step is stored whole, so a run that is stopped leaves an index that
answers, and the next run goes on from there.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from composable_memory.errors import IndexDamaged
from composable_memory.interfaces import Clock, EmbedderAdapter
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_adapters.builtin import books, embedding_cache, index
from composable_memory_adapters.builtin.books import SyncMark
from composable_memory_adapters.builtin.drafts import ChangedNote, Drafter, DraftGroup, FileState, gone_notes
from composable_memory_adapters.builtin.embedding import EmbedOutcome, embed_pending
from composable_memory_adapters.builtin.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.query_terms import index_text
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.sources import ScanReport, scan
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_ops_logs.events import (
    ErrorInfo,
    EventDetail,
    Status,
    SyncComplete,
    SyncFailed,
    SyncFileIndexed,
    SyncFileSkipped,
    SyncStart,
)
from composable_memory_ops_logs.log import OpsLog
from composable_memory_ops_logs.trace import trace

__all__ = ["CacheCounters", "Synchroniser"]

GROUP_REMOVALS = 200
MAX_ROUNDS = 3
MAX_PROBLEMS = 50

Tell = Callable[[MemorySyncProgressUpdate], None]


@dataclass(slots=True)
class CacheCounters:
    """How many chunks found their vector in the cache, and how many texts had to be embedded."""

    hits: int = 0
    misses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchroniser:
    """All that a sync needs; without `embedder` text is indexed and the vectors are left as they are."""

    file: SqliteFile
    workspace: Path
    settings: BuiltinSettings
    embedder: EmbedderAdapter | None
    space: EmbeddingSpace | None
    ops_log: OpsLog
    clock: Clock
    counters: CacheCounters = field(default_factory=CacheCounters)

    def now_ms(self) -> int:
        """Return the present time in milliseconds since 1970."""
        return int(self.clock().timestamp() * 1000)

    async def run(
        self, *, reason: str, force: bool, tell: Tell, notes_indexed: Callable[[], None] = lambda: None
    ) -> SyncReport:
        """Bring the index up to date; `force` writes every file anew and keeps the vectors.

        `notes_indexed` is called as soon as all text is searchable and only vectors are missing.

        Raises:
            IndexProblem: the index cannot be read or written; what it held stays.
        """
        started = time.perf_counter()
        run = _Run(self, reason=reason, force=force, tell=tell)
        report = None
        with trace():
            try:
                report = await run.complete(notes_indexed)
            finally:
                self._log_end(run, report, started)
        return report

    def _log_end(self, run: "_Run", report: SyncReport | None, started: float) -> None:
        if report is not None:
            run.log_files()
            status: Status = "partial" if report.problems else "success"
            self._emit(_completed(report, is_full=run.is_full), status=status, started=started)
        elif isinstance(error := sys.exception(), Exception):
            failed = SyncFailed(reason=run.reason, error=ErrorInfo.of(error))
            self._emit(failed, status="failure", started=started)

    def _emit(self, detail: EventDetail, *, status: Status, started: float) -> None:
        took_ms = (time.perf_counter() - started) * 1000
        self.ops_log.emit(detail, status=status, backend="builtin", duration_ms=took_ms)


class _Run:
    """One sync from beginning to end, and what it has done so far."""

    def __init__(self, sync: Synchroniser, *, reason: str, force: bool, tell: Tell) -> None:
        self._sync = sync
        self._file = sync.file
        self.reason = reason
        self._force = force
        self._tell = tell
        self._scan = ScanReport(files=(), unreadable={})
        self._unread: dict[str, str] = {}
        self._not_utf8: dict[str, None] = {}
        self._indexed = self._removed = self._chunks = 0
        self._vectors = EmbedOutcome()
        self._mark: SyncMark | None = None
        self._mark_before: SyncMark | None = None
        self.is_full = force

    async def complete(self, notes_indexed: Callable[[], None]) -> SyncReport:
        await self._begin()
        for _ in range(MAX_ROUNDS):
            if not await self._follow_notes():
                break
            self._force = False
        await self._leave_mark(is_news=self.is_full or bool(self._indexed or self._removed))
        notes_indexed()
        await self._embed()
        await self._prune()
        await self._leave_mark(is_news=False)
        return self._report()

    async def _begin(self) -> None:
        """Check a file that shall be rebuilt, and make the chunks point into the right space."""
        if self._force and not await self._file.read(books.is_sound):
            raise IndexDamaged(self._file.path, "it does not pass the check of SQLite")
        self._mark = self._mark_before = await self._file.read(books.read_mark)
        self.is_full = self._force or self._mark is None
        self._sync.ops_log.emit(
            SyncStart(reason=self.reason, force=self._force, needs_full_reindex=self.is_full),
            backend="builtin",
        )
        space = self._sync.space
        if space is not None:
            await self._settle_in(space)

    async def _settle_in(self, space: EmbeddingSpace) -> None:
        if await self._file.read(books.stored_space) != space:
            await self._file.write(lambda connection: index.point_at_space(connection, space))
        elif await self._file.read(index.count_pending):
            adopt = index.adopt_cached_vectors
            self._sync.counters.hits += await self._file.write(lambda connection: adopt(connection, space))

    async def _follow_notes(self) -> bool:
        """Make the index hold what the notes hold; say whether to look once more.

        What the index knows is read before the disk is looked at: a file that it knows and the disk does not
        show is gone, while one that another process adds meanwhile is not taken for gone.
        """
        known = await self._file.read(index.file_states)
        extra_paths = self._sync.settings.extra_paths
        self._scan = await asyncio.to_thread(scan, self._sync.workspace, extra_paths)
        self._unread = {}
        drafter = Drafter(
            chunking=self._sync.settings.chunking,
            keywords=self._sync.settings.store.fts.enabled,
            force=self._force,
        )
        moved = await self._write_changed(drafter, drafter.changed(self._scan, known))
        await self._remove(gone_notes(self._scan, known))
        return moved

    async def _write_changed(self, drafter: Drafter, changed: Sequence[ChangedNote]) -> bool:
        """Read, cut and write notes group by group; say whether one moved under our hands."""
        done, moved = 0, False
        self._progress("Indexing notes", done, len(changed))
        while done < len(changed):
            group = await asyncio.to_thread(drafter.group, changed, done)
            moved |= await self._write(group) or group.vanished
            self._unread |= group.unread
            self._not_utf8 |= dict.fromkeys(group.not_utf8)
            done = group.end
            self._progress("Indexing notes", done, len(changed))
        return moved

    async def _write(self, group: DraftGroup) -> bool:
        """Write a group in one transaction; say whether another process was faster with a part of it."""
        sync = self._sync
        keywords = index_text if sync.settings.store.fts.enabled else None
        count = await self._file.write(
            lambda connection: index.write_drafts(
                connection, group.drafts, space=sync.space, keywords=keywords, now_ms=sync.now_ms()
            )
        )
        self._indexed += count.files
        self._chunks += count.chunks
        sync.counters.hits += count.vectors_reused
        return bool(count.overtaken)

    async def _remove(self, gone: Mapping[str, FileState]) -> None:
        items = list(gone.items())
        for start in range(0, len(items), GROUP_REMOVALS):
            part = dict(items[start : start + GROUP_REMOVALS])
            remove = partial(index.remove_files, files=part)
            self._removed += await self._file.write(remove)

    async def _embed(self) -> None:
        sync = self._sync
        if sync.embedder is None or sync.space is None:
            return
        self._vectors = await embed_pending(
            self._file,
            sync.embedder,
            sync.space,
            now_ms=sync.now_ms,
            progress=partial(self._progress, "Embedding"),
        )
        sync.counters.misses += self._vectors.embedded

    def _report(self) -> SyncReport:
        problems = [*self._unreadable(), *self._scan.remarks]
        problems += [f"{key}: it is not UTF-8; what could not be read was replaced" for key in self._not_utf8]
        if self._vectors.problem is not None:
            problems.append(self._vectors.problem)
        return SyncReport(
            reason=self.reason,
            files_indexed=self._indexed,
            files_unchanged=max(0, len(self._scan.files) - self._indexed - len(self._unread)),
            files_removed=self._removed,
            chunks_written=self._chunks,
            embedded=self._vectors.embedded,
            embeddings_pending=self._vectors.pending,
            problems=tuple(problems),
        )

    def _unreadable(self) -> list[str]:
        workspace = str(self._sync.workspace)
        reasons = {**self._scan.unreadable, **self._unread}
        return [f"{key or workspace}: {why}" for key, why in reasons.items()]

    async def _prune(self) -> None:
        """Drop vectors that are too many, if there can be new ones."""
        cache = self._sync.settings.cache
        keep = cache.max_entries if cache.enabled else 0
        is_due = self.is_full or self._indexed or self._removed or self._vectors.embedded
        if keep is not None and is_due:
            await self._file.write(partial(embedding_cache.prune, max_entries=keep))

    async def _leave_mark(self, *, is_news: bool) -> None:
        """Note in the index that all notes are in, and which troubles there were."""
        problems = self._report().problems[:MAX_PROBLEMS]
        if not is_news and self._mark is not None and self._mark.problems == problems:
            return
        unreadable = tuple(self._unreadable()[:MAX_PROBLEMS])
        self._mark = SyncMark(finished_ms=self._sync.now_ms(), unreadable=unreadable, problems=problems)
        await self._file.write(partial(books.write_mark, mark=self._mark))

    def log_files(self) -> None:
        """Log the counts, and each file that could not be read when that is news."""
        known = set(self._mark_before.unreadable) if self._mark_before else set()
        reasons = {**self._scan.unreadable, **self._unread}
        for line, (key, why) in zip(self._unreadable(), reasons.items(), strict=True):
            if line not in known:
                skipped = SyncFileSkipped(path=key, reason=why)
                self._sync.ops_log.emit(skipped, status="failure", backend="builtin")
        counts = SyncFileIndexed(
            source="memory",
            indexed=self._indexed,
            skipped=len(reasons),
            removed=self._removed,
            total=len(self._scan.files),
        )
        self._sync.ops_log.emit(counts, backend="builtin")

    def _progress(self, label: str, completed: int, total: int) -> None:
        self._tell(MemorySyncProgressUpdate(completed=completed, total=total, label=label))


def _completed(report: SyncReport, *, is_full: bool) -> SyncComplete:
    return SyncComplete(
        reason=report.reason,
        full_reindex=is_full,
        files_indexed=report.files_indexed,
        chunks_written=report.chunks_written,
        embedded=report.embedded,
        removed=report.files_removed,
    )
