"""Rows of answers as facts, edges, entities and episodes (pure), and the columns that they are read from."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from composable_memory.content import GraphEdge, MemoryTemporalMetadata
from composable_memory.facts import Episode, Fact, GraphEntity
from composable_memory.types import JsonValue, Origin
from composable_memory_adapters.graphiti.database.cypher import Row
from composable_memory_adapters.graphiti.episodes import origin_of

__all__ = [
    "EDGE",
    "ENTITY",
    "EPISODE",
    "FACT",
    "NEWEST",
    "edge_of",
    "entity_of",
    "episode_of",
    "fact_in",
    "fact_of",
    "iso",
    "number_in",
    "since",
    "with_origins",
]

FACT = """
e.uuid AS id, e.fact AS fact, e.name AS relation, startNode(e).name AS source, endNode(e).name AS target,
e.valid_at AS valid_at, e.invalid_at AS invalid_at, e.created_at AS created_at, e.expired_at AS expired_at,
e.expires_at AS expires_at, e.confidence AS confidence, e.episodes AS episodes
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

NEWEST = "ORDER BY toString(coalesce(e.valid_at, e.created_at)) DESC, e.uuid LIMIT $limit"
"""The newest facts, by the time they hold from or else were recorded at."""


def fact_of(row: Row, group_id: str) -> Fact:
    """Return a row with the columns `FACT` as a fact without origins."""
    return fact_in(edge_of(row), group_id, {})


def edge_of(row: Row) -> GraphEdge:
    """Return a row with the columns `EDGE`, and perhaps `cosine`, as an edge.

    `uuid` among its properties is the graph's own id: a fact that began anew shares the other with the first.
    """
    known: dict[str, JsonValue] = {
        "uuid": _text(row.get("id")),
        "fact": _text(row.get("fact")),
        "source": _text(row.get("source")),
        "target": _text(row.get("target")),
        "expired_at": _text(row.get("expired_at")),
        "confidence": _number(row.get("confidence")),
        "cosine": _number(row.get("cosine")),
        "episodes": [*_texts(row.get("episodes"))],
    }
    return GraphEdge(
        id=_text(row.get("own_id") or row.get("id")),
        source_id=_text(row.get("source_id")),
        target_id=_text(row.get("target_id")),
        type=_text(row.get("relation")),
        properties=known,
        temporal=MemoryTemporalMetadata(
            created_at=_moment(row.get("created_at")),
            valid_from=_moment(row.get("valid_at")),
            valid_to=_moment(row.get("invalid_at")),
            expires_at=_moment(row.get("expires_at")),
        ),
    )


def fact_in(edge: GraphEdge, group_id: str, labels: Mapping[str, str]) -> Fact:
    """Return what an edge of any graph says; `labels` has the names of nodes by their ids."""
    known, times = edge.properties, edge.temporal or MemoryTemporalMetadata()
    source, target = (
        _text(known.get(end)) or labels.get(id_, id_)
        for end, id_ in (("source", edge.source_id), ("target", edge.target_id))
    )
    return Fact(
        id=_text(known.get("uuid")) or edge.id,
        group_id=group_id,
        text=_text(known.get("fact")) or f"{source} {edge.type.replace('_', ' ').lower()} {target}",
        relation=edge.type,
        source=source,
        target=target,
        valid_at=times.valid_from,
        invalid_at=times.valid_to,
        created_at=times.created_at,
        expired_at=_moment(known.get("expired_at")),
        expires_at=times.expires_at,
        confidence=_number(known.get("confidence")),
        episodes=tuple(_texts(known.get("episodes"))),
    )


def entity_of(row: Row, group_id: str) -> GraphEntity:
    """Return a row with the columns `ENTITY` and `facts`, their number, as an entity."""
    label = next((one for one in _texts(row.get("labels")) if one != "Entity"), None)
    return GraphEntity(
        id=_text(row.get("id")),
        group_id=group_id,
        name=_text(row.get("name")),
        kind=_text(row.get("kind")) or label,
        summary=_text(row.get("summary")),
        fact_count=number_in(row, "facts"),
    )


def episode_of(row: Row, group_id: str, facts: int) -> Episode:
    """Return a row with the columns `EPISODE` as an episode that `facts` facts were taken from."""
    return Episode(
        id=_text(row.get("id")),
        group_id=group_id,
        content_id=_text(row.get("content_id")),
        text=_text(row.get("text")),
        observed_at=_moment(row.get("observed_at")),
        ingested_at=_moment(row.get("ingested_at")),
        origin=origin_of(_text(row.get("description"))),
        source=_text(row.get("source")),
        fact_count=facts,
    )


def with_origins(fact: Fact, origins: Mapping[str, Origin]) -> Fact:
    """Return a fact with the different places its episodes are from, by episode id."""
    found = (origins.get(episode) for episode in fact.episodes)
    return replace(fact, origins=tuple(dict.fromkeys(origin for origin in found if origin is not None)))


def number_in(row: Row, name: str) -> int:
    """Return a whole number of a row; 0 if there is none."""
    value = row.get(name)
    return value if isinstance(value, int) else 0


def since(fact: Fact) -> float:
    """Return when a fact began to hold, else was recorded, in seconds since 1970; the far past if unknown."""
    moment = fact.valid_at or fact.created_at
    return moment.timestamp() if moment else float("-inf")


def iso(moment: datetime) -> str:
    """Return a time in UTC as the graph holds it."""
    return moment.astimezone(UTC).isoformat()


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _texts(value: object) -> Sequence[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
