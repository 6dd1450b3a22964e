"""Requests, results and errors of the ingest pipeline, and the state of one run."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from json import JSONDecodeError
from typing import Literal

from composable_memory.content import (
    IngestReport,
    IngestWarning,
    MemoryArtifact,
    MemoryContentKind,
    MemoryContentObject,
    MemoryTemporalMetadata,
    StageResult,
)
from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendUnavailable,
    ConfigError,
    DimensionMismatch,
    EmbedderUnavailable,
    EmbeddingError,
    EmbeddingPending,
    IndexProblem,
    MemoryPathError,
    NoteNotWritten,
    PathRefused,
    UnsupportedOperation,
)
from composable_memory.types import JsonValue
from composable_memory_ops_logs.quick_dataclass import dataclass

Stage = Literal["normalize", "extract", "enrich", "entity_extract", "embed", "graph", "index", "audit"]

STAGES: tuple[Stage, ...] = (
    "normalize",
    "extract",
    "enrich",
    "entity_extract",
    "embed",
    "graph",
    "index",
    "audit",
)
"""The stages in execution order."""

PipelineErrorCode = Literal[
    "not_configured",
    "invalid_input",
    "adapter_unavailable",
    "rate_limited",
    "timeout",
    "upstream_error",
    "serialization_error",
    "unknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineError:
    """Why a stage failed; `retryable` says that it may succeed later without any change."""

    code: PipelineErrorCode
    message: str
    retryable: bool = False
    details: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestItem:
    """Something to ingest, as far as it is known; the rest is filled in.

    Without an `id` it gets one derived from source and text, so that ingesting it twice changes nothing.
    `metadata` may contain `temporal` and `artifacts`, which are used if they are not given as fields.
    """

    id: str | None = None
    kind: MemoryContentKind = "event"
    text: str | None = None
    title: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    artifacts: tuple[MemoryArtifact, ...] = ()
    temporal: MemoryTemporalMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """Items to ingest together, and their source; without a trace id the active trace is used."""

    items: Sequence[IngestItem | MemoryContentObject]
    source: str = "memory.ingest"
    session_key: str | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """How a run went, stage by stage.

    `received` counts the items. `contents` are those to be stored: not empty, expired, or duplicates.
    `batch_id` is the same for the same contents, `run_id` differs each time. `errors` has the error of each
    stage that failed. `nodes`, `edges` and `vectors` count what was written.
    """

    run_id: str
    batch_id: str
    trace_id: str
    received: int
    contents: tuple[MemoryContentObject, ...]
    stages: tuple[StageResult, ...]
    warnings: tuple[IngestWarning, ...]
    errors: Mapping[Stage, PipelineError]
    started_at: datetime
    completed_at: datetime
    nodes: int = 0
    edges: int = 0
    vectors: int = 0

    @property
    def ok(self) -> bool:
        """Return whether every stage succeeded."""
        return not self.errors

    def report(self) -> IngestReport:
        """Return the result as a report of `SupportsIngest`.

        A content that no store took, or without text, counts as failed. A duplicate within the run, or an
        expired one, counts as unchanged.
        """
        wanted = len(self.contents)
        empty = sum(warning.code == "extract.no_text" for warning in self.warnings)
        is_lost = bool(self.errors) and not (self.vectors or self.nodes)
        return IngestReport(
            run_id=self.run_id,
            stored=0 if is_lost else wanted,
            known=0 if is_lost else self.received - wanted - empty,
            failed=self.received if is_lost else empty,
            entities=self.nodes,
            facts=self.edges,
            warnings=self.warnings,
            stages=self.stages,
            problems=tuple(f"{stage}: {error.message}" for stage, error in self.errors.items())
            + tuple(warning.message for warning in self.warnings if warning.code == "extract.no_text"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Who did what, for an audit."""

    id: str
    ts: datetime
    action: Literal["ingest", "graph_write", "vector_write"]
    status: Literal["success", "failure", "partial"]
    actor: str | None = None
    session_key: str | None = None
    trace_id: str | None = None
    details: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEvent:
    """One measurement; durations are in milliseconds."""

    name: Literal["memory.ingest.duration_ms", "memory.pipeline.events", "memory.pipeline.errors"]
    value: float
    ts: datetime
    tags: Mapping[str, str] = field(default_factory=dict)


def error_of(error: Exception) -> PipelineError:
    """Describe an exception: the kind of failure, and whether retrying may help."""
    code, retryable = _code(error)
    return PipelineError(
        code=code,
        message=str(error) or type(error).__name__,
        retryable=retryable,
        details={"type": type(error).__name__},
    )


def _code(error: Exception) -> tuple[PipelineErrorCode, bool]:
    if isinstance(error, BackendRejected | EmbeddingError):
        return _refused(error)
    return next((known for kinds, known in _CODES if isinstance(error, kinds)), ("unknown", False))


def _refused(error: BackendRejected | EmbeddingError) -> tuple[PipelineErrorCode, bool]:
    """Return why a service rejected something, by the status in the error or in its message."""
    status = error.status if isinstance(error, BackendRejected) else str(error)
    if "429" in status or "rate limit" in status.lower():
        return "rate_limited", True
    if isinstance(error, EmbedderUnavailable):
        return "adapter_unavailable", False
    if isinstance(error, DimensionMismatch):
        return "invalid_input", False
    if isinstance(error, BackendRejected):
        return ("invalid_input", False) if status.startswith("4") else ("upstream_error", status[:1] == "5")
    return "upstream_error", isinstance(error, EmbeddingPending)


# The first match counts: `BackendTimeout` is a `TimeoutError`, which is an `OSError`.
_CODES: tuple[tuple[tuple[type[Exception], ...], tuple[PipelineErrorCode, bool]], ...] = (
    ((TimeoutError,), ("timeout", True)),
    ((ConfigError, UnsupportedOperation), ("not_configured", False)),
    ((BackendUnavailable, ConnectionError), ("adapter_unavailable", True)),
    ((BackendGarbled, JSONDecodeError, UnicodeError, RecursionError), ("serialization_error", False)),
    ((IndexProblem, OSError), ("adapter_unavailable", False)),
    ((BackendError,), ("upstream_error", False)),
    ((MemoryPathError, NoteNotWritten, PathRefused, ValueError), ("invalid_input", False)),
)
