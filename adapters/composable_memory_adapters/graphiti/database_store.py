"""A database as the fact store: queried directly, written through graphiti-core."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from composable_memory.content import EmbedderInput, Health, MemoryContentObject, MemoryTemporalMetadata
from composable_memory.errors import (
    BackendError,
    BackendRejected,
    BackendUnavailable,
    DimensionMismatch,
    EmbeddingError,
)
from composable_memory.facts import Forgotten
from composable_memory.ingest.extract import resolve_coreferences
from composable_memory.ingest.lifetimes import StandardTemporalPolicy
from composable_memory.ingest.pipeline import IngestPipeline
from composable_memory.ingest.requests import IngestRequest, IngestResult
from composable_memory.interfaces import BackendServices, EntityExtractor, GraphAdapter
from composable_memory.supervision.deadline import deadline
from composable_memory.supervision.resource import closing
from composable_memory.types import Degradation
from composable_memory.vector_values import MAX_QUESTION_CHARS
from composable_memory_adapters.graphiti.database import requirements
from composable_memory_adapters.graphiti.database.cypher import (
    CutOff,
    CypherDatabase,
    ServerAddress,
    ServerHandle,
)
from composable_memory_adapters.graphiti.database.falkor import FalkorDatabase, PrivateServerHandle
from composable_memory_adapters.graphiti.database.graph_copies import FalkorCopies
from composable_memory_adapters.graphiti.database.server import JOURNAL_FOLDER, PrivateServer
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID, Added, FactAnswer, Question
from composable_memory_adapters.graphiti.library import load, vectors
from composable_memory_adapters.graphiti.library.vectors import space_of, stored_space
from composable_memory_adapters.graphiti.reading.browsing import FactReader
from composable_memory_adapters.graphiti.reading.search import search
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.graphiti.writing.graph import GraphitiGraph, SummarisedGraph

if TYPE_CHECKING:
    from composable_memory_adapters.graphiti.library.episode_reader import EpisodeReader

ReplaceGraph = Callable[[GraphAdapter], GraphAdapter]
"""Returns the graph to use in place of a group's own, which it may still call."""

T = TypeVar("T")

JOURNAL_FILES = 3
"""A manifest, a base, and what was written since."""
JOURNAL_LIMIT_S = 30.0
JOURNAL_POLL_S = 0.01
OF_EMBEDDER = (EmbeddingError.__name__, DimensionMismatch.__name__)
"""Errors that are not the fault of the texts, but that may or may not pass by themselves."""


@asynccontextmanager
async def open_database_store(
    settings: GraphitiSettings, services: BackendServices, folder: Path, *, replace_graph: ReplaceGraph
) -> AsyncIterator["DatabaseStore"]:
    """Yield the configured database; it is connected to, or started, on first use.

    A private one stores its graphs in `folder`.

    Raises:
        BackendUnavailable: a requirement is not installed.
    """
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings, data_dir=folder))
        yield DatabaseStore(database, settings, services, folder, stack, replace_graph=replace_graph)


