"""Values of advice: what is proposed, how sure that is, and what speaks against adopting it."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Literal

from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

AdvisorName = Literal["statistical", "llm"]
AdvisorChoice = Literal["statistical", "llm", "both"]
"""Who is asked; of both, the proposal that surely gains more is taken."""

ObjectionCode = Literal[
    "no-change",
    "too-few-samples",
    "no-gain",
    "golden-floor",
    "taken-back",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceLimits:
    """What holds advisors in check.

    Weights are read with the heaviest as 1: after every change each backend keeps at least `min_weight`, and
    none moves by more than `max_step`. A proposal needs `min_samples` judged queries, and
    `min_intent_samples` of a kind for weights of that kind. `golden_tolerance` is how far the golden score
    may fall.
    """

    min_weight: float = 0.1
    max_step: float = 0.2
    min_samples: int = 50
    min_intent_samples: int = 40
    golden_tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendAdvice:
    """What is proposed for one backend, over all questions or for those of one kind.

    `plausible` is the 95 % interval of the best weight, where an advisor can tell. Without words of the
    advisor on this weight, `rationale` is empty.
    """

    backend: str
    intent: IntentKind | None
    current: float = 0.0
    suggested: float = 0.0
    sample_size: int = 0
    rationale: str = ""
    plausible: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A table that an advisor proposes in the place of the current one.

    `gain` is the expected change of nDCG at the depth that was asked for, on queries that the proposal was
    not made from; None where nothing could be replayed. `destination` is where the advisor would go if the
    limits let it, of which `table` is the next step, and `destination_gain` what all of the way is worth;
    None where the table is all of the way.
    """

    advisor: AdvisorName
    current: WeightTable
    table: WeightTable
    changes: tuple[BackendAdvice, ...]
    sample_size: int
    made_at: datetime
    gain: Interval | None = None
    gain_by_intent: Mapping[IntentKind, Interval] = field(default_factory=dict)
    destination: WeightTable | None = None
    destination_gain: Interval | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """A reason why a proposal is not adopted."""

    code: ObjectionCode
    text: str
