"""Compares two weight tables in live traffic: starts and ends experiments, and credits used results."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal
from uuid import uuid4

from composable_memory.learning.context import LearningContext
from composable_memory.learning.judging import Judging
from composable_memory.learning.logged import from_log, stream_queries
from composable_memory.learning.weight_tables import WeightTables
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import (
    CREDITED,
    Experiment,
    ExperimentStatus,
    Outcome,
    credit,
    status_of,
)
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.weights import WeightTable, same_proportions
from composable_memory_ops_logs import ExperimentChanged, OpsEvent


class Experimenting:
    """Runs the experiments of one memory, one at a time."""

    def __init__(self, context: LearningContext, tables: WeightTables, judging: Judging) -> None:
        self._context = context
        self._tables = tables
        self._judging = judging

    async def start(
        self, a: WeightTable, b: WeightTable, *, alpha: float = 0.05, max_queries: int = 2000
    ) -> Experiment:
        """Serve the queries to come from both tables.

        Raises:
            FeedbackError: both rank alike, one finds nothing, another experiment is running, a number is out
                of range, or there is no log to decide the winner.
        """
        await from_log(self._context, bool)
        if not all(any(table[one] for one in self._context.backends) for table in (a, b)):
            advice = "give at least one backend a weight above 0"
            raise FeedbackError("nothing would be found", subject="every weight is 0", advice=advice)
        if same_proportions(a, b, backends=self._context.backends):
            advice = "give two tables with different ratios"
            raise FeedbackError(
                "there is nothing to compare", subject=f"{a.version}, {b.version}", advice=advice
            )
        try:
            record = Experiment(
                id=uuid4().hex[:8],
                a=a,
                b=b,
                started_at=self._context.clock(),
                alpha=alpha,
                max_queries=max_queries,
                memory=self._context.memory_id,
            )
        except ValueError as error:
            raise FeedbackError("no such experiment", subject=str(error), advice="change it") from error
        await self._context.stored(lambda store: store.start_experiment(record))
        await self._tables.refresh()
        self._log("start", record)
        return record

    async def status(self) -> ExperimentStatus | None:
        """Gather signals, and return the status of the running experiment, or else the latest, if any."""
        records = await self._context.stored_if_any(lambda store: store.experiments()) or []
        if not records:
            return None
        record = next((one for one in records if one.is_running), records[-1])
        return await self._status(record, gathers=True)

    async def _status(self, record: Experiment, *, gathers: bool) -> ExperimentStatus:
        # Without a log, an experiment can still be stopped.
        if record.is_running and self._context.log_dir is not None:
            if gathers:
                await self._judging.gather()
            await self._credit(record)
        outcomes = await self._context.stored(lambda store: store.outcomes(record.id))
        return status_of(record, outcomes)

    async def end_if_over(self) -> str | None:
        """End the running experiment if there is nothing left to wait for; return its id if it was ended."""
        running = await self._context.stored_if_any(
            lambda store: store.running_experiment(self._context.memory_id)
        )
        if running is None:
            return None
        status = await self._status(running, gathers=False)
        if not status.is_over:
            return None
        await self._end(status, status.needs)
        return running.id

    async def stop(self, *, adopt: bool = False, actor: str = "cli") -> ExperimentStatus:
        """End the running experiment; with `adopt`, activate `b` if it won.

        An experiment that was already decided can be adopted later.

        Raises:
            FeedbackError: there is none, or `b` is to be adopted and did not win, or answers the golden
                questions worse than allowed; then the experiment goes on.
        """
        status = await self.status()
        if status is None or not (status.record.is_running or adopt):
            raise FeedbackError(
                "no experiment is running",
                subject="there was none yet" if status is None else f"{status.record.id} has ended",
                advice="start one with `cmem experiment start`",
            )
        if adopt and status.decision != "b":
            advice = "stop it without adopting" if status.record.is_running else "`cmem weights set` can"
            raise FeedbackError("b did not win", subject=status.needs, advice=advice)
        if adopt:
            await self._tables.keep_floor(status.record.b)
        if status.record.is_running:
            status = await self._end(status, status.needs if status.decision else f"stopped by {actor}")
        if adopt:
            table = replace(status.record.b, reason=f"won experiment {status.record.id}")
            await self._tables.adopt(table, actor=actor)
        return status

    async def _end(self, status: ExperimentStatus, reason: str) -> ExperimentStatus:
        record, at = status.record, self._context.clock()
        ended = await self._context.stored(
            lambda store: store.end_experiment(record.id, at, reason, status.decision)
        )
        await self._tables.refresh()
        self._log("decided" if status.decision else "stop", ended)
        return replace(status, record=ended)

    async def _credit(self, record: Experiment) -> None:
        judgements = await self._context.stored(
            lambda store: store.judgements(since=record.started_at, kinds=CREDITED)
        )
        by_trace = defaultdict[str, list[Judgement]](list)
        for one in judgements:
            by_trace[one.trace_id].append(one)

        found: dict[tuple[str, str], Outcome] = {}  # newest first; copies in the log do not count

        def note(trace_id: str, query_id: str, at: datetime, credited: tuple[float, float]) -> None:
            a, b = credited
            outcome = Outcome(experiment_id=record.id, trace_id=trace_id, query_id=query_id, at=at, a=a, b=b)
            found.setdefault((trace_id, query_id), outcome)

        def must_be_read(start: OpsEvent, rest: Sequence[OpsEvent]) -> bool:
            """Return whether the query has to be rebuilt from its lines; without a judgement it is a tie."""
            drawn = (one.detail.get("experiment") for one in rest if isinstance(one.detail, Mapping))
            if not any(isinstance(one, Mapping) and one.get("id") == record.id for one in drawn):
                return False
            query_id = start.detail.get("queryId") if isinstance(start.detail, Mapping) else None
            if start.trace_id in by_trace or not isinstance(query_id, str):
                return True
            note(start.trace_id, query_id, start.ts, (0.0, 0.0))
            return False

        def credit_all(queries: Iterable[LoggedQuery]) -> Sequence[Outcome]:
            for query in queries:
                note(query.trace_id, query.query_id, query.at, credit(query, by_trace[query.trace_id]))
            return [*reversed(found.values())][: record.max_queries]

        stored = await self._context.stored(lambda store: store.outcomes(record.id))
        # Once all queries are in, their credit can still change, but later queries do not count.
        until = max(one.at for one in stored) if len(stored) >= record.max_queries else None
        outcomes = await stream_queries(
            self._context, credit_all, since=record.started_at, until=until, wants=must_be_read
        )
        known = {(one.trace_id, one.query_id): (one.a, one.b) for one in stored}
        news = [one for one in outcomes if known.get((one.trace_id, one.query_id)) != (one.a, one.b)]
        await self._context.stored(lambda store: store.record_outcomes(news))

    def _log(self, change: Literal["start", "decided", "stop"], record: Experiment) -> None:
        self._context.ops_log.emit(
            ExperimentChanged(
                change=change,
                id=record.id,
                a=record.a.version,
                b=record.b.version,
                winner=record.winner,
                reason=record.reason,
            )
        )
