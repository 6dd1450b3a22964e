"""The graph of one group, as ingestion writes it: entities, facts with their validity times, and episodes."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from composable_memory.content import GraphEdge, GraphNode, GraphQuery, GraphQueryResult, Health
from composable_memory.errors import BackendRejected
from composable_memory.facts import Forgotten
from composable_memory.interfaces import Clock, EmbedderAdapter, GraphAdapter
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row, texts_in
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.library.graph_records import (
    EntityRecord,
    FactRecord,
    as_edge,
    as_node,
    entity_of,
    entity_record,
    fact_of,
    fact_record,
)
from composable_memory_adapters.graphiti.library.vectors import embed_anew
from composable_memory_adapters.graphiti.reading.fact_candidates import find_candidates
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_adapters.graphiti.writing import graph_statements
from composable_memory_adapters.graphiti.writing.group_repository import GroupRepository
from composable_memory_adapters.graphiti.writing.superseding import (
    as_one_person,
    by_episode,
    record_for,
    retired_facts,
    split_restated,
    with_ends,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

FILTERED = 10
"""With a filter, this many times the requested nodes are read, since the filter drops some of them."""
JOINS = {"falkordb": "|", "neo4j": " OR "}

_WORD = re.compile(r"\w+")


class GraphitiGraph:
    """A `GraphAdapter` over one group of a database; writing the same thing twice stores it once.

    Without an embedder, or if its vectors do not fit those of the group, records are written without vectors;
    `reembed` adds them. All writers to the database share `locks`.
    """

    def __init__(
        self,
        database: CypherDatabase,
        group_id: str,
        *,
        embedder: EmbedderAdapter | None,
        clock: Clock,
        locks: defaultdict[str, asyncio.Lock] | None = None,
        search: SearchSettings | None = None,
    ) -> None:
        self._database = database
        self._group_id = group_id
        self._embedder = embedder
        self._clock = clock
        self._search = search or SearchSettings()
        self._lock = (defaultdict(asyncio.Lock) if locks is None else locks)[group_id]
        self._repository = GroupRepository(database, group_id, embedder)

    async def upsert_nodes(self, nodes: Sequence[GraphNode]) -> None:
        """Store entities, replacing those with the same id, and link them to episodes that mention them."""
        now = self._clock()
        wanted = {record.uuid: record for record in (entity_of(node, self._group_id, now) for node in nodes)}
        async with self._lock:
            known = await self._repository.entities(wanted)
            changed = _changed_entities(wanted, known)
            await (await self._repository.saver()).save_entities(changed)
            mentions = [
                (graph_id(self._group_id, episode), graph_id(self._group_id, node.id))
                for node in nodes
                for episode in texts_in(node.properties.get("episodes"))
            ]
            await self._repository.link(mentions, now)
            # Another Tom may split Tom and Tom Okafor into two people, and a full name may join two into one.
            namesakes = await self._repository.namesakes({one.uuid for one in changed})
            await self._repository.settle_people(namesakes, now)

    async def upsert_edges(self, edges: Sequence[GraphEdge]) -> None:
        """Store facts between existing entities, and work out when each of them ends.

        A known fact keeps its episodes and gains the new ones; the earliest start counts. A fact that has
        ended and is stated again for a later time becomes a separate fact with the same id.

        Raises:
            BackendRejected: an entity does not exist.
        """
        async with self._lock:
            stated = await self._records_of(edges)
            known = await self._repository.facts([one.uuid for one in stated])
            known |= await self._repository.kin_of(stated)
            several = (one for one in known.values() if len(one.told) > 1)
            retired = await self._repository.retirements({uuid for one in several for uuid in one.episodes})
            # This takes a second for a thousand facts.
            full = await self._repository.full_names([*stated, *known.values()])
            await self._store(await asyncio.to_thread(self._changes, stated, known, retired, full))
            await self._point_to_episodes(stated)
            # A fact between Tom and Tom Okafor proves that they are two people.
            ends = [(one.source_id, one.target_id) for one in edges if one.source_id != one.target_id]
            two = [end for pair in ends if len({end.partition(" ")[0] for end in pair}) == 1 for end in pair]
            await self._repository.settle_people(
                [graph_id(self._group_id, end) for end in two], self._clock()
            )

    async def query(self, query: GraphQuery) -> GraphQueryResult:
        """Return the named entities, then those with a word of the query in name or text, and their facts.

        `filters` keeps nodes whose properties have the given values. If only edges are wanted, return those
        that may answer: by words, by names and parts of names, and by similarity to the vector.
        """
        if query.edges_only:
            now = query.now or self._clock()
            return await find_candidates(self._database, self._group_id, query, self._search, now=now)
        named = await self._repository.entities([graph_id(self._group_id, one) for one in query.entity_ids])
        found = await self._matching(query)
        records = {**named, **{one.uuid: one for one in found}}
        nodes = [(uuid, as_node(record)) for uuid, record in records.items()]
        kept = [(uuid, node) for uuid, node in nodes if query.filters.items() <= node.properties.items()]
        kept = kept[: query.limit]
        rows = await self._touching([uuid for uuid, _ in kept], query.limit)
        return GraphQueryResult(nodes=tuple(node for _, node in kept), edges=tuple(map(_edge, rows)))

    async def health(self) -> Health:
        """Return whether the database answers."""
        return await self._database.health()

    async def save_episodes(self, drafts: Sequence[EpisodeDraft]) -> None:
        """Store episodes; storing a retired one again restores it and its facts."""
        async with self._lock:
            await self._save_episodes(drafts)

    async def mark_as_read(self, episode_ids: Sequence[str]) -> None:
        """Mark episodes as completely stored; unmarked ones count as interrupted."""
        async with self._lock:
            await self._repository.change(
                graph_statements.MARK_AS_READ, {"uuids": episode_ids}, at=self._clock()
            )

    async def retire(self, episode_ids: Sequence[str], *, at: datetime) -> int:
        """Invalidate, as of `at`, facts that only retired episodes support; return their number."""
        async with self._lock:
            return await self._repository.retire(episode_ids, at, self._clock())

    async def restore(self, episode_ids: Sequence[str]) -> None:
        """Undo `retire` for episodes."""
        async with self._lock:
            await self._repository.restore(episode_ids, self._clock())

    async def merge_episodes(self, merged: EpisodeDraft, episode_ids: Sequence[str]) -> None:
        """Replace several episodes by one; their facts stay and point to it."""
        async with self._lock:
            await self._save_episodes([merged])
            await self._repository.move_facts(episode_ids, merged.id, self._clock())

    async def as_stated(self, edges: Sequence[GraphEdge], episode_ids: Sequence[str]) -> list[GraphEdge]:
        """Return edges; rewordings of facts that these episodes state become the known facts."""
        known = (await self._repository.facts_of(episode_ids)).values()
        same = {(one.source, one.relation, one.target): one for one in known if one.invalid_at is None}
        return [
            replace(
                edge,
                id=fact.own_id,
                properties={**edge.properties, "fact": fact.fact, "exclusive": fact.exclusive},
            )
            if (fact := same.get(self._ends_of(edge)))
            else edge
            for edge in edges
        ]

    def _ends_of(self, edge: GraphEdge) -> tuple[str, str, str]:
        return graph_id(self._group_id, edge.source_id), edge.type, graph_id(self._group_id, edge.target_id)

    async def forget(self, episode_id: str) -> Forgotten | None:
        """Remove an episode, by its UUID or its content's id, and everything that only it supports."""
        async with self._lock:
            return await self._repository.forget(episode_id, self._clock())

    async def reembed(self) -> None:
        """Add missing vectors; after a change of the embedder, replace all of them."""
        if self._embedder is not None:
            async with self._lock:
                await embed_anew(self._database, self._group_id, self._embedder)

    async def _records_of(self, edges: Sequence[GraphEdge]) -> list[FactRecord]:
        ends = dict.fromkeys(end for edge in edges for end in (edge.source_id, edge.target_id))
        known = await self._repository.entities([graph_id(self._group_id, end) for end in ends])
        missing = [end for end in ends if graph_id(self._group_id, end) not in known]
        if missing:
            raise BackendRejected(
                BACKEND_ID, "store facts", status="unknown entities", body=", ".join(missing)
            )
        names = {end: known[graph_id(self._group_id, end)].name for end in ends}
        now = self._clock()
        return [fact_of(edge, self._group_id, names, now) for edge in edges]

    def _changes(
        self,
        stated: Sequence[FactRecord],
        known: dict[str, FactRecord],
        retired: Mapping[str, datetime],
        full: Mapping[str, str],
    ) -> "_Changes":
        """Return what statements change; `retired` episodes support nothing, `full` has ids of full names."""
        after = dict(known)
        same = _by_own_id(known.values())
        for one in (part for whole in stated for part in by_episode(whole)):
            periods = same.setdefault(one.own_id, {})
            record = record_for(one, periods.values(), self._group_id)
            after[record.uuid] = periods[record.uuid] = record

        def settled(facts: Mapping[str, FactRecord]) -> Mapping[str, FactRecord]:
            parted = split_restated(facts, self._group_id)
            parted |= {one.uuid: one for one in retired_facts(parted.values(), retired)}
            return with_ends(parted, self._clock())

        return _Changes.between(known, as_one_person(after, full, settled))

    async def _store(self, changes: "_Changes") -> None:
        await self._repository.change(graph_statements.DELETE_FACTS, {"uuids": changes.moved})
        await (await self._repository.saver()).save_facts(changes.changed)
        await self._repository.set_times(changes.timed)

    async def _point_to_episodes(self, stated: Sequence[FactRecord]) -> None:
        pairs = [(uuid, end) for one in stated for uuid in one.episodes for end in (one.source, one.target)]
        await self._repository.link(pairs, self._clock())
        facts: dict[str, list[str]] = {}
        for one in stated:
            for uuid in one.episodes:
                facts.setdefault(uuid, []).append(one.uuid)
        links = [{"episode": uuid, "facts": ids} for uuid, ids in facts.items()]
        await self._repository.change(graph_statements.ADD_FACTS_TO_EPISODES, {"links": links})

    async def _save_episodes(self, drafts: Sequence[EpisodeDraft]) -> None:
        rows = await self._repository.rows(graph_statements.EPISODES, uuids=[draft.id for draft in drafts])
        stored = {str(row["uuid"]): row for row in rows}
        await self._repository.restore(
            [uuid for uuid, row in stored.items() if row["retired_at"]], self._clock()
        )
        new = [draft for draft in drafts if draft.id not in stored or _differs(draft, stored[draft.id])]
        facts = {uuid: ids for uuid, row in stored.items() if isinstance(ids := row["facts"], list)}
        await (await self._repository.saver()).save_episodes(new, facts)

    async def _matching(self, query: GraphQuery) -> list[EntityRecord]:
        words = dict.fromkeys(_WORD.findall(query.text or ""))
        if not words:
            return []
        kind = self._database.kind
        limit = query.limit * (FILTERED if query.filters else 1)
        text = JOINS[kind].join(words)
        rows = await self._database.read(
            self._group_id, graph_statements.FIND_ENTITIES[kind], text=text, limit=limit
        )
        return [entity_record(row) for row in rows]

    async def _touching(self, uuids: Sequence[str], limit: int) -> list[Row]:
        if not uuids:
            return []
        return await self._database.read(
            self._group_id, graph_statements.TOUCHING, uuids=list(uuids), limit=limit
        )


