"""The builtin memory as others see it: search, reading of notes, sync, and a status always at hand."""

import asyncio
import glob
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from composable_memory.errors import (
    BackendError,
    BackendUnavailable,
    EmbeddingError,
    IndexDamaged,
    IndexProblem,
    MemoryPathError,
)
from composable_memory.interfaces import BackendServices, ProgressCallback
from composable_memory.paths import relative_key, resolve_memory_file
from composable_memory.registry import load_vectors
from composable_memory.supervision.single_flight import Flight, SingleFlight
from composable_memory.supervision.tasks import Once
from composable_memory.types import (
    Degradation,
    DegradationCode,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)
from composable_memory_adapters.builtin.asking import probe
from composable_memory_adapters.builtin.notes.sessions import (
    is_transcript_path,
    read_transcript,
    resolve_transcript,
    transcripts_folder,
)
from composable_memory_adapters.builtin.notes.sources import TRANSCRIPTS_KEY, read_note, scan
from composable_memory_adapters.builtin.search.searcher import Searcher
from composable_memory_adapters.builtin.settings import ENGINES, BuiltinSettings, filled_in
from composable_memory_adapters.builtin.status import Standing, describe
from composable_memory_adapters.builtin.store import index_meta, integrity, schema
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.index_meta import IndexSnapshot, SyncMark
from composable_memory_adapters.builtin.sync.sync_scheduler import FolderWatch, SyncScheduler
from composable_memory_adapters.builtin.sync.synchroniser import Synchroniser
from composable_memory_adapters.builtin.sync.watch_scope import survey
from composable_memory_adapters.excerpts import excerpt
from composable_memory_adapters.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from composable_memory_adapters.builtin.sync.rebuild import RebuildCost

__all__ = ["BuiltinMemory", "open_builtin"]

BACKEND_ID = "builtin"
BACKGROUND_REASONS = frozenset({"search", "session-start", "watch", "interval"})
"""Why a sync runs that nobody has asked for."""


@asynccontextmanager
async def open_builtin(
    settings: BuiltinSettings, services: BackendServices
) -> AsyncIterator["BuiltinMemory"]:
    """Yield the memory of a workspace; its file, threads and tasks end with it.

    A damaged index does not keep it from opening: `sync(force=True)` is how it is mended.

    Raises:
        BackendError: the index can be neither made nor read.
    """
    memory = BuiltinMemory(settings, services)
    try:
        await memory.open()
        yield memory
    finally:
        await memory.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """An open index file and those who work on it; a rebuilt file gets a new one of these."""

    file: SqliteFile
    searcher: Searcher
    sync: Synchroniser
    stack: AsyncExitStack

    async def close(self) -> None:
        await self.searcher.close()
        await self.stack.aclose()


