"""Events of ingesting contents, and of the graph that they go to."""

# Annotations are read at run time to derive the format on disk, so this module does not postpone them.
from collections.abc import Sequence
from typing import ClassVar

from composable_memory_ops_logs.events import ErrorInfo, EventDetail
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestStart(EventDetail):
    """Contents are about to pass through the ingest stages."""

    action: ClassVar[str] = "ingest.start"
    source: str
    item_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestStageComplete(EventDetail):
    """One stage ended; its duration is on the event."""

    action: ClassVar[str] = "ingest.stage_complete"
    stage: str
    ok: bool
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    """How one stage went."""

    stage: str
    ok: bool
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestComplete(EventDetail):
    """All stages ended; the event is partial if one of them failed."""

    action: ClassVar[str] = "ingest.complete"
    episode_count: int
    warning_count: int
    error_count: int
    stages: Sequence[StageOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphitiIngest(EventDetail):
    """Episodes were sent to the graph service."""

    action: ClassVar[str] = "graphiti.ingest"
    episode_count: int
    node_count: int = 0
    edge_count: int = 0
    episode_ids: Sequence[str] = ()
    warnings: Sequence[str] = ()
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphitiQuery(EventDetail):
    """The graph service was queried."""

    action: ClassVar[str] = "graphiti.query"
    query: str
    """The first `QUERY_PREVIEW_CHARS` characters."""
    limit: int
    fact_count: int
    node_ids: Sequence[str] = ()
    episode_ids: Sequence[str] = ()
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphitiHealth(EventDetail):
    """The graph service was probed."""

    action: ClassVar[str] = "graphiti.health"
    ok: bool
    message: str | None = None
