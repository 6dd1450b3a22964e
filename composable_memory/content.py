"""Values of content, graphs and vectors: what adapters exchange, and what ingesting reports."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Literal

from composable_memory.types import JsonValue, TimeWindow
from composable_memory.vector_values import (
    EmbedderInput,
    Health,
    VectorMatch,
    VectorQuery,
    VectorQueryResult,
    VectorRecord,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

__all__ = [
    "EmbedderInput",
    "ExtractedEntity",
    "ExtractedRelation",
    "GraphEdge",
    "GraphNode",
    "GraphQuery",
    "GraphQueryResult",
    "Health",
    "IngestReport",
    "IngestWarning",
    "MemoryArtifact",
    "MemoryArtifactKind",
    "MemoryContentKind",
    "MemoryContentObject",
    "MemoryProvenance",
    "MemoryTemporalMetadata",
    "StageResult",
    "TemporalPolicyDecision",
    "VectorMatch",
    "VectorQuery",
    "VectorQueryResult",
    "VectorRecord",
]


MemoryContentKind = Literal["message", "document", "fact", "artifact", "summary", "event"] | str
"""What a content object is; other kinds are allowed too."""

MemoryArtifactKind = Literal["file", "image", "audio", "video", "link", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTemporalMetadata:
    """When a content was created, seen and valid. Times are aware; `timezone` is an IANA name."""

    created_at: datetime | None = None
    updated_at: datetime | None = None
    observed_at: datetime | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    expires_at: datetime | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProvenance:
    """Where a content came from."""

    source: str
    source_id: str | None = None
    channel: str | None = None
    actor_id: str | None = None
    session_key: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    citations: tuple[str, ...] = ()
    temporal: MemoryTemporalMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryArtifact:
    """A file, picture, recording or link attached to a content."""

    id: str
    kind: MemoryArtifactKind
    uri: str | None = None
    mime_type: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    title: str | None = None
    description: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    provenance: MemoryProvenance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContentObject:
    """One thing worth remembering."""

    id: str
    kind: MemoryContentKind
    text: str | None = None
    title: str | None = None
    language: str | None = None
    tags: tuple[str, ...] = ()
    artifacts: tuple[MemoryArtifact, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    provenance: MemoryProvenance | None = None
    temporal: MemoryTemporalMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """An entity in a graph."""

    id: str
    label: str
    properties: Mapping[str, JsonValue] = field(default_factory=dict)
    provenance: MemoryProvenance | None = None
    temporal: MemoryTemporalMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdge:
    """A relation between two entities, directed from source to target."""

    id: str
    source_id: str
    target_id: str
    type: str
    properties: Mapping[str, JsonValue] = field(default_factory=dict)
    provenance: MemoryProvenance | None = None
    temporal: MemoryTemporalMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphQuery:
    """What to look up in a graph; at least one of `text` and `entity_ids` should be given.

    `vector` is the embedding of the text, in the vector space named `space`; it must not be compared with
    others. With a `window`, only edges that held at some moment in it are wanted; `window_words` are the
    words that name it. Edges that have expired by `now` (default: the present) are left out. With
    `edges_only` the nodes may be missing.
    """

    text: str | None = None
    entity_ids: tuple[str, ...] = ()
    filters: Mapping[str, JsonValue] = field(default_factory=dict)
    limit: int = 10
    vector: Sequence[float] | None = None
    space: str | None = None
    window: TimeWindow | None = None
    window_words: str = ""
    now: datetime | None = None
    edges_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphQueryResult:
    """The matching part of a graph, best first."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedEntity:
    """An entity mentioned in a text."""

    label: str
    id: str | None = None
    type: str | None = None
    properties: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedRelation:
    """What a text says about two entities, named by their labels.

    `type` is in capitals with underscores, such as `WORKS_AT`; `fact` is the statement in words. `exclusive`
    says that `source` can have one such relation at a time, so that a later one ends an earlier one;
    `one_holder` says the same of `target`, as a company has one head. `valid_from` is None if the text gives
    no time of its own; `confidence` is in [0, 1]. `mood` is for a text that gives no start: something `ended`
    ("no longer lives in Kiel"), everything of this type is `over`, whatever the target ("quit his job"), or
    it was so in the `past` ("lived in Kiel until 2020").
    """

    source: str
    target: str
    type: str
    fact: str
    exclusive: bool = False
    one_holder: bool = False
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    confidence: float | None = None
    mood: Literal["ended", "over", "past"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalPolicyDecision:
    """How long a content holds: seconds to live, validity, and the policy's confidence, in [0, 1]."""

    ttl_seconds: float | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestWarning:
    """Something about a content that its owner should know; `code` has the form `stage.problem`."""

    code: str
    message: str
    details: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """How one stage of ingesting went; `skipped` says why it had nothing to do, such as a missing adapter."""

    stage: str
    ok: bool
    duration_ms: float
    error: str | None = None
    skipped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """What became of the ingested contents: each is in exactly one of the first four counts.

    `stored` are in the memory now, `known` were already there with the same text, `pending` are queued safely
    and will be retried, `failed` could not be accepted; `problems` says why. `entities` and `facts` count
    what was written to a graph.
    """

    run_id: str
    stored: int = 0
    known: int = 0
    pending: int = 0
    failed: int = 0
    entities: int = 0
    facts: int = 0
    warnings: tuple[IngestWarning, ...] = ()
    stages: tuple[StageResult, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether nothing failed and nothing has to be retried."""
        return not (self.failed or self.pending or self.problems)
