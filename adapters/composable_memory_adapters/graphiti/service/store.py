"""A Graphiti REST service as a fact store: searches, scores, adds and forgets through its client."""
# ruff: noqa: ARG002 - the arguments are those of `FactStore`

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import NoReturn, TypeVar

from composable_memory.content import Health
from composable_memory.errors import (
    BackendError,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
    UnsupportedOperation,
)
from composable_memory.facts import Episode, Fact, Forgotten, GraphEntity, Neighbourhood
from composable_memory.interfaces import BackendServices, Clock
from composable_memory.supervision.resource import closing
from composable_memory.supervision.tasks import all_of
from composable_memory.types import Degradation
from composable_memory_adapters.graphiti.episodes import EpisodeDraft
from composable_memory_adapters.graphiti.fact_stores import (
    BACKEND_ID,
    Added,
    Counts,
    EpisodeIds,
    FactAnswer,
    Question,
    ScoredFact,
)
from composable_memory_adapters.graphiti.groups import default_group, group_of
from composable_memory_adapters.graphiti.reading.fact_scoring import best_first, score_by_place
from composable_memory_adapters.graphiti.reading.question_words import question_words
from composable_memory_adapters.graphiti.reading.rows import since, with_origins
from composable_memory_adapters.graphiti.service.client import GraphitiClient
from composable_memory_adapters.graphiti.service.episode_lookup import (
    Origins,
    episode_of,
    episodes_of,
    episodes_since,
)
from composable_memory_adapters.graphiti.service.messages import (
    ServiceEpisode,
    as_episode,
    as_fact,
    dated,
    message_key,
)
from composable_memory_adapters.graphiti.settings import GraphitiSettings

CANDIDATES = 50
"""The fewest facts requested: a smaller answer is a prefix of a larger one."""
MOST_WORDS = 48
"""Longer questions are truncated to this many words; above 63 the service searches for none."""
EPISODES_FOR_FACTS = 200
AT_ONCE = 4
"""The most concurrent requests of one call."""
BEFORE_ALL = datetime.min.replace(tzinfo=UTC)

T = TypeVar("T")
R = TypeVar("R")


