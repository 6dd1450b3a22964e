"""The QMD memory: search through the QMD command, safe file reading, and an index kept up to date."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from composable_memory.errors import BackendError, BackendUnavailable, ComposableMemoryError
from composable_memory.forget.report import Forgetting, Holding
from composable_memory.interfaces import BackendServices, ProgressCallback
from composable_memory.supervision.deadline import deadline
from composable_memory.supervision.resource import Once, closing
from composable_memory.time.local_time import LOCAL_TIME
from composable_memory.types import (
    Degradation,
    JsonValue,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)
from composable_memory_adapters.qmd.collections import (
    CollectionPlan,
    newest_change,
    plan_collections,
    read_file,
)
from composable_memory_adapters.qmd.home import prepare_home, write_collections
from composable_memory_adapters.qmd.installation import find_command, probe, version_of
from composable_memory_adapters.qmd.maintenance.index_commands import (
    IndexCommands,
    documents_saying,
    scrub,
)
from composable_memory_adapters.qmd.maintenance.scheduler import MaintenanceScheduler
from composable_memory_adapters.qmd.models import describe_models
from composable_memory_adapters.qmd.passages import days_asked, passages_of
from composable_memory_adapters.qmd.settings import QmdSettings, denial_of
from composable_memory_adapters.qmd.status import Snapshot, describe
from composable_memory_adapters.qmd.transport.daemon import Daemon
from composable_memory_adapters.qmd.transport.mcporter import Mcporter
from composable_memory_adapters.qmd.transport.qmd_client import (
    EffectiveMode,
    ProcessTransport,
    QmdClient,
    degradation,
    effective_mode,
    request_of,
)
from composable_memory_adapters.qmd.types import (
    BACKEND_ID,
    Collection,
    Home,
    Installation,
    SearchRequest,
    SubSearch,
    Transport,
)
from composable_memory_adapters.text.relevance import StemCache

DEPTH = 40
"""Minimum of documents to request, so that a short answer is the beginning of a longer one."""
CHANGES_VALID_S = 2.0
"""How long files are assumed unchanged after a check."""
QMD_SHARE = 0.8
"""Share of a search's time that QMD gets; the rest is for reading the documents it found."""
UPDATE_SHARE = 0.5
"""Share of a search's time that a short-lived memory spends on updating an outdated index."""
EMBED_PROBE = "ping"
NO_FOLDER = (
    "QMD has no folder to search; name one in memory.qmd.paths, or set memory.qmd.include_default_memory"
)


@asynccontextmanager
async def open_qmd(settings: QmdSettings, services: BackendServices) -> AsyncIterator["QmdMemory"]:
    """Open the QMD memory; its daemon, tasks and commands end with it.

    Raises:
        BackendError: QMD or the Node it needs is not installed, or its folders cannot be used.
    """
    home = await asyncio.to_thread(
        prepare_home,
        settings,
        state_dir=services.state_dir,
        agent_id=services.agent_id,
        workspace_id=services.workspace_id,
    )
    command = await asyncio.to_thread(find_command, settings.command, home.environ)
    installation = await probe(command, home)
    async with closing(QmdMemory(settings, services, home=home, installation=installation)) as memory:
        await memory.open()
        yield memory


