"""Brings the index up to date with the notes.

A run compares all notes, or those that a watch has named, with the index; writes the text and keywords of the
changed ones; removes those that are gone; and then embeds chunks without a vector. Every step is a
transaction, so an interrupted run leaves an index that still answers, and the next run continues from there.
An index that does not match the settings is rebuilt beside the one that answers.

A run drives `Indexer` and `Embedding` step by step; in between it reports progress, and indexes notes that
have changed meanwhile.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

from composable_memory.errors import IndexDamaged, IndexProblem
from composable_memory.interfaces import Clock, EmbedderAdapter, HideForgotten, hide_nothing
from composable_memory.supervision.lease import POLL_S, Lease
from composable_memory.supervision.single_flight import Flight, sync_ended
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_adapters.builtin.notes.changed_notes import Drafter
from composable_memory_adapters.builtin.notes.documents import pypdf_version
from composable_memory_adapters.builtin.notes.sessions import growth_limits
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import (
    index_meta,
    index_writes,
    integrity,
    read_queries,
    rebuild,
    schema,
)
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.index_meta import LEASE, SyncMark, milliseconds
from composable_memory_adapters.builtin.store.rebuild import (
    CostOf,
    RebuildCost,
    Stock,
    StockVersion,
    StoredState,
)
from composable_memory_adapters.builtin.store.schema import LIVE, NEXT, Tables
from composable_memory_adapters.builtin.sync.embedding import (
    FEW_TEXTS,
    MOVED,
    TWO_FOLDERS,
    Embedding,
    EmbedOutcome,
)
from composable_memory_adapters.builtin.sync.indexer import Glance, Indexer, Look, NotesPass
from composable_memory_adapters.builtin.sync.sync_result import SyncResult
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_adapters.text.stop_words import language_shares
from composable_memory_ops_logs import (
    EventDetail,
    Status,
    SyncStart,
)
from composable_memory_ops_logs.log import OpsLog
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.tracing import trace

MAX_PASSES = 3
"""The most passes over the notes, which are repeated until nothing changes during a pass."""
REFRESH_S = 1.0
"""The least time between two passes over the notes during embedding."""

SAMPLE = 96
"""How many passages to sample to detect the languages of the notes."""
NEWS = 200
"""From this many new passages in one sync, the languages are detected again."""

CUT = (
    "another process splits the notes of this index differently; give both the same settings, or separate "
    "state folders"
)

NOT_REBUILT = "the index was not rebuilt; the previous one is still used"


@dataclass(slots=True, kw_only=True)
class Synchroniser:
    """Syncs one index; without `embedder` it indexes text and leaves the vectors as they are.

    If embedding costs money (`embedder_is_local` is false), the index is rebuilt only by force. `transcripts`
    is the folder of transcripts, None if they are not indexed.
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
    hide: HideForgotten = hide_nothing
    glance: Glance = field(default_factory=Glance, init=False)
    has_matched: bool = field(default=False, init=False)
    """Whether the index has matched the settings during a sync of this process.

    If it later does not, another process with other settings is writing it.
    """
    sound: WeakKeyDictionary[Connection, int] = field(default_factory=WeakKeyDictionary, init=False)
    """The schema version, as SQLite counts it, at which each connection found the tables intact."""
    counted_at: WeakKeyDictionary[Connection, StockVersion] = field(
        default_factory=WeakKeyDictionary, init=False
    )
    stock: tuple[int, Stock | None] = field(default=(-1, None), init=False)
    """`file.writes` when a sync began, and the counts read then, or None if nothing had changed."""
    is_sampled: bool = field(default=False, init=False)
    """Whether enough passages were sampled to detect languages, even if none was recognised."""

    @property
    def rebuild_cost(self) -> CostOf:
        """Return the query for the cost of a rebuild; its result is None if none is due."""
        is_free = self.embedder is None or self.embedder_is_local
        return partial(rebuild.cost, space=self.space, recipe=self.drafter().recipe, is_free=is_free)

    def take_stock(
        self, connection: Connection, counted_at: Mapping[Connection, StockVersion]
    ) -> Stock | None:
        """Count what the index holds; None if nothing has changed since `counted_at`."""
        stock = rebuild.stock(connection, self.rebuild_cost, space=self.space, counted_at=counted_at)
        if stock and stock.snapshot.mark and ".pdf" in stock.snapshot.mark.passed_over:
            pypdf_version()  # cache it here: the status needs the version, but must not read the disk
        return stock

    def drafter(self, reason: str = "") -> Drafter:
        """Return a drafter for these settings and a sync with this reason."""
        return Drafter(
            chunking=self.settings.chunking,
            keywords=self.settings.store.fts.enabled,
            growth_limits=growth_limits(reason, self.settings.sync.sessions),
            hide=self.hide,
        )

    async def run(self, flight: Flight, paths: Set[str] | None = None) -> SyncReport | None:
        """Bring the index up to date; a forced flight rebuilds it, keeping the vectors.

        `paths` are all that can have changed since the last run; None if unknown. Returns None, without doing
        anything, if another file has replaced the index, or it has lost its tables.

        Raises:
            IndexProblem: the index cannot be read or written; its contents stay as they were.
        """
        started = time.perf_counter()
        run = _Run(self, flight, paths)
        report = None
        with trace():
            try:
                if await run.begin():
                    report = await run.complete()
            finally:
                self._log_end(run, flight.reason, report, started)
        return report

    def _log_end(self, run: "_Run", reason: str, report: SyncReport | None, started: float) -> None:
        if report is not None:
            run.log_files()
        if ended := sync_ended(report, reason=reason, is_full=run.result.is_full):
            detail, status = ended
            self._emit(detail, status=status, started=started)

    def _emit(self, detail: EventDetail, *, status: Status, started: float) -> None:
        took_ms = (time.perf_counter() - started) * 1000
        self.ops_log.emit(detail, status=status, backend="builtin", duration_ms=took_ms)


