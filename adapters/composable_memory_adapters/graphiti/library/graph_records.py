"""Entities, facts and mentions as stored in a graph, converted from nodes, edges and rows and back (pure)."""

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, date, datetime, time
from functools import cache
from typing import NamedTuple

from pydantic import TypeAdapter

from composable_memory.content import GraphEdge, GraphNode, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.time.windows import in_zone
from composable_memory.types import JsonValue
from composable_memory_adapters.graphiti.database.cypher import (
    Row,
    moment_in,
    real_in,
    text_in,
    texts_in,
)
from composable_memory_adapters.graphiti.episodes import graph_id
from composable_memory_adapters.graphiti.observed_times import in_utc
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRecord:
    """An entity. `properties`, `provenance` and `temporal` are JSON texts, returned unchanged."""

    uuid: str
    own_id: str
    name: str
    created_at: datetime
    summary: str = ""
    kind: str = ""
    properties: str = "{}"
    provenance: str | None = None
    temporal: str | None = None


class Told(NamedTuple):
    """An episode, since when it says a fact holds, and when that was written, if known."""

    episode: str
    since: datetime
    written_at: datetime | None = None

    @property
    def order(self) -> "Order":
        """Return its place among all statements of a fact."""
        return order_of(self.since, self.written_at)

    @property
    def times(self) -> str:
        """Return its times as text."""
        return " ".join(one.isoformat() for one in self[1:] if one)


Order = tuple[date, datetime, datetime]
"""The sort key of a statement: its day, then its time, or when it was written if only the day is known."""

_PAST = datetime.min.replace(tzinfo=UTC)
EVER: Order = (date.min, _PAST, _PAST)