class SummarisedGraph:
    """A graph for the facts of a summary, which it matches to the facts of the episodes covered."""

    def __init__(self, inner: GraphAdapter, graph: GraphitiGraph, covered: Sequence[str]) -> None:
        """Forward everything to `inner`; `graph` has the `covered` episodes."""
        self._inner = inner
        self._graph = graph
        self._covered = covered

    async def upsert_nodes(self, nodes: Sequence[GraphNode]) -> None:
        """Store entities."""
        await self._inner.upsert_nodes(nodes)

    async def upsert_edges(self, edges: Sequence[GraphEdge]) -> None:
        """Store facts; those already known from the covered episodes gain the new episode."""
        await self._inner.upsert_edges(await self._graph.as_stated(edges, self._covered))

    async def query(self, query: GraphQuery) -> GraphQueryResult:
        """Query the graph."""
        return await self._inner.query(query)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """What to store: whole facts, and facts with changed times only; `moved` ones are removed first."""

    moved: Sequence[str]
    changed: Sequence[FactRecord]
    timed: Sequence[FactRecord]

    @classmethod
    def between(cls, known: Mapping[str, FactRecord], after: Mapping[str, FactRecord]) -> "_Changes":
        changed = {
            uuid
            for uuid, one in after.items()
            if uuid not in known or _without_times(one) != _without_times(known[uuid])
        }
        return cls(
            moved=[uuid for uuid, one in after.items() if uuid in known and _ends(one) != _ends(known[uuid])],
            changed=[one for uuid, one in after.items() if uuid in changed],
            timed=[one for uuid, one in after.items() if uuid not in changed and one != known[uuid]],
        )


