"""The graph memory as a backend: combines its parts for searching, browsing and ingesting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from composable_memory.content import EmbedderInput, Health
from composable_memory.errors import BackendUnavailable, EmbeddingError
from composable_memory.interfaces import BackendServices
from composable_memory.registry import find_extractor
from composable_memory.supervision.resource import Once, closing
from composable_memory.types import (
    MemoryEmbeddingProbeResult,
    MemoryProviderStatus,
)
from composable_memory_adapters.graphiti.database.server import JOURNAL_FOLDER
from composable_memory_adapters.graphiti.database_store import ReplaceGraph, open_database_store
from composable_memory_adapters.graphiti.fact_queries import FactQueries
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID, FactStore
from composable_memory_adapters.graphiti.groups import GroupScope
from composable_memory_adapters.graphiti.ingest import Ingest
from composable_memory_adapters.graphiti.maintenance import Erasing, Maintenance, backup_of
from composable_memory_adapters.graphiti.outbox.adoption import Adoption
from composable_memory_adapters.graphiti.outbox.delivery import Delivery
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.outbox.worker import Worker
from composable_memory_adapters.graphiti.service import open_service
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.graphiti.status import GraphParts, Monitor, ingest_settings
from composable_memory_ops_logs.private_files import make_private_folder

if TYPE_CHECKING:
    from composable_memory_adapters.graphiti.database.graph_copies import FalkorCopies

BATCH_BY_RULES = 50
PROBE = EmbedderInput(text="ping", kind="query")


@asynccontextmanager
async def open_graphiti(
    settings: GraphitiSettings,
    services: BackendServices,
    *,
    replace_graph: ReplaceGraph = lambda graph: graph,
) -> AsyncIterator["GraphitiMemory"]:
    """Yield the graph memory; its server, files and tasks are closed with it.

    A database is connected to, or a private one started, on first use. `replace_graph` substitutes another
    `GraphAdapter` for the graph of each group: it is queried for candidates, and receives what rules extract
    from texts. Episodes, and what a language model writes, stay in the group's own graph.

    Raises:
        BackendError: a requirement is not installed, or the folder cannot be used.
        ConfigError: the settings name an unknown extractor.
    """
    if settings.local_extractor not in (None, "heuristic"):
        await asyncio.to_thread(find_extractor, settings.local_extractor)
    async with AsyncExitStack() as stack:
        folder = await asyncio.to_thread(_folder_of, settings, services)
        store: FactStore
        copies: FalkorCopies | None = None
        if settings.service_url:
            store = await stack.enter_async_context(open_service(settings, services))
        else:
            store = local = await stack.enter_async_context(
                open_database_store(settings, services, folder, replace_graph=replace_graph)
            )
            copies = local.copies()
        outbox = await stack.enter_async_context(
            Outbox.of(folder, clock=services.clock, workspace=services.workspace_id)
        )
        worker = Worker(
            Delivery(
                outbox=outbox,
                store=store,
                settings=ingest_settings(settings),
                ops_log=services.ops_log,
                clock=services.clock,
                batch_size=1 if settings.uses_llm else BATCH_BY_RULES,
            )
        )
        scope = GroupScope(settings=settings, agent_id=services.agent_id, workspace_id=services.workspace_id)
        stack.push_async_callback(worker.close)
        adoption = Adoption(outbox, settings, services, scope)
        parts = GraphParts(
            settings=settings,
            services=services,
            store=store,
            copies=copies,
            outbox=outbox,
            worker=worker,
            adoption=adoption,
        )
        await _prepare(parts)
        is_new = await asyncio.to_thread(_was_never_started, settings, folder)
        async with closing(GraphitiMemory(parts, is_new=is_new, stack=stack.pop_all())) as memory:
            await memory.open()
            yield memory


class GraphitiMemory(FactQueries, Ingest, Erasing, Maintenance):
    """Facts in a graph; implements `MemorySearchManager` and what the spec declares beyond it."""

    def __init__(self, parts: GraphParts, *, is_new: bool, stack: AsyncExitStack) -> None:
        super().__init__(parts, Monitor(parts, is_new=is_new))
        self._release = Once(stack.aclose, name="graphiti-close")

    async def open(self) -> None:
        """Count what is waiting, and start to process it if the memory stays open."""
        await self._monitor.count_waiting()
        if self._parts.services.is_long_lived:
            self._parts.worker.start()

    async def refresh(self) -> bool:
        """Repeat the work of opening, and have the next search compare the graph with the outbox.

        Return False if a private graph has not been started yet, if something fails, or if the store is a
        service.
        """
        self._require_open("refresh")
        parts = self._parts
        if parts.settings.service_url or self._monitor.is_new or parts.outbox.problem or parts.worker.problem:
            return False
        if not (await parts.store.health()).ok:
            return False
        await _prepare(parts)
        await self._monitor.look_again()
        return True

    def status(self) -> MemoryProviderStatus:
        """Return what the latest calls found; sends no request."""
        self._require_open("report its status")
        return self._monitor.status(self._parts.adoption.unassigned)

    async def health(self) -> Health:
        """Ask the fact store whether it answers."""
        self._require_open("ask for its health")
        health = await self._parts.store.health()
        if health.ok and not self._monitor.is_empty:
            await self._monitor.compare(self._parts.scope.searched)
        self._monitor.note_health(health, always=True)
        return health

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Embed a word and return whether that worked."""
        self._require_open("probe the embedder")
        if self._parts.settings.service_url:
            return MemoryEmbeddingProbeResult(ok=False, error="the service does its own embedding")
        embedder = self._parts.services.embedder
        if embedder is None:
            problem = self._parts.services.embedder_problem or "no embedding provider is configured"
            return MemoryEmbeddingProbeResult(ok=False, error=problem)
        try:
            await embedder.embed(PROBE)
        except EmbeddingError as error:
            return MemoryEmbeddingProbeResult(ok=False, error=str(error))
        return MemoryEmbeddingProbeResult(ok=True)

    async def probe_vector_availability(self) -> bool:
        """Return whether facts can be compared by meaning: there is an embedder, and the graph answers."""
        self._require_open("probe vector search")
        if self._parts.services.embedder is None and not self._parts.settings.service_url:
            return False
        return self._monitor.is_empty or (await self.health()).ok

    async def close(self) -> None:
        """Stop working, and release the server and the files; calling it again does nothing."""
        self._is_closed = True
        await self._release()


def _folder_of(settings: GraphitiSettings, services: BackendServices) -> Path:
    """Create the folder of the outbox and the private server; every fact store has its own outbox."""
    address = settings.service_url or settings.url
    name = f"graphiti-{sha256(address.encode()).hexdigest()[:12]}" if address else "graphiti"
    folder = services.state_dir / name
    if address is None and settings.private.dir is not None:
        folder = services.workspace_dir / settings.private.dir.expanduser()
    try:
        make_private_folder(folder)
    except OSError as error:
        problem = f"the folder {folder} cannot be made ({error.strerror})"
        raise BackendUnavailable(BACKEND_ID, problem, fix="set memory.graphiti.private.dir") from error
    return folder


async def _prepare(parts: GraphParts) -> None:
    """Complete an interrupted restore, and adopt what belongs to the workspace."""
    await backup_of(parts).finish()
    await parts.adoption.run_at_opening()


def _was_never_started(settings: GraphitiSettings, folder: Path) -> bool:
    """Return whether the graph is private and still empty; the outbox alone may have been lost."""
    return not (settings.service_url or settings.url or (folder / JOURNAL_FOLDER).exists())
