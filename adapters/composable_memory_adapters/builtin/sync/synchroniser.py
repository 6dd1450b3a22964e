"""Brings the index up to date with the notes.

A run looks at all notes, writes text and keywords of those that changed, removes those that are gone, and
then embeds what has no vector yet. Every step is stored whole, so a run that is stopped leaves an index that
answers, and the next run goes on from there. An index that was made in another way than the settings ask for
is built anew beside the one that answers.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from composable_memory.errors import IndexDamaged
from composable_memory.interfaces import Clock, EmbedderAdapter
from composable_memory.supervision.single_flight import sync_complete
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_adapters.builtin.notes.drafts import Drafter
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import index, index_meta, integrity, lease
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.index_meta import SyncMark
from composable_memory_adapters.builtin.store.table_set import TableSet
from composable_memory_adapters.builtin.store.tables import Tables
from composable_memory_adapters.builtin.sync import rebuild
from composable_memory_adapters.builtin.sync.embedding import (
    FEW_TEXTS,
    MOVED,
    TWO_FOLDERS,
    Embedding,
    EmbedOutcome,
)
from composable_memory_adapters.builtin.sync.indexer import Intake, Tally
from composable_memory_adapters.builtin.sync.rebuild import RebuildCost
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_ops_logs.events import (
    ErrorInfo,
    EventDetail,
    Status,
    SyncFailed,
    SyncFileIndexed,
    SyncFileSkipped,
    SyncStart,
)
from composable_memory_ops_logs.log import OpsLog
from composable_memory_ops_logs.trace import trace

__all__ = ["Synchroniser"]

MAX_PROBLEMS = 50
REFRESH_S = 1.0
"""How often notes are followed, at most, while vectors are made."""

CUT = (
    "another process cuts notes otherwise in this index; give the two the same settings, or two state folders"
)

NOT_REBUILT = "the index was not rebuilt, the one before it answers"

Tell = Callable[[MemorySyncProgressUpdate], None]
Refresh = Callable[[], Awaitable[bool]]


@dataclass(slots=True, kw_only=True)
class _History:
    """What earlier syncs of this process have found."""

    is_settled: bool = False
    """Whether the index was what the settings ask for; if it no longer is, another process is at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchroniser:
    """All that a sync needs; without `embedder` text is indexed and the vectors are left as they are.

    Where embedding costs something (`embedder_is_local` is false), an index is built anew only by force.
    `transcripts` is their folder, where they are indexed. `is_wanted` says whether somebody waits for the
    next sync: a long one then looks at the notes in between.
    """

    file: SqliteFile
    workspace: Path
    settings: BuiltinSettings
    embedder: EmbedderAdapter | None
    space: EmbeddingSpace | None
    ops_log: OpsLog
    clock: Clock
    transcripts: Path | None = None
    embedder_is_local: bool = True
    is_wanted: Callable[[], bool] = lambda: False
    history: _History = field(default_factory=_History)

    def now_ms(self) -> int:
        """Return the present time in milliseconds since 1970."""
        return int(self.clock().timestamp() * 1000)

    def rebuild_cost(self, connection: Connection) -> RebuildCost | None:
        """Return what it takes to make the index what the settings ask for; None if it is that."""
        is_free = self.embedder is None or self.embedder_is_local
        return rebuild.cost(connection, self.space, self.recipe, is_free=is_free)

    @property
    def recipe(self) -> str:
        """Return how passages are cut and their words indexed by these settings."""
        return Drafter(chunking=self.settings.chunking, keywords=self.settings.store.fts.enabled).recipe

    async def run(
        self, *, reason: str, force: bool, tell: Tell, notes_indexed: Callable[[], None] = lambda: None
    ) -> SyncReport:
        """Bring the index up to date; `force` builds it anew and keeps the vectors.

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
            self._emit(sync_complete(report, is_full=run.is_full), status=status, started=started)
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
        self._live = TableSet(file=sync.file)
        self.reason = reason
        self._force = force
        self._tell = tell
        self._tally = Tally()
        self._intake = self._intake_of(self._live)
        self._vectors = EmbedOutcome()
        self._mark: SyncMark | None = None
        self._mark_before: SyncMark | None = None
        self._cost: RebuildCost | None = None
        self._refreshed_at = 0.0
        self._done_before: dict[str, int] = {}
        self._steps_of: dict[str, int] = {}
        self._problem: str | None = None
        self._mended: str | None = None
        self.is_full = force

    async def complete(self, notes_indexed: Callable[[], None]) -> SyncReport:
        await self._begin()
        self._progress("Looking at the notes", 0, 0)
        await self._intake.settle()
        await self._leave_mark(is_news=self.is_full or self._tally.is_news)
        notes_indexed()
        if self._must_rebuild:
            await self._rebuild()
        if self._vectors.problem is None and not self._is_elsewhere:
            self._vectors = self._vectors.followed_by(await self._embed(self._live))
        await self._count_cache_use()
        await self._prune()
        await self._leave_mark(is_news=self.is_full)
        return self._report()

    async def _begin(self) -> None:
        """Mend what is damaged, and see whether the index is what the settings ask for."""
        await self._mend()
        self._mark = self._mark_before = await self._file.read(index_meta.read_mark)
        self.is_full = self._force or self._mark is None
        await self._settle_in()
        self._sync.ops_log.emit(
            SyncStart(reason=self.reason, force=self._force, needs_full_reindex=self.is_full),
            backend="builtin",
        )

    async def _mend(self) -> None:
        """Check a file that shall be rebuilt, or in which damage was noted, and have the parts made anew."""
        if not self._force and await self._file.read(integrity.damage_noted) is None:
            return
        examine = partial(integrity.examine, passages_too=not self._force)
        found = await self._file.read(examine)
        if found.structure is not None:
            raise IndexDamaged(self._file.path, found.structure)
        await self._file.write(partial(integrity.mend, found=found))
        if (told := found.told()) is not None:
            self._mended = f"the index was damaged, and is mended: {told}"

    async def _settle_in(self) -> None:
        """Note how the index is made from now on, unless it was made in another way before."""
        space, recipe = self._sync.space, self._sync.recipe
        if await self._file.read(rebuild.is_under_way):
            await self._file.write(rebuild.drop_litter)
        self._cost = await self._file.read(self._sync.rebuild_cost)
        if self._cost is not None:
            self._intake.keep_old_cuts(True)
            self.is_full |= self._must_rebuild
            return
        if await self._file.read(index_meta.stored_recipe) != recipe:
            await self._file.write(partial(index_meta.store_recipe, recipe=recipe))
        if space is None:
            return
        if await self._file.read(index_meta.stored_space) != space:
            await self._file.write(partial(index_meta.store_space, space=space))
        self._sync.history.is_settled = True
        if await self._live.read(index.count_pending):
            adopt = partial(index.adopt_cached_vectors, space=space)
            self._tally.vectors_reused += await self._live.write(adopt)

    @property
    def _must_rebuild(self) -> bool:
        """Return whether the index is built anew: by force, or where that costs nothing and nobody minds."""
        if self._force:
            return self._mark_before is not None or self._cost is not None
        return self._cost is not None and self._cost.is_free and not self._sync.history.is_settled

    @property
    def _is_elsewhere(self) -> bool:
        """Tell whether the index holds vectors of another embedder, so that ours would be of no use in it."""
        return self._cost is not None and self._cost.is_of_other_space

    async def _rebuild(self) -> None:
        """Build all anew beside the live tables, and swap when every vector is there."""
        self._problem = await self._what_would_be_lost(self._intake)
        if self._problem is not None:
            return
        async with self._lease(self._is_rebuild_needed) as is_ours:
            if is_ours:
                before = self._tally.indexed, self._tally.chunks
                async with rebuild.beside(self._file) as tables:
                    self._problem = await self._fill(tables)
                if self._problem is not None:  # what was made beside is gone
                    self._tally.indexed, self._tally.chunks = before
                await self._file.compact()
        if self._problem is None:
            self._cost = None
            self._intake.keep_old_cuts(False)
            self._sync.history.is_settled = True
            await self._intake.settle()  # what another process has seen since, and we have not

    async def _fill(self, beside: TableSet) -> str | None:
        """Fill the tables beside and put them in place; return what kept us from it."""
        sync = self._sync
        space = sync.space or await self._file.read(index_meta.stored_space)
        self._tally.indexed = self._tally.chunks = 0
        intake = self._intake_of(beside, space)
        await intake.settle()

        async def refresh() -> bool:
            return await self._refresh() and await intake.follow()

        self._vectors = await self._embed(beside, refresh)
        if not self._vectors.is_as_far_as_possible:
            return f"{NOT_REBUILT}: {self._vectors.problem}"
        await intake.settle()
        if (problem := await self._what_would_be_lost(intake)) is not None:
            return problem
        await rebuild.swap(beside, space=space, recipe=sync.recipe, now_ms=sync.now_ms())
        return None

    async def _what_would_be_lost(self, intake: Intake) -> str | None:
        """Return which files the index holds that cannot be read now; None if all of it can be made anew."""
        known = await self._live.read(index.file_states)
        lost = [
            key
            for key, seen in known.items()
            if key in intake.unread or not intake.scan.covers(key, seen.source)
        ]
        if not lost:
            return None
        return f"{NOT_REBUILT}: {len(lost)} of its files cannot be read now, among them {lost[0]}"

    async def _embed(self, tables: TableSet, refresh: Refresh | None = None) -> EmbedOutcome:
        """Make the vectors that are missing; of many, only one process at a time."""
        sync = self._sync
        if sync.embedder is None or sync.space is None:
            return EmbedOutcome()
        embedding = Embedding(
            tables,
            sync.embedder,
            sync.space,
            is_local=sync.embedder_is_local,
            now_ms=sync.now_ms,
            progress=partial(self._progress, "Embedding"),
            refresh=refresh or self._refresh,
        )
        if tables is not self._live or await tables.read(_is_soon_done):
            return await embedding.run()
        async with self._lease(self._are_vectors_missing) as is_ours:
            return await embedding.run() if is_ours else EmbedOutcome()

    def _lease(self, is_needed: Callable[[], Awaitable[bool]]) -> AbstractAsyncContextManager[bool]:
        """Wait until no other process is at a long piece of work; False when it has done ours."""

        async def while_waiting() -> None:
            self._progress("Waiting for another process", 0, 0)
            await self._refresh()

        return lease.lease(self._file).wait(is_needed=is_needed, while_waiting=while_waiting)

    async def _is_rebuild_needed(self) -> bool:
        return self._force or await self._file.read(self._sync.rebuild_cost) is not None

    async def _are_vectors_missing(self) -> bool:
        return await self._live.read(index.count_pending) > 0

    async def _refresh(self) -> bool:
        """Take in what changed while vectors are made, if somebody waits for it."""
        if not self._sync.is_wanted() or time.monotonic() - self._refreshed_at < REFRESH_S:
            return False
        before = (self._tally.indexed, self._tally.removed)
        await self._intake.follow()
        self._refreshed_at = time.monotonic()
        return (self._tally.indexed, self._tally.removed) != before

    def _report(self) -> SyncReport:
        intake, tally = self._intake, self._tally
        return SyncReport(
            reason=self.reason,
            files_indexed=tally.indexed,
            files_unchanged=max(0, len(intake.scan.files) - tally.indexed - len(intake.unread)),
            files_removed=tally.removed,
            chunks_written=tally.chunks,
            embedded=self._vectors.embedded,
            embeddings_pending=self._vectors.pending,
            problems=(*filter(None, (self._mended,)), *self._problems()),
        )

    def _problems(self) -> Iterator[str]:
        yield from self._troubles()
        yield from self._intake.scan.remarks
        if self._problem or self._vectors.problem:
            yield self._problem or self._vectors.problem or ""
        elif self._cost is not None and not self._must_rebuild:
            moved = f"{MOVED}; {TWO_FOLDERS}" if self._is_elsewhere else CUT
            yield moved if self._sync.history.is_settled else self._cost.told()

    def _troubles(self) -> list[str]:
        """Return which files could not be read, or not in full, and why."""
        workspace = str(self._sync.workspace)
        return [f"{key or workspace}: {why}" for key, why in self._intake.troubles.items()]

    async def _prune(self) -> None:
        """Drop vectors that are too many, if there can be new ones; not those made for a rebuild to come."""
        if self._cost is not None or self._problem is not None:
            return
        cache = self._sync.settings.cache
        keep = cache.max_entries if cache.enabled else 0
        if keep is not None and (self.is_full or self._tally.is_news or self._vectors.embedded):
            await self._file.write(partial(rebuild.prune_cache, max_entries=keep))

    async def _leave_mark(self, *, is_news: bool) -> None:
        """Note in the index that all notes are in, and which troubles there were."""
        problems = tuple(self._problems())[:MAX_PROBLEMS]
        if not is_news and self._mark is not None and self._mark.problems == problems:
            return
        unreadable = tuple(self._troubles()[:MAX_PROBLEMS])
        self._mark = SyncMark(finished_ms=self._sync.now_ms(), unreadable=unreadable, problems=problems)
        await self._file.write(partial(index_meta.write_mark, mark=self._mark))

    async def _count_cache_use(self) -> None:
        hits, misses = self._tally.vectors_reused, self._vectors.embedded
        if hits or misses:
            await self._file.write(partial(index_meta.add_cache_use, hits=hits, misses=misses))

    def log_files(self) -> None:
        """Log the counts, and each file that could not be read when that is news."""
        known = set(self._mark_before.unreadable) if self._mark_before else set()
        reasons = self._intake.unreadable
        for key, why in reasons.items():
            if f"{key or self._sync.workspace}: {why}" not in known:
                skipped = SyncFileSkipped(path=key, reason=why)
                self._sync.ops_log.emit(skipped, status="failure", backend="builtin")
        counts = SyncFileIndexed(
            source="+".join(self._sync.settings.sources),
            indexed=self._tally.indexed,
            skipped=len(reasons),
            removed=self._tally.removed,
            total=len(self._intake.scan.files),
        )
        self._sync.ops_log.emit(counts, backend="builtin")

    def _intake_of(self, tables: TableSet, space: EmbeddingSpace | None = None) -> Intake:
        """Return an indexer into `tables`; chunks point at vectors of `space`, or else of the index's."""
        return Intake(
            tables,
            workspace=self._sync.workspace,
            transcripts=self._sync.transcripts,
            reason=self.reason,
            settings=self._sync.settings,
            space=space,
            now_ms=self._sync.now_ms,
            tally=self._tally,
            tell=self._progress,
        )

    def _progress(self, label: str, completed: int, total: int) -> None:
        """Tell a step; what is done twice, for the old index and the new one, is counted on."""
        if completed == 0:
            self._done_before[label] = self._steps_of.get(label, 0)
        before = self._done_before.get(label, 0)
        self._steps_of[label] = before + total
        update = MemorySyncProgressUpdate(completed=before + completed, total=before + total, label=label)
        self._tell(update)


def _is_soon_done(connection: Connection, tables: Tables) -> bool:
    """Return whether the vectors can be made at once: there are few to make, and nobody else is at it."""
    return index.count_pending(connection, tables) <= FEW_TEXTS and lease.is_lease_free(connection)