class BuiltinMemory:
    """Markdown notes in one index file; keeps `MemorySearchManager`, `SupportsAnswer` and `SupportsSync`."""

    def __init__(self, settings: BuiltinSettings, services: BackendServices) -> None:
        self._settings = settings
        self._services = services
        self._embedder = services.embedder if settings.store.vector.enabled else None
        self._space = EmbeddingSpace.of(self._embedder) if self._embedder else None
        self._path = services.state_dir
        self._transcripts: Path | None = None
        self._index: _Index | None = None
        self._flights = SingleFlight(self._fly, backend_id="builtin")
        self._follower = SyncScheduler(
            settings.sync,
            open_watch=self._open_watch,
            sync=self._flights.attempt,
            ops_log=services.ops_log,
        )
        self._snapshot = IndexSnapshot()
        self._rebuild_cost: RebuildCost | None = None
        self._checked_at: datetime | None = None
        self._damage: IndexDamaged | None = None
        self._is_closed = False
        self._is_made = False
        self._counting = asyncio.Lock()
        self._release = Once(self._let_go, name="builtin-close")

    async def open(self) -> None:
        """Open the index file and take stock of it; called once, by `open_builtin`."""
        self._path = filled_in(
            self._settings.store.path,
            state_dir=self._services.state_dir,
            agent_id=self._services.agent_id,
            workspace_id=self._services.workspace_id,
        )
        self._transcripts = await asyncio.to_thread(transcripts_folder, self._settings, self._services)
        if (engine := self._settings.store.vector.engine) not in ENGINES:
            await asyncio.to_thread(load_vectors, engine)  # fails now, not in the first search
        self._index = await self._open_index()
        with self._failing_to("open"):
            try:
                if await self._has_file():
                    await self._take_stock()
                else:
                    await asyncio.to_thread(self._index.file.check_folder)
            except IndexDamaged as damage:
                self._damage = damage
        if self._services.is_long_lived:
            self._follower.start()

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the passages that answer `query`, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and say what is missing: from the index, from the notes, or of the two ways to search."""
        opened = self._opened("search")
        if not query.strip():
            return SearchAnswer(results=())
        with self._failing_to("search"):
            await self._look_for_changes(options.session_key if options else None)
            if not await self._has_file():
                missing = (*opened.searcher.restrictions, *self._shortcomings())
                return SearchAnswer(results=(), degraded=missing)
            async with self._noting_damage():
                answer = await (self._index or opened).searcher.answer(query, options)
                if (
                    found := next((one for one in answer.degraded if one.code == "damaged"), None)
                ) is not None:
                    await self._note_damage(found.reason)
        return replace(answer, degraded=(*answer.degraded, *self._shortcomings()))

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Bring the index up to date; `force` writes it anew, and sets a damaged file aside."""
        self._opened("sync")
        with self._failing_to("sync"):
            return await self._flights.join(reason, force=force, progress=progress)

    async def check(self) -> tuple[str, ...]:
        """Read all of the index and return what is damaged, with what mends it."""
        opened = self._opened("check")
        with self._failing_to("check"):
            if not await self._has_file():
                return ()
            try:
                async with self._noting_damage():
                    await self._reopen_if_replaced()
                    opened = self._opened("check")
                    if not await opened.file.read(partial(schema.check, path=self._path)):
                        return ()
                    found = (await opened.file.read(integrity.examine)).told()
            except IndexDamaged as damage:
                return (str(damage),)
            if found is None:
                return ()
            await self._note_damage(found)
            return (str(IndexDamaged(self._path, found)),)

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return a note, or some of its lines: from 1 on where `from_line` is less, at least one line.

        Of a transcript, named `sessions/<file>.jsonl`, that is what its messages say, redacted, one a line;
        the lines that are asked for are those of the file.
        """
        self._opened("read a file")
        if is_transcript_path(rel_path):
            target = await asyncio.to_thread(resolve_transcript, rel_path, self._transcripts)
            text = await asyncio.to_thread(_say, rel_path, target, from_line, lines)
            return MemoryFileSlice(text=text, path=f"{TRANSCRIPTS_KEY}/{target.name}")
        extra_paths, workspace = self._settings.extra_paths, self._services.workspace_dir
        path, text = await asyncio.to_thread(_read, rel_path, workspace, extra_paths)
        return MemoryFileSlice(text=excerpt(text, from_line, lines), path=path)

    def status(self) -> MemoryProviderStatus:
        """Return what was known after the last sync; reads nothing."""
        opened = self._opened("report its status")
        standing = Standing(
            db_path=self._path,
            snapshot=self._snapshot,
            vector=opened.searcher.vector_status(),
            recovery=opened.file.recovery,
            rebuild=self._rebuild_cost,
            running=self._flights.current,
            sync_error=self._trouble,
            watch=self._follower.status if self._follower.is_following else None,
        )
        return describe(self._settings, self._services, standing)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Embed a word as a search would, and say whether it worked."""
        self._opened("probe the embedder")
        if self._embedder is None or self._space is None:
            problem = self._services.embedder_problem or "no embedding provider is configured"
            return MemoryEmbeddingProbeResult(ok=False, error=problem)
        try:
            await probe(self._embedder, self._space)
        except EmbeddingError as error:
            return MemoryEmbeddingProbeResult(ok=False, error=str(error))
        return MemoryEmbeddingProbeResult(ok=True)

    async def probe_vector_availability(self) -> bool:
        """Load what vector search needs, and say whether it can answer."""
        opened = self._opened("probe vector search")
        try:
            await schema.ensure(opened.file)
            await opened.searcher.warm()
        except IndexProblem:
            return False
        return opened.searcher.vector_status().available is True

    async def close(self) -> None:
        """Stop the sync, finish what is being written, release the file; calling it again does nothing.

        A call that is cancelled waits no longer, but all of that is done.
        """
        self._is_closed = True
        await self._release()

    async def _let_go(self) -> None:
        await self._follower.stop()
        await self._flights.close()
        if self._index is not None:
            await self._index.close()
        self._index = None

    # --- following the notes ---

    async def _look_for_changes(self, session_key: str | None) -> None:
        """Start a sync if it is time for one, or a conversation begins, and give it a moment."""
        is_new_session = self._follower.is_new_session(session_key)
        if not is_new_session and not self._is_time_to_look():
            return
        self._checked_at = self._services.clock()
        if is_new_session:
            flight = self._flights.start("session-start")
        elif self._settings.sync.on_search:
            flight = self._flights.current or self._flights.start("search")
        else:
            await self._reopen_if_replaced()
            await self._take_stock()
            return
        wait_s = self._settings.sync.on_search_wait_ms / 1000
        await asyncio.wait([flight.notes_indexed], timeout=wait_s)
        await self._take_stock()

    def _is_time_to_look(self) -> bool:
        if self._checked_at is None or self._snapshot.mark is None:
            return self._flights.current is None
        elapsed = (self._services.clock() - self._checked_at).total_seconds()
        return abs(elapsed) >= self._follower.recheck_s

    def _open_watch(self, on_change: Callable[[], None]) -> FolderWatch:
        # Imported late: a single command watches nothing, and watchdog takes a fifth of its time.
        from composable_memory_adapters.builtin.sync.watcher import Watcher

        workspace, extra_paths = self._services.workspace_dir, self._settings.extra_paths
        return Watcher(lambda: survey(workspace, extra_paths, self._transcripts), on_change)

    async def _fly(self, flight: Flight) -> SyncReport:
        """Sync once; a damaged file is set aside and its place taken by a new one."""
        await self._follower.stand_ready()
        began = asyncio.get_running_loop().time()
        try:
            try:
                report = await self._sync_index(flight)
            except IndexDamaged as damage:
                if not (flight.force or await asyncio.to_thread(self._is_ours)):
                    raise
                aside = await self._start_anew()
                report = await self._sync_index(flight)
                told = f"the index was damaged ({damage.problem}) and is built anew"
                kept = f"; what it was is kept as {aside}" if aside else " by another process"
                report = replace(report, problems=(told + kept, *report.problems))
        finally:
            self._checked_at = self._services.clock()
        self._follower.cover(began)
        self._damage = None
        await self._take_stock()
        return report

    async def _sync_index(self, flight: Flight) -> SyncReport:
        await self._reopen_if_replaced()
        opened = self._opened("sync")
        if not await self._has_file() and await self._is_nothing_to_write(flight):
            # Noted in memory alone: a folder that was only looked at leaves no file behind.
            mark = SyncMark(finished_ms=int(self._services.clock().timestamp() * 1000))
            self._snapshot = IndexSnapshot(mark=mark)
            return SyncReport(reason=flight.reason)
        await schema.ensure(opened.file)
        return await opened.sync.run(
            reason=flight.reason,
            force=flight.force,
            tell=flight.tell,
            notes_indexed=flight.mark_notes_indexed,
        )

    async def _has_file(self) -> bool:
        """Return whether there is an index; it is made by the first sync that has something to write."""
        if not self._is_made and await asyncio.to_thread(self._path.exists):
            try:
                await schema.ensure(self._opened("read").file)  # whoever makes it may not be done
            finally:
                self._is_made = True
        return self._is_made

    async def _is_nothing_to_write(self, flight: Flight) -> bool:
        """Return whether nobody has asked for this sync, and there is neither a note nor any trouble."""
        if flight.force or not BACKGROUND_REASONS.issuperset(flight.reason.split("+")):
            return False
        look = partial(
            scan,
            self._services.workspace_dir,
            self._settings.extra_paths,
            sources=self._settings.sources,
            transcripts=self._transcripts,
        )
        found = await asyncio.to_thread(look)
        return not (found.files or found.unreadable or found.remarks)

    async def _take_stock(self) -> None:
        """Read what the status tells; one at a time, so that what is older never comes last."""
        if not await self._has_file():
            return
        async with self._counting:
            opened = self._opened("read its index")
            self._snapshot, self._rebuild_cost = await opened.file.read(
                lambda connection: (index_meta.snapshot(connection), opened.sync.rebuild_cost(connection))
            )

    def _has_foreign_vectors(self) -> bool:
        return self._rebuild_cost is not None and self._rebuild_cost.is_of_other_space

    @property
    def _trouble(self) -> str | None:
        """Return why the index could not follow the notes, None if it could."""
        failure = self._flights.failure or self._damage
        return str(failure) if failure else None

    def _shortcomings(self) -> Iterator[Degradation]:
        """Return what the index lacks compared with the notes, as degradations."""
        flight, mark = self._flights.current, self._snapshot.mark
        if flight is not None:
            if not flight.notes_indexed.done():
                yield _degradation("stale", _how_far(flight))
        elif self._trouble is not None:
            yield _degradation("stale", f"the last sync failed: {self._trouble}")
        elif mark is None:
            yield _degradation("never-indexed", "no note has been indexed yet; run `cmem index`")
        if (why := self._follower.blindness) is not None:
            yield _degradation("stale", f"changes are not followed, run `cmem index` after them: {why}")
        if self._rebuild_cost is not None:
            yield _degradation("rebuild-due", self._rebuild_cost.told())
        if mark is not None and mark.unreadable:
            count = len(mark.unreadable)
            yield _degradation(
                "unreadable-files",
                f"{count} could not be read, or not in full, among them {mark.unreadable[0]}",
            )

    # --- the index file ---

    async def _open_index(self) -> _Index:
        stack = AsyncExitStack()
        file = await stack.enter_async_context(SqliteFile.open(self._path))
        searcher = Searcher(
            file,
            settings=self._settings,
            clock=self._services.clock,
            embedder=self._embedder,
            space=self._space,
            embedder_problem=self._services.embedder_problem,
            is_paused=self._has_foreign_vectors,
            state_dir=self._services.state_dir,
        )
        sync = Synchroniser(
            file=file,
            workspace=self._services.workspace_dir,
            settings=self._settings,
            embedder=self._embedder,
            space=self._space,
            ops_log=self._services.ops_log,
            clock=self._services.clock,
            transcripts=self._transcripts,
            embedder_is_local=self._services.embedder_is_local,
            is_wanted=lambda: self._flights.is_one_waiting,
        )
        return _Index(file=file, searcher=searcher, sync=sync, stack=stack)

    async def _start_anew(self) -> Path | None:
        """Set the damaged file aside and begin an empty one, unless another process has done so."""
        damaged = self._opened("sync")
        if await asyncio.to_thread(damaged.file.was_replaced):
            return None
        await damaged.close()
        stamp = self._services.clock().astimezone(UTC).strftime("%Y%m%dT%H%M%S")
        aside = await asyncio.to_thread(_set_aside, self._path, stamp)
        await self._reopen()
        await self._salvage(aside)
        return aside

    async def _salvage(self, aside: Path) -> None:
        """Take over the vectors that are whole in a file that was set aside: they may have been paid for."""
        new = self._opened("sync").file
        await schema.ensure(new)
        async with SqliteFile.open(aside, readers=1) as old:
            with suppress(IndexProblem):
                last = 0
                while rows := await old.read(partial(integrity.vectors_of, after=last)):
                    last = rows[-1].id
                    restore = partial(integrity.restore_vectors, rows=rows)
                    await new.write(restore)

    def _is_ours(self) -> bool:
        """Return whether the file at our path is an index, or stands where nobody else puts a file."""
        if self._path.is_relative_to(self._services.state_dir):
            return True
        with suppress(OSError), self._path.open("rb") as file:
            return schema.is_marked(file.read(schema.HEADER_BYTES))
        return False

    @asynccontextmanager
    async def _noting_damage(self) -> AsyncIterator[None]:
        """Note in the file what is raised of its damage, so that the next sync mends it, of any process."""
        try:
            yield
        except IndexDamaged as damage:
            await self._note_damage(str(damage))
            raise

    async def _note_damage(self, what: str) -> None:
        """Note damage, and begin to mend it where searches may start a sync."""
        with suppress(IndexProblem):
            await self._opened("search").file.write(partial(integrity.note_damage, what=what))
            await self._take_stock()
        if self._settings.sync.on_search and self._services.is_long_lived and self._flights.current is None:
            self._flights.start("search")

    async def _reopen_if_replaced(self) -> None:
        # Another process has set a damaged file aside: of our connections, new ones would read its successor.
        if await asyncio.to_thread(self._opened("sync").file.was_replaced):
            await self._reopen()

    async def _reopen(self) -> None:
        old, self._index = self._index, await self._open_index()
        if old is not None:
            await old.close()

    def _opened(self, operation: str) -> _Index:
        if self._is_closed or self._index is None:
            raise BackendUnavailable(BACKEND_ID, "it is closed", fix="open it again", operation=operation)
        return self._index

    @contextmanager
    def _failing_to(self, operation: str) -> Iterator[None]:
        """Re-raise an index problem as a `BackendError` that names the failed operation."""
        try:
            yield
        except IndexProblem as problem:
            self._opened(operation)
            raise BackendError(BACKEND_ID, operation, str(problem)) from problem


