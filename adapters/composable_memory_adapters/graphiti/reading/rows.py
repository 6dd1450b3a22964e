"""Rows of answers as facts, edges, entities and episodes (pure), and the columns that they are read from."""

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
"""What orders facts: the day they hold from, and when on it they were said."""

FACT = f"""
e.uuid AS id, e.fact AS fact, e.name AS relation, startNode(e).name AS source, endNode(e).name AS target,
e.valid_at AS valid_at, e.invalid_at AS invalid_at, e.created_at AS created_at, e.expired_at AS expired_at,
e.expires_at AS expires_at, e.confidence AS confidence, e.episodes AS episodes, {SAID} AS said
"""
"""The columns of a fact, of the relationship `e`."""

EDGE = f"""{FACT}, e.own_id AS own_id, coalesce(startNode(e).own_id, startNode(e).uuid) AS source_id,
coalesce(endNode(e).own_id, endNode(e).uuid) AS target_id
"""
"""The columns of an edge, of the relationship `e`."""

ENTITY = "n.uuid AS id, n.name AS name, n.kind AS kind, labels(n) AS labels, n.summary AS summary"
"""The columns of an entity, of the node `n`."""

EPISODE = """
p.uuid AS id, p.name AS content_id, p.content AS text, p.valid_at AS observed_at, p.created_at AS ingested_at,
p.source AS source, p.source_description AS description
"""
"""The columns of an episode, of the node `p`."""

NEWEST = f"ORDER BY {SAID} DESC, e.uuid LIMIT $limit"
"""The newest facts, by the day they hold from or else were recorded on; of one day, what was said last."""


def fact_of(row: Row, group_id: str) -> Fact:
    """Return a row with the columns `FACT` as a fact without origins."""
    return fact_in(edge_of(row), group_id, {})


def edge_of(row: Row) -> GraphEdge:
    """Return a row with the columns `EDGE`, and perhaps `cosine`, as an edge.

    `uuid` among its properties is the graph's own id: a fact that began anew shares the other with the first.
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
    """Return what an edge of any graph says; `labels` has the names of nodes by their ids."""
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
    """Return a row with the columns `ENTITY` and `facts`, their number, as an entity."""
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
    """Return a row with the columns `EPISODE` as an episode that `facts` facts were taken from."""
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
    """Return a fact with the different places its episodes are from, by episode id."""
    found = (origins.get(episode) for episode in fact.episodes)
    return replace(fact, origins=tuple(dict.fromkeys(origin for origin in found if origin is not None)))


def since(fact: Fact) -> float:
    """Return when a fact began to hold, else was recorded, in seconds since 1970; the far past if unknown."""
    moment = fact.valid_at or fact.created_at
    return moment.timestamp() if moment else float("-inf")