def order_of(since: datetime, written_at: datetime | None = None) -> Order:
    """Return the sort key of what holds from a time or, at midnight in UTC, from some time that day.

    The day of a time is the writer's local day.
    """
    written_at = written_at or since
    if since.time() == time():
        return since.date(), written_at, since
    return in_zone(since, written_at.tzinfo).date(), since, written_at


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRecord:
    """A fact between the entities `source` and `target`, which are UUIDs as `uuid` is.

    It ends by itself at `ends_at` and was retracted at `retired_at`; `invalid_at` is its effective end,
    because of these or of another fact, and `expired_at` is when that became known. An `exclusive` fact
    allows its source no other target at the same time, and one with `one_holder` allows its target no other
    source; one that `ends` says that earlier facts of its entities no longer hold. `told` has what each of
    its episodes says about its time, `start` the earliest of these, and `beginnings` all of them in order.
    For the JSON texts see `EntityRecord`.
    """

    uuid: str
    own_id: str
    source: str
    target: str
    relation: str
    fact: str
    created_at: datetime
    episodes: tuple[str, ...] = ()
    told: tuple[Told, ...] = ()
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    expired_at: datetime | None = None
    ends_at: datetime | None = None
    retired_at: datetime | None = None
    reference_time: datetime | None = None
    expires_at: datetime | None = None
    confidence: float | None = None
    exclusive: bool = False
    one_holder: bool = False
    ends: bool = False
    properties: str = "{}"
    provenance: str | None = None
    temporal: str | None = None
    start: Order = field(init=False, compare=False, repr=False)
    beginnings: tuple[tuple[Order, datetime], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Compute its times once: the facts of one thing are compared pairwise."""
        said = {(one.order, one.since) for one in self.told}
        start = min(said, default=(EVER,))[0]
        if self.valid_at and not any(one.since <= self.valid_at for one in self.told):
            start = order_of(self.valid_at)  # the statement of this was forgotten
        if self.valid_at:
            said.add((start, self.valid_at))
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "beginnings", tuple(sorted(said)))

    @property
    def end(self) -> Order:
        """Return when it ends, or ends others; if that is when it was said, in the order of that day."""
        if self.ends_at is None:
            return EVER
        if self.temporal is None or self.ends_at != self.reference_time:
            return order_of(self.ends_at)
        return order_of(self.ends_at, _temporal().validate_json(self.temporal).created_at)

    @property
    def says_no_start(self) -> bool:
        """Return whether it only says that something ended, and nothing about the time before."""
        return self.ends and _properties(self.properties).get("mood") in ("ended", "over")

    def may_end(self, other: "FactRecord") -> bool:
        """Return whether it says that another fact of its source ended: that one, or all of its relation."""
        is_over = self.ends and _properties(self.properties).get("mood") == "over"
        return self.ends and (is_over or self.target == other.target)


@cache  # built on first use: this takes longer than a search
def _provenance() -> TypeAdapter[MemoryProvenance]:
    return TypeAdapter(MemoryProvenance)


@cache
def _temporal() -> TypeAdapter[MemoryTemporalMetadata]:
    return TypeAdapter(MemoryTemporalMetadata)


def entity_of(node: GraphNode, group_id: str, now: datetime) -> EntityRecord:
    """Convert a node to a record."""
    return EntityRecord(
        uuid=graph_id(group_id, node.id),
        own_id=node.id,
        name=node.label,
        created_at=now,
        summary=text_in(node.properties.get("text")),
        kind=text_in(node.properties.get("kind") or node.properties.get("type")),
        # Links store which episodes mention it, so that another episode changes nothing here.
        properties=_json({name: value for name, value in node.properties.items() if name != "episodes"}),
        provenance=_provenance_text(node.provenance),
        temporal=_temporal_text(node.temporal),
    )


def fact_of(edge: GraphEdge, group_id: str, names: Mapping[str, str], now: datetime) -> FactRecord:
    """Convert an edge to a record; `names` maps node ids to the names of entities."""
    times = edge.temporal or MemoryTemporalMetadata()
    observed_at = _utc(times.observed_at)
    episodes = tuple(graph_id(group_id, one) for one in texts_in(edge.properties.get("episodes")))
    is_end = edge.properties.get("ends") is True
    valid_at = _utc(times.valid_from) or (None if is_end else observed_at)
    stated = _stated_in(edge, group_id) or tuple(Told(one, valid_at) for one in episodes if valid_at)
    return FactRecord(
        uuid=graph_id(group_id, edge.id),
        own_id=edge.id,
        source=graph_id(group_id, edge.source_id),
        target=graph_id(group_id, edge.target_id),
        relation=edge.type,
        fact=text_in(edge.properties.get("fact")) or _sentence(edge, names),
        created_at=now,
        episodes=episodes,
        told=stated,
        valid_at=min((one.since for one in stated), default=valid_at),
        ends_at=_utc(times.valid_to),
        reference_time=observed_at or _utc(times.valid_from),
        expires_at=_utc(times.expires_at),
        confidence=real_in(edge.properties.get("confidence")),
        exclusive=edge.properties.get("exclusive") is True,
        one_holder=edge.properties.get("one_holder") is True,
        ends=is_end,
        properties=_json(edge.properties),
        provenance=_provenance_text(edge.provenance),
        temporal=_temporal_text(edge.temporal),
    )


def entity_record(row: Row) -> EntityRecord:
    """Read a stored entity; if graphiti-core found it, its UUID is its id."""
    return EntityRecord(
        uuid=text_in(row["uuid"]),
        own_id=text_in(row["own_id"] or row["uuid"]),
        name=text_in(row["name"]),
        created_at=moment_in(row["created_at"]) or datetime.min.replace(tzinfo=UTC),
        summary=text_in(row["summary"]),
        kind=text_in(row["kind"]),
        properties=text_in(row["properties"]) or "{}",
        provenance=_optional(row["provenance"]),
        temporal=_optional(row["temporal"]),
    )


def fact_record(row: Row) -> FactRecord:
    """Read a stored fact; if graphiti-core found it, its end is its own."""
    is_ours = row["own_id"] is not None
    return FactRecord(
        uuid=text_in(row["uuid"]),
        own_id=text_in(row["own_id"] or row["uuid"]),
        source=text_in(row["source"]),
        target=text_in(row["target"]),
        relation=text_in(row["relation"]),
        fact=text_in(row["fact"]),
        created_at=moment_in(row["created_at"]) or datetime.min.replace(tzinfo=UTC),
        episodes=tuple(texts_in(row["episodes"])),
        told=tuple(_told(*text.split()) for text in texts_in(row["told"])),
        valid_at=moment_in(row["valid_at"]),
        invalid_at=moment_in(row["invalid_at"]),
        expired_at=moment_in(row["expired_at"]),
        ends_at=moment_in(row["ends_at"] if is_ours or row["ends_at"] else row["invalid_at"]),
        retired_at=moment_in(row["retired_at"]),
        reference_time=moment_in(row["reference_time"]),
        expires_at=moment_in(row["expires_at"]),
        confidence=real_in(row["confidence"]),
        exclusive=row["exclusive"] is True,
        one_holder=row["one_holder"] is True,
        ends=row["ends"] is True,
        properties=text_in(row["properties"]) or "{}",
        provenance=_optional(row["provenance"]),
        temporal=_optional(row["temporal"]),
    )


def as_node(record: EntityRecord) -> GraphNode:
    """Convert a record back to its node; if graphiti-core found it, to what is known of one."""
    is_foreign = record.own_id == record.uuid
    return GraphNode(
        id=record.own_id,
        label=record.name,
        properties=_properties(record.properties) or _non_empty(text=record.summary if is_foreign else ""),
        provenance=_provenance().validate_json(record.provenance) if record.provenance else None,
        temporal=_temporal().validate_json(record.temporal) if record.temporal else None,
    )


def as_edge(record: FactRecord, source_id: str, target_id: str) -> GraphEdge:
    """Convert a record back to its edge; if graphiti-core found it, to what is known of one."""
    is_foreign = record.own_id == record.uuid
    return GraphEdge(
        id=record.own_id,
        source_id=source_id,
        target_id=target_id,
        type=record.relation,
        properties=_properties(record.properties) or _non_empty(fact=record.fact if is_foreign else ""),
        provenance=_provenance().validate_json(record.provenance) if record.provenance else None,
        temporal=_temporal().validate_json(record.temporal) if record.temporal else None,
    )


def _stated_in(edge: GraphEdge, group_id: str) -> tuple[Told, ...]:
    """Return since when each episode says the edge holds, as far as its properties tell."""
    stated = edge.properties.get("told")
    told = stated.items() if isinstance(stated, dict) else ()
    return tuple(_told(graph_id(group_id, own_id), *text_in(times).split()) for own_id, times in told)


def told_text(told: Told) -> str:
    """Format what an episode says for the database; `_told` parses it."""
    return f"{told.episode} {told.times}"


def _told(episode: str, since: str, written_at: str | None = None) -> Told:
    written = datetime.fromisoformat(written_at) if written_at else None
    return Told(episode, in_utc(datetime.fromisoformat(since)), written)


def _sentence(edge: GraphEdge, names: Mapping[str, str]) -> str:
    relation = edge.type.replace("_", " ").lower()
    return f"{names.get(edge.source_id, '')} {relation} {names.get(edge.target_id, '')}".strip()


def _non_empty(**texts: str) -> dict[str, JsonValue]:
    return {name: text for name, text in texts.items() if text}


def _json(properties: Mapping[str, JsonValue]) -> str:
    return json.dumps(dict(properties), ensure_ascii=False, sort_keys=True)


def _properties(text: str) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = json.loads(text)
    return found


def _provenance_text(provenance: MemoryProvenance | None) -> str | None:
    return _provenance().dump_json(provenance).decode() if provenance else None


def _temporal_text(temporal: MemoryTemporalMetadata | None) -> str | None:
    return _temporal().dump_json(temporal).decode() if temporal else None


def _optional(value: object) -> str | None:
    return text_in(value) or None


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else in_utc(moment)
