"""The feedback store: everything that learning remembers; each method is one transaction."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection, Row

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import Experiment, Outcome, Side
from composable_memory_feedback.golden import GoldenRecord
from composable_memory_feedback.store.codecs import (
    EXPERIMENTS,
    OUTCOMES,
    QUERIES,
    QUESTIONS,
    columns_of,
    plain_text,
    time_text,
)
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.export_import import Imported, export_lines, import_lines
from composable_memory_feedback.store.judgements import JudgementRows
from composable_memory_feedback.store.weights import WeightRows
from composable_memory_ops_logs.erasing import PLACES, masked_value

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

_PUT_GOLDEN = "INSERT INTO golden (question, query) VALUES (?, ?)"

_GOLDEN = "SELECT question, query FROM checked_golden ORDER BY id"

_MARK = "SELECT value FROM marks WHERE name = ?"

_SET_MARK = """
INSERT INTO marks (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE marks.value IS NOT excluded.value
"""


class ExperimentRows(Database):
    """Experiments and their outcomes."""

    def start_experiment(self, record: Experiment) -> None:
        """Record a new experiment.

        Raises:
            FeedbackError: One of this id is known, or another one is running in this memory.
        """
        with self.writing() as connection:
            if connection.execute(_ONE, (record.id,)).fetchone() is not None:
                advice = "choose another id"
                raise FeedbackError("an experiment with this id exists", subject=record.id, advice=advice)
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


class FeedbackStore(JudgementRows, WeightRows, ExperimentRows):
    """Judgements, evaluations, weights, experiments and golden questions in one SQLite file.

    It blocks: call it from a thread, not on an event loop. Several threads may share one, and several
    processes may have the file open; a wait for another process ends after five seconds. Times need a zone.
    Every method raises `FeedbackError` when the file cannot be used, and has then changed nothing.
    """

    # Golden questions and marks

    def put_golden(self, records: Sequence[GoldenRecord]) -> None:
        """Keep golden questions in the place of all that were kept before."""
        rows = [(QUESTIONS.write(one.question), QUERIES.write(one.query)) for one in records]
        with self.writing() as connection:
            connection.execute("DELETE FROM golden")
            connection.executemany(_PUT_GOLDEN, rows)

    def golden(self) -> list[GoldenRecord]:
        """Return the golden questions in the order in which they were put."""
        with self.reading() as connection:
            return [
                GoldenRecord(question=QUESTIONS.read(row["question"]), query=QUERIES.read(row["query"]))
                for row in connection.execute(_GOLDEN)
            ]

    def mark(self, name: str) -> str | None:
        """Return the value of a named mark."""
        with self.reading() as connection:
            row = connection.execute(_MARK, (name,)).fetchone()
        return None if row is None else str(row["value"])

    def set_mark(self, name: str, value: str) -> None:
        """Set a named mark, such as how far the log was read."""
        with self.writing() as connection:
            connection.execute(_SET_MARK, (name, plain_text(value)))

    def wait_for_change(self, seconds: float) -> None:
        """Return after so many seconds: nobody tells of changes of a file."""
        time.sleep(seconds)

    # Forgetting

    def mask(self, mask: Callable[[str], str], *, is_rehearsal: bool = False) -> int:
        """Mask the texts that people and models wrote or asked; return in how many rows one changed.

        Keys, places and numbers stay, and no copy of before is kept: the file and its copies are made anew,
        so that nothing is left of the texts. In a rehearsal nothing is changed.
        """
        with self.reading() if is_rehearsal else self.writing() as connection:
            found = mask_rows(connection, mask, is_rehearsal=is_rehearsal)
        if not is_rehearsal:
            self.scrub()
        return found

    # Copies, export and import

    def is_empty(self) -> bool:
        """Return whether nothing is kept that could be lost."""
        with self.reading() as connection:
            return not any(
                True for table, _ in export_lines(connection, memory="", at=self._clock()) if table
            )

    def restore_from(self, source: Path, *, memory: str, was: str) -> None:
        """Make a copy the content of this store, all or nothing; other processes see it with their next look.

        An experiment of the memory that it `was` is one of `memory` then.

        Raises:
            FeedbackError: The copy is no store, or of a later version; this one is as before.
        """
        self.take_over(source)
        self.move_experiments(was, memory)

    def export(self, write: Callable[[bytes], object], *, memory: str) -> Counter[str]:
        """Write all that nothing else can bring back, of one moment, as JSON lines; return rows by table."""
        with self.reading() as connection:
            connection.execute("BEGIN")
            try:
                counts: Counter[str] = Counter()
                for table, line in export_lines(connection, memory=memory, at=self._clock()):
                    write(line)
                    counts[table] += 1
            finally:
                connection.execute("ROLLBACK")
        del counts[""]
        return counts

    def import_(self, lines: Iterable[bytes], *, memory: str) -> Imported:
        """Add what an export holds and the store does not; what it has stays. Twice is as good as once.

        Raises:
            FeedbackError: A line is not what an export writes; nothing was imported.
        """
        with self.writing() as connection:
            return import_lines(connection, lines, memory=memory)


TEXT_COLUMNS: Mapping[str, Sequence[str]] = {
    "judgements": ("rationale",),
    "golden": ("question", "query"),
    "evaluations": ("detail",),
}
"""The columns, by table, in which somebody's words are kept. What weights say is never changed."""


def mask_rows(connection: Connection, mask: Callable[[str], str], *, is_rehearsal: bool) -> int:
    """Mask the texts in these columns, also within JSON; return how many rows change."""
    found = 0
    for table, columns in TEXT_COLUMNS.items():
        values = ", ".join(f"{name} = ?" for name in columns)
        update = f"UPDATE {table} SET {values} WHERE id = ?"  # noqa: S608 - our own names
        for row in connection.execute(f"SELECT id, {', '.join(columns)} FROM {table}").fetchall():  # noqa: S608
            before = [row[name] for name in columns]
            after = [text and _masked(text, mask) for text in before]
            found += after != before
            if after != before and not is_rehearsal:
                connection.execute(update, (*after, row["id"]))
    return found


def _masked(text: str, mask: Callable[[str], str]) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return mask(text)
    masked = masked_value(value, mask, kept=PLACES)
    return text if masked == value else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
