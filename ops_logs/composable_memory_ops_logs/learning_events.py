"""Events of judging answers and changing weights."""

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
    """The trace of the judged question; the event has its own."""
    result_count: int
    precision: float
    mean_relevance: float
    model: str
    backends: Sequence[str]
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsAdvised(EventDetail):
    """An advisor analysed the judgements; the event is partial if there are objections to its table."""

    action: ClassVar[str] = "weights.advised"
    advisor: str
    current: Mapping[str, float]
    suggested: Mapping[str, float]
    sample_size: int
    gain: Sequence[float] = ()
    """The expected gain, followed by its 95 % interval."""
    objections: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsChanged(EventDetail):
    """Other weights are active from now on."""

    action: ClassVar[str] = "weights.changed"
    change: Literal["adopt", "rollback", "reset"]
    version: str
    """The table that is now active."""
    replaced: str
    """The one before."""
    weights: Mapping[str, float]
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentChanged(EventDetail):
    """An experiment that compares two weight tables in live traffic has started or ended."""

    action: ClassVar[str] = "experiment.changed"
    change: Literal["start", "decided", "stop"]
    id: str
    a: str
    """The version of the active table."""
    b: str
    """The version of the one being tried."""
    winner: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningFailed(EventDetail):
    """A step of the learning loop failed; the loop goes on."""

    action: ClassVar[str] = "learning.failed"
    step: str
    error: ErrorInfo
