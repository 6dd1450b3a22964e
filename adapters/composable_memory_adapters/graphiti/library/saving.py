"""Saves records with graphiti-core's own bulk statements, so that what is stored is a graph of its kind."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.episodes import EpisodeDraft
from composable_memory_adapters.graphiti.library.bridges import EmbedderBridge, GroupDriver
from composable_memory_adapters.graphiti.library.core import (
    EntityEdge,
    EntityNode,
    EpisodeType,
    EpisodicEdge,
    EpisodicNode,
    add_nodes_and_edges_bulk,
)
from composable_memory_adapters.graphiti.library.graph_records import EntityRecord, FactRecord, MentionRecord

T = TypeVar("T")
Vector = list[float]

BATCH = 500
"""Records in one statement: FalkorDB takes a statement as one text, which must not grow without bound."""


class Saver:
    """Writes records of one group, with vectors if there is an embedder; writing twice is writing once."""

    def __init__(self, driver: GroupDriver, embedder: EmbedderAdapter | None) -> None:
        self._driver = driver
        self._vectors = EmbedderBridge(embedder)

    async def save_episodes(self, drafts: Sequence[EpisodeDraft], facts: Mapping[str, Sequence[str]]) -> None:
        """Store episodes; `facts` has the ids of the facts that each is known to state."""
        for batch in _batches(drafts):
            await self._save([episodic_node(draft, facts.get(draft.id, ())) for draft in batch], [], [], [])

    async def save_entities(self, group_id: str, records: Sequence[EntityRecord]) -> None:
        """Store entities, with the vectors of their names."""
        vectors = await self._vectors.create_batch([_line(record.name) for record in records])
        for batch in _batches(list(zip(records, vectors, strict=True))):
            await self._save([], [], [_entity_node(group_id, *one) for one in batch], [])

    async def save_facts(self, group_id: str, records: Sequence[FactRecord]) -> None:
        """Store facts, with the vectors of their texts; their entities have to be there."""
        vectors = await self._vectors.create_batch([_line(record.fact) for record in records])
        for batch in _batches(list(zip(records, vectors, strict=True))):
            await self._save([], [], [], [_entity_edge(group_id, *one) for one in batch])

    async def save_mentions(self, group_id: str, records: Sequence[MentionRecord]) -> None:
        """Store which episode speaks of which entity, as far as both are there."""
        for batch in _batches(records):
            await self._save([], [_episodic_edge(group_id, record) for record in batch], [], [])

    async def _save(
        self,
        episodes: list[EpisodicNode],
        mentions: list[EpisodicEdge],
        nodes: list[EntityNode],
        edges: list[EntityEdge],
    ) -> None:
        await add_nodes_and_edges_bulk(self._driver, episodes, mentions, nodes, edges, self._vectors)


def episodic_node(draft: EpisodeDraft, facts: Sequence[str] = ()) -> EpisodicNode:
    """Return an episode as graphiti-core has it."""
    return EpisodicNode(
        uuid=draft.id,
        name=draft.content.id,
        group_id=draft.group_id,
        source=EpisodeType(draft.source),
        source_description=draft.description,
        content=draft.text,
        created_at=draft.ingested_at,
        valid_at=draft.observed_at,
        entity_edges=list(facts),
    )


def _entity_node(group_id: str, record: EntityRecord, vector: Vector) -> EntityNode:
    return EntityNode(
        uuid=record.uuid,
        name=record.name,
        group_id=group_id,
        labels=["Entity"],
        created_at=record.created_at,
        name_embedding=vector,
        summary=record.summary,
        attributes={
            "own_id": record.own_id,
            "kind": record.kind,
            "properties": record.properties,
            "provenance": record.provenance,
            "temporal": record.temporal,
        },
    )


def _entity_edge(group_id: str, record: FactRecord, vector: Vector) -> EntityEdge:
    return EntityEdge(
        uuid=record.uuid,
        source_node_uuid=record.source,
        target_node_uuid=record.target,
        name=record.relation,
        fact=record.fact,
        group_id=group_id,
        fact_embedding=vector,
        episodes=list(record.episodes),
        created_at=record.created_at,
        valid_at=record.valid_at,
        invalid_at=record.invalid_at,
        expired_at=record.expired_at,
        reference_time=record.reference_time,
        attributes={
            "own_id": record.own_id,
            "told": [f"{episode} {moment.isoformat()}" for episode, moment in record.told],
            "confidence": record.confidence,
            "exclusive": record.exclusive,
            "one_holder": record.one_holder,
            "ends": record.ends,
            "ends_at": _iso(record.ends_at),
            "retired_at": _iso(record.retired_at),
            "expires_at": _iso(record.expires_at),
            "properties": record.properties,
            "provenance": record.provenance,
            "temporal": record.temporal,
        },
    )


def _episodic_edge(group_id: str, record: MentionRecord) -> EpisodicEdge:
    return EpisodicEdge(
        uuid=record.uuid,
        group_id=group_id,
        source_node_uuid=record.episode,
        target_node_uuid=record.entity,
        created_at=record.created_at,
    )


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def _line(text: str) -> str:
    return " ".join(text.split())


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