def _changed_entities(wanted: dict[str, EntityRecord], known: dict[str, EntityRecord]) -> list[EntityRecord]:
    """Return the entities that are new or changed; these keep the time they were first stored."""
    dated = [
        replace(one, created_at=known[uuid].created_at) if uuid in known else one
        for uuid, one in wanted.items()
    ]
    return [one for one in dated if one != known.get(one.uuid)]


def _by_own_id(facts: Iterable[FactRecord]) -> dict[str, dict[str, FactRecord]]:
    same: dict[str, dict[str, FactRecord]] = {}
    for one in facts:
        same.setdefault(one.own_id, {})[one.uuid] = one
    return same


def _without_times(fact: FactRecord) -> FactRecord:
    """Return a fact without the fields that `set_times` stores."""
    return replace(fact, invalid_at=None, expired_at=None, retired_at=None)


def _ends(fact: FactRecord) -> tuple[str, str]:
    return fact.source, fact.target


def _differs(draft: EpisodeDraft, row: Row) -> bool:
    stored = (row["name"], row["content"], row["source"], row["description"], row["valid_at"])
    wanted = (draft.content.id, draft.text, draft.source, draft.description, draft.observed_at.isoformat())
    return stored != wanted


def _edge(row: Row) -> GraphEdge:
    return as_edge(fact_record(row), str(row["source_id"]), str(row["target_id"]))
