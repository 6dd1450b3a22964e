"""The QMD memory as others see it: search through the QMD command, safe reading, an index that follows."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from composable_memory.errors import BackendUnavailable, ComposableMemoryError
from composable_memory.interfaces import BackendServices, ProgressCallback
from composable_memory.supervision.deadline import deadline
from composable_memory.supervision.tasks import Once
from composable_memory.types import (
    Degradation,
    DegradationCode,
    JsonValue,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)
from composable_memory_adapters.qmd.documents.collections import CollectionPlan, plan_collections
from composable_memory_adapters.qmd.documents.passages import passages_of
from composable_memory_adapters.qmd.documents.reading import read
from composable_memory_adapters.qmd.documents.stemming import StemMemory
from composable_memory_adapters.qmd.maintenance.freshness import newest_change
from composable_memory_adapters.qmd.maintenance.loop import Upkeep
from composable_memory_adapters.qmd.maintenance.maintenance import Maintenance
from composable_memory_adapters.qmd.runtime.home import open_home, write_collections
from composable_memory_adapters.qmd.runtime.installation import find_command, probe
from composable_memory_adapters.qmd.runtime.models import describe_models
from composable_memory_adapters.qmd.scope import verdict
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.status import Standing, describe
from composable_memory_adapters.qmd.transport.command_line import CommandLine
from composable_memory_adapters.qmd.transport.daemon import Daemon
from composable_memory_adapters.qmd.transport.engine import Engine, QuickWay
from composable_memory_adapters.qmd.transport.mcporter import Mcporter
from composable_memory_adapters.qmd.transport.modes import PresentMode, present_mode
from composable_memory_adapters.qmd.transport.questions import request_of
from composable_memory_adapters.qmd.values import (
    BACKEND_ID,
    Collection,
    Home,
    Installation,
    SearchRequest,
    SubSearch,
)

__all__ = ["QmdMemory", "open_qmd"]

DEPTH = 40
"""So many documents are always asked for, so that a short answer is the beginning of a longer one."""
LOOK_AGAIN_S = 2.0
"""How long files are taken as unchanged after somebody looked."""
LOOK_FOR_DAEMON_S = 1.0
"""How long a single command looks for the daemon of a memory that stays open."""
READING_SHARE = 0.8
"""Of the time for a search, what QMD gets; the rest is for reading the lines it found."""
FRESHENING_SHARE = 0.5
"""Of the time for a search, what a single command gives an index that has fallen behind."""
EMBED_PROBE = "ping"
NO_FOLDER = (
    "QMD has no folder to search; name one in memory.qmd.paths, or set memory.qmd.includeDefaultMemory"
)


@asynccontextmanager
async def open_qmd(settings: QmdSettings, services: BackendServices) -> AsyncIterator["QmdMemory"]:
    """Yield the QMD memory; its daemon, tasks and commands end with it.

    Raises:
        BackendError: QMD or the Node it needs is not installed, or its folders cannot be used.
    """
    home = await asyncio.to_thread(open_home, settings, services)
    command = await asyncio.to_thread(find_command, settings.command, home.environ)
    installation = await probe(command, home)
    async with AsyncExitStack() as stack:
        memory = QmdMemory(settings, services, home=home, installation=installation)
        stack.push_async_callback(memory.close)
        await memory.open()
        yield memory


class QmdMemory:
    """Markdown that QMD indexes; keeps `MemorySearchManager`, `SupportsAnswer` and `SupportsSync`."""

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
        self._engine = Engine(CommandLine(installation, home), quick=self._quick_way())
        self._upkeep = Upkeep(
            settings,
            maintenance=Maintenance(installation, home, settings.update),
            home=home,
            services=services,
        )
        self._stems = StemMemory()
        self._looked_at = 0.0
        self._newest_change = 0.0
        self._index_bytes: int | None = None
        self._is_closed = False
        self._release = Once(self._let_go, name="qmd-close")

    async def open(self) -> None:
        """Tell QMD of the collections, and begin to follow them where the memory stays open."""
        plan = await asyncio.to_thread(self._plan)
        self._collections, self._problems = plan.collections, plan.problems
        await self._upkeep.open()
        await self._take_stock()
        if self._services.is_long_lived:
            if self._settings.mcporter.enabled:
                self._mcporter.start()
            self._daemon.start()
            await self._upkeep.start()
        elif not self._settings.mcporter.enabled:
            await self._daemon.look()

    # --- asking ---------------------------------------------------------------------------------------------

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the passages that answer `query`, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and say what is missing: leave for the session, vectors, an index that is up to date."""
        self._require_open("search")
        options = options or SearchOptions()
        if not query.strip():
            return SearchAnswer(results=())
        if denial := verdict(self._settings.scope, options.session_key):
            return SearchAnswer(results=(), degraded=(_degradation("scope-denied", denial.reason),))
        limit_s = self._settings.limits.timeout_ms / 1000
        async with deadline(BACKEND_ID, "search", limit_s):
            return await self._answer(query, options, asyncio.get_running_loop().time() + limit_s)

    async def _answer(self, query: str, options: SearchOptions, until: float) -> SearchAnswer:
        await self._look_for_changes(until)
        mode = await self._present_mode()
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
        found = await self._engine.ask(request, timeout_s=left_s * READING_SHARE)
        most = min(options.max_results, self._settings.limits.max_results or options.max_results)
        results = await passages_of(
            found.hits,
            query=query,
            mode=mode.mode,
            collections=self._collections,
            workspace=self._services.workspace_dir,
            limits=self._settings.limits,
            options=replace(options, max_results=most),
            stems=self._stems,
        )
        return SearchAnswer(
            results=tuple(results),
            degraded=tuple(self._shortcomings(mode)),
            engines={"qmd": found.way, "mode": mode.mode},
        )

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return a file of the collections, or some of its lines; one elsewhere begins with `qmd/`."""
        self._require_open("read a file")
        return await read(
            rel_path,
            from_line=from_line,
            lines=lines,
            collections=self._collections,
            workspace=self._services.workspace_dir,
        )

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Let QMD update its index, and embed where the search mode uses vectors; `force` embeds all anew."""
        self._require_open("sync")
        plan = await asyncio.to_thread(self._plan)  # a folder that was missing may be there now
        self._collections, self._problems = plan.collections, plan.problems
        report = await self._upkeep.run(reason, force=force, progress=progress)
        await self._daemon.look_at_index()
        await self._take_stock()
        return replace(report, problems=(*report.problems, *self._problems))

    # --- how it is ------------------------------------------------------------------------------------------

    def status(self) -> MemoryProviderStatus:
        """Return what was known after the last call that looked; asks nobody."""
        self._require_open("report its status")
        standing = Standing(
            installation=self._installation,
            home=self._home,
            collections=self._collections,
            way=self._engine.way,
            daemon=self._daemon.standing(),
            mcporter=self._mcporter,
            upkeep=self._upkeep.standing(),
            index_bytes=self._index_bytes,
            models=self._models,
            problems=[*self._problems, *([str(detour)] if (detour := self._engine.detour) else [])],
            is_dirty=self._is_behind,
        )
        return describe(self._settings, self._services, standing)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Let QMD embed a word, and say whether it worked."""
        self._require_open("probe the embedder")
        if not self._settings.uses_vectors:
            return MemoryEmbeddingProbeResult(ok=False, error="the search mode `search` uses no vectors")
        mode = await self._present_mode()
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
            await self._engine.ask(request, timeout_s=limit_s)
        except ComposableMemoryError as error:
            return MemoryEmbeddingProbeResult(ok=False, error=str(error))
        return MemoryEmbeddingProbeResult(ok=True)

    async def probe_vector_availability(self) -> bool:
        """Say whether likeness can be searched: a mode that uses it, its model, and an index with vectors."""
        self._require_open("probe vector search")
        mode = await self._present_mode()
        return self._settings.uses_vectors and mode.shortcoming is None

    async def close(self) -> None:
        """End the daemon and what runs in the background; calling it again does nothing."""
        self._is_closed = True
        await self._release()

    async def _let_go(self) -> None:
        try:
            await self._upkeep.close()
        finally:
            await asyncio.gather(self._daemon.close(), self._mcporter.close())

    # --- what is known --------------------------------------------------------------------------------------

    def _quick_way(self) -> QuickWay | None:
        if self._settings.mcporter.enabled:
            return QuickWay(name="mcporter", searcher=self._mcporter, is_up=lambda: True)
        if not self._settings.daemon.enabled:
            return None
        return QuickWay(
            name="daemon", searcher=self._daemon, is_up=lambda: self._daemon.standing().state == "running"
        )

    def _plan(self) -> CollectionPlan:
        """Find the folders that the settings name, and write them down for QMD; looks at the disk."""
        export_dir = self._upkeep.export_dir
        planned = plan_collections(
            self._settings, workspace=self._services.workspace_dir, export_dir=export_dir
        )
        write_collections(self._home, planned.collections, self._settings.models)
        return planned

    async def _present_mode(self) -> PresentMode:
        has_embedded = self._upkeep.standing().last_embed is not None
        return await asyncio.to_thread(present_mode, self._settings, self._home, has_embedded=has_embedded)

    async def _look_for_changes(self, deadline: float) -> None:
        """Let QMD's index follow files that have changed: in the background, or now where nobody stays."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_at >= LOOK_AGAIN_S:
            now = self._services.clock().timestamp()
            self._newest_change = await asyncio.to_thread(newest_change, self._followed(), now=now)
            self._looked_at = loop.time()
        if not self._is_behind:
            return
        if self._services.is_long_lived:
            self._upkeep.nudge("search")
            return
        try:
            async with asyncio.timeout((deadline - loop.time()) * FRESHENING_SHARE):
                await self._upkeep.run("search")
        except (TimeoutError, ComposableMemoryError):
            return  # `_shortcomings` tells that the index is behind

    def _followed(self) -> list[Collection]:
        """Return what has to be looked at: the collections, and the transcripts that are exported to one."""
        followed = [*self._collections]
        if (transcripts := self._upkeep.transcripts) is not None:
            followed.append(Collection(name="transcripts", path=transcripts, pattern="*.jsonl"))
        return followed

    @property
    def _is_behind(self) -> bool:
        updated = self._upkeep.standing().last_update
        if updated is None:
            return True
        # An update of the future was one before the clock was set back, and says nothing of changes since.
        return not datetime.fromtimestamp(self._newest_change, UTC) <= updated <= self._services.clock()

    def _shortcomings(self, mode: PresentMode) -> Iterator[Degradation]:
        """Say in what the answer may fall short of what the files hold."""
        if mode.shortcoming is not None:
            yield mode.shortcoming
        standing = self._upkeep.standing()
        why = f": {standing.problem}" if standing.problem else ""
        if not self._collections:
            yield _degradation("disabled", NO_FOLDER)
        elif standing.last_update is None:
            yield _degradation("never-indexed", f"QMD has not indexed these files yet; run `cmem index`{why}")
        elif self._is_behind:
            yield _degradation("stale", f"files have changed since QMD last looked; run `cmem index`{why}")
        elif why:
            yield _degradation("stale", f"QMD's last update failed{why}")
        for problem in self._problems:
            yield _degradation("unreadable-files", problem)

    async def _take_stock(self) -> None:
        self._index_bytes, self._models = await asyncio.to_thread(
            lambda: (_size_of(self._home.index_file), tuple(describe_models(self._home, self._settings)))
        )

    def _require_open(self, operation: str) -> None:
        if self._is_closed:
            raise BackendUnavailable(BACKEND_ID, "it is closed", fix="open it again", operation=operation)


def _size_of(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _degradation(code: DegradationCode, reason: str) -> Degradation:
    return Degradation(backend_id=BACKEND_ID, code=code, reason=reason)
