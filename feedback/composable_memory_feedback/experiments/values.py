"""Values of experiments: two weight tables in one traffic, what each query told, and what that amounts to."""

from datetime import datetime
from typing import Literal

from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

Side = Literal["a", "b"]
ExperimentState = Literal["running", "decided", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Two weight tables that rank the same questions, their results interleaved.

    It ends when it is decided at the error rate `alpha`, in (0, 1), or after `max_queries` queries, ties
    among them. `memory` is the mark of the memory that it runs in, where several share a store.
    """

    id: str
    a: WeightTable
    b: WeightTable
    started_at: datetime
    alpha: float = 0.05
    max_queries: int = 2000
    memory: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"the error rate of an experiment is between 0 and 1, not {self.alpha}")
        if self.max_queries < 1:
            raise ValueError(f"an experiment needs one query at least, not {self.max_queries}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRecord(Experiment):
    """An experiment and what became of it.

    `decided` ones have a winner; `stopped` ones ended without. `reason` says in words why it ended.
    """

    state: ExperimentState = "running"
    ended_at: datetime | None = None
    reason: str = ""
    winner: Side | None = None

    @property
    def is_running(self) -> bool:
        """Return whether queries are still served from both tables."""
        return self.state == "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one query told: the credit of the results that each side put up, at least 0."""

    experiment_id: str
    trace_id: str
    query_id: str
    at: datetime
    a: float
    b: float

    @property
    def winner(self) -> Side | None:
        """Return the side with more credit; None where both have the same."""
        if self.a == self.b:
            return None
        return "a" if self.a > self.b else "b"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentStatus:
    """How an experiment stands.

    `queries` had an outcome; each was won by a side or is a tie. `e_value` is the evidence against "both are
    equally good": by luck alone it ever exceeds 1/alpha with a chance of alpha at most. `win_rate` is the
    share that `b` wins of the queries that are no ties, with an interval that holds at every moment.
    """

    record: ExperimentRecord
    queries: int
    wins_a: int
    wins_b: int
    ties: int
    e_value: float
    win_rate: Interval
    decision: Side | None
    needs: str
    """What is missing for a decision, or what was decided, in words."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to wait for: decided, ended, or all its queries were put."""
        ended = self.decision is not None or not self.record.is_running
        return ended or self.queries >= self.record.max_queries