def _read(rel_path: str, workspace: Path, extra_paths: tuple[Path, ...]) -> tuple[str, str]:
    """Return name and text of a note."""
    target = resolve_memory_file(rel_path, workspace=workspace, extra_paths=extra_paths)
    text = ""
    with _reading(rel_path):
        text = read_note(str(target)).text
    return relative_key(target, workspace.resolve()), text


def _say(rel_path: str, target: Path, from_line: int | None, lines: int | None) -> str:
    """Return what a transcript says in some lines of its file."""
    with _reading(rel_path):
        return read_transcript(str(target)).excerpt(from_line, lines)
    return ""


@contextmanager
def _reading(rel_path: str) -> Iterator[None]:
    """Pass over a file that is missing, which has no text; of one that cannot be read, say why."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise MemoryPathError(rel_path, f"it cannot be read ({error.strerror})") from error


def _how_far(flight: Flight) -> str:
    if flight.progress is None or not flight.progress.total:
        return "the notes are being looked at"
    progress = flight.progress
    return f"the notes are being indexed: {progress.completed} of {progress.total} changed ones are in"


def _set_aside(path: Path, stamp: str) -> Path:
    """Rename an index and the files that belong to it; return its new name. One from before goes."""
    for before in path.parent.glob(f"{glob.escape(path.name)}.damaged-*"):
        before.unlink()
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def _degradation(code: DegradationCode, reason: str) -> Degradation:
    return Degradation(backend_id=BACKEND_ID, code=code, reason=reason)
