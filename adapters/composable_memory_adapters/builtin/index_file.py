"""The index file of an open memory: created when first needed, synced, and replaced if damaged."""

import asyncio
from collections.abc import Set
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from composable_memory.errors import BackendUnavailable, IndexDamaged, IndexProblem, IndexTooNew
from composable_memory.forget.report import Forgetting
from composable_memory.interfaces import BackendServices
from composable_memory.supervision.single_flight import Flight
from composable_memory.types import SyncReport
from composable_memory_adapters.builtin.notes.documents import note_suffixes
from composable_memory_adapters.builtin.notes.erasable_lines import Stored
from composable_memory_adapters.builtin.notes.note_files import scan
from composable_memory_adapters.builtin.search.searcher import LOAD_TIMEOUT_S, Searcher
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import erasing, integrity, schema
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.index_meta import IndexSnapshot, SyncMark, milliseconds
from composable_memory_adapters.builtin.sync.sync_scheduler import Debounce, SyncScheduler
from composable_memory_adapters.builtin.sync.synchroniser import Synchroniser
from composable_memory_adapters.sqlite_file import SqliteFile, remove_set_aside, set_aside
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from datetime import datetime

    from composable_memory_adapters.builtin.store.rebuild import RebuildCost

BACKEND_ID = "builtin"
BACKGROUND_REASONS = frozenset({"search", "session-start", "watch", "interval"})
"""Reasons of syncs that start by themselves."""
UNASKED = frozenset({"watch", "interval"})
"""The background reasons that occur even if nobody is searching."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIndex:
    """An open index file with its searcher and synchroniser; recreated when the file is replaced."""

    file: SqliteFile
    searcher: Searcher
    sync: Synchroniser
    stack: AsyncExitStack

    async def close(self) -> None:
        """Finish pending writes and release the file."""
        await self.searcher.close()
        await self.stack.aclose()


class IndexFile:
    """Opens, syncs and replaces the index at one path, and caches its counts.

    The file is created by the first sync that has something to write.
    """

    def __init__(
        self,
        settings: BuiltinSettings,
        services: BackendServices,
        debounce: Debounce,
        scheduler: SyncScheduler,
    ) -> None:
        self._settings = settings
        self._services = services
        self._debounce = debounce
        self._scheduler = scheduler
        self._embedder = services.embedder if settings.store.vector.enabled else None
        self._transcripts: Path | None = None
        self._open: OpenIndex | None = None
        self._is_closed = False
        self._is_made = False
        self._counting = asyncio.Lock()
        self.space = EmbeddingSpace.of(self._embedder) if self._embedder else None
        self.path = services.state_dir
        self.snapshot = IndexSnapshot()
        self.rebuild_cost: RebuildCost | None = None
        self.damage: IndexDamaged | None = None
        """Why the file could not be read when it was opened; None once a sync has repaired it."""
        self.checked_at: datetime | None = None
        """When the last comparison of the notes with the index began or ended."""

    async def open(self, path: Path, transcripts: Path | None) -> None:
        """Open the file at `path` and read its counts; damage is recorded in `damage`, not raised.

        Raises:
            IndexProblem: the file can be neither read nor created.
        """
        self.path, self._transcripts = path, transcripts
        self._open = await self._opened_file()
        try:
            if await self.exists():
                await self.take_stock()
            else:
                await asyncio.to_thread(self._open.file.check_folder)
        except IndexDamaged as damage:
            self.damage = damage

    async def close(self) -> None:
        """Finish pending writes and release the file."""
        self._is_closed = True
        if self._open is not None:
            await self._open.close()
        self._open = None

    def refuse(self) -> None:
        """Refuse further calls; those in progress continue until `close`."""
        self._is_closed = True

    def current(self, operation: str) -> OpenIndex:
        """Return the open file.

        Raises:
            BackendUnavailable: the memory is closed; the error names the operation.
        """
        if self._is_closed or self._open is None:
            raise BackendUnavailable(BACKEND_ID, "it is closed", fix="open it again", operation=operation)
        return self._open

    async def exists(self) -> bool:
        """Return whether the index exists; the first sync that has something to write creates it."""
        if not self._is_made and await asyncio.to_thread(self.path.exists):
            try:
                await ensure_tables(self.current("read").file)  # another process may still be creating it
            finally:
                self._is_made = True
        return self._is_made

    async def take_stock(self) -> None:
        """Read the counts and the cost of a rebuild; calls are serialised, so the latest state wins."""
        if not await self.exists():
            return
        async with self._counting:
            index = self.current("read its index")
            (writes, stock), index.sync.stock = index.sync.stock, (-1, None)
            if writes != index.file.writes:
                stock = await index.file.read(index.sync.take_stock, index.sync.counted_at)
            if stock is not None:
                self.snapshot, self.rebuild_cost = stock.snapshot, stock.cost
                index.sync.counted_at[stock.connection] = stock.version

    @property
    def hears_of_changes(self) -> bool:
        """Return whether `changed` is reliable: the watch has no gaps, and all notes were scanned once."""
        scan = self.current("search").sync.glance.scan
        return scan is not None and not scan.has_links and self._scheduler.misses_nothing

    async def changed(self) -> Set[str] | None:
        """Return the paths of all notes changed since the last sync; None if only a full scan can tell."""
        is_recent = self.hears_of_changes and self.current("search").sync.glance.is_recent
        return await self._scheduler.changed() if is_recent else None

    async def is_done(self) -> bool:
        """Return whether a sync would have nothing to do if no notes have changed."""
        await self.take_stock()
        found, mark = self.snapshot, self.snapshot.mark
        is_embedded = self.space is None or found.embedded == found.chunks
        is_whole = not (self.damage or found.damage or self.rebuild_cost)
        return is_embedded and is_whole and mark is not None and not mark.unreadable

    # --- sync ---------------------------------------------------------------------------------------------

    async def update(self, flight: Flight) -> SyncReport:
        """Run one sync; if the file is damaged, set it aside and fill a new one."""
        await self._debounce.is_watch_ready.wait()
        began = asyncio.get_running_loop().time()
        flight.notes_indexed.add_done_callback(partial(self._forget_changes, began))
        paths = self._debounce.paths if flight.is_watched else None
        try:
            report = await self._sync_or_replace(flight, paths or None)
        finally:
            self.checked_at = self._services.clock()
        self.damage = None
        await self.take_stock()
        return report

    def _forget_changes(self, began: float, seen: "asyncio.Future[None]") -> None:
        if not seen.cancelled():
            self._debounce.forget_before(began)

    async def _sync_or_replace(self, flight: Flight, paths: Set[str] | None) -> SyncReport:
        try:
            return await self._sync(flight, paths)
        except IndexDamaged as damage:
            if not (flight.force or await asyncio.to_thread(self._is_ours)):
                raise
            aside = await self._replace_damaged()
            report = await self._sync(flight)
            what = f"the index was damaged ({damage.problem}) and was rebuilt"
            kept_as = f"; the damaged file is kept as {aside}" if aside else " by another process"
            return replace(report, problems=(what + kept_as, *report.problems))

    async def _sync(self, flight: Flight, paths: Set[str] | None = None) -> SyncReport:
        if not await self.exists():
            is_background = not flight.force and BACKGROUND_REASONS.issuperset(flight.reasons)
            if is_background and await asyncio.to_thread(self._is_nothing_to_write):
                # Kept in memory only: looking at a folder without notes must leave no file behind.
                self.snapshot = IndexSnapshot(mark=SyncMark(finished_ms=milliseconds(self._services.clock())))
                return SyncReport(reason="+".join(flight.reasons))
            await ensure_tables(self.current("sync").file)
        while (report := await self._run(flight, paths)) is None:
            if UNASKED.issuperset(flight.reasons) and not await asyncio.to_thread(
                self._services.state_dir.exists
            ):  # the user deleted it, and a changed note is no reason to recreate it
                raise IndexProblem(self.path, "the state folder is gone; open the memory again")
            await self.reopen_if_replaced()
            await ensure_tables(self.current("sync").file)
        return report

    async def _run(self, flight: Flight, paths: Set[str] | None) -> SyncReport | None:
        """Sync the open file; None if another file has replaced it."""
        current = self.current("sync")
        try:
            return await current.sync.run(flight, paths)
        except IndexProblem:
            if await asyncio.to_thread(current.file.was_replaced):
                return None
            raise

    def _is_nothing_to_write(self) -> bool:
        """Return whether there are neither notes nor problems reading them."""
        found = scan(
            self._services.workspace_dir,
            self._settings.extra_paths,
            sources=self._settings.sources,
            transcripts=self._transcripts,
            suffixes=note_suffixes(self._settings.documents),
            most=self._settings.max_files,
        )
        return not (found.files or found.unreadable or found.remarks)

    # --- forgetting ---------------------------------------------------------------------------------------

    async def stored(self, wanted: Forgetting) -> Stored | None:
        """Return what is stored of these lines; None if there is no index."""
        return await self.current("forget").file.read(erasing.stored, wanted) if await self.exists() else None

    async def mark_unread(self, wanted: Forgetting) -> None:
        """Mark every file that contains forgotten lines, so that the next sync reads it again."""
        await self.reopen_if_replaced()
        await self.current("forget").file.write(erasing.mark_unread, wanted)

    async def purge(self) -> str | None:
        """Purge what the last sync left of forgotten lines; return what still prevents that, if anything."""
        file = self.current("forget").file
        if left := await file.read(erasing.unread):
            return f"{left[0]} cannot be read now" + (f", nor can {len(left) - 1} more" if left[1:] else "")
        await file.write(erasing.purge)
        await self.take_stock()
        await file.scrub()
        return None

    # --- damage, and a file that was replaced -------------------------------------------------------------

    async def check(self) -> str | None:
        """Read the whole file and describe any damage; None if there is none.

        Raises:
            IndexDamaged: the damage is so severe that the file cannot be read.
        """
        if not await self.exists():
            return None
        await self.reopen_if_replaced()
        file = self.current("check").file
        if not await file.read(schema.check, path=self.path):
            return None
        return (await file.read(integrity.examine)).describe()

    async def note_damage(self, what: str) -> None:
        """Record damage in the file, so that the next sync of any process repairs it."""
        with suppress(IndexProblem):
            await self.current("search").file.write(integrity.note_damage, what=what)
            await self.take_stock()

    async def reopen_if_replaced(self) -> None:
        """Reopen if another process has replaced the file."""
        # Otherwise new connections would read the new file while open ones still read the old.
        if await asyncio.to_thread(self.current("sync").file.was_replaced):
            await self._reopen()

    async def _reopen(self) -> None:
        old, self._open = self._open, await self._opened_file()
        if old is not None:
            await old.close()

    async def _replace_damaged(self) -> Path | None:
        """Set the damaged file aside and open an empty one, unless another process already has.

        Deletes any file that was set aside earlier.
        """
        damaged = self.current("sync")
        if await asyncio.to_thread(damaged.file.was_replaced):
            return None
        await damaged.close()
        await asyncio.to_thread(remove_set_aside, self.path)
        aside = await asyncio.to_thread(set_aside, self.path)
        await self._reopen()
        await self._salvage(aside)
        return aside

    async def _salvage(self, aside: Path) -> None:
        """Copy the intact vectors from a file that was set aside: they may have cost money."""
        new = self.current("sync").file
        await ensure_tables(new)
        async with SqliteFile.open(aside, readers=1) as old:
            with suppress(IndexProblem):
                last = 0
                while rows := await old.read(integrity.vectors_of, after=last):
                    last = rows[-1].id
                    await new.write(integrity.restore_vectors, rows=rows)

    def _is_ours(self) -> bool:
        """Return whether the file at our path is one of our indexes, or lies in our state folder."""
        if self.path.is_relative_to(self._services.state_dir):
            return True
        with suppress(OSError), self.path.open("rb") as file:
            return schema.is_marked(file.read(schema.HEADER_BYTES))
        return False

    async def _opened_file(self) -> OpenIndex:
        stack = AsyncExitStack()
        file = await stack.enter_async_context(SqliteFile.open(self.path))
        searcher = Searcher(
            file,
            settings=self._settings,
            clock=self._services.clock,
            embedder=self._embedder,
            space=self.space,
            embedder_problem=self._services.embedder_problem,
            load_timeout_s=LOAD_TIMEOUT_S if self._services.embedder_is_local else 0.0,
            is_paused=self._has_foreign_vectors,
            state_dir=self._services.state_dir,
            is_long_lived=self._services.is_long_lived,
        )
        sync = Synchroniser(
            file=file,
            workspace=self._services.workspace_dir,
            settings=self._settings,
            embedder=self._embedder,
            space=self.space,
            ops_log=self._services.ops_log,
            clock=self._services.clock,
            transcripts=self._transcripts,
            embedder_is_local=self._services.embedder_is_local,
            hide=self._services.hide,
        )
        return OpenIndex(file=file, searcher=searcher, sync=sync, stack=stack)

    def _has_foreign_vectors(self) -> bool:
        return self.rebuild_cost is not None and self.rebuild_cost.is_of_other_space


async def ensure_tables(file: SqliteFile) -> None:
    """Create the tables in `file` if they are missing.

    Raises:
        IndexTooNew: a later version wrote the file.
        IndexDamaged: the file is corrupt, or not a database.
        IndexProblem: it belongs to another program, or can be neither read nor written.
    """
    try:
        is_ready = await file.read(schema.check, path=file.path)
    except (IndexTooNew, IndexDamaged):
        raise
    except IndexProblem:  # usually the file does not exist yet; otherwise the write below raises the reason
        is_ready = False
    if not is_ready:
        await file.write(schema.create, path=file.path)
