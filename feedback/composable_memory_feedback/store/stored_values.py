"""What the feedback store remembers besides judgements: evaluations and weights."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Literal

from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

WeightAction = Literal["adopt", "rollback", "reset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One call of a model that judged one query: what came of it, and what it cost.

    `precision` and `mean_relevance` are over the results that were judged, 0 where none was. `error` says why
    a call brought no judgements.
    """

    trace_id: str
    query_id: str
    query: str
    """The beginning of the question, without secrets."""
    at: datetime
    model: str
    precision: float = 0.0
    mean_relevance: float = 0.0
    used_count: int = 0
    judged_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: float = 0.0
    error: str | None = None
    suggestions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """The table in force, since when, and the weights of the settings that it was adopted over."""

    table: WeightTable
    base: Mapping[str, float]
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChange:
    """One line of the history of weights.

    `version` came into force and `replaced` went out of it; None stands for the weights of the settings,
    and then `weights` and `by_intent` are empty.
    """

    version: str | None
    at: datetime
    actor: str
    action: WeightAction
    reason: str
    weights: Mapping[str, float] = field(default_factory=dict)
    by_intent: Mapping[IntentKind, Mapping[str, float]] = field(default_factory=dict)
    replaced: str | None = None
    gain: Interval | None = None
