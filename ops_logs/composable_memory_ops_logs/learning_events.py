"""What is logged when answers are judged and weights change."""

# Annotations are read at run time to derive the format on disk, so this module does not postpone them.
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from composable_memory_ops_logs.events import ErrorInfo, EventDetail
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackEvaluated(EventDetail):
    """A delivered answer was judged."""

    action: ClassVar[str] = "feedback.evaluated"
    query_trace_id: str
    """The trace of the judged question; the event has a trace of its own."""
    result_count: int
    precision: float
    mean_relevance: float
    model: str
    backends: Sequence[str]
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsAdvised(EventDetail):
    """An advisor looked at what was judged; the event is partial when something speaks against its table."""

    action: ClassVar[str] = "weights.advised"
    advisor: str
    current: Mapping[str, float]
    suggested: Mapping[str, float]
    sample_size: int
    gain: Sequence[float] = ()
    """The expected gain, then the ends of its 95 % interval."""
    objections: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsChanged(EventDetail):
    """Other weights are in force from now on."""

    action: ClassVar[str] = "weights.changed"
    change: Literal["adopt", "rollback", "reset"]
    version: str
    """The table that is in force now."""
    replaced: str
    """The one before."""
    weights: Mapping[str, float]
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentChanged(EventDetail):
    """Two weight tables are compared in live traffic from now on, or no more."""

    action: ClassVar[str] = "experiment.changed"
    change: Literal["start", "decided", "stop"]
    id: str
    a: str
    """The version of the table in force."""
    b: str
    """The version of the one that is tried."""
    winner: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFailed(EventDetail):
    """A step of the learning loop failed; the loop goes on."""

    action: ClassVar[str] = "learning.failed"
    step: str
    error: ErrorInfo