class DatabaseStore(FactReader):
    """Implements `FactStore` over a database; what it opens on demand is closed with `stack`."""

    def __init__(
        self,
        database: CypherDatabase,
        settings: GraphitiSettings,
        services: BackendServices,
        folder: Path,
        stack: AsyncExitStack,
        *,
        replace_graph: ReplaceGraph,
    ) -> None:
        super().__init__(database, services.clock)
        self._settings = settings
        self._services = services
        self._folder = folder
        self._stack = stack
        self._embedder = services.embedder
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._replace_graph = replace_graph
        self._graphs: dict[str, GraphitiGraph] = {}
        self._adapters: dict[str, GraphAdapter] = {}
        self._reader: EpisodeReader | None = None
        self._extractor: EntityExtractor | None = None
        self._opening = asyncio.Lock()

    # --- searching ------------------------------------------------------------------------------------------

    async def search(self, question: Question) -> FactAnswer:
        """Return the facts that answer a question; search only by words if it cannot be embedded."""
        vector, space, degraded = await self._embedded(question.text)
        graphs = {group: self._adapter(group) for group in question.groups}
        answer = await search(self._database, graphs, question, vector, self._settings.search, space=space)
        return replace(answer, degraded=(*answer.degraded, *degraded))

    async def _embedded(
        self, text: str
    ) -> tuple[Sequence[float] | None, str | None, tuple[Degradation, ...]]:
        if self._embedder is None:
            why = self._services.embedder_problem or "no embedding provider is configured"
            return None, None, (_keyword_only(why),)
        try:
            vector = await self._embedder.embed(EmbedderInput(text=text[:MAX_QUESTION_CHARS], kind="query"))
            space = await space_of(self._embedder)
        except EmbeddingError as error:
            return None, None, (_keyword_only(str(error)),)
        return vector, space, ()

    # --- writing --------------------------------------------------------------------------------------------

    async def add(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> Added:
        """Store episodes and the facts they state, extracted by a language model, by rules, or not at all.

        Raises:
            BackendRejected: an episode can never be stored as it is.
            BackendError: the database or the model failed.
        """
        return await _repeat_if_cut_off(lambda: self._add(group_id, drafts))

    async def _add(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> Added:
        if self._settings.uses_llm:
            return await self._read(drafts)
        graph = self._graph(group_id)
        await graph.save_episodes(drafts)
        added = await self._by_rules(self._adapter(group_id), drafts)
        await graph.mark_as_read([draft.id for draft in drafts])
        return added

    async def _by_rules(self, graph: GraphAdapter, drafts: Sequence[EpisodeDraft]) -> Added:
        extractor = await self._rules()
        if extractor is None:
            return Added()
        summaries = [draft for draft in drafts if _covered(draft)]
        plain = [draft for draft in drafts if not _covered(draft)]
        added = Added()
        for graph_for, some in ((graph, plain), *((self._under(graph, one), [one]) for one in summaries)):
            if some:
                result = await self._extracted(graph_for, extractor, some)
                added = Added(entities=added.entities + result.nodes, facts=added.facts + result.edges)
        return added

    def _under(self, graph: GraphAdapter, summary: EpisodeDraft) -> GraphAdapter:
        """Return `graph` for a summary: facts known from the covered episodes are not duplicated."""
        covered = [graph_id(summary.group_id, one) for one in _covered(summary)]
        return SummarisedGraph(graph, self._graph(summary.group_id), covered)

    async def _extracted(
        self, graph: GraphAdapter, extractor: EntityExtractor, drafts: Sequence[EpisodeDraft]
    ) -> IngestResult:
        pipeline = IngestPipeline(
            graph=graph,
            extractor=extractor,
            temporal_policy=StandardTemporalPolicy(),
            enrich=(resolve_coreferences,),
            ops_log=self._services.ops_log,
            clock=self._services.clock,
        )
        result = await pipeline.run(
            IngestRequest(items=[self._content(draft) for draft in drafts], source=BACKEND_ID)
        )
        _check(result)
        return result

    def _content(self, draft: EpisodeDraft) -> MemoryContentObject:
        given = draft.content
        metadata = {"owner": self._settings.ingest.owner, **given.metadata}
        # A text without a time counts as observed when it arrived, no matter when it is stored.
        temporal = replace(given.temporal or MemoryTemporalMetadata(), observed_at=draft.observed_at)
        return replace(given, text=draft.text, metadata=metadata, temporal=temporal)

    async def _read(self, drafts: Sequence[EpisodeDraft]) -> Added:
        reader = await self._open_reader()
        graph = self._graph(drafts[0].group_id)
        await graph.restore([draft.id for draft in drafts])  # retired texts that arrive again
        added = [await reader.read(draft) for draft in drafts]
        return Added(entities=sum(one.entities for one in added), facts=sum(one.facts for one in added))

    async def retire(self, group_id: str, episode_ids: Sequence[str], *, at: datetime) -> int:
        """End the facts that only these episodes support; return their number."""
        graph = self._graph(group_id)
        return await _repeat_if_cut_off(lambda: graph.retire(episode_ids, at=at))

    async def merge(self, group_id: str, merged: EpisodeDraft, episode_ids: Sequence[str]) -> None:
        """Replace several episodes by one; their facts stay and point to it."""
        graph = self._graph(group_id)
        await _repeat_if_cut_off(lambda: graph.merge_episodes(merged, episode_ids))

    async def forget(self, group_id: str, episode_id: str) -> Forgotten | None:
        """Remove an episode with everything that only it supports; None if it does not exist."""
        return await self._graph(group_id).forget(episode_id)

    async def refresh(self, groups: Sequence[str], *, force: bool) -> Sequence[str]:
        """Add missing vectors, replace those of other embedders, and maintain the vector index.

        Vectors that cost money are only made with `force`.
        """
        if self._embedder is None:
            return ()
        present = set(await self._database.groups())
        lacking: list[str] = []
        for group_id in dict.fromkeys(groups):
            if group_id in present:
                lacking += await self._refresh(group_id, force=force)
        return lacking

    async def _refresh(self, group_id: str, *, force: bool) -> Sequence[str]:
        assert self._embedder is not None
        space, stored = await space_of(self._embedder), await stored_space(self._database, group_id)
        if not force and stored not in (None, space) and not self._services.embedder_is_local:
            problem = f"the vectors of group {group_id} are from {stored}, not from {space}"
            return [f"{problem}; `cmem index --force` recreates them"]
        # The index first: one built for another length rejects the new vectors.
        dims = self._embedder.dimensions
        await vectors.arrange(self._database, group_id, self._settings.search, dimensions=dims)
        if force or stored != space:
            await self._graph(group_id).reembed()
        return ()

    async def scrub(self) -> str | None:
        """Have a private server rewrite its journal; the journals of others are their owners' business."""
        if self._settings.url is not None or not isinstance(self._database, FalkorDatabase):
            return "the journals, logs and backups of the graph server belong to its owner"
        journal = self._folder / JOURNAL_FOLDER
        if await asyncio.to_thread(journal.exists):
            await self._database.rewrite_journal()
            async with deadline(BACKEND_ID, "remove its former journal", JOURNAL_LIMIT_S):
                while await asyncio.to_thread(_files_in, journal) > JOURNAL_FILES:  # noqa: ASYNC110
                    await asyncio.sleep(JOURNAL_POLL_S)
        return None

    def copies(self) -> FalkorCopies | None:
        """Return the exporter and importer of groups; None for a server that others use too."""
        if self._settings.url is None and isinstance(self._database, FalkorDatabase):
            return FalkorCopies(self._database)
        return None

    # --- status ---------------------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, str]:
        """Return facts about the server."""
        return self._database.describe()

    async def health(self) -> Health:
        """Return whether the database answers."""
        return await self._database.health()

    # --- opened on demand -----------------------------------------------------------------------------------

    def _adapter(self, group_id: str) -> GraphAdapter:
        """Return the graph that is queried for a group's facts and receives those that rules extract."""
        if group_id not in self._adapters:
            self._adapters[group_id] = self._replace_graph(self._graph(group_id))
        return self._adapters[group_id]

    def _graph(self, group_id: str) -> GraphitiGraph:
        if group_id not in self._graphs:
            self._graphs[group_id] = GraphitiGraph(
                self._database,
                group_id,
                embedder=self._embedder,
                clock=self._services.clock,
                locks=self._locks,
                search=self._settings.search,
            )
        return self._graphs[group_id]

    async def _open_reader(self) -> "EpisodeReader":
        async with self._opening:
            if self._reader is None:
                await load()
                from composable_memory_adapters.graphiti.library.episode_reader import open_reader

                opening = open_reader(
                    self._database,
                    self._settings.llm,
                    embedder=self._embedder,
                    clock=self._services.clock,
                    locks=self._locks,
                    timeout_s=self._settings.ingest.timeout_ms / 1000,
                )
                self._reader = await self._stack.enter_async_context(opening)
        return self._reader

    async def _rules(self) -> EntityExtractor | None:
        name = self._settings.local_extractor
        if name is None or self._services.load_extractor is None:
            return None
        async with self._opening:
            if self._extractor is None:
                self._extractor = await asyncio.to_thread(self._services.load_extractor, name)
        return self._extractor


async def _repeat_if_cut_off(work: Callable[[], Awaitable[T]]) -> T:
    """Do work that may safely be done twice; repeat it if the server was lost and may have been restarted."""
    try:
        return await work()
    except CutOff:
        return await work()


def _files_in(journal: Path) -> int:
    return len(list(journal.iterdir()))


def _check(result: IngestResult) -> None:
    """Raise the failure of a result as a retryable or a permanent error."""
    for stage, error in result.errors.items():
        operation, kind = f"ingest ({stage})", error.details.get("type")
        if kind in OF_EMBEDDER:
            raise BackendError(BACKEND_ID, operation, error.message)
        if error.retryable or error.code == "adapter_unavailable":
            again = CutOff if kind == CutOff.__name__ else BackendUnavailable
            raise again(BACKEND_ID, error.message, fix="it is retried automatically", operation=operation)
        raise BackendRejected(BACKEND_ID, operation, status=error.code, body=error.message)


def _keyword_only(why: str) -> Degradation:
    return Degradation(
        backend_id=BACKEND_ID, code="keyword-only", reason=f"facts are searched by words only: {why}"
    )


def _covered(draft: EpisodeDraft) -> Sequence[str]:
    """Return the ids of the contents that a summary covers."""
    covers = draft.content.metadata.get("covers") if draft.content.kind == "summary" else None
    return [str(one) for one in covers] if isinstance(covers, list) else []


@asynccontextmanager
async def open_database(settings: GraphitiSettings, *, data_dir: Path) -> AsyncIterator[CypherDatabase]:
    """Keep a database open during the block; it is connected to, or started, on first use.

    A private one stores its data in `data_dir`.

    Raises:
        BackendUnavailable: a requirement is not installed.
    """
    async with closing(await asyncio.to_thread(_choose, settings, data_dir)) as database:
        yield database


def _choose(settings: GraphitiSettings, data_dir: Path) -> CypherDatabase:
    lacking = requirements.lacking(settings)
    if lacking is not None:
        what, _, fix = lacking.partition("; ")
        raise BackendUnavailable(BACKEND_ID, what, fix=fix)
    if settings.url is None:
        return FalkorDatabase(PrivateServerHandle(PrivateServer(settings.private, data_dir)))
    password = settings.password.get_secret_value() if settings.password else None
    address = ServerAddress(url=settings.url, username=settings.username, password=password)
    if requirements.is_neo4j(settings):
        return _neo4j(address, settings.database)
    return FalkorDatabase(ServerHandle(address))


def _neo4j(address: ServerAddress, database: str | None) -> CypherDatabase:
    try:
        from composable_memory_adapters.graphiti.database.neo4j import Neo4jDatabase
    except ImportError as error:
        what = f"the client of Neo4j cannot be loaded ({error})"
        raise BackendUnavailable(BACKEND_ID, what, fix=requirements.INSTALL) from error
    return Neo4jDatabase(address, database=database)
