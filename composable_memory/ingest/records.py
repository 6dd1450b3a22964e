"""Turns what was extracted from contents into graph nodes, edges and vector records; stable ids (pure)."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from composable_memory.content import (
    ExtractedEntity,
    ExtractedRelation,
    GraphEdge,
    GraphNode,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
    TemporalPolicyDecision,
    VectorRecord,
)
from composable_memory.ingest.lifetimes import Lifetime, lifetime_of, observed_at
from composable_memory.ingest.normalize import origin_of
from composable_memory.time.windows import moved
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.types import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """Nodes and edges; both ends of every edge are included in the nodes."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()


def graph_of(
    content: MemoryContentObject,
    entities: Sequence[ExtractedEntity],
    relations: Sequence[ExtractedRelation],
    decision: TemporalPolicyDecision | None = None,
) -> GraphPart:
    """Return the part of a graph that a content represents.

    A node is an entity, identified by its label, with the episodes that mention it; an edge is a statement,
    identified by its two entities, type and words. The content's own validity applies to statements without a
    time of their own. In the properties of an edge, `told` maps each episode to the time since which it says
    that the statement holds, and when that was written; `ends` says that the same relation, stated earlier,
    no longer holds.
    """
    lifetime = lifetime_of(content, decision)
    relations = [one for one in relations if one.source.strip() and one.target.strip()]
    places = {fact: place for place, fact in enumerate(dict.fromkeys(one.fact for one in relations))}
    edges = {one.id: one for one in (_edge(content, one, lifetime, places[one.fact]) for one in relations)}
    return GraphPart(nodes=tuple(_nodes(content, entities, relations)), edges=tuple(edges.values()))


def joined(parts: Iterable[GraphPart]) -> GraphPart:
    """Merge parts: an edge stated by several contents gets the episodes of all of them."""
    nodes: dict[str, GraphNode] = {}
    edges: dict[str, GraphEdge] = {}
    for part in parts:
        for node in part.nodes:
            known = nodes.get(node.id)
            better = node if known is None or not known.properties["kind"] else known
            nodes[node.id] = better if known is None else _mentioned_in(better, known, node)
        for edge in part.edges:
            twin = edges.get(edge.id)
            edges[edge.id] = edge if twin is None else _with_episodes(twin, edge)
    return GraphPart(nodes=tuple(nodes.values()), edges=tuple(edges.values()))


def node_id(label: str) -> str:
    """Return the id of the entity with a label, ignoring case and white space."""
    return f"entity:{_plain(label)}"


def edge_id(source: str, type_: str, target: str, fact: str) -> str:
    """Return the id of a statement about the entities labelled `source` and `target`."""
    said = "\0".join((_plain(source), type_, _plain(target), _plain(fact)))
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _nodes(
    content: MemoryContentObject,
    entities: Sequence[ExtractedEntity],
    relations: Sequence[ExtractedRelation],
) -> Iterable[GraphNode]:
    """Return a node for each entity, and for each end of a relation that is not one of them."""
    ends = [ExtractedEntity(label=label) for one in relations for label in (one.source, one.target)]
    nodes: dict[str, GraphNode] = {}
    for entity in (*entities, *ends):
        if entity.label.strip():
            node = GraphNode(
                id=node_id(entity.label),
                label=" ".join(entity.label.split()),
                properties={
                    **entity.properties,
                    "kind": entity.type or "",
                    "text": "",
                    "episodes": [content.id],
                },
                provenance=_provenance(content),
                temporal=MemoryTemporalMetadata(observed_at=observed_at(content)),
            )
            nodes.setdefault(node.id, node)
    return nodes.values()