class QmdMemory:
    """Markdown indexed by QMD; implements `MemorySearchManager` and the other capabilities in its spec."""

    def __init__(
        self,
        settings: QmdSettings,
        services: BackendServices,
        *,
        home: Home,
        installation: Installation,
    ) -> None:
        self._settings = settings
        self._services = services
        self._home = home
        self._installation = installation
        self._collections: tuple[Collection, ...] = ()
        self._problems: tuple[str, ...] = ()
        self._models: tuple[Mapping[str, JsonValue], ...] = ()
        self._daemon = Daemon(
            installation,
            home,
            settings.daemon,
            may_start=services.is_long_lived and not settings.mcporter.enabled,
            ops_log=services.ops_log,
        )
        self._mcporter = Mcporter(settings.mcporter, installation, home)
        self._client = QmdClient(ProcessTransport(installation, home), fast=self._fast_transport())
        self._commands = IndexCommands(installation, home, settings.update)
        self._maintenance = MaintenanceScheduler(
            settings,
            commands=self._commands,
            home=home,
            services=services,
        )
        self._stems = StemCache()
        self._checked_at = 0.0
        self._newest_change = 0.0
        self._index_bytes: int | None = None
        self._release = Once(self._close_parts, name="qmd-close")

    async def open(self) -> None:
        """Configure QMD's collections; start its daemon and scheduled updates if the memory stays open."""
        plan = await asyncio.to_thread(self._plan)
        self._collections, self._problems = plan.collections, plan.problems
        await self._maintenance.open()
        await self._refresh_facts()
        if self._services.is_long_lived:
            if self._settings.mcporter.enabled:
                self._mcporter.start()
            self._daemon.start()
            await self._maintenance.start()
        elif not self._settings.mcporter.enabled:
            await self._daemon.find()

    async def refresh(self) -> bool:
        """Repeat what opening does; False if QMD has been replaced, or its server failed."""
        self._require_open("refresh")
        if self._client.fast_error is not None or not await asyncio.to_thread(self._is_still_installed):
            return False
        if self._daemon.is_up and not await self._daemon.find():
            return False
        await self.open()
        self._checked_at = 0.0
        return True

    # --- search ---------------------------------------------------------------------------------------------

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the passages that answer `query`, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and report what limits the answer: session scope, missing vectors, an outdated index."""
        self._require_open("search")
        options = options or SearchOptions()
        if not query.strip():
            return SearchAnswer(results=())
        if denial := denial_of(self._settings.scope, options.session_key):
            return SearchAnswer(results=(), degraded=(degradation("scope-denied", denial),))
        limit_s = self._settings.limits.timeout_ms / 1000
        async with deadline(BACKEND_ID, "search", limit_s):
            return await self._answer(query, options, asyncio.get_running_loop().time() + limit_s)

    async def _answer(self, query: str, options: SearchOptions, until: float) -> SearchAnswer:
        await self._follow_changes(until)
        mode = await self._effective_mode()
        request = request_of(
            query,
            mode=mode.mode,
            rerank=mode.rerank,
            collections=[one.name for one in self._collections],
            limit=max(DEPTH, options.max_results),
        )
        if request is None or not self._collections:
            return SearchAnswer(results=(), degraded=tuple(self._shortcomings(mode)))
        left_s = until - asyncio.get_running_loop().time()
        reply = await self._client.ask(request, timeout_s=left_s * QMD_SHARE)
        most = min(options.max_results, self._settings.limits.max_results or options.max_results)
        results = await passages_of(
            reply.hits,
            query=query,
            mode=mode.mode,
            collections=self._collections,
            workspace=self._services.workspace_dir,
            limits=self._settings.limits,
            options=replace(options, max_results=most),
            cache=self._stems,
            asked_days=days_asked(
                options.intent, options.now or self._services.clock().astimezone(LOCAL_TIME)
            ),
        )
        return SearchAnswer(
            results=tuple(results),
            degraded=tuple(self._shortcomings(mode)),
            engines={"qmd": reply.transport, "mode": mode.mode},
        )

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return a file, or some of its lines; names outside the workspace begin with `qmd/`."""
        self._require_open("read a file")
        return await read_file(
            rel_path,
            from_line=from_line,
            lines=lines,
            collections=self._collections,
            workspace=self._services.workspace_dir,
        )

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Update QMD's index, and embed if the search mode uses vectors; `force` embeds everything again."""
        self._require_open("sync")
        plan = await asyncio.to_thread(self._plan)  # a folder that was missing may exist now
        self._collections, self._problems = plan.collections, plan.problems
        report = await self._maintenance.run(reason, force=force, progress=progress)
        await self._daemon.check_index()
        await self._refresh_facts()
        return replace(report, problems=(*report.problems, *self._problems))

    async def holdings(self, wanted: Forgetting) -> tuple[Holding, ...]:
        """Return the documents in QMD's index that contain some lines, including exported sessions."""
        self._require_open("say what it holds")
        found = await documents_saying(self._home.index_file, wanted)
        if not found:
            return ()
        return (Holding(store=BACKEND_ID, what="documents", count=len(found), examples=found),)

    async def erase(self, wanted: Forgetting) -> tuple[Holding, ...]:
        """Export sessions without what was forgotten, reindex what changed, and clean QMD's files.

        Raises:
            BackendError: QMD failed, or a session could not be exported again.
        """
        self._require_open("forget")
        found = await self.holdings(wanted)
        if await asyncio.to_thread(self._home.index_file.exists):
            exported = await self._maintenance.exporter.export(anew=True)
            if exported.problems:
                raise BackendError(BACKEND_ID, "forget", exported.problems[0])
            await self.sync(reason="forget")
            await self._commands.clean_up()
            await scrub(self._home.index_file)
        return found

    # --- status and lifetime --------------------------------------------------------------------------------

    def status(self) -> MemoryProviderStatus:
        """Return what is known, without a request to QMD or reading the disk."""
        self._require_open("report its status")
        error = self._client.fast_error
        snapshot = Snapshot(
            installation=self._installation,
            home=self._home,
            collections=self._collections,
            transport=self._client.transport,
            daemon=self._daemon.status,
            mcporter=self._mcporter,
            maintenance=self._maintenance,
            index_bytes=self._index_bytes,
            models=self._models,
            problems=[*self._problems, *([] if error is None else [str(error)])],
            is_dirty=self._is_behind,
        )
        return describe(self._settings, self._services, snapshot)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Have QMD embed a word, and return whether that worked."""
        self._require_open("probe the embedder")
        if not self._settings.uses_vectors:
            return MemoryEmbeddingProbeResult(ok=False, error="the search mode `search` uses no vectors")
        mode = await self._effective_mode()
        if mode.shortcoming is not None:
            return MemoryEmbeddingProbeResult(ok=False, error=mode.shortcoming.reason)
        request = SearchRequest(
            text=EMBED_PROBE,
            collections=tuple(one.name for one in self._collections),
            limit=1,
            searches=(SubSearch(kind="vec", text=EMBED_PROBE),),
        )
        limit_s = self._settings.update.command_timeout_ms / 1000
        try:
            await self._client.ask(request, timeout_s=limit_s)
        except ComposableMemoryError as error:
            return MemoryEmbeddingProbeResult(ok=False, error=str(error))
        return MemoryEmbeddingProbeResult(ok=True)

    async def probe_vector_availability(self) -> bool:
        """Return whether vectors can be searched: mode, model and index must all allow it."""
        self._require_open("probe vector search")
        mode = await self._effective_mode()
        return self._settings.uses_vectors and mode.shortcoming is None

    async def close(self) -> None:
        """Stop the daemon and background tasks; a second call does nothing."""
        await self._release()

    async def _close_parts(self) -> None:
        try:
            await self._maintenance.close()
        finally:
            await asyncio.gather(self._daemon.close(), self._mcporter.close())

    # --- internals ------------------------------------------------------------------------------------------

    def _fast_transport(self) -> Transport | None:
        if self._settings.mcporter.enabled:
            return self._mcporter
        return self._daemon if self._settings.daemon.enabled else None

    def _plan(self) -> CollectionPlan:
        """Find the folders in the settings, and write them into QMD's configuration; blocks."""
        export_dir = self._maintenance.exporter.folder
        planned = plan_collections(
            self._settings, workspace=self._services.workspace_dir, export_dir=export_dir
        )
        write_collections(self._home, planned.collections, self._settings.models)
        return planned

    def _is_still_installed(self) -> bool:
        """Return whether the settings still find the same QMD; False if only starting it would tell. Blocks.

        Raises:
            BackendUnavailable: they find none.
        """
        command = find_command(self._settings.command, self._home.environ)
        return (command, version_of(command)) == (self._installation.command, self._installation.version)

    async def _effective_mode(self) -> EffectiveMode:
        has_embedded = self._maintenance.state.last_embed is not None
        return await asyncio.to_thread(effective_mode, self._settings, self._home, has_embedded=has_embedded)

    async def _follow_changes(self, deadline: float) -> None:
        """Update the index if files have changed: in the background, or now if the memory is short-lived."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._checked_at >= CHANGES_VALID_S:
            now = self._services.clock().timestamp()
            self._newest_change = await asyncio.to_thread(newest_change, self._watched(), now=now)
            self._checked_at = loop.time()
        if not self._is_behind:
            return
        if self._services.is_long_lived:
            self._maintenance.nudge("search")
            return
        try:
            async with asyncio.timeout((deadline - loop.time()) * UPDATE_SHARE):
                await self._maintenance.run("search")
        except (TimeoutError, ComposableMemoryError):
            return  # `_shortcomings` reports that the index is behind

    def _watched(self) -> list[Collection]:
        """Return where to look for changes: the collections, and the transcripts to export."""
        watched = [*self._collections]
        if (transcripts := self._maintenance.exporter.transcripts) is not None:
            watched.append(Collection(name="transcripts", path=transcripts, pattern="*.jsonl"))
        return watched

    @property
    def _is_behind(self) -> bool:
        updated = self._maintenance.state.last_update
        if updated is None:
            return True
        # If the last update is in the future, the clock was set back; changes since then are unknown.
        return not datetime.fromtimestamp(self._newest_change, UTC) <= updated <= self._services.clock()

    def _shortcomings(self, mode: EffectiveMode) -> Iterator[Degradation]:
        """Yield what may be missing from an answer although the files contain it."""
        if mode.shortcoming is not None:
            yield mode.shortcoming
        problem = self._maintenance.problem
        why = f": {problem}" if problem else ""
        if not self._collections:
            yield degradation("disabled", NO_FOLDER)
        elif self._maintenance.state.last_update is None:
            yield degradation("never-indexed", f"QMD has not indexed these files yet; run `cmem index`{why}")
        elif self._is_behind:
            yield degradation("stale", f"files have changed since QMD last checked; run `cmem index`{why}")
        elif why:
            yield degradation("stale", f"QMD's last update failed{why}")
        for problem in self._problems:
            yield degradation("unreadable-files", problem)

    async def _refresh_facts(self) -> None:
        self._index_bytes, self._models = await asyncio.to_thread(
            lambda: (_size_of(self._home.index_file), tuple(describe_models(self._home, self._settings)))
        )

    def _require_open(self, operation: str) -> None:
        if self._release.has_begun:
            raise BackendUnavailable(BACKEND_ID, "it is closed", fix="open it again", operation=operation)


def _size_of(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None
