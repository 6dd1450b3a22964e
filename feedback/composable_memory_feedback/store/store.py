"""The one door to what the learning remembers: every method is one transaction."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from composable_memory_feedback.advice.values import Proposal
from composable_memory_feedback.experiments.values import ExperimentRecord, Outcome, Side
from composable_memory_feedback.golden import GoldenRecord
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store import (
    audits,
    evaluations,
    experiments,
    golden,
    judgements,
    shadows,
    weights,
)
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.days import read_days
from composable_memory_feedback.store.exchange import Imported, export_lines, import_lines
from composable_memory_feedback.store.values import (
    AuditEntry,
    BackendDay,
    Evaluation,
    KindGroup,
    ShadowRecord,
    StoredWeights,
    WeightChange,
)
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.events import JsonValue

__all__ = ["FeedbackStore"]


class FeedbackStore:
    """Judgements, evaluations, weights, experiments and audits in one SQLite file.

    It blocks: call it from a thread, not on an event loop. Several threads may share one, and several
    processes may have the file open; a wait for another process ends after five seconds. Times need a zone.
    Every method raises `FeedbackError` when the file cannot be used, and has then changed nothing.
    """

    def __init__(self, database: Database, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._clock = clock

    @classmethod
    def open(cls, path: Path, *, clock: Callable[[], datetime] = utc_now) -> Self:
        """Open the store of a file; the file and its folder are made where there are none.

        Raises:
            FeedbackError: The file is of another program or of a later version, or cannot be opened.
        """
        return cls(Database.open(path, clock=clock), clock=clock)

    @property
    def remark(self) -> str | None:
        """Return what became of a damaged file, or why no copy was kept; None where all is well."""
        return self._database.remark

    def close(self) -> None:
        """Close the file; a second time is fine."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def change_mark(self) -> int:
        """Return a number that grows when anyone, in any process, has changed the store; it is cheap.

        Only marks of the same open store compare.
        """
        return self._database.change_mark()

    # Judgements

    def add(self, judgements_made: Sequence[Judgement], /) -> int:
        """Add judgements, all or none, and return how many were new.

        Of one judge on one result of one query, by one kind, only the one stored last stays, whatever their
        times say: the clock may have been ahead.
        """
        with self._database.writing() as connection:
            return judgements.add_judgements(connection, judgements_made)

    def judgements(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        kinds: Collection[JudgementKind] | None = None,
        trace_id: str | None = None,
        of_relevant: bool = False,
    ) -> list[Judgement]:
        """Return judgements made from `since` to before `until`, in the order in which they were stored.

        With `of_relevant`, they are those of the queries that one of them finds something relevant for.
        """
        with self._database.reading() as connection:
            return judgements.read_judgements(
                connection, since=since, until=until, kinds=kinds, trace_id=trace_id, of_relevant=of_relevant
            )

    def judgements_mark(self) -> tuple[int, int | None]:
        """Return what changes with every judgement: how many there are, and the number of the latest."""
        with self._database.reading() as connection:
            return judgements.judgements_mark(connection)

    def judged_traces(self) -> set[str]:
        """Return the trace ids of all judgements, whoever made them."""
        with self._database.reading() as connection:
            return judgements.judged_traces(connection)

    def judged_queries(self, since: datetime | None = None) -> set[tuple[str, str]]:
        """Return (trace id, query id) of the queries that a model has judged."""
        with self._database.reading() as connection:
            return judgements.judged_queries(connection, since)

    def backend_days(
        self, *, since: datetime | None = None, group: KindGroup | None = "judged"
    ) -> list[BackendDay]:
        """Return how backends did, day by day, from the day of `since` on.

        A query counts on the day of its latest judgement. What was inferred from use stands in days of its
        own: used results are nearly always relevant, so their precision tells little. `group=None` returns
        both.
        """
        with self._database.reading() as connection:
            return read_days(connection, since=since, group=group)

    # Evaluations

    def begin_evaluation(self, *, per_hour: int, now: datetime) -> int | None:
        """Reserve one call out of the quota of the rolling hour, which all processes share.

        Returns the number to finish it with, or None when the quota is used up. A call that fails, or whose
        process dies, has used its part.
        """
        with self._database.writing() as connection:
            return evaluations.begin_evaluation(connection, per_hour=per_hour, now=now)

    def finish_evaluation(self, number: int, evaluation: Evaluation) -> None:
        """Record what came of a reserved call.

        Raises:
            FeedbackError: No call has this number.
        """
        with self._database.writing() as connection:
            evaluations.finish_evaluation(connection, number, evaluation)

    def evaluations(self, since: datetime | None = None) -> list[Evaluation]:
        """Return finished evaluations, oldest first."""
        with self._database.reading() as connection:
            return evaluations.read_evaluations(connection, since)

    # Weights

    def adopt(
        self,
        table: WeightTable,
        *,
        base: Mapping[str, float],
        actor: str,
        at: datetime,
        gain: Interval | None = None,
        expected: str | None = None,
    ) -> WeightTable:
        """Put a table in force, and return it with its version: `v1`, `v2` and so on.

        `base` are the weights of the settings that it is adopted over. With `expected`, a version or
        `settings`, nothing happens unless that is what was put in force last.

        Raises:
            FeedbackError: Something else than `expected` was.
        """
        with self._database.writing() as connection:
            return weights.adopt(
                connection, table, base=base, actor=actor, at=at, gain=gain, expected=expected
            )

    def current(self) -> StoredWeights | None:
        """Return the table in force; None where the weights of the settings are."""
        with self._database.reading() as connection:
            return weights.current_weights(connection)

    def history(self, limit: int = 50) -> list[WeightChange]:
        """Return the changes of weights, newest first."""
        with self._database.reading() as connection:
            return weights.read_changes(connection, limit)

    def table(self, version: str) -> WeightTable:
        """Return the table of a version, in force or not.

        Raises:
            FeedbackError: There is none; it names those that there are.
        """
        with self._database.reading() as connection:
            return weights.read_table(connection, version)

    def rollback(
        self, to: str | None, *, actor: str, at: datetime, base: Mapping[str, float] | None = None
    ) -> WeightTable | None:
        """Put an earlier table in force again, and return it; None when it is the weights of the settings.

        `to` is a version, `settings`, or None for the one that the current was adopted over: going back twice
        goes back by two. `base` is as in `adopt`; without it, it stays as it was at the last change. With
        another `base`, even the version of the last change can be named: it is put over the new settings.

        Raises:
            FeedbackError: There is no such version, it is in force already, or there is none before.
        """
        with self._database.writing() as connection:
            return weights.roll_back(connection, to, actor=actor, at=at, base=base)

    # Proposals

    def put_shadow(self, proposal: Proposal, at: datetime) -> None:
        """Begin the shadow phase of a proposal; that of another one ends."""
        with self._database.writing() as connection:
            shadows.put_shadow(connection, proposal, at)

    def shadow(self) -> ShadowRecord | None:
        """Return the proposal in its shadow phase."""
        with self._database.reading() as connection:
            return shadows.read_shadow(connection)

    def clear_shadow(self, reason: str) -> None:
        """End the shadow phase, if there is one; the reason is kept."""
        with self._database.writing() as connection:
            shadows.end_shadow(connection, reason, self._clock())

    # Experiments

    def start_experiment(self, record: ExperimentRecord) -> None:
        """Record a new experiment.

        Raises:
            FeedbackError: One of this id is known, or another one is running in this memory.
        """
        with self._database.writing() as connection:
            experiments.start_experiment(connection, record)

    def running_experiment(self, memory: str | None = None) -> ExperimentRecord | None:
        """Return the experiment that is running in a memory, by its mark."""
        with self._database.reading() as connection:
            return experiments.running_experiment(connection, memory)

    def experiments(self) -> list[ExperimentRecord]:
        """Return all experiments, oldest first."""
        with self._database.reading() as connection:
            return experiments.read_experiments(connection)

    def end_experiment(
        self, experiment_id: str, at: datetime, reason: str, winner: Side | None
    ) -> ExperimentRecord:
        """End a running experiment, decided with a winner and stopped without, and return what it became.

        Raises:
            FeedbackError: It is not known, or has ended already.
        """
        with self._database.writing() as connection:
            return experiments.end_experiment(connection, experiment_id, at=at, reason=reason, winner=winner)

    def record_outcome(
        self, experiment_id: str, trace_id: str, query_id: str, a: float, b: float, at: datetime | None = None
    ) -> bool:
        """Record the credit of both sides, in the place of what this query told before.

        Returns False, and records nothing, when the experiment has ended.

        Raises:
            FeedbackError: The experiment is not known.
        """
        outcome = Outcome(
            experiment_id=experiment_id,
            trace_id=trace_id,
            query_id=query_id,
            at=at or self._clock(),
            a=a,
            b=b,
        )
        return self.record_outcomes([outcome])

    def record_outcomes(self, outcomes: Sequence[Outcome]) -> bool:
        """Record all of several outcomes, or none, as `record_outcome` does one."""
        with self._database.writing() as connection:
            return [experiments.record_outcome(connection, one) for one in outcomes].count(False) == 0

    def outcomes(self, experiment_id: str) -> list[Outcome]:
        """Return what queries told, in the order in which they were first heard of."""
        with self._database.reading() as connection:
            return experiments.read_outcomes(connection, experiment_id)

    # Golden questions

    def put_golden(self, records: Sequence[GoldenRecord]) -> None:
        """Keep golden questions in the place of all that were kept before."""
        with self._database.writing() as connection:
            golden.put_golden(connection, records)

    def golden(self) -> list[GoldenRecord]:
        """Return the golden questions in the order in which they were put."""
        with self._database.reading() as connection:
            return golden.read_golden(connection)

    def clear_golden(self) -> None:
        """Keep no golden questions any more."""
        with self._database.writing() as connection:
            golden.clear_golden(connection)

    # Copies, export and import

    def is_empty(self) -> bool:
        """Return whether nothing is kept that could be lost."""
        with self._database.reading() as connection:
            return not any(
                True for table, _ in export_lines(connection, memory="", at=self._clock()) if table
            )

    def copy_into(self, target: Path) -> None:
        """Write a copy of this moment into a file, also while other processes write."""
        self._database.copy_into(target)

    def restore_from(self, source: Path, *, memory: str, was: str) -> None:
        """Make a copy the content of this store, all or nothing; other processes see it with their next look.

        An experiment of the memory that it `was` is one of `memory` then.

        Raises:
            FeedbackError: The copy is no store, or of a later version; this one is as before.
        """
        self._database.take_over(source)
        with self._database.writing() as connection:
            experiments.move_experiments(connection, was, memory)

    def export(self, write: Callable[[bytes], object], *, memory: str) -> Counter[str]:
        """Write all that nothing else can bring back, of one moment, as JSON lines; return rows by table."""
        with self._database.reading() as connection:
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
        with self._database.writing() as connection:
            return import_lines(connection, lines, memory=memory)

    # Audits, marks and retention

    def audit(self, action: str, actor: str, detail: Mapping[str, JsonValue], at: datetime) -> None:
        """Add to the record of who did what."""
        with self._database.writing() as connection:
            audits.add_audit(connection, action, actor, detail, at)

    def audits(self, limit: int = 50) -> list[AuditEntry]:
        """Return the record of who did what, newest first."""
        with self._database.reading() as connection:
            return audits.read_audits(connection, limit)

    def mark(self, name: str) -> str | None:
        """Return the value of a named mark."""
        with self._database.reading() as connection:
            return audits.read_mark(connection, name)

    def set_mark(self, name: str, value: str) -> None:
        """Set a named mark, such as how far the log was read."""
        with self._database.writing() as connection:
            audits.set_mark(connection, name, value)

    def forget_before(self, at: datetime) -> int:
        """Delete judgements and evaluations from before a time, and return how many went.

        A query whose judgements go on until after that time keeps them all, and the days stay as counted.
        What the quota still counts stays as well.
        """
        with self._database.writing() as connection:
            judged = judgements.forget_judgements(connection, at)
            return judged + evaluations.forget_evaluations(connection, at, now=self._clock())
