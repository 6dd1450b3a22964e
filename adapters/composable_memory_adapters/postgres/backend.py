"""The PostgreSQL memory as a backend: search, reading notes, sync, and a status that makes no request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TypeVar

from composable_memory.errors import BackendError, ConfigError
from composable_memory.forget.report import Forgetting, Holding
from composable_memory.interfaces import BackendServices, ProgressCallback
from composable_memory.paths import resolve_memory_file
from composable_memory.supervision.resource import closing
from composable_memory.supervision.single_flight import Flight, SingleFlight, sync_ended
from composable_memory.types import (
    Degradation,
    JsonValue,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchAnswer,
    SearchOptions,
    SourceCount,
    SyncReport,
    VectorStatus,
)
from composable_memory_adapters.builtin.notes.documents import note_suffixes
from composable_memory_adapters.builtin.notes.note_scope import choose, keep
from composable_memory_adapters.builtin.notes.sessions import (
    is_transcript_path,
    resolve_transcript,
    transcripts_folder,
)
from composable_memory_adapters.builtin.search.reranking import Reranking
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace, probe
from composable_memory_adapters.builtin.sync.sync_scheduler import Debounce, FolderWatch, SyncScheduler
from composable_memory_adapters.builtin.sync.watch_scope import WatchScope, survey
from composable_memory_adapters.excerpts import excerpt, numbered_excerpt
from composable_memory_adapters.postgres import erasing
from composable_memory_adapters.postgres.searching import Searching
from composable_memory_adapters.postgres.server import Connection, Server, WorkspaceGone, address_of
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_adapters.postgres.snapshot import WorkspaceTexts
from composable_memory_adapters.postgres.syncing import Syncing, own_name
from composable_memory_ops_logs.tracing import trace

T = TypeVar("T")

BODY = "SELECT body, lines FROM notes WHERE tenant = $1 AND path = $2"


@asynccontextmanager
async def open_postgres(
    settings: PostgresSettings, services: BackendServices
) -> AsyncIterator["PostgresMemory"]:
    """Yield the memory of a workspace; leaving the block ends its connections.

    It opens even if the server is down; requests then fail.

    Raises:
        BackendUnavailable: the variable that should name the server is not set.
        ConfigError: the URL of the server cannot be used.
    """
    async with closing(PostgresMemory(settings, services)) as memory:
        with suppress(BackendError):  # each call says so
            await memory.take_stock()
        memory.follow()
        yield memory


class PostgresMemory:
    """Notes of a workspace on a server; implements `SupportsAnswer`, `SupportsForget` and `SupportsSync`."""

    def __init__(self, settings: PostgresSettings, services: BackendServices) -> None:
        self._settings = settings
        self._services = services
        self._id = services.backend_id or "postgres"
        self._workspace = settings.workspace or services.workspace_id
        self._server = Server(settings, address_of(settings, services.environ, self._id), self._id)
        self._space = EmbeddingSpace.of(services.embedder) if services.embedder else None
        self._reranking: Reranking | None = None
        if settings.query.rerank != "off":
            name = f"{services.agent_id}-{self._id}-{services.workspace_id}"
            self._reranking = Reranking(
                WorkspaceTexts(server=self._server, workspace=self._workspace, name=name),
                choice=settings.query.rerank,
                state_dir=services.state_dir,
            )
        self._searching = Searching(
            self._server,
            settings=settings.query,
            clock=services.clock,
            embedder=services.embedder,
            space=self._space,
            embedder_problem=services.embedder_problem,
            backend_id=self._id,
            has_both_sources=len(settings.sources) > 1,
            reranking=self._reranking,
        )
        self._tenant: int | None = None
        self._owner: str | None = None
        self._flights = SingleFlight(self._sync, backend_id=self._id)
        sync = settings.of_notes().sync
        self._debounce = Debounce(sync.watch_debounce_ms / 1000)
        self._scheduler = SyncScheduler(
            sync,
            self._debounce,
            open_watch=self._open_watch,
            sync=self._flights.attempt,
            ops_log=services.ops_log,
            backend_id=self._id,
        )

    def follow(self) -> None:
        """Sync notes to the server as they change, if the memory stays open and its settings say so."""
        sync = self._settings.sync
        if self._services.is_long_lived and (sync.watch or sync.interval_minutes):
            self._scheduler.start()

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the passages that answer `query`, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and list what is missing."""
        self._server.refuse_if_closed("search")
        if not query.strip() and not (options and options.filters):
            return SearchAnswer(results=())
        reason = f"there is no workspace {self._workspace!r} on the server yet; run `cmem index`"
        missing = Degradation(backend_id=self._id, code="never-indexed", reason=reason)
        answer = await self._in_workspace(
            "search",
            lambda tenant: self._searching.answer(query, options, tenant=tenant),
            otherwise=SearchAnswer(results=(), degraded=(missing,)),
        )
        await self._read_ahead_in_background()
        return answer

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Sync the notes of this folder to the server; with `force`, read and embed all of them again."""
        self._server.refuse_if_closed("sync")
        report = await self._flights.join(reason, force=force, progress=progress)
        problem = None
        if self._services.is_long_lived:
            await self._read_ahead_in_background()
        elif self._reranking and await self._reranking.is_on():
            problem = await self._reranking.read_all(progress)
        return report if problem is None else replace(report, problems=(*report.problems, problem))

    async def holdings(self, wanted: Forgetting) -> tuple[Holding, ...]:
        """Return what the workspace holds of lines: passages, vectors, quotes, log lines."""
        self._server.refuse_if_closed("say what it holds")
        mask = erasing.mask_of(wanted, self._services.hide)

        async def look(tenant: int) -> tuple[Holding, ...]:
            async with self._server.reading("say what it holds", tenant=tenant) as connection:
                found = await erasing.stored(connection, tenant, wanted=wanted)
                logged = await erasing.mask_log_lines(connection, tenant, mask=mask, is_rehearsal=True)
            lines = Holding(store=self._id, what="log lines that quote it", count=logged)
            return (*found.holdings(self._id), *([lines] if logged else ()))

        return await self._in_workspace("say what it holds", look, otherwise=())

    async def erase(self, wanted: Forgetting) -> tuple[Holding, ...]:
        """Sync the notes of this folder without these lines, and mask quotes of them in log lines.

        Raises:
            BackendError: a file could not be read again.
        """
        found = await self.holdings(wanted)
        owner = self._settings.owner
        if owner is None:
            owner = await asyncio.to_thread(own_name, self._services)
        mark = partial(erasing.mark_unread, owner=owner, wanted=wanted)
        if not await self._in_workspace("forget", partial(self._written, mark), otherwise=False):
            return ()
        await self.sync(reason="forget")
        finish = partial(self._written, partial(self._erased, owner, wanted))
        nothing: tuple[list[str], tuple[Holding, ...]] = ([], ())
        left, others = await self._in_workspace("forget", finish, otherwise=nothing)
        if left:
            raise BackendError(self._id, "forget", f"{', '.join(left)} could not be read again")
        return (*found, *others)

    async def _written(self, work: Callable[[Connection, int], Awaitable[T]], tenant: int) -> T:
        return await self._server.write("forget", lambda connection: work(connection, tenant), tenant=tenant)

    async def _erased(
        self, owner: str, wanted: Forgetting, connection: Connection, tenant: int
    ) -> tuple[list[str], tuple[Holding, ...]]:
        """Mask log lines; return the files not reread, and what other owners still have of the lines."""
        mask = erasing.mask_of(wanted, self._services.hide)
        await erasing.mask_log_lines(connection, tenant, mask=mask, is_rehearsal=False)
        await erasing.forget_words(connection, tenant)
        left = await erasing.unread(connection, tenant, owner=owner)
        paths, owners = await erasing.of_others(connection, tenant, wanted=wanted)
        stays = f"contributed by {', '.join(owners)}; forget it there too"
        theirs = Holding(
            store=self._id, what="files of others", count=len(paths), examples=tuple(paths), stays=stays
        )
        return left, (theirs,) if paths and not left else ()

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return a note of the workspace, from any owner, or `lines` of its lines starting at `from_line`.

        Lines of documents and transcripts are numbered as in the builtin memory.
        """
        self._server.refuse_if_closed("read a file")
        path = rel_path.strip()

        async def read(tenant: int) -> tuple[bytes, Sequence[int] | None] | None:
            async with self._server.reading("read a file", tenant=tenant) as connection:
                found = await connection.fetchrow(BODY, tenant, path)
                return None if found is None else (found["body"], found["lines"])

        if path.isprintable():
            found = await self._in_workspace("read a file", read, otherwise=None)
            if found is not None:
                text = await asyncio.to_thread(_excerpt, *found, from_line, lines)
                return MemoryFileSlice(text=text, path=path)
        await asyncio.to_thread(self._check_path, rel_path)
        return MemoryFileSlice(text="", path=path)

    def status(self) -> MemoryProviderStatus:
        """Return what the last request to the server found; makes no request."""
        self._server.refuse_if_closed("report its status")
        services, state = self._services, self._searching.state
        embedder = services.embedder
        custom: dict[str, JsonValue] = {
            "searchMode": "hybrid" if embedder else "keyword-only",
            "server": str(self._server.address),
            "workspace": self._workspace,
            "owner": self._owner,
        }
        if transcripts := transcripts_folder(self._settings.of_notes(), services):
            custom["transcriptsFolder"] = str(transcripts)
        if state is not None:
            custom["revision"] = state.revision
            custom["vectorIndex"] = state.indexed > 0
            custom["embedding"] = {"embedded": state.passages - state.pending, "total": state.passages}
        if self._scheduler.is_running:
            custom["watch"] = self._scheduler.status.document(self._settings.sync.interval_minutes)
        if self._flights.failure is not None:
            custom["lastSyncError"] = str(self._flights.failure)
        if embedder is None and services.embedder_problem:
            custom["providerUnavailableReason"] = services.embedder_problem
        counts: tuple[SourceCount, ...] = ()
        if state is not None:
            files, chunks = state.notes - state.transcripts, state.passages - state.said
            counts = (SourceCount(source="memory", files=files, chunks=chunks),)
            if state.transcripts:
                said = SourceCount(source="sessions", files=state.transcripts, chunks=state.said)
                counts = (*counts, said)
        return MemoryProviderStatus(
            backend=self._id,
            provider=embedder.id if embedder else "none",
            model=embedder.model if embedder else None,
            requested_provider=services.requested_embedder,
            files=state.notes if state else None,
            chunks=state.passages if state else None,
            dirty=state is None or not state.notes,
            workspace_dir=str(services.workspace_dir),
            extra_paths=tuple(str(path) for path in self._settings.extra_paths),
            sources=self._settings.sources,
            source_counts=counts,
            fallback=services.embedder_fallback,
            vector=VectorStatus(enabled=True, available=embedder is not None and state is not None),
            custom=custom,
        )

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Embed a word as a search would, and return whether it worked."""
        self._server.refuse_if_closed("probe the embedder")
        return await probe(self._services.embedder, self._services.embedder_problem)

    async def probe_vector_availability(self) -> bool:
        """Return whether the server answers and there are vectors to search."""
        self._server.refuse_if_closed("probe vector search")
        try:
            return self._space is not None and await self._server.version() > 0
        except BackendError:
            self._server.refuse_if_closed("probe vector search")
            return False

    async def close(self) -> None:
        """Stop the sync and close the connections; a second call does nothing."""
        await self._scheduler.stop()
        if self._reranking:
            await self._reranking.close()
        await self._server.close()
        await self._flights.close()

    async def _read_ahead_in_background(self) -> None:
        """Let the reranker read new passages, if this memory stays open."""
        state, reranking = self._searching.state, self._reranking
        if state is not None and reranking and self._services.is_long_lived and await reranking.is_on():
            reranking.follow(state.revision)

    async def take_stock(self) -> None:
        """Read how much the workspace holds."""

        async def look(tenant: int) -> None:
            async with self._server.reading("open", tenant=tenant) as connection:
                await self._searching.look(connection, tenant)

        await self._in_workspace("open", look, otherwise=None)

    async def _in_workspace(self, operation: str, work: Callable[[int], Awaitable[T]], *, otherwise: T) -> T:
        """Return the result of `work` for the workspace's number, or `otherwise` if there is no workspace.

        If the tables were recreated, the number is looked up again.
        """
        for is_again in (False, True):
            if self._tenant is None:
                self._tenant = await self._server.tenant(operation, self._workspace)
            if self._tenant is None:
                break
            try:
                return await work(self._tenant)
            except WorkspaceGone:
                self._tenant = None
                self._searching.forget()
                if is_again:
                    raise
        return otherwise

    async def _sync(self, flight: Flight) -> SyncReport:
        started = perf_counter()
        report = None
        with trace():
            try:
                report = await self._sync_notes(flight)
            finally:
                self._log_end(flight, report, took_ms=(perf_counter() - started) * 1000)
        return report

    def _log_end(self, flight: Flight, report: SyncReport | None, *, took_ms: float) -> None:
        if ended := sync_ended(report, reason=flight.reason, is_full=flight.force):
            detail, status = ended
            self._services.ops_log.emit(detail, status=status, backend=self._id, duration_ms=took_ms)

    async def _sync_notes(self, flight: Flight) -> SyncReport:
        scope = await asyncio.to_thread(choose, self._settings.of_notes(), self._services)
        if scope.refusal:
            raise BackendError(self._id, "sync", scope.refusal)
        syncing = Syncing(
            self._server,
            settings=self._settings,
            notes=scope.settings,
            services=self._services,
            space=self._space,
            workspace=self._workspace,
        )
        began = asyncio.get_running_loop().time()
        report = await syncing.run(flight)
        self._owner = syncing.owner
        self._debounce.forget_before(began)
        if report.files_indexed or report.files_unchanged:
            with suppress(ConfigError):  # the registry cannot be used now: the next sync tries again
                await asyncio.to_thread(keep, scope, self._services)
        with suppress(BackendError):  # everything is written; the next search looks again
            await self.take_stock()
        return report

    def _open_watch(self, on_change: Callable[[str | None], None]) -> FolderWatch:
        # Imported late: a single command watches nothing, and importing watchdog is slow.
        from composable_memory_adapters.builtin.sync.watcher import Watcher

        def survey_notes() -> WatchScope:
            notes = choose(self._settings.of_notes(), self._services).settings
            transcripts = transcripts_folder(notes, self._services)
            suffixes = note_suffixes(notes.documents)
            return survey(self._services.workspace_dir, notes.extra_paths, transcripts, suffixes)

        return Watcher(survey_notes, on_change)

    def _check_path(self, rel_path: str) -> None:
        """Raise unless the path could be that of a note.

        Raises:
            MemoryPathError: it could not be.
        """
        notes = choose(self._settings.of_notes(), self._services).settings
        if is_transcript_path(rel_path):
            resolve_transcript(rel_path, transcripts_folder(notes, self._services))
            return
        resolve_memory_file(
            rel_path,
            workspace=self._services.workspace_dir,
            extra_paths=notes.extra_paths,
            suffixes=note_suffixes(notes.documents),
        )


def _excerpt(body: bytes, numbers: Sequence[int] | None, from_line: int | None, lines: int | None) -> str:
    text = body.decode()
    if numbers is None:
        return excerpt(text, from_line, lines)
    return numbered_excerpt(text, numbers, from_line, lines)