class _Progress:
    """Reports steps, adding up those for the live tables and for a rebuild."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._before: dict[str, int] = {}
        self._steps: dict[str, int] = {}

    def report(self, label: str, completed: int, total: int) -> None:
        """Report `completed` of `total` steps; 0 completed starts another series."""
        if completed == 0:
            self._before[label] = self._steps.get(label, 0)
        before = self._before.get(label, 0)
        self._steps[label] = before + total
        update = MemorySyncProgressUpdate(completed=before + completed, total=before + total, label=label)
        self._flight.tell(update)


class _Opening(NamedTuple):
    """The start of a sync: the index's metadata, and what was done about the named notes.

    If `notes` is None, `look` is set instead, unless the index must be repaired first. `mark` is the current
    mark of the index, `stock` its counts if they are not known yet.
    """

    stored: StoredState
    mark: SyncMark | None
    notes: NotesPass | None = None
    look: Look | None = None
    stock: Stock | None = None


class _Run:
    """One sync from beginning to end, and its result so far."""

    def __init__(self, sync: Synchroniser, flight: Flight, paths: Set[str] | None) -> None:
        self._sync = sync
        self._file = sync.file
        self._flight = flight
        self._paths = paths
        self._progress = _Progress(flight)
        self._drafter = sync.drafter(flight.reason)
        self._live = self._indexer(LIVE)
        self._opening: _Opening | None = None
        self._mark_before: SyncMark | None = None
        self._mark: SyncMark | None = None
        self._cost: RebuildCost | None = None
        self._must_rebuild = False
        self._refreshed_at = 0.0
        self.result = SyncResult(reason=flight.reason, workspace=sync.workspace, is_full=flight.force)

    async def complete(self) -> SyncReport:
        result = self.result
        result.notes = await self._index(self._live)
        is_marked = self._mark is not self._mark_before
        await self._leave_mark(is_news=result.is_full or (result.tally.has_changes and not is_marked))
        self._flight.mark_notes_indexed()
        if self._must_rebuild:
            await self._rebuild()
        if result.vectors.problem is None and not (self._cost and self._cost.is_of_other_space):
            result.vectors = result.vectors.followed_by(await self._embed_live())
        await self._count_cache_use()
        await self._prune()
        await self._sample_languages()
        await self._leave_mark(is_news=result.is_full)
        return result.report()

    # --- before -------------------------------------------------------------------------------------------

    async def begin(self) -> bool:
        """Repair damage and compare the index with the settings; False if it must be created or reopened."""
        self._progress.report("Checking the notes", 0, 0)
        writes, opening = self._file.writes, None
        if self._paths:
            try:
                opening = await self._file.write(self._update, self._paths)
            except IndexProblem:
                self._sync.glance.scan = None  # it already includes changes that were not stored
                raise
            writes += 1
        if opening is None:
            opening = await self._file.read(self._open)
        self._sync.stock = writes, opening.stock if opening else None
        if opening is not None and self._must_mend(opening.stored):
            await self._mend()
            opening = await self._file.read(self._open, is_mended=True)
        if opening is None:
            return False
        self._opening, stored = opening, opening.stored
        self._mark, self._mark_before = opening.mark, stored.said.mark
        self.result.languages = self._mark.languages if self._mark else {}
        self.result.is_full = self._flight.force or self._mark is None
        await self._apply_settings(stored)
        is_full = self.result.is_full
        start = SyncStart(reason=self._flight.reason, force=self._flight.force, needs_full_reindex=is_full)
        self._sync.ops_log.emit(start, backend="builtin")
        return True

    def _open(self, connection: Connection, *, is_mended: bool = False) -> _Opening | None:
        """Read the index's metadata and its files; None if another file has replaced it."""
        stored = self._stored_state(connection)
        if stored is None:
            return None
        self._live = self._indexer(LIVE, any_cut=stored.cost is not None)
        if self._must_mend(stored) and not is_mended:  # damaged parts may be unreadable until repaired
            return _Opening(stored, stored.said.mark)
        stock = self._sync.take_stock(connection, self._sync.counted_at)
        return _Opening(stored, stored.said.mark, look=self._live.look(connection), stock=stock)

    def _update(self, connection: Connection, paths: Set[str]) -> _Opening | None:
        """Sync a few named notes in one transaction; None if that is not possible.

        Each further hop to a thread would take as long as all of this, and the writing connection has most of
        the pages in its cache.
        """
        stored = self._stored_state(connection)
        mark = stored.said.mark if stored else None
        if stored is None or self._must_mend(stored) or mark is None or stored.cost is not None:
            return None
        notes = self._live.update(connection, paths)
        if notes is None:
            return None
        if notes.is_written and not notes.gone and notes.tally.has_changes:
            self.result.notes, self.result.languages = notes, mark.languages
            mark = self.result.mark(milliseconds(self._sync.clock()))
            index_meta.write_mark(connection, mark)
        return _Opening(stored, mark, notes, stock=self._sync.take_stock(connection, {}))

    def _must_mend(self, stored: StoredState) -> bool:
        return self._flight.force or stored.said.damage is not None

    def _stored_state(self, connection: Connection) -> StoredState | None:
        """Return the index's metadata; None if another file has replaced it or its tables are gone."""
        sync = self._sync
        version = connection.pragma("schema_version")
        if self._file.was_replaced():
            return None
        if sync.sound.get(connection) != version:
            if not schema.check(connection, self._file.path):
                return None
            sync.sound[connection] = version
        return rebuild.stored_state(connection, sync.rebuild_cost, has_vectors=sync.space is not None)

    async def _mend(self) -> None:
        """Examine a file that will be rebuilt or has recorded damage, and mark what must be rewritten."""
        found = await self._file.read(integrity.examine, passages_too=not self._flight.force)
        if found.structure is not None:
            raise IndexDamaged(self._file.path, found.structure)
        await self._file.write(integrity.mend, found=found)
        if (described := found.describe()) is not None:
            self.result.mended = f"the index was damaged, and has been repaired: {described}"

    async def _apply_settings(self, stored: StoredState) -> None:
        """Record how the index is made, unless it was made differently: then a rebuild is due."""
        space, recipe = self._sync.space, self._drafter.recipe
        if stored.said.is_rebuilding:
            await self._file.write(rebuild.drop_leftovers)
        self._cost = stored.cost
        self._must_rebuild = self._flight.force and self._mark is not None
        if self._cost is not None:
            self._plan_rebuild(self._cost)
            return
        if stored.said.recipe != recipe:
            await self._file.write(index_meta.set_value, index_meta.RECIPE, recipe)
        if space is None:
            return
        if stored.said.space != space:
            await self._file.write(index_meta.store_space, space=space)
        self._sync.has_matched = True
        if stored.pending:
            adopted = await self._file.write(index_writes.adopt_cached_vectors, LIVE, space)
            self.result.tally.vectors_reused += adopted

    def _plan_rebuild(self, cost: RebuildCost) -> None:
        """Decide on a rebuild: if forced, or if it is free and no other process keeps undoing it."""
        self._must_rebuild = self._flight.force or (cost.is_free and not self._sync.has_matched)
        if self._must_rebuild:
            self.result.is_full = True
        elif not self._sync.has_matched:
            self.result.mismatch = cost.describe()
        else:
            self.result.mismatch = f"{MOVED}; {TWO_FOLDERS}" if cost.is_of_other_space else CUT

    # --- text and keywords --------------------------------------------------------------------------------

    def _indexer(
        self, tables: Tables, space: EmbeddingSpace | None = None, *, any_cut: bool = False
    ) -> Indexer:
        """Return an indexer; with `any_cut`, unchanged files keep their chunks however they were cut."""
        sync = self._sync
        return Indexer(
            file=sync.file,
            tables=tables,
            workspace=sync.workspace,
            transcripts=sync.transcripts,
            settings=sync.settings,
            drafter=replace(self._drafter, any_cut=any_cut),
            space=space,
            clock=sync.clock,
            glance=sync.glance if tables is LIVE else Glance(),
        )

    async def _index(self, indexer: Indexer) -> NotesPass:
        """Index the notes, repeating while they change."""
        for _ in range(MAX_PASSES):
            notes = await self._index_once(indexer)
            if not notes.must_repeat:
                break
        return notes

    async def _index_once(self, indexer: Indexer) -> NotesPass:
        opening, self._opening = self._opening, None
        if opening and opening.notes:
            notes = opening.notes
        else:
            look = opening.look if opening else None
            notes = await indexer.compare(await self._file.read(indexer.look) if look is None else look)
        while not notes.is_written:
            self._progress.report("Indexing notes", notes.done, len(notes.changed))
            await indexer.write_group(notes)
        if notes.changed:
            self._progress.report("Indexing notes", notes.done, len(notes.changed))
        await indexer.remove_gone(notes)
        self.result.tally.add(notes.tally)
        return notes

    async def _refresh(self) -> bool:
        """Index notes changed during embedding if another sync is waiting; return whether there were any."""
        if not self._flight.has_successor or time.monotonic() - self._refreshed_at < REFRESH_S:
            return False
        self.result.notes = await self._index_once(self._live)
        self._refreshed_at = time.monotonic()
        return self.result.notes.tally.has_changes

    # --- vectors ------------------------------------------------------------------------------------------

    async def _embed_live(self) -> EmbedOutcome:
        """Embed chunks without a vector; if there are many, only one process at a time."""
        if self._sync.embedder is None or self._sync.space is None:
            return EmbedOutcome()
        pending = await self._file.read(index_writes.count_pending, LIVE)
        if not pending:
            return EmbedOutcome()
        if pending <= FEW_TEXTS and await self._file.read(LEASE.is_free):
            return await self._embed(self._live)
        async with self._lease(self._are_vectors_missing) as is_ours:
            return await self._embed(self._live) if is_ours else EmbedOutcome()

    async def _embed(self, indexer: Indexer) -> EmbedOutcome:
        """Embed batch by batch, indexing in between what has changed."""
        sync = self._sync
        if sync.embedder is None or sync.space is None:
            return EmbedOutcome()
        embedding = Embedding(
            self._file,
            indexer.tables,
            sync.embedder,
            sync.space,
            is_local=sync.embedder_is_local,
            clock=sync.clock,
        )
        await embedding.list_waiting()
        if embedding.total:
            self._progress.report("Embedding", 0, embedding.total)
        while not embedding.is_finished:
            done = embedding.done
            await embedding.embed_next()
            if embedding.done > done:
                self._progress.report("Embedding", embedding.done, embedding.total)
            if not embedding.is_finished and await self._refresh():
                if indexer is not self._live:
                    await self._index_once(indexer)
                await embedding.list_waiting()
        return await embedding.outcome()

    @asynccontextmanager
    async def _lease(self, is_needed: Callable[[], Awaitable[bool]]) -> AsyncIterator[bool]:
        """Hold the lease once it is free; yield False if another process has done the work."""
        while True:
            async with Lease(LEASE, self._file.write, name="builtin").acquire() as is_ours:
                if is_ours:
                    yield await is_needed()
                    return
            if not await is_needed():
                yield False
                return
            self._progress.report("Waiting for another process", 0, 0)
            await self._refresh()
            await asyncio.sleep(POLL_S)

    async def _are_vectors_missing(self) -> bool:
        return await self._file.read(index_writes.count_pending, LIVE) > 0

    # --- a rebuild ----------------------------------------------------------------------------------------

    async def _rebuild(self) -> None:
        """Fill new tables beside the live ones, and swap them in once every vector is there."""
        self.result.not_rebuilt = await self._what_would_be_lost(self.result.notes)
        if self.result.not_rebuilt is not None:
            return
        async with self._lease(self._is_rebuild_needed) as is_ours:
            if is_ours:
                before = replace(self.result.tally)
                async with self._next_tables() as tables:
                    self.result.not_rebuilt = await self._fill(tables)
                if self.result.not_rebuilt is not None:  # the new tables were dropped
                    self.result.tally.indexed, self.result.tally.chunks = before.indexed, before.chunks
                await self._file.compact()
        if self.result.not_rebuilt is None:
            self._cost = None
            self._live = self._indexer(LIVE)
            self._sync.has_matched = True
            self.result.notes = await self._index(
                self._live
            )  # catches up with what another process has indexed meanwhile

    async def _is_rebuild_needed(self) -> bool:
        return self._flight.force or await self._file.read(self._cost_now) is not None

    def _cost_now(self, connection: Connection) -> RebuildCost | None:
        return self._sync.rebuild_cost(connection, index_meta.said(connection))

    @asynccontextmanager
    async def _next_tables(self) -> AsyncIterator[Tables]:
        """Yield empty tables beside the live ones, for this run only; they are dropped unless swapped in."""
        tables = replace(NEXT, owner=uuid4().hex)
        try:
            # Inside the try: a write that has begun completes even if its caller is cancelled.
            await self._file.write(rebuild.begin, tables=tables)
            yield tables
        finally:
            # If writing fails as well, the next process drops them.
            with contextlib.suppress(IndexProblem):
                await self._file.write(rebuild.give_up, tables=tables)

    async def _fill(self, tables: Tables) -> str | None:
        """Fill the tables and swap them in; return what prevented it, if anything."""
        sync = self._sync
        space = sync.space or await self._file.read(index_meta.stored_space)
        self.result.tally.indexed = self.result.tally.chunks = 0
        indexer = self._indexer(tables, space)
        await self._index(indexer)
        self.result.vectors = await self._embed(indexer)
        if not self.result.vectors.is_as_far_as_possible:
            return f"{NOT_REBUILT}: {self.result.vectors.problem}"
        if (problem := await self._what_would_be_lost(await self._index(indexer))) is not None:
            return problem
        now_ms, recipe = milliseconds(sync.clock()), self._drafter.recipe
        await self._file.write(rebuild.swap, tables, space=space, recipe=recipe, now_ms=now_ms)
        return None

    async def _what_would_be_lost(self, notes: NotesPass) -> str | None:
        """Describe the indexed files that cannot be read now; None if a rebuild would lose none."""
        known = await self._file.read(index_writes.file_states, LIVE)
        lost = [
            key
            for key, seen in known.items()
            if key in notes.unread or not notes.scan.covers(key, seen.source)
        ]
        if not lost:
            return None
        return f"{NOT_REBUILT}: {len(lost)} of its files cannot be read now, such as {lost[0]}"

    # --- afterwards ---------------------------------------------------------------------------------------

    async def _leave_mark(self, *, is_news: bool) -> None:
        """Record in the index that all notes are indexed, unless nothing has changed."""
        mark = self.result.mark(milliseconds(self._sync.clock()))
        if is_news or self._mark is None or _reported(self._mark) != _reported(mark):
            self._mark = mark
            await self._file.write(index_meta.write_mark, mark)

    async def _count_cache_use(self) -> None:
        hits, misses = self.result.tally.vectors_reused, self.result.vectors.embedded
        if hits or misses:
            await self._file.write(index_meta.add_cache_use, hits=hits, misses=misses)

    async def _prune(self) -> None:
        """Drop surplus vectors if there are new ones; not while a rebuild is due, which may reuse them."""
        result, cache = self.result, self._sync.settings.cache
        keep = cache.max_entries if cache.enabled else 0
        has_news = result.is_full or result.tally.has_changes or result.vectors.embedded
        if has_news and keep is not None and self._cost is None and result.not_rebuilt is None:
            await self._file.write(rebuild.prune_cache, max_entries=keep)
        is_kept_outdated = result.tally.removed or (has_news and self._sync.settings.documents)
        if result.is_full or is_kept_outdated:
            await self._file.write(rebuild.prune_kept)

    async def _sample_languages(self) -> None:
        """Detect the languages of the notes, if enough passages are new to change the result."""
        known, written = self.result.languages or self._sync.is_sampled, self.result.tally.chunks
        if written and (not known or self.result.is_full or written >= NEWS):
            sample = await self._file.read(read_queries.sample_texts, count=SAMPLE)
            self._sync.is_sampled = len(sample) > SAMPLE // 2
            self.result.languages = await asyncio.to_thread(language_shares, sample)

    def log_files(self) -> None:
        """Log the counts, and files that have become unreadable."""
        known = self._mark_before.unreadable if self._mark_before else ()
        source = "+".join(self._sync.settings.sources)
        self.result.log_files(self._sync.ops_log, source=source, known=known)


def _reported(mark: SyncMark) -> tuple[object, ...]:
    """Return the parts of a mark whose change is worth writing: all but the time and the unreadable files."""
    return mark.problems, mark.passed_over, mark.languages
