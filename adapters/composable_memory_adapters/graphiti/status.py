"""The state of one workspace's graph memory: its parts, what is waiting, and what is missing."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from composable_memory.content import Health
from composable_memory.errors import BackendUnavailable, ComposableMemoryError
from composable_memory.interfaces import BackendServices
from composable_memory.time.windows import FAR_PAST
from composable_memory.types import (
    Degradation,
    DegradationCode,
    JsonValue,
    MemoryProviderStatus,
    VectorStatus,
)
from composable_memory_adapters.graphiti.database.graph_copies import FalkorCopies
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID, Counts, FactStore
from composable_memory_adapters.graphiti.groups import GroupScope
from composable_memory_adapters.graphiti.outbox.adoption import Adoption
from composable_memory_adapters.graphiti.outbox.comparison import Comparison
from composable_memory_adapters.graphiti.outbox.queue import Outbox, OutboxCounts
from composable_memory_adapters.graphiti.outbox.worker import Worker
from composable_memory_adapters.graphiti.settings import GraphitiSettings, IngestSettings
from composable_memory_ops_logs import GraphitiHealth, trace
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphParts:
    """The open parts; `adoption` knows which groups belong to the workspace.

    `copies` exports and imports groups; None if the database belongs to others too.
    """

    settings: GraphitiSettings
    services: BackendServices
    store: FactStore
    copies: FalkorCopies | None
    outbox: Outbox
    worker: Worker
    adoption: Adoption

    @property
    def scope(self) -> GroupScope:
        """Return the groups that the workspace reads and writes."""
        return self.adoption.scope


def ingest_settings(settings: GraphitiSettings) -> IngestSettings:
    """Return how contents become facts; a service cannot replace several episodes by one."""
    unmerged = {"merge_after_days": 0.0} if settings.service_url else {}
    return settings.ingest.model_copy(update=unmerged)


COUNTS_VALID_S = 5.0
"""How long counts of the outbox stay valid, in seconds; other processes write to it as well."""
NOTHING_INGESTED = "the graph is empty; `cmem ingest MEMORY.md memory` ingests the notes"
OTHER_GROUPS = "; to search somebody else's graph, name it in memory.graphiti.group or also_search"


class Monitor:
    """What the latest calls found out about the graph of one workspace.

    `waiting` has the latest counts of the outbox; `is_new` is true for a private graph that was never
    started.
    """

    def __init__(self, parts: GraphParts, *, is_new: bool) -> None:
        self._parts = parts
        self._comparison = Comparison(parts.outbox, parts.store, is_shared=parts.settings.url is not None)
        self._counted_at = FAR_PAST
        self._counts = Counts()
        self._health: Health | None = None
        self.is_new = is_new
        self.waiting = OutboxCounts()

    @property
    def is_empty(self) -> bool:
        """Return whether a private graph is empty; then no server need start."""
        return self.is_new and not any(self.waiting.by_state.values())

    async def count_waiting(self, *, anew: bool = False) -> None:
        """Count what is in the outbox, unless that was just done."""
        now = self._parts.services.clock()
        if anew or abs((now - self._counted_at).total_seconds()) >= COUNTS_VALID_S:
            self.waiting, self._counted_at = await self._parts.outbox.counts(), now

    async def count_facts(self) -> None:
        """Count what is in the outbox and the graph; if the graph is unreachable, record its health."""
        await self.count_waiting(anew=True)
        if self.is_empty:
            return
        try:
            self._counts = await self._parts.store.counts(self._parts.scope.searched)
        except ComposableMemoryError as error:
            self.note_health(Health(ok=False, message=str(error)))
        else:
            self.note_health(Health(ok=True))

    async def compare(self, groups: Iterable[str]) -> None:
        """Ensure, once, that the graph has what the outbox considers stored."""
        if await self._comparison.run(groups):
            await self.count_waiting(anew=True)
            self._parts.worker.wake()

    async def compare_again(self, *, force: bool) -> None:
        """Compare all groups; with `force`, also store again what a shared graph lacks."""
        await self._comparison.run_again(force=force)

    async def look_again(self) -> None:
        """Count what waits, and have the next question compare the groups it searches."""
        await self.count_waiting(anew=True)
        self._comparison.begin_again()

    def note_restored(self) -> None:
        """Treat the graph as a different one from now on."""
        self.is_new = False
        self._comparison.reset()

    def note_health(self, health: Health, *, always: bool = False) -> None:
        """Record whether the store answers, and log it if that changes or with `always`."""
        changed = health.ok != (self._health is None or self._health.ok)
        self._health = health
        if changed or always:
            self._parts.services.ops_log.emit(
                GraphitiHealth(ok=health.ok, message=health.message),
                status="success" if health.ok else "failure",
                backend=BACKEND_ID,
            )

    # --- reporting ---

    def never_indexed(self) -> Degradation:
        """Return the degradation for an answer from an empty graph."""
        return _degradation("never-indexed", NOTHING_INGESTED)

    def degradations(self, *, nothing_found: bool) -> Iterator[Degradation]:
        """Yield how the graph falls short of what was ingested."""
        waiting, failed = self.waiting.pending, self.waiting.by_state.get("failed", 0)
        why = f": {self.waiting.last_error}" if self.waiting.last_error else ""
        if waiting:
            yield _degradation(
                "stale", f"{counted(waiting, 'episode is', 'episodes are')} waiting to be stored{why}"
            )
        if self._parts.outbox.problem:
            yield _degradation("stale", self._parts.outbox.problem)
        if missing := self._comparison.missing:
            lost = f"{counted(missing, 'episode')} stored from here can no longer be found in the graph"
            reason = "it lost them or somebody removed them; `cmem index --force` stores them again"
            yield _degradation("stale", f"{lost}: {reason}")
        if failed:
            yield _degradation(
                "stale",
                f"{counted(failed, 'episode')} failed for good; `cmem index --force` retries them{why}",
            )
        if self._parts.worker.problem:
            yield _degradation("stale", self._parts.worker.problem)
        if nothing_found and not any(self.waiting.by_state.values()):
            yield _degradation("never-indexed", NOTHING_INGESTED + OTHER_GROUPS)

    def status(self, unassigned: Mapping[str, int]) -> MemoryProviderStatus:
        """Return what the latest calls found; a file is an episode here, a chunk a fact.

        `unassigned` has the number of episodes without a workspace, by group.
        """
        described = self._parts.store.describe()
        by_service = bool(self._parts.settings.service_url)
        embedder = None if by_service else self._parts.services.embedder
        return MemoryProviderStatus(
            backend=BACKEND_ID,
            provider=described.get("kind", BACKEND_ID),
            model=self._parts.settings.llm.model if self._parts.settings.uses_llm else None,
            files=self._counts.episodes,
            chunks=self._counts.facts,
            dirty=self.waiting.pending > 0 or self._comparison.missing > 0,
            workspace_dir=str(self._parts.services.workspace_dir),
            vector=VectorStatus(
                enabled=by_service or embedder is not None, dims=embedder.dimensions if embedder else None
            ),
            custom=self._details(described, unassigned),
        )

    def _details(self, described: Mapping[str, str], unassigned: Mapping[str, int]) -> dict[str, JsonValue]:
        health = self._health
        details: dict[str, JsonValue] = {
            "place": dict(described),
            "groups": list(self._parts.scope.searched),
            "extractor": _extractor(self._parts.settings),
            "entities": self._counts.entities,
            "episodes": {state: count for state, count in self.waiting.by_state.items() if count},
            "missing": self._comparison.missing or None,
            "ledger": self._parts.outbox.problem,
            "setAside": _set_aside(unassigned),
            "lastError": self.waiting.last_error,
            "background": self._parts.worker.problem,
            "health": None if health is None else "ok" if health.ok else health.message or "down",
        }
        return {name: value for name, value in details.items() if value is not None}


class OpenGraph:
    """State shared by the answering, ingesting and removing parts of the graph memory, until it is closed."""

    def __init__(self, parts: GraphParts, monitor: Monitor) -> None:
        self._parts = parts
        self._monitor = monitor
        self._is_closed = False

    def _require_open(self, operation: str) -> None:
        if self._is_closed:
            raise BackendUnavailable(BACKEND_ID, "it is closed", fix="open it again", operation=operation)

    def _traced(self, operation: str) -> AbstractContextManager[object]:
        self._require_open(operation)
        return trace()

    def _shown(self, text: str) -> str:
        """Return a text without its forgotten parts; reads a file, so call it in a thread."""
        return self._parts.services.hide(self._parts.services.hide(text, "memory"), "sessions")


def _set_aside(groups: Mapping[str, int]) -> str | None:
    if not groups:
        return None
    counts = ", ".join(f"{count} in group {group}" for group, count in sorted(groups.items()))
    return (
        f"{counts}: from before workspaces were separate; `cmem graph adopt` adopts what these notes mention"
    )


def _extractor(settings: GraphitiSettings) -> str:
    if settings.service_url:
        return "the service's own model"
    if settings.uses_llm:
        return f"the model {settings.llm.model}"
    name = settings.local_extractor
    return "rules" if name == "heuristic" else name or "none"


def _degradation(code: DegradationCode, reason: str) -> Degradation:
    return Degradation(backend_id=BACKEND_ID, code=code, reason=reason)
