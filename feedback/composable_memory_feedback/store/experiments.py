"""Experiments in the feedback store: one running per memory, and what each query told."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from sqlite3 import Connection, Row

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import Experiment, Outcome, Side
from composable_memory_feedback.store.codecs import EXPERIMENTS, OUTCOMES, columns_of, plain_text, time_text
from composable_memory_feedback.store.database import Database

_START = "INSERT INTO experiments (id, memory, state, started_at, detail) VALUES (?, ?, ?, ?, ?)"

_ONE = "SELECT state, detail FROM checked_experiments WHERE id = ?"

_RUNNING = "SELECT detail FROM checked_experiments WHERE state = 'running' AND memory IS ?"

_ALL = "SELECT detail FROM checked_experiments ORDER BY place"

_UPDATE = "UPDATE experiments SET state = ?, detail = ? WHERE id = ?"

# The time of the first word on a query stays, and with it the order in which the test looks at them.
_OUTCOME = """
INSERT INTO outcomes (experiment_id, trace_id, query_id, at, a, b)
VALUES (:experiment_id, :trace_id, :query_id, :at, :a, :b)
ON CONFLICT (experiment_id, trace_id, query_id) DO UPDATE SET a = excluded.a, b = excluded.b
WHERE (outcomes.a, outcomes.b) IS NOT (excluded.a, excluded.b)
"""

_MOVE = "UPDATE experiments SET memory = ?, detail = ? WHERE id = ?"

_OUTCOMES = "SELECT * FROM checked_outcomes WHERE experiment_id = ? ORDER BY at, id"


class ExperimentRows(Database):
    """Experiments and their outcomes."""

    def start_experiment(self, record: Experiment) -> None:
        """Record a new experiment.

        Raises:
            FeedbackError: One of this id is known, or another one is running in this memory.
        """
        with self.writing() as connection:
            if connection.execute(_ONE, (record.id,)).fetchone() is not None:
                advice = "take another id"
                raise FeedbackError("there is an experiment of this id", subject=record.id, advice=advice)
            running = _running(connection, record.memory)
            if running is not None and record.is_running:
                advice = "wait for its end, or stop it"
                raise FeedbackError("another experiment is running", subject=running.id, advice=advice)
            began = time_text(record.started_at)
            values = (record.id, record.memory, record.state, began, EXPERIMENTS.write(record))
            connection.execute(_START, values)

    def running_experiment(self, memory: str | None = None) -> Experiment | None:
        """Return the experiment that is running in a memory, by its id."""
        with self.reading() as connection:
            return _running(connection, memory)

    def experiments(self) -> list[Experiment]:
        """Return all experiments, oldest first."""
        with self.reading() as connection:
            return _all(connection)

    def end_experiment(
        self, experiment_id: str, at: datetime, reason: str, winner: Side | None
    ) -> Experiment:
        """End a running experiment, decided with a winner and stopped without, and return what it became.

        Raises:
            FeedbackError: It is not known, or has ended already.
        """
        with self.writing() as connection:
            row = _row_of(connection, experiment_id)
            if row["state"] != "running":
                advice = "start another one"
                raise FeedbackError("the experiment has ended already", subject=experiment_id, advice=advice)
            ended = replace(
                EXPERIMENTS.read(row["detail"]),
                state="stopped" if winner is None else "decided",
                ended_at=at,
                reason=plain_text(reason),
                winner=winner,
            )
            connection.execute(_UPDATE, (ended.state, EXPERIMENTS.write(ended), experiment_id))
        return ended

    def record_outcomes(self, outcomes: Iterable[Outcome]) -> bool:
        """Record what queries told, all or none, each in the place of what it told before.

        Returns whether all were recorded. What comes after the end of an experiment is not: the evidence
        stays that on which it was decided.

        Raises:
            FeedbackError: An experiment is not known.
        """
        are_all_recorded = True
        with self.writing() as connection:
            for one in outcomes:
                if _row_of(connection, one.experiment_id)["state"] != "running":
                    are_all_recorded = False
                    continue
                connection.execute(_OUTCOME, columns_of(one))
        return are_all_recorded

    def outcomes(self, experiment_id: str) -> list[Outcome]:
        """Return what queries told, in the order in which they were first heard of."""
        with self.reading() as connection:
            return OUTCOMES.of_rows(connection.execute(_OUTCOMES, (experiment_id,)))

    def move_experiments(self, was: str, memory: str) -> None:
        """Make the experiments of one memory those of another one."""
        with self.writing() as connection:
            for record in _all(connection):
                if record.memory == was != memory:
                    moved = EXPERIMENTS.write(replace(record, memory=memory))
                    connection.execute(_MOVE, (memory, moved, record.id))


def _running(connection: Connection, memory: str | None) -> Experiment | None:
    row = connection.execute(_RUNNING, (memory,)).fetchone()
    return None if row is None else EXPERIMENTS.read(row["detail"])


def _all(connection: Connection) -> list[Experiment]:
    return [EXPERIMENTS.read(row["detail"]) for row in connection.execute(_ALL)]


def _row_of(connection: Connection, experiment_id: str) -> Row:
    row: Row | None = connection.execute(_ONE, (experiment_id,)).fetchone()
    if row is None:
        raise FeedbackError(
            "there is no such experiment", subject=experiment_id, advice="see the list of experiments"
        )
    return row
