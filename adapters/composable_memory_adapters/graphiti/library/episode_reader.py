"""Reads episodes with a language model: graphiti-core extracts entities and facts, and stores them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, time

from composable_memory.errors import BackendError, BackendGarbled
from composable_memory.interfaces import Clock, EmbedderAdapter
from composable_memory.supervision.deadline import deadline
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.episodes import EpisodeDraft
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID, Added
from composable_memory_adapters.graphiti.library import undisturbed
from composable_memory_adapters.graphiti.library.bridges import (
    EmbedderBridge,
    GroupDriver,
    NoReranker,
    episodic_node,
)
from composable_memory_adapters.graphiti.library.chat import ChatModel, endpoint_of
from composable_memory_adapters.graphiti.library.core import EpisodeType, Graphiti, GraphitiError
from composable_memory_adapters.graphiti.library.vectors import fits_space
from composable_memory_adapters.graphiti.observed_times import in_utc
from composable_memory_adapters.graphiti.settings import LlmSettings
from composable_memory_feedback.chat import ChatClient, Pace

READING = "read an episode"
AT_ONCE = 4
"""Parallel questions to the model: each has its own time limit, which queueing must not use up."""
CONTEXT = 10
"""Earlier episodes that the model sees besides the one it reads; graphiti-core's own default."""
UNDO_S = 10.0

IS_READ = """
MATCH (e:Episodic {uuid: $uuid}) WHERE e.read_at IS NOT NULL
RETURN e.content AS content
"""
UNLINK = "MATCH (e:Episodic {uuid: $uuid})-[m:MENTIONS]->() DELETE m"
SET_READ = "MATCH (e:Episodic {uuid: $uuid}) SET e.read_at = $now"
UNDO = """
MATCH (e:Episodic {uuid: $uuid}) WHERE NOT (e)-[:MENTIONS]->() DELETE e
"""


class EpisodeReader:
    """Extracts facts from episodes, one at a time per group, since parallel reads duplicate entities."""

    def __init__(
        self,
        database: CypherDatabase,
        *,
        model: ChatModel,
        embedder: EmbedderAdapter | None,
        clock: Clock,
        locks: defaultdict[str, asyncio.Lock],
        timeout_s: float,
    ) -> None:
        self._database = database
        self._model = model
        self._embedder = embedder
        self._clock = clock
        self._locks = locks
        self._timeout_s = timeout_s
        self._graphs: dict[tuple[str, bool], Graphiti] = {}

    async def read(self, draft: EpisodeDraft) -> Added:
        """Store an episode with what it states; reading it again changes nothing.

        If this fails or is cancelled, either nothing of the episode is stored, or the next attempt completes
        it.

        Raises:
            BackendTimeout: it took too long.
            BackendGarbled: the model returns nothing that can be stored.
            BackendError: the model or the database failed.
        """
        async with deadline(BACKEND_ID, READING, self._timeout_s), self._locks[draft.group_id]:
            return await self._read(draft)

    async def _read(self, draft: EpisodeDraft) -> Added:
        draft = replace(draft, observed_at=_said_at(draft))
        graph = await self._graph(draft.group_id)
        rows = await self._database.read(draft.group_id, IS_READ, uuid=draft.id)
        if rows and rows[0]["content"] == draft.text:
            return Added()
        earlier = await graph.retrieve_episodes(draft.observed_at, CONTEXT, group_ids=[draft.group_id])
        await self._begin(graph, draft)
        is_read = False
        try:
            added = await self._understood(
                graph, draft, [one.uuid for one in earlier if one.uuid != draft.id]
            )
            is_read = True
        finally:
            if not is_read:
                await self._undo(draft)
        await self._database.write(draft.group_id, SET_READ, uuid=draft.id, now=self._clock())
        return added

    async def _begin(self, graph: Graphiti, draft: EpisodeDraft) -> None:
        """Store the bare episode: graphiti-core gives a new id to every episode not stored yet."""
        await episodic_node(draft).save(graph.driver)
        await self._database.write(draft.group_id, UNLINK, uuid=draft.id)

    async def _understood(self, graph: Graphiti, draft: EpisodeDraft, earlier: list[str]) -> Added:
        try:
            result = await graph.add_episode(
                name=draft.content.id,
                episode_body=draft.text,
                source_description=draft.description,
                reference_time=draft.observed_at,
                source=EpisodeType(draft.source),
                group_id=draft.group_id,
                uuid=draft.id,
                previous_episode_uuids=earlier,
            )
        except (GraphitiError, LookupError, ValueError, TypeError) as error:
            excerpt, expected = f"{type(error).__name__}: {error}", "facts that graphiti-core can store"
            raise BackendGarbled(BACKEND_ID, READING, excerpt=excerpt, expected=expected) from error
        facts = {edge.uuid for edge in result.edges if draft.id in edge.episodes}
        return Added(entities=len(result.nodes), facts=len(facts))

    async def _undo(self, draft: EpisodeDraft) -> None:
        """Remove the bare episode. A linked one has entities already; the next attempt completes it."""
        with suppress(BackendError, TimeoutError):
            async with asyncio.timeout(UNDO_S):
                await self._database.write(draft.group_id, UNDO, uuid=draft.id)

    async def _graph(self, group_id: str) -> Graphiti:
        """Return the graph of a group; it leaves out vectors that do not fit those of the group."""
        fits = self._embedder is not None and await fits_space(self._database, group_id, self._embedder)
        known = self._graphs.get((group_id, fits))
        if known is None:
            driver = GroupDriver(self._database, group_id)
            bridge = EmbedderBridge(self._embedder if fits else None)
            with undisturbed():
                known = Graphiti(
                    graph_driver=driver,
                    llm_client=self._model,
                    embedder=bridge,
                    cross_encoder=NoReranker(),
                    max_coroutines=AT_ONCE,
                )
            self._graphs[group_id, fits] = known
        return known


def _said_at(draft: EpisodeDraft) -> datetime:
    """Return when an episode was said; if only the day is known, the time of writing if on that day."""
    observed_at, times = draft.observed_at, draft.content.temporal
    written_at = times.created_at if times else None
    if written_at is None or observed_at.time() != time() or written_at.date() != observed_at.date():
        return observed_at
    return max(observed_at, in_utc(written_at))


@asynccontextmanager
async def open_reader(
    database: CypherDatabase,
    settings: LlmSettings,
    *,
    embedder: EmbedderAdapter | None,
    clock: Clock,
    locks: defaultdict[str, asyncio.Lock],
    timeout_s: float,
    pace: Pace = asyncio.sleep,
) -> AsyncIterator[EpisodeReader]:
    """Open a reader of episodes; it closes its connections to the model's endpoint when it ends."""
    async with ChatClient(endpoint_of(settings), clock=clock, pace=pace) as client:
        model = ChatModel(client, settings)
        yield EpisodeReader(
            database, model=model, embedder=embedder, clock=clock, locks=locks, timeout_s=timeout_s
        )