def _edge(
    content: MemoryContentObject, relation: ExtractedRelation, lifetime: Lifetime, place: int
) -> GraphEdge:
    since = relation.valid_from or lifetime.valid_from or observed_at(content)
    written_at = content.temporal.created_at if content.temporal else None
    if place and (moment := written_at or since):  # what is further down in a text was said later
        written_at = moved(moment, timedelta(microseconds=place))
    times = (since, written_at)
    properties: dict[str, JsonValue] = {
        "fact": relation.fact,
        "episodes": [content.id],
        "told": {content.id: " ".join(one.isoformat() for one in times if one)} if since else {},
        "exclusive": relation.exclusive,
        "confidence": _least(relation.confidence, lifetime.confidence),
    }
    if relation.one_holder:
        properties["one_holder"] = True
    if relation.valid_to is not None and relation.valid_from is None:
        # Its start is unknown; it is not when this was said, which is when it was over.
        properties |= {"ends": True, "told": {}, **({"mood": relation.mood} if relation.mood else {})}
    return GraphEdge(
        id=edge_id(relation.source, relation.type, relation.target, relation.fact),
        source_id=node_id(relation.source),
        target_id=node_id(relation.target),
        type=relation.type,
        properties=properties,
        provenance=_provenance(content),
        temporal=MemoryTemporalMetadata(
            created_at=written_at,
            observed_at=observed_at(content),
            valid_from=relation.valid_from or lifetime.valid_from,
            valid_to=relation.valid_to or lifetime.valid_to,
            expires_at=lifetime.expires_at,
        ),
    )


def _provenance(content: MemoryContentObject) -> MemoryProvenance:
    """Return the provenance of a content, with its place among the citations."""
    provenance = content.provenance or MemoryProvenance(source="memory")
    origin = origin_of(content)
    if provenance.citations or origin is None:
        return provenance
    return replace(provenance, citations=(origin.citation,))


def _with_episodes(edge: GraphEdge, other: GraphEdge) -> GraphEdge:
    """Return an edge with the episodes of another, and since when each of them says that it holds."""
    episodes = dict.fromkeys([*_episodes(edge), *_episodes(other)])
    told = {**_told(edge), **_told(other)}
    return replace(edge, properties={**edge.properties, "episodes": list(episodes), "told": told})


def _mentioned_in(node: GraphNode, *others: GraphNode) -> GraphNode:
    """Return a node with the episodes of all nodes for the same entity."""
    episodes = dict.fromkeys(episode for one in others for episode in _episodes(one))
    return replace(node, properties={**node.properties, "episodes": list(episodes)})


def _told(edge: GraphEdge) -> dict[str, "JsonValue"]:
    told = edge.properties.get("told")
    return told if isinstance(told, dict) else {}


def _episodes(part: GraphNode | GraphEdge) -> list[str]:
    episodes = part.properties.get("episodes")
    return [one for one in episodes if isinstance(one, str)] if isinstance(episodes, list) else []


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _least(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def record_of(
    content: MemoryContentObject, values: Sequence[float], decision: TemporalPolicyDecision | None = None
) -> VectorRecord:
    """Return a content as a vector record, with its text, place and times as metadata."""
    lifetime, origin = lifetime_of(content, decision), origin_of(content)
    provenance = content.provenance
    known: dict[str, JsonValue] = {
        "content_id": content.id,
        "text": content.text,
        "title": content.title,
        "kind": content.kind,
        "tags": list(content.tags) or None,
        "source": provenance.source if provenance else None,
        "session_key": provenance.session_key if provenance else None,
        "speaker": content.metadata.get("speaker") or (provenance.actor_id if provenance else None),
        "path": origin.path if origin else None,
        "start_line": origin.start_line if origin else None,
        "end_line": origin.end_line if origin else None,
        "observed_at": _iso(observed_at(content)),
        "valid_from": _iso(lifetime.valid_from),
        "valid_to": _iso(lifetime.valid_to),
        "expires_at": _iso(lifetime.expires_at),
        "confidence": lifetime.confidence,
    }
    metadata = {key: value for key, value in known.items() if value is not None}
    return VectorRecord(id=content.id, values=values, metadata=metadata)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
