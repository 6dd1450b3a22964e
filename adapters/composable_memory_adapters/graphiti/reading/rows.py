"""Converts result rows to facts, edges, entities and episodes (pure), and names the columns they need."""

from collections.abc import Mapping
from dataclasses import replace

from composable_memory.content import GraphEdge, MemoryTemporalMetadata
from composable_memory.facts import Episode, Fact, GraphEntity
from composable_memory.types import JsonValue, Origin
from composable_memory_adapters.graphiti.database.cypher import (
    Row,
    moment_in,
    number_in,
    real_in,
    text_in,
    texts_in,
)
from composable_memory_adapters.graphiti.episodes import origin_of

SAID = "coalesce(e.said_at, toString(coalesce(e.valid_at, e.created_at)))"
"""The sort key of facts: the day they hold from, then the time of day they were stated."""

FACT = f"""
e.uuid AS id, e.fact AS fact, e.name AS relation, startNode(e).name AS source, endNode(e).name AS target,
e.valid_at AS valid_at, e.invalid_at AS invalid_at, e.created_at AS created_at, e.expired_at AS expired_at,
e.expires_at AS expires_at, e.confidence AS confidence, e.episodes AS episodes, {SAID} AS said
"""
"""The columns of a fact, from the relationship `e`."""

EDGE = f"""{FACT}, e.own_id AS own_id, coalesce(startNode(e).own_id, startNode(e).uuid) AS source_id,
coalesce(endNode(e).own_id, endNode(e).uuid) AS target_id
"""
"""The columns of an edge, from the relationship `e`."""

ENTITY = "n.uuid AS id, n.name AS name, n.kind AS kind, labels(n) AS labels, n.summary AS summary"
"""The columns of an entity, from the node `n`."""

EPISODE = """
p.uuid AS id, p.name AS content_id, p.content AS text, p.valid_at AS observed_at, p.created_at AS ingested_at,
p.source AS source, p.source_description AS description
"""
"""The columns of an episode, from the node `p`."""

NEWEST = f"ORDER BY {SAID} DESC, e.uuid LIMIT $limit"
"""Orders facts newest first, by the day they hold from or were recorded; within a day, last stated first."""


def fact_of(row: Row, group_id: str) -> Fact:
    """Convert a row with the `FACT` columns to a fact without origins."""
    return fact_in(edge_of(row), group_id, {})


def edge_of(row: Row) -> GraphEdge:
    """Convert a row with the `EDGE` columns, and optionally `cosine`, to an edge.

    Its property `uuid` is the graph's own id: a fact that was restated later shares its other id with the
    first.
    """
    known: dict[str, JsonValue] = {
        "uuid": text_in(row.get("id")),
        "fact": text_in(row.get("fact")),
        "source": text_in(row.get("source")),
        "target": text_in(row.get("target")),
        "expired_at": text_in(row.get("expired_at")),
        "confidence": real_in(row.get("confidence")),
        "cosine": real_in(row.get("cosine")),
        "episodes": [*texts_in(row.get("episodes"))],
    }
    return GraphEdge(
        id=text_in(row.get("own_id") or row.get("id")),
        source_id=text_in(row.get("source_id")),
        target_id=text_in(row.get("target_id")),
        type=text_in(row.get("relation")),
        properties=known,
        temporal=MemoryTemporalMetadata(
            created_at=moment_in(row.get("created_at")),
            valid_from=moment_in(row.get("valid_at")),
            valid_to=moment_in(row.get("invalid_at")),
            expires_at=moment_in(row.get("expires_at")),
        ),
    )


def fact_in(edge: GraphEdge, group_id: str, labels: Mapping[str, str]) -> Fact:
    """Convert an edge of any graph to a fact; `labels` maps node ids to names."""
    known, times = edge.properties, edge.temporal or MemoryTemporalMetadata()
    source, target = (
        text_in(known.get(end)) or labels.get(id_, id_)
        for end, id_ in (("source", edge.source_id), ("target", edge.target_id))
    )
    return Fact(
        id=text_in(known.get("uuid")) or edge.id,
        group_id=group_id,
        text=text_in(known.get("fact")) or f"{source} {edge.type.replace('_', ' ').lower()} {target}",
        relation=edge.type,
        source=source,
        target=target,
        valid_at=times.valid_from,
        invalid_at=times.valid_to,
        created_at=times.created_at,
        expired_at=moment_in(known.get("expired_at")),
        expires_at=times.expires_at,
        confidence=real_in(known.get("confidence")),
        episodes=tuple(texts_in(known.get("episodes"))),
    )


def entity_of(row: Row, group_id: str) -> GraphEntity:
    """Convert a row with the `ENTITY` columns and the number of its `facts` to an entity."""
    label = next((one for one in texts_in(row.get("labels")) if one != "Entity"), None)
    return GraphEntity(
        id=text_in(row.get("id")),
        group_id=group_id,
        name=text_in(row.get("name")),
        kind=text_in(row.get("kind")) or label,
        summary=text_in(row.get("summary")),
        fact_count=number_in(row, "facts"),
    )


def episode_of(row: Row, group_id: str, facts: int) -> Episode:
    """Convert a row with the `EPISODE` columns to an episode; `facts` is how many were extracted from it."""
    return Episode(
        id=text_in(row.get("id")),
        group_id=group_id,
        content_id=text_in(row.get("content_id")),
        text=text_in(row.get("text")),
        observed_at=moment_in(row.get("observed_at")),
        ingested_at=moment_in(row.get("ingested_at")),
        origin=origin_of(text_in(row.get("description"))),
        source=text_in(row.get("source")),
        fact_count=facts,
    )


def with_origins(fact: Fact, origins: Mapping[str, Origin]) -> Fact:
    """Return a fact with the distinct origins of its episodes; `origins` is by episode id."""
    found = (origins.get(episode) for episode in fact.episodes)
    return replace(fact, origins=tuple(dict.fromkeys(origin for origin in found if origin is not None)))


def since(fact: Fact) -> float:
    """Return when a fact began to hold, or was recorded, in seconds since 1970; the far past if unknown."""
    moment = fact.valid_at or fact.created_at
    return moment.timestamp() if moment else float("-inf")
