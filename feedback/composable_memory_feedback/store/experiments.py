"""Experiments in the feedback store: one running per memory, and what each query told."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from sqlite3 import Connection, Row

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments.values import ExperimentRecord, Outcome, Side
from composable_memory_feedback.store.codecs import EXPERIMENTS, plain_text, time_of, time_text

__all__ = [
    "end_experiment",
    "move_experiments",
    "read_experiments",
    "read_outcomes",
    "record_outcome",
    "running_experiment",
    "start_experiment",
]

_START = "INSERT INTO experiments (id, memory, state, started_at, detail) VALUES (?, ?, ?, ?, ?)"

_ONE = "SELECT state, detail FROM checked_experiments WHERE id = ?"

_RUNNING = "SELECT detail FROM checked_experiments WHERE state = 'running' AND memory IS ?"

_ALL = "SELECT detail FROM checked_experiments ORDER BY place"

_UPDATE = "UPDATE experiments SET state = ?, detail = ? WHERE id = ?"

# The time of the first word on a query stays, and with it the order in which the test looks at them.
_OUTCOME = """
INSERT INTO outcomes (experiment_id, trace_id, query_id, at, a, b) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (experiment_id, trace_id, query_id) DO UPDATE SET a = excluded.a, b = excluded.b
WHERE (a, b) IS NOT (excluded.a, excluded.b)
"""

_OUTCOMES = "SELECT * FROM checked_outcomes WHERE experiment_id = ? ORDER BY at, id"


def start_experiment(connection: Connection, record: ExperimentRecord) -> None:
    """Record a new experiment.

    Raises:
        FeedbackError: One of this id is known, or another one is running in this memory.
    """
    if connection.execute(_ONE, (record.id,)).fetchone() is not None:
        raise FeedbackError("there is an experiment of this id", subject=record.id, advice="take another id")
    running = running_experiment(connection, record.memory)
    if running is not None and record.is_running:
        raise FeedbackError(
            "another experiment is running", subject=running.id, advice="wait for its end, or stop it"
        )
    values = (record.id, record.memory, record.state, time_text(record.started_at), EXPERIMENTS.write(record))
    connection.execute(_START, values)


def running_experiment(connection: Connection, memory: str | None) -> ExperimentRecord | None:
    """Return the experiment that is running in a memory."""
    row = connection.execute(_RUNNING, (memory,)).fetchone()
    return None if row is None else EXPERIMENTS.read(row["detail"])


def read_experiments(connection: Connection) -> list[ExperimentRecord]:
    """Return all experiments in the order in which they were started."""
    return [EXPERIMENTS.read(row["detail"]) for row in connection.execute(_ALL)]


def end_experiment(
    connection: Connection, experiment_id: str, *, at: datetime, reason: str, winner: Side | None
) -> ExperimentRecord:
    """End a running experiment: decided with a winner, stopped without; return what it became.

    Raises:
        FeedbackError: It is not known, or has ended already.
    """
    row = _row_of(connection, experiment_id)
    if row["state"] != "running":
        raise FeedbackError(
            "the experiment has ended already", subject=experiment_id, advice="start another one"
        )
    ended = replace(
        EXPERIMENTS.read(row["detail"]),
        state="stopped" if winner is None else "decided",
        ended_at=at,
        reason=plain_text(reason),
        winner=winner,
    )
    connection.execute(_UPDATE, (ended.state, EXPERIMENTS.write(ended), experiment_id))
    return ended


def record_outcome(connection: Connection, outcome: Outcome) -> bool:
    """Record what a query told, in the place of what it told before; say whether the experiment still runs.

    What comes after the end is not recorded: the evidence stays that on which it was decided.

    Raises:
        FeedbackError: The experiment is not known.
    """
    if _row_of(connection, outcome.experiment_id)["state"] != "running":
        return False
    place = (outcome.experiment_id, outcome.trace_id, outcome.query_id)
    connection.execute(_OUTCOME, (*place, time_text(outcome.at), outcome.a, outcome.b))
    return True


def read_outcomes(connection: Connection, experiment_id: str) -> list[Outcome]:
    """Return what queries told, in the order in which they were first heard of."""
    return _outcomes_of(connection.execute(_OUTCOMES, (experiment_id,)))


def move_experiments(connection: Connection, was: str, memory: str) -> None:
    """Make the experiments of one memory those of another one."""
    for record in read_experiments(connection):
        if record.memory == was != memory:
            moved = replace(record, memory=memory)
            connection.execute(
                "UPDATE experiments SET memory = ?, detail = ? WHERE id = ?",
                (memory, EXPERIMENTS.write(moved), record.id),
            )


def _row_of(connection: Connection, experiment_id: str) -> Row:
    row: Row | None = connection.execute(_ONE, (experiment_id,)).fetchone()
    if row is None:
        raise FeedbackError(
            "there is no such experiment", subject=experiment_id, advice="see the list of experiments"
        )
    return row


def _outcomes_of(rows: Iterable[Row]) -> list[Outcome]:
    return [
        Outcome(
            experiment_id=row["experiment_id"],
            trace_id=row["trace_id"],
            query_id=row["query_id"],
            at=time_of(row["at"]),
            a=row["a"],
            b=row["b"],
        )
        for row in rows
    ]
