"""The builtin memory backend: search, reading notes, sync, and a status that does no I/O."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterator, Set
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter

from composable_memory.errors import (
    BackendError,
    ConfigError,
    IndexDamaged,
    IndexProblem,
    MemoryPathError,
)
from composable_memory.forget.report import Forgetting, Holding
from composable_memory.interfaces import BackendServices, ProgressCallback
from composable_memory.paths import NO_TEXT, Reading, relative_key, resolve_memory_file
from composable_memory.registry import load_vectors
from composable_memory.supervision.resource import Once, closing
from composable_memory.supervision.single_flight import Flight, SingleFlight
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
from composable_memory_adapters.builtin.index_file import BACKEND_ID, IndexFile, ensure_tables
from composable_memory_adapters.builtin.notes.documents import note_suffixes, reader_of
from composable_memory_adapters.builtin.notes.note_files import (
    TRANSCRIPTS_KEY,
    is_gitignored,
    read_note,
)
from composable_memory_adapters.builtin.notes.note_scope import NoteScope, choose, keep
from composable_memory_adapters.builtin.notes.sessions import (
    is_transcript_path,
    read_transcript,
    resolve_transcript,
    transcripts_folder,
)
from composable_memory_adapters.builtin.settings import ENGINES, BuiltinSettings, filled_in
from composable_memory_adapters.builtin.status import MemoryState, describe
from composable_memory_adapters.builtin.store.embedding_cache import probe
from composable_memory_adapters.builtin.sync.sync_scheduler import Debounce, FolderWatch, SyncScheduler
from composable_memory_adapters.builtin.sync.watch_scope import survey
from composable_memory_adapters.excerpts import excerpt

FIRST_WAIT_S = 2.0
"""How long a search waits for the very first sync, before which nothing can be found."""


@asynccontextmanager
async def open_builtin(
    settings: BuiltinSettings, services: BackendServices
) -> AsyncIterator["BuiltinMemory"]:
    """Open the memory of a workspace; leaving the block stops its threads and tasks.

    A damaged index can be opened: `sync(force=True)` repairs it.

    Raises:
        BackendError: the index can be neither created nor read.
    """
    scope = await asyncio.to_thread(choose, settings, services)
    async with closing(BuiltinMemory(settings, services, scope)) as memory:
        await memory.open()
        yield memory


class BuiltinMemory:
    """Markdown notes in one index file: `MemorySearchManager`, `SupportsAnswer` and `SupportsSync`."""

    def __init__(self, settings: BuiltinSettings, services: BackendServices, scope: NoteScope) -> None:
        self._given, self._scope = settings, scope
        self._settings = settings = scope.settings
        self._services = services
        self._embedder = services.embedder if settings.store.vector.enabled else None
        self._transcripts: Path | None = None
        self._is_scope_kept = False
        self._refreshed_at = self._looked_at = 0.0
        self._look: Flight | None = None
        """The sync that a search has started since the last `refresh`."""
        debounce = Debounce(settings.sync.watch_debounce_ms / 1000)
        self._flights = SingleFlight(self._update, backend_id=BACKEND_ID)
        self._scheduler = SyncScheduler(
            settings.sync,
            debounce,
            open_watch=self._open_watch,
            sync=self._flights.attempt,
            ops_log=services.ops_log,
            backend_id=BACKEND_ID,
        )
        self._index = IndexFile(settings, services, debounce, self._scheduler)
        self._release = Once(self._close_all, name="builtin-close")

    async def open(self) -> None:
        """Open the index file and read its counts; called once, by `open_builtin`."""
        path = filled_in(
            self._settings.store.path,
            state_dir=self._services.state_dir,
            agent_id=self._services.agent_id,
            workspace_id=self._services.workspace_id,
        )
        self._transcripts = await asyncio.to_thread(transcripts_folder, self._settings, self._services)
        if (engine := self._settings.store.vector.engine) not in ENGINES:
            await asyncio.to_thread(load_vectors, engine)  # fails now, not in the first search
        with self._failing_to("open"):
            await self._index.open(path, self._transcripts)
        if self._services.is_long_lived:
            self._scheduler.start()

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the passages that answer `query`, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and list what the answer lacks: notes not indexed yet, or one of the two search legs."""
        began = perf_counter()
        self._index.current("search")
        if not query.strip() and not (options and options.filters):
            return SearchAnswer(results=())
        with self._failing_to("search"):
            await self._look_for_changes(options.session_key if options else None)
            if not await self._index.exists():
                restrictions = self._index.current("search").searcher.restrictions
                missing = (*restrictions, *self._degradations())
                return SearchAnswer(results=(), degraded=missing, is_filtered=True)
            async with self._noting_damage():
                looked = perf_counter()
                answer = await self._index.current("search").searcher.answer(query, options)
                damage = next((one for one in answer.degraded if one.code == "damaged"), None)
                if damage is not None:
                    await self._note_damage(damage.reason)
        waited = (looked - began) * 1000
        legs = {leg: (start + waited, took) for leg, (start, took) in answer.legs.items()}
        return replace(
            answer,
            degraded=(*answer.degraded, *self._degradations()),
            legs={"changes": (0.0, waited), **legs},
        )

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Bring the index up to date; `force` rebuilds it, setting a damaged file aside."""
        self._index.current("sync")
        if self._scope.refusal:
            raise BackendError(BACKEND_ID, "sync", self._scope.refusal)
        with self._failing_to("sync"):
            report = await self._flights.join(reason, force=force, progress=progress)
        problem = await self._index.current("sync").searcher.read_ahead(progress)
        return report if problem is None else replace(report, problems=(*report.problems, problem))

    async def refresh(self) -> bool:
        """Make the next search look for changes; False after failures, or if the scope was chosen now."""
        current = self._index.current("refresh")
        if self._scope.by == "now" or self._sync_error is not None or current.searcher.has_failed:
            return False
        with self._failing_to("refresh"):
            await self._index.reopen_if_replaced()
        self._scheduler.listen()
        self._refreshed_at = asyncio.get_running_loop().time()
        return True

    async def check(self) -> tuple[str, ...]:
        """Read the whole index; describe any damage and how to repair it."""
        self._index.current("check")
        with self._failing_to("check"):
            try:
                async with self._noting_damage():
                    found = await self._index.check()
            except IndexDamaged as damage:
                return (str(damage),)
            if found is None:
                return ()
            await self._note_damage(found)
            return (str(IndexDamaged(self._index.path, found)),)

    async def holdings(self, wanted: Forgetting) -> tuple[Holding, ...]:
        """Return what the index holds of these lines: passages, vectors, and text with the same words."""
        self._index.current("say what it holds")
        with self._failing_to("say what it holds"):
            found = await self._index.stored(wanted)
        return () if found is None else found.holdings(BACKEND_ID)

    async def erase(self, wanted: Forgetting) -> tuple[Holding, ...]:
        """Reindex without these lines, then purge every trace of them from the file."""
        found = await self.holdings(wanted)
        with self._failing_to("forget"):
            if not await self._index.exists():
                return ()
            await self._index.mark_unread(wanted)
            await self.sync(reason="forget")
            problem = await self._index.purge()
        if problem is not None:
            raise BackendError(BACKEND_ID, "forget", problem)
        return found

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return a note, or `lines` lines of it starting at `from_line`; both are at least 1.

        A line number is the page in a PDF, the chapter in an EPUB and the paragraph in a DOCX. A
        transcript is named `sessions/<file>.jsonl`; its text is its redacted messages, one per line, numbered
        by their lines in the file.
        """
        self._index.current("read a file")
        if is_transcript_path(rel_path):
            target = await asyncio.to_thread(resolve_transcript, rel_path, self._transcripts)
            text = await asyncio.to_thread(_transcript_text, rel_path, target, from_line, lines)
            return MemoryFileSlice(text=text, path=f"{TRANSCRIPTS_KEY}/{target.name}")
        workspace = self._services.workspace_dir
        target, path = await asyncio.to_thread(_resolve, rel_path, workspace, self._settings)
        if reader_of(path) is not None:
            text = await self._document_text(rel_path, target, from_line, lines)
        else:
            text = excerpt(await asyncio.to_thread(_text, rel_path, target), from_line, lines)
        return MemoryFileSlice(text=text, path=path)

    async def _document_text(
        self, rel_path: str, target: Path, from_line: int | None, lines: int | None
    ) -> str:
        """Return an excerpt of a document, using the index if the text is already there."""
        # Imported late: no other kind of note needs a child process.
        from composable_memory_adapters.builtin.sync.document_texts import read_documents

        index = self._index.current("read a file").file if await self._index.exists() else None
        document = (await read_documents(index, {rel_path: str(target)}))[rel_path]
        with _reading(rel_path):
            if isinstance(document, OSError):
                raise document
            if document.problem and not document.text:
                raise MemoryPathError(rel_path[:200], f"it cannot be read ({document.problem})")
            return await asyncio.to_thread(document.excerpt, from_line, lines)
        return ""

    def status(self) -> MemoryProviderStatus:
        """Return the state as of the last sync; does no I/O."""
        current = self._index.current("report its status")
        state = MemoryState(
            db_path=self._index.path,
            snapshot=self._index.snapshot,
            vector=current.searcher.vector_status(),
            recovery=current.file.recovery,
            rebuild=self._index.rebuild_cost,
            running=self._flights.current,
            sync_error=self._sync_error,
            watch=self._scheduler.status if self._scheduler.is_running else None,
            scope=self._scope,
            transcripts=self._transcripts,
        )
        return describe(self._given, self._services, state)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Embed a word as a search would, and report whether it worked."""
        self._index.current("probe the embedder")
        return await probe(self._embedder, self._services.embedder_problem)

    async def probe_vector_availability(self) -> bool:
        """Load what vector search needs, and report whether it can answer."""
        current = self._index.current("probe vector search")
        try:
            await ensure_tables(current.file)
            await current.searcher.warm()
        except IndexProblem:
            return False
        return current.searcher.vector_status().available is True

    async def close(self) -> None:
        """Stop the sync, finish pending writes and release the file; idempotent.

        All of this happens even if the call is cancelled.
        """
        self._index.refuse()
        await self._release()

    async def _close_all(self) -> None:
        await self._scheduler.stop()
        await self._flights.close()
        await self._index.close()

    # --- staying up to date ---

    async def _update(self, flight: Flight) -> SyncReport:
        if self._scope.is_folder:  # before a program creates `memory/` here, which would change the choice
            await self._keep_scope()
        report = await self._index.update(flight)
        if self._index.snapshot.files:
            await self._keep_scope()
        return report

    async def _keep_scope(self) -> None:
        if not self._is_scope_kept:
            with suppress(ConfigError):  # the registry is unusable right now: the next sync tries again
                await asyncio.to_thread(keep, self._scope, self._services)
                self._is_scope_kept = True

    async def _look_for_changes(self, session_key: str | None) -> None:
        """Start a sync if one is due or a new session begins, and wait briefly for it."""
        is_new_session = self._scheduler.is_new_session(session_key)
        is_refreshed = self._refreshed_at > self._looked_at
        is_due = is_new_session or is_refreshed or self._is_check_due()
        changed: Set[str] | None = set()
        if self._settings.sync.on_search and self._index.hears_of_changes:
            changed = await self._index.changed()
            is_due |= changed != set()
            if is_due and changed == set() and not is_new_session and await self._index.is_done():
                is_due = False
                self._note_look()
        if not is_due:
            if (running := self._first_sync() or self._looking()) is not None:
                await self._wait_for_notes(running)
            return
        self._note_look()
        if is_new_session:
            flight = self._flights.start("session-start")
        elif (is_refreshed or changed != set()) and self._settings.sync.on_search:
            # Not the running sync: it may already have passed the note that has just changed.
            flight = self._look = self._flights.start("search", is_watched=bool(changed))
        elif self._settings.sync.on_search:
            flight = self._flights.current or self._flights.start("search")
        else:
            await self._index.reopen_if_replaced()
            await self._index.take_stock()
            return
        await self._wait_for_notes(self._first_sync() or flight)

    def _note_look(self) -> None:
        self._index.checked_at, self._looked_at = self._services.clock(), asyncio.get_running_loop().time()

    def _first_sync(self) -> Flight | None:
        """Return the sync that is filling the index for the first time, if searches may sync at all."""
        is_unfilled = self._index.snapshot.mark is None
        return self._flights.current if is_unfilled and self._settings.sync.on_search else None

    def _looking(self) -> Flight | None:
        """Return the sync started since the last refresh, unless it has already seen all notes."""
        return None if self._look is None or self._look.notes_indexed.done() else self._look

    async def _wait_for_notes(self, flight: Flight) -> None:
        """Wait briefly until a sync has indexed the notes; longer if nothing can be found before that."""
        wait_s = self._settings.sync.on_search_wait_ms / 1000
        if wait_s and self._index.snapshot.mark is None:
            wait_s = max(wait_s, FIRST_WAIT_S)
        await asyncio.wait([flight.notes_indexed], timeout=wait_s)
        await self._index.take_stock()

    def _is_check_due(self) -> bool:
        checked_at = self._index.checked_at
        if checked_at is None or self._index.snapshot.mark is None:
            return self._flights.current is None
        elapsed = (self._services.clock() - checked_at).total_seconds()
        return abs(elapsed) >= self._scheduler.recheck_s

    def _open_watch(self, on_change: Callable[[str | None], None]) -> FolderWatch:
        # Imported late: a single command watches nothing, and importing watchdog is a fifth of its time.
        from composable_memory_adapters.builtin.sync.watcher import Watcher

        workspace, extra_paths = self._services.workspace_dir, self._settings.extra_paths
        suffixes = note_suffixes(self._settings.documents)
        return Watcher(partial(survey, workspace, extra_paths, self._transcripts, suffixes), on_change)

    @property
    def _sync_error(self) -> str | None:
        """Return why the last sync failed; None if it succeeded."""
        failure = self._flights.failure or self._index.damage
        return str(failure) if failure else None

    def _degradations(self) -> Iterator[Degradation]:
        """Yield the ways in which the index falls short of the notes."""
        flight, mark = self._looking() or self._flights.current, self._index.snapshot.mark
        if flight is not None:
            if not flight.notes_indexed.done():
                yield _degradation("stale", _sync_progress(flight))
        elif self._sync_error is not None:
            yield _degradation("stale", f"the last sync failed: {self._sync_error}")
        elif mark is None:
            yield _degradation("never-indexed", "no note has been indexed yet; run `cmem index`")
        if (why := self._scheduler.unwatched_reason) is not None:
            yield _degradation(
                "stale", f"the notes are not being watched; run `cmem index` after changes: {why}"
            )
        if self._index.rebuild_cost is not None:
            yield _degradation("rebuild-due", self._index.rebuild_cost.describe())
        if mark is not None and mark.unreadable:
            count = len(mark.unreadable)
            yield _degradation(
                "unreadable-files",
                f"{count} could not be read, or only in part, such as {mark.unreadable[0]}",
            )

    @asynccontextmanager
    async def _noting_damage(self) -> AsyncIterator[None]:
        """Record any damage that the block runs into, so that the next sync of any process repairs it."""
        try:
            yield
        except IndexDamaged as damage:
            await self._note_damage(str(damage))
            raise

    async def _note_damage(self, what: str) -> None:
        """Record damage, and start repairing it if searches may start a sync."""
        await self._index.note_damage(what)
        if self._settings.sync.on_search and self._services.is_long_lived and self._flights.current is None:
            self._flights.start("search")

    @contextmanager
    def _failing_to(self, operation: str) -> Iterator[None]:
        """Re-raise an index problem as a `BackendError` that names the failed operation."""
        try:
            yield
        except IndexProblem as problem:
            self._index.current(operation)
            raise BackendError(BACKEND_ID, operation, str(problem)) from problem


def _resolve(rel_path: str, workspace: Path, settings: BuiltinSettings) -> tuple[Path, str]:
    """Return a note's real path and its key."""
    extra_paths, suffixes = settings.extra_paths, note_suffixes(settings.documents)
    target = resolve_memory_file(rel_path, workspace=workspace, extra_paths=extra_paths, suffixes=suffixes)
    if is_gitignored(target, workspace, extra_paths):
        raise MemoryPathError(rel_path[:200], "it is ignored by .gitignore")
    return target, relative_key(target, workspace.resolve())


def _text(rel_path: str, target: Path) -> str:
    with _reading(rel_path):
        note = read_note(str(target))
        if note.reading == Reading.NO_TEXT:
            raise OSError(errno.EILSEQ, f"it is {NO_TEXT}")
        return note.text
    return ""


def _transcript_text(rel_path: str, target: Path, from_line: int | None, lines: int | None) -> str:
    """Return the text of some lines of a transcript."""
    with _reading(rel_path):
        return read_transcript(str(target)).excerpt(from_line, lines)
    return ""


@contextmanager
def _reading(rel_path: str) -> Iterator[None]:
    """Treat a missing file as empty; translate other read errors."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise MemoryPathError(rel_path, f"it cannot be read ({error.strerror})") from error


def _sync_progress(flight: Flight) -> str:
    if flight.progress is None or not flight.progress.total:
        return "checking the notes for changes"
    progress = flight.progress
    return f"the notes are being indexed: {progress.completed} of {progress.total} changed ones are done"


def _degradation(code: DegradationCode, reason: str) -> Degradation:
    return Degradation(backend_id=BACKEND_ID, code=code, reason=reason)
