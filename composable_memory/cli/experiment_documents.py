"""The JSON documents of `cmem experiment`."""

from datetime import datetime
from math import isfinite

from composable_memory.cli.tuning_documents import TableDocument
from composable_memory.tools import Document
from composable_memory_feedback.experiments.values import ExperimentState, ExperimentStatus, Side
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import WeightTable

__all__ = ["ExperimentDocument", "LatestExperimentDocument"]


class ExperimentDocument(Document):
    """`cmem experiment`: the two tables, and what the queries told of them so far.

    `win_rate` is the share of `b` among the queries that told a difference. `e_value` is left out where it
    is too large for a number. `needs` says what is missing for a decision or, at the end, why it ended.
    `in_force` is the table that ranks after the end.
    """

    id: str
    state: ExperimentState
    a: TableDocument
    b: TableDocument
    started_at: datetime
    ended_at: datetime | None = None
    alpha: float
    max_queries: int
    queries: int
    wins_a: int
    wins_b: int
    ties: int
    e_value: float | None = None
    win_rate: Interval
    decision: Side | None = None
    needs: str
    in_force: TableDocument | None = None

    @classmethod
    def of(cls, status: ExperimentStatus, in_force: WeightTable | None = None) -> "ExperimentDocument":
        """Return the document of an experiment."""
        record = status.record
        return cls(
            id=record.id,
            state=record.state,
            a=TableDocument.of(record.a),
            b=TableDocument.of(record.b),
            started_at=record.started_at,
            ended_at=record.ended_at,
            alpha=record.alpha,
            max_queries=record.max_queries,
            queries=status.queries,
            wins_a=status.wins_a,
            wins_b=status.wins_b,
            ties=status.ties,
            e_value=status.e_value if isfinite(status.e_value) else None,
            win_rate=status.win_rate,
            decision=status.decision,
            needs=status.needs if record.is_running else record.reason,
            in_force=TableDocument.of(in_force) if in_force else None,
        )


class LatestExperimentDocument(Document):
    """`cmem experiment status`: the running or the latest experiment, if there ever was one."""

    is_running: bool
    experiment: ExperimentDocument | None = None

    @classmethod
    def of(cls, status: ExperimentStatus | None) -> "LatestExperimentDocument":
        """Return the document of an experiment, or of none."""
        return cls(
            is_running=status is not None and status.record.is_running,
            experiment=ExperimentDocument.of(status) if status else None,
        )
