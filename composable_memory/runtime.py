"""Opens a memory from its settings: the only place that wires the parts together."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from composable_memory.config import LoadedSettings, default_state_dir, load_settings
from composable_memory.content import IngestReport, MemoryContentObject
from composable_memory.context_pack import DEFAULT_MAX_CHARS
from composable_memory.embedder_choice import EmbedderChoice, choose_embedder
from composable_memory.errors import ConfigError
from composable_memory.fallback import FallbackMemoryManager
from composable_memory.intake import hand_over
from composable_memory.intent import parse_query_intent
from composable_memory.interfaces import (
    BackendServices,
    BackendSpec,
    Capability,
    Clock,
    EmbedderServices,
    EmbedderSpec,
    MemorySearchManager,
    ProgressCallback,
    SupportsFacts,
    SupportsIngest,
)
from composable_memory.manager import ComposableMemoryManager
from composable_memory.merge import Dedup, Fusion
from composable_memory.opening import BackendOpener, OpenBackends
from composable_memory.plugins import Registry, discover_backends, load_extractor
from composable_memory.ranking import MergePolicy
from composable_memory.settings import MemorySettings, Settings
from composable_memory.types import (
    ContextPack,
    Degradation,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    QueryRequest,
    QueryResponse,
    SearchOptions,
    SyncReport,
)
from composable_memory_ops_logs import OpsLog, trace, utc_now

__all__ = ["OPS_LOG_FOLDER", "Memory", "open_memory"]

OPS_LOG_FOLDER = "ops-logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """An open memory: the composite of all enabled backends, with the settings and folders it runs on."""

    manager: ComposableMemoryManager
    loaded: LoadedSettings
    registry: Registry
    workspace_dir: Path
    state_dir: Path
    ops_log: OpsLog
    embedder: EmbedderChoice = field(default_factory=EmbedderChoice)
    """Who turns texts into vectors, and who was passed over for what reason."""
    pair: FallbackMemoryManager | None = None
    """The primary with the backend that stands in for it, where there is such."""

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        return self.loaded.settings

    @property
    def ops_log_dir(self) -> Path:
        """Return the folder of the ops log's files."""
        return self.state_dir / OPS_LOG_FOLDER

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Bring every index up to date; `force` rebuilds them.

        Raises:
            BackendError: no index could be synced.
        """
        return await self.manager.sync(reason=reason, force=force, progress=progress)

    async def query(
        self,
        query: str | QueryRequest,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        session_key: str | None = None,
        backends: Sequence[str] | None = None,
    ) -> QueryResponse:
        """Ask all memories; what is not given comes from the settings. Failures are in `degraded`.

        Raises:
            ConfigError: a backend named in `backends` is not open.
            BackendUnavailable: the memory is closed.
        """
        return await self.manager.query(
            query,
            max_results=max_results,
            min_score=min_score,
            session_key=session_key,
            backends=backends,
        )

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        """Return the merged results, best first.

        Raises:
            BackendUnavailable: every backend failed.
        """
        return await self.manager.search(query, options)

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Read a memory file, or `lines` lines of it from the 1-based `from_line` on.

        Raises:
            MemoryPathError: the path is not a memory file.
        """
        return await self.manager.read_file(rel_path, from_line=from_line, lines=lines)

    async def ingest(
        self, contents: Sequence[MemoryContentObject], *, backend: str | None = None, wait: bool = True
    ) -> Mapping[str, IngestReport]:
        """Hand contents to `backend`, or to every backend that takes them; return a report of each.

        With `wait` false the call returns as soon as the contents are safe. A backend that fails has a report
        that says so.

        Raises:
            ConfigError: no open backend takes contents, or the named one does not.
            BackendError: all of them failed.
        """
        takers = self._takers(backend)
        return await hand_over(takers, lambda one: one.ingest(contents, wait=wait), len(contents))

    async def ingest_source(
        self,
        path: str,
        contents: Sequence[MemoryContentObject],
        *,
        backend: str | None = None,
        wait: bool = True,
    ) -> Mapping[str, IngestReport]:
        """Hand over `contents` as all that the source `path` says now; what it said before holds no more.

        Raises:
            ConfigError: no open backend takes contents, or the named one does not.
            BackendError: all of them failed.
        """
        takers = self._takers(backend)
        return await hand_over(
            takers, lambda one: one.ingest_source(path, contents, wait=wait), len(contents)
        )

    def facts_of(self, backend: str | None = None) -> SupportsFacts:
        """Return the backend that keeps facts: the named one, or the first.

        Raises:
            ConfigError: no open backend keeps facts, or the named one does not.
        """
        able = self._able(Capability.FACTS, "keeps facts", backend)
        return next(one for one in able.values() if isinstance(one, SupportsFacts))

    def status(self) -> MemoryProviderStatus:
        """Return a snapshot of the primary, with what the composite adds under `custom`."""
        return self.manager.status()

    def backend_statuses(self) -> Mapping[str, MemoryProviderStatus]:
        """Return a snapshot of every backend."""
        return self.manager.backend_statuses()

    def unavailable(self) -> tuple[Degradation, ...]:
        """Return the backends that are enabled and could not be opened, with the reasons.

        A primary that another one stands in for is among them as long as it could not be opened.
        """
        status = self.pair.status() if self.pair and self.pair.primary is None else None
        if status is None or status.fallback is None:
            return self.manager.unavailable
        reason = status.fallback.reason or "it could not be opened"
        lost = Degradation(backend_id=self.settings.memory.backend, code="unavailable", reason=reason)
        return (lost, *self.manager.unavailable)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Say whether any backend can embed."""
        return await self.manager.probe_embedding_availability()

    async def probe_vector_availability(self) -> bool:
        """Say whether any backend can search vectors."""
        return await self.manager.probe_vector_availability()

    async def context_pack(
        self,
        query: str | QueryRequest,
        *,
        max_chars: int = DEFAULT_MAX_CHARS,
        max_tokens: int | None = None,
    ) -> ContextPack:
        """Return the best results as one text of `max_chars` characters at most, or else `max_tokens` tokens.

        Raises:
            BackendUnavailable: the memory is closed.
            ValueError: the budget is less than 1.
        """
        return await self.manager.context_pack(query, max_chars=max_chars, max_tokens=max_tokens)

    def _takers(self, backend: str | None) -> dict[str, SupportsIngest]:
        able = self._able(Capability.INGEST, "takes contents", backend)
        return {backend_id: one for backend_id, one in able.items() if isinstance(one, SupportsIngest)}

    def _able(
        self, capability: Capability, what: str, backend: str | None
    ) -> Mapping[str, MemorySearchManager]:
        """Return the open backends that can do something, or the named one alone."""
        able = {**self._behind_stand_in(capability), **self.manager.backends_with(capability)}
        if backend is not None and backend in able:
            return {backend: able[backend]}
        if backend is not None and able:
            raise ConfigError("backend", f"{backend!r} is no open backend that {what}; {', '.join(able)} is")
        if able:
            return able
        lost = {one.backend_id: f"{one.backend_id}: {one.reason}" for one in self.unavailable()}
        problem = f"no open backend {what}" + (f" ({'; '.join(lost.values())})" if lost else "")
        if "graphiti" in lost:
            raise ConfigError("memory.graphiti", problem)
        raise ConfigError("memory.graphiti.enabled", f"{problem}; set it to true for the graph memory")

    def _behind_stand_in(self, capability: Capability) -> Mapping[str, MemorySearchManager]:
        """Return the primary that another one stands in for, if it can do what nobody can do in its place."""
        primary = self.pair.primary if self.pair else None
        if primary is None:
            return {}
        primary_id = self.settings.memory.backend
        found = self.registry.backend(primary_id)
        declared = found.spec.capabilities if found and found.spec else ()
        return {primary_id: primary} if capability in declared else {}


@asynccontextmanager
async def open_memory(
    workspace: str | Path = ".",
    state_dir: str | Path | None = None,
    config: Mapping[str, object] | Settings | None = None,
    *,
    backends: Sequence[BackendSpec] = (),
    embedders: Sequence[EmbedderSpec] = (),
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    long_lived: bool = True,
) -> AsyncIterator[Memory]:
    """Open the memory of a workspace; leaving the block closes everything.

    `workspace` is the folder with the notes. `state_dir` holds indexes and logs; by default
    `COMPOSABLE_MEMORY_STATE_DIR` or the user's state folder. `config` overrides the settings files, with the
    same keys. `backends` and `embedders` add what is not installed as a plug-in. A backend that cannot be
    opened is named in `degraded` of every answer; the others serve. With `long_lived` false the notes are not
    followed in the background, which suits a single command.

    Raises:
        ConfigError: the workspace is not a folder, or a setting cannot be used.
    """
    environ = os.environ if environ is None else environ
    folder = await asyncio.to_thread(_existing_folder, Path(workspace))
    loaded = await asyncio.to_thread(load_settings, folder, overrides=config, environ=environ)
    state = await asyncio.to_thread(_made_folder, Path(state_dir or default_state_dir(environ)))
    registry = await asyncio.to_thread(partial(discover_backends, backends, embedders=embedders))
    logging = loaded.settings.memory.ops_log
    now = clock or utc_now
    async with AsyncExitStack() as stack:
        ops_log = OpsLog(
            state / OPS_LOG_FOLDER if logging.enabled else None,
            clock=now,
            retention_days=logging.retention_days,
        )
        await stack.enter_async_context(ops_log)
        with trace():
            embedding = EmbedderServices(state_dir=state, environ=environ, ops_log=ops_log, clock=now)
            choice = await choose_embedder(loaded, registry, embedding, stack)
            services = BackendServices(
                workspace_dir=folder,
                state_dir=state,
                agent_id=loaded.settings.memory.agent_id,
                ops_log=ops_log,
                clock=now,
                embedder=choice.embedder,
                embedder_problem=choice.problem,
                embedder_fallback=choice.fallback,
                embedder_is_local=choice.is_local,
                requested_embedder=loaded.settings.memory.embedding.provider,
                is_long_lived=long_lived,
                load_extractor=load_extractor,
            )
            opener = BackendOpener(loaded=loaded, registry=registry, services=services)
            backends_open = await opener.open_all(stack)
        manager = _composed(backends_open, loaded.settings.memory, ops_log)
        stack.push_async_callback(manager.close)
        yield Memory(
            manager=manager,
            loaded=loaded,
            registry=registry,
            workspace_dir=folder,
            state_dir=state,
            ops_log=ops_log,
            embedder=choice,
            pair=backends_open.pair,
        )


def _composed(backends: OpenBackends, memory: MemorySettings, ops_log: OpsLog) -> ComposableMemoryManager:
    """Return the composite of the backends that are open."""
    query = memory.query
    open_ids = {entry.id for entry in backends.entries}
    return ComposableMemoryManager(
        backends.entries,
        primary=memory.primary if memory.primary in open_ids else None,
        intent_parser=parse_query_intent,
        ops_log=ops_log,
        policy=MergePolicy(
            fusion=Fusion(query.fusion), dedup=Dedup(query.dedup), depth=query.depth, rrf_k=query.rrf_k
        ),
        defaults=SearchOptions(max_results=query.max_results, min_score=query.min_score),
        unavailable=backends.unavailable,
    )


def _existing_folder(folder: Path) -> Path:
    resolved = folder.expanduser().resolve()
    if not resolved.is_dir():
        raise ConfigError("workspace", f"{resolved} is not a folder; name the folder that holds the notes")
    return resolved


def _made_folder(folder: Path) -> Path:
    resolved = folder.expanduser().resolve()
    try:
        resolved.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            "state_dir", f"{resolved} cannot be made: {error.strerror}; name another"
        ) from error
    return resolved