class ServiceStore:
    """Facts behind a client, which it closes; `health` tries a search in `group`.

    The service accepts episodes and reads them later, without saying what became of them. So `add` is certain
    only of those it finds among the episodes; it sends the others, and `episodes` shows whether they have
    arrived. Calling it again before then sends them again, except those that an interrupted call may have
    sent already: they count as sent once.

    The service names entities only by id: `source` and `target` of its facts are ids.
    """

    def __init__(
        self,
        client: GraphitiClient,
        *,
        group: str,
        clock: Clock,
    ) -> None:
        self._client = client
        self._group = group
        self._clock = clock
        self._origins = Origins(client)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unanswered: set[tuple[str, str]] = set()

    # --- searching ------------------------------------------------------------------------------------------

    async def search(self, question: Question) -> FactAnswer:
        """Return the facts that answer; without origins if the service does not return its episodes."""
        if not question.text.strip():
            return FactAnswer()
        found = await _each(question.groups, lambda group_id: self._scored(group_id, question))
        best = best_first([one for scored in found for one in scored], question.limit)
        facts, degraded = await self._with_origins([one.fact for one in best])
        scored = [replace(one, fact=fact) for one, fact in zip(best, facts, strict=True)]
        return FactAnswer(facts=tuple(scored), degraded=degraded, engines={"facts": "service"})

    async def fact(self, group_id: str, fact_id: str) -> Fact | None:
        """Return one fact; None also if the service cannot read the graph of the group."""
        found = await self._client.fact(fact_id)
        if found is None:
            return None
        facts, _ = await self._with_origins([as_fact(group_id, found)])
        return facts[0]

    async def history(self, fact: Fact) -> Sequence[Fact]:
        """Return the known facts of the same entity and relation, oldest first."""
        found = await self._asked(fact.group_id, fact.text, CANDIDATES)
        alike = {one.id: one for one in found if (one.source, one.relation) == (fact.source, fact.relation)}
        return sorted({**alike, fact.id: fact}.values(), key=since)

    async def facts(
        self,
        groups: Sequence[str],
        *,
        about: str | None,
        as_of: datetime | None,
        current_at: datetime | None,
        limit: int,
    ) -> Sequence[Fact]:
        """Return facts, newest first: those found for `about`, or else those of the last episodes."""
        if about is None:
            found = await _each(groups, self._of_last_episodes)
        else:
            found = await _each(groups, lambda group_id: self._about(group_id, about, limit))
        asked = [
            fact
            for facts in found
            for fact in facts
            if (as_of is None or fact.holds_at(as_of)) and (current_at is None or fact.is_current(current_at))
        ]
        facts, _ = await self._with_origins(sorted(asked, key=since, reverse=True)[:limit])
        return facts

    async def episodes(self, groups: Sequence[str], *, limit: int, place: str = "") -> Sequence[Episode]:
        """Return episodes, latest observed first; the service cannot filter by place."""
        found = await _each(groups, lambda group_id: self._last_episodes(group_id, limit))
        every = [one for episodes in found for one in episodes]
        return sorted(every, key=lambda one: one.observed_at or BEFORE_ALL, reverse=True)[:limit]

    async def episode(self, group_id: str, episode_id: str) -> Episode | None:
        """Return one episode, by the graph's or the content's id, among the last few thousand."""
        found = await episode_of(self._client, group_id, episode_id)
        return None if found is None else as_episode(group_id, found)

    # --- changing -------------------------------------------------------------------------------------------

    async def add(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> Added:
        """Send the missing drafts in order; those that may already have been accepted count as sent.

        Raises:
            BackendUnavailable: the service cannot be reached.
            BackendRejected: it refuses the messages.
        """
        async with self._turns[group_id]:
            there = await self._there(group_id, drafts)
            missing = {key: draft for draft in drafts if (key := _key(draft)) not in there}
            unsent = [draft for key, draft in missing.items() if (group_id, key) not in self._unanswered]
            if unsent:
                await self._send(group_id, unsent)
            self._unanswered.difference_update((group_id, _key(draft)) for draft in drafts)
        return Added(certain=not missing)

    async def forget(self, group_id: str, episode_id: str) -> Forgotten | None:
        """Remove an episode, and the facts that only it supports; entities without facts stay.

        If a content was changed, all its episodes are removed.

        Raises:
            BackendRejected: the service shows the episode but does not find it, as on FalkorDB outside the
                graph it is configured for.
        """
        async with self._turns[group_id]:
            episodes = await episodes_of(self._client, group_id, episode_id)
            gone = {one.uuid for one in episodes}
            edges = dict.fromkeys(edge for one in episodes for edge in one.entity_edges)
            facts = sum([await self._forget_fact(edge, gone) for edge in edges])
            for one in episodes:
                await self._forget_episode(group_id, one)
        return Forgotten(episode_id=episodes[-1].uuid, facts=facts, entities=0) if episodes else None

    # --- status ---------------------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, str]:
        """Return the kind of store, and its address."""
        return {"kind": "graphiti-service", "address": self._client.address}

    async def health(self) -> Health:
        """Return whether the service answers, and can query its database."""
        health = await self._client.health()
        if not health.ok:
            return health
        try:
            await self._client.query_hybrid(query="health", limit=1, group_ids=[self._group])
        except BackendError as error:
            return Health(ok=False, message=str(error))
        return health

    async def close(self) -> None:
        """Close the client; calling it again does nothing."""
        await self._client.close()

    # --- not supported by the service -----------------------------------------------------------------------

    async def entities(
        self, groups: Sequence[str], *, named: str | None, limit: int
    ) -> Sequence[GraphEntity]:
        """Refuse: the service only returns the ids of entities."""
        _refuse("list entities, which a Graphiti service does not provide")

    async def neighbourhood(
        self, groups: Sequence[str], entity: str | None, *, depth: int, limit: int
    ) -> Neighbourhood:
        """Refuse: the service only returns the ids of entities."""
        _refuse("show a neighbourhood, since a Graphiti service does not list its entities")

    async def retire(self, group_id: str, episode_ids: Sequence[str], *, at: datetime) -> int:
        """Do nothing: the service sets no times; its model ends what a later episode contradicts."""
        return 0

    async def merge(self, group_id: str, merged: EpisodeDraft, episode_ids: Sequence[str]) -> None:
        """Refuse: the service cannot change episodes."""
        _refuse("merge episodes, which a Graphiti service does not do")

    async def episode_ids(self, group_id: str) -> EpisodeIds | None:
        """Return None: the service only shows the last episodes."""
        return None

    async def scrub(self) -> str:
        """Return a note that removed content in the service's files is for its owner to delete."""
        return "the logs, journals and backups of the Graphiti service belong to its owner"

    async def counts(self, groups: Sequence[str]) -> Counts:
        """Return unknown counts: the service does not count."""
        return Counts()

    async def refresh(self, groups: Sequence[str], *, force: bool) -> Sequence[str]:
        """Do nothing: indexes and vectors are the service's own."""
        return ()

    # --- helpers --------------------------------------------------------------------------------------------

    async def _asked(self, group_id: str, text: str, limit: int) -> list[Fact]:
        query = " ".join(text.split()[:MOST_WORDS])
        # One group at a time: the service does not say which group a fact is from.
        found = await self._client.query_hybrid(query=query, limit=limit, group_ids=[group_id])
        return [as_fact(group_id, one) for one in found]

    async def _scored(self, group_id: str, question: Question) -> list[ScoredFact]:
        """Score facts; those that do not hold at the time asked about score lower."""
        words = question_words(question.text)
        found = await self._asked(group_id, question.text, max(CANDIDATES, question.limit))
        return [
            score_by_place(fact, place, words, holds=question.is_true_of(fact))
            for place, fact in enumerate(found)
            if question.admits(fact)
        ]

    async def _with_origins(self, facts: Sequence[Fact]) -> tuple[list[Fact], tuple[Degradation, ...]]:
        try:
            origins = {
                group_id: await self._origins.of(group_id, _episodes_of(facts, group_id))
                for group_id in dict.fromkeys(fact.group_id for fact in facts)
            }
        except BackendError as error:
            lost = Degradation(backend_id=BACKEND_ID, code="failed", reason=f"facts without sources: {error}")
            return list(facts), (lost,)
        return [with_origins(fact, origins[fact.group_id]) for fact in facts], ()

    async def _about(self, group_id: str, entity: str, limit: int) -> list[Fact]:
        wanted = entity.casefold()
        found = await self._asked(group_id, entity, max(CANDIDATES, limit))
        return [one for one in found if wanted in one.text.casefold() or entity in (one.source, one.target)]

    async def _of_last_episodes(self, group_id: str) -> list[Fact]:
        last = await self._client.episodes(group_id, last_n=EPISODES_FOR_FACTS)
        ids = dict.fromkeys(edge for episode in reversed(last) for edge in episode.entity_edges)
        found = await _each(list(ids)[:EPISODES_FOR_FACTS], self._client.fact)
        facts = [as_fact(group_id, one) for one in found if one is not None]
        if ids and not facts:
            _refuse(
                f"list the facts of group {group_id!r}, which it cannot read; {_OTHER_GRAPH.format(group_id)}"
            )
        return facts

    async def _last_episodes(self, group_id: str, limit: int) -> list[Episode]:
        return [as_episode(group_id, one) for one in await self._client.episodes(group_id, last_n=limit)]

    async def _there(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> frozenset[str]:
        """Return the keys of the episodes that are at least as recent as these drafts."""
        now = self._clock()
        oldest = min((dated(draft, now) for draft in drafts), default=None)
        found = [] if oldest is None else await episodes_since(self._client, group_id, oldest)
        told = (as_episode(group_id, one) for one in found)
        return frozenset(message_key(one.content_id, one.text) for one in told)

    async def _send(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> None:
        keys = {(group_id, _key(draft)) for draft in drafts}
        try:
            await self._client.send(group_id, drafts, on_sending=lambda: self._unanswered.update(keys))
        except BackendTimeout:
            if self._unanswered.isdisjoint(keys):
                raise
        except (BackendRejected, BackendUnavailable):
            self._unanswered -= keys
            raise

    async def _forget_fact(self, fact_id: str, gone: set[str]) -> bool:
        """Remove a fact if only these episodes support it; return whether it was removed."""
        fact = await self._client.fact(fact_id)
        if fact is None or not fact.episodes or not gone.issuperset(fact.episodes):
            return False
        return await self._client.forget_fact(fact_id)

    async def _forget_episode(self, group_id: str, episode: ServiceEpisode) -> None:
        if not await self._client.forget(episode.uuid):
            body = f"it shows the episode but cannot remove it; on FalkorDB, {_OTHER_GRAPH.format(group_id)}"
            raise BackendRejected(BACKEND_ID, "forget an episode", status="404 Not Found", body=body)


def _refuse(operation: str) -> NoReturn:
    """Raise the error for an unsupported operation; `operation` names it and says why."""
    raise UnsupportedOperation(BACKEND_ID, operation)


_OTHER_GRAPH = "its variable FALKORDB_DATABASE has to be {!r}"


def _key(draft: EpisodeDraft) -> str:
    return message_key(draft.content.id, draft.text)


def _episodes_of(facts: Sequence[Fact], group_id: str) -> list[str]:
    return [one for fact in facts if fact.group_id == group_id for one in fact.episodes]


async def _each(items: Iterable[T], ask: Callable[[T], Awaitable[R]]) -> tuple[R, ...]:
    """Call `ask` for each item, a few at once; the first failure cancels the others and is raised."""
    room = asyncio.Semaphore(AT_ONCE)

    async def asked(item: T) -> R:
        async with room:
            return await ask(item)

    return await all_of(*map(asked, items))


TIMEOUT_MS = 60_000
"""The longest wait for one reply; a search gets less, by the deadline of the backend."""


@asynccontextmanager
async def open_service(settings: GraphitiSettings, services: BackendServices) -> AsyncIterator[ServiceStore]:
    """Yield the configured service; it is connected to on first use.

    Requests are not logged here: the caller of the store does that.
    """
    client = GraphitiClient(
        base_url=settings.service_url,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        timeout_ms=TIMEOUT_MS,
        clock=services.clock,
    )
    store = ServiceStore(
        client,
        group=group_of(settings, default_group(services.agent_id, services.workspace_id), None),
        clock=services.clock,
    )
    async with closing(store):
        yield store
