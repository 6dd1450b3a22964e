"""`Learning`: all that can be asked of what a memory learns, over its log and its store alone."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from composable_memory.config.feedback import FeedbackSettings
from composable_memory.config.layers import default_state_dir, load_settings
from composable_memory.config.settings import Settings
from composable_memory.interfaces import Clock
from composable_memory.learning.active_weights import WeightsReport
from composable_memory.learning.advising import Advising
from composable_memory.learning.context import LearningContext
from composable_memory.learning.experimenting import Experimenting
from composable_memory.learning.golden_questions import Asked, GoldenQuestions
from composable_memory.learning.judging import Judging, OutcomeCallback, TextReader
from composable_memory.learning.logged import (
    RankableQueries,
    judged_cases,
    queries_of,
    streamed,
    telling_judgements,
    window,
)
from composable_memory.learning.stats import no_stats, stats_of
from composable_memory.learning.tables import WeightTables
from composable_memory.learning.values import (
    Advice,
    EvaluationRun,
    GoldenRun,
    LearningStats,
    ReplayRun,
)
from composable_memory.query.replay import Replayer
from composable_memory.query.weights import LiveWeights, WeightTable
from composable_memory.state.folders import existing_folder, made_folder
from composable_memory.state.ops_log import open_ops_log
from composable_memory.state.workspaces import identify
from composable_memory_feedback.advice import Proposal
from composable_memory_feedback.advice.evidence import Case, case_of, evidence_of
from composable_memory_feedback.advice.values import AdvisorName
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments.values import ExperimentRecord, ExperimentStatus
from composable_memory_feedback.golden import GoldenQuestion
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.logged import LoggedQueries, LoggedQuery
from composable_memory_feedback.replay import GateVerdict, PolicyChange, gate, replay
from composable_memory_feedback.store import FeedbackStore, WeightChange
from composable_memory_feedback.store.exchange import Imported
from composable_memory_ops_logs import utc_now

__all__ = ["Learning", "open_learning"]


class Learning:
    """Judges, replays, advises and compares; changes weights only when told to.

    Every method may raise `FeedbackError` (there is no log, the store cannot be used, or what is asked cannot
    be done) and `OpsLogError` (the log cannot be read). `live` is told of every change of weights.
    """

    def __init__(self, context: LearningContext, live: LiveWeights | None = None) -> None:
        self._context = context
        self._tables = WeightTables(context, live)
        self._judging = Judging(context)
        self._advising = Advising(context, self._tables)
        self._experimenting = Experimenting(context, self._tables)
        self._golden = GoldenQuestions(context, self._tables)

    @property
    def settings(self) -> FeedbackSettings:
        """Return the settings of learning."""
        return self._context.settings

    @property
    def mark(self) -> str:
        """Return what names this memory in the log."""
        return self._context.mark

    @property
    def backends(self) -> tuple[str, ...]:
        """Return the ids of the enabled backends, in their order."""
        return self._context.backends

    @property
    def base(self) -> WeightTable:
        """Return the weights of the settings."""
        return self._context.base

    @property
    def advising(self) -> Advising:
        """Return what makes advice, for the loop."""
        return self._advising

    @property
    def context(self) -> LearningContext:
        """Return the log and the store, for the loop."""
        return self._context

    # --- judgements

    async def judge(
        self, trace_id: str, result: str, *, relevance: float, used: bool = False, by: str = ""
    ) -> Judgement:
        """Keep what somebody says of a result: its relevance from 0 to 1, and whether it was used.

        The beginning of a trace id will do. `result` is its place, from 1, its path, or `path#L3-L5`; the
        last finds what the answer did not show, too.
        """
        return await self._judging.judge(trace_id, result, relevance=relevance, used=used, by=by)

    async def gather(self) -> int:
        """Keep what use implies since the last look; return how many judgements are new."""
        return await self._judging.gather()

    async def evaluate(
        self,
        *,
        since: datetime | None = None,
        limit: int | None = None,
        read: TextReader | None = None,
        on_outcome: OutcomeCallback | None = None,
        advice: WeightTable | None = None,
    ) -> EvaluationRun:
        """Gather signals, then have the language model judge up to `limit` queries, the latest first.

        `read` returns the text of a result; without it the model sees the previews of the log. By default the
        queries of the last seven days are judged.

        With `advice`, the model judges what judged queries would show under these weights and nobody judged,
        by default of all queries that an advice is made from.
        """
        return await self._judging.evaluate(
            since=since, limit=limit, read=read, on_outcome=on_outcome, advice=advice
        )

    async def export(self, write: Callable[[bytes], object]) -> Mapping[str, int]:
        """Write what was judged and learnt as JSON lines, of one moment; return rows by table."""
        return await self._context.stored(lambda store: store.export(write, memory=self._context.mark))

    async def export_into(self, file: Path) -> Mapping[str, int]:
        """Write the lines into a file for its owner alone, which they replace at once."""

        def write(store: FeedbackStore) -> Mapping[str, int]:
            scratch = file.with_name(f".{file.name}.{os.getpid()}.new")
            try:
                with os.fdopen(os.open(scratch, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as out:
                    counts = store.export(out.write, memory=self._context.mark)
                    out.flush()
                    os.fsync(out.fileno())
                scratch.replace(file)
            finally:
                scratch.unlink(missing_ok=True)
            return counts

        return await self._context.stored(write)

    async def import_from(self, file: Path) -> Imported:
        """Add what an export holds and the store does not have; all of it, or nothing and an error."""

        def read(store: FeedbackStore) -> Imported:
            with file.open("rb") as lines:
                return store.import_(lines, memory=self._context.mark)

        found = await self._context.stored(read)
        await self._tables.refresh()
        return found

    async def stats(self, since: datetime | None = None) -> LearningStats:
        """Return what is known about the quality of the answers since then."""
        report, per_hour = await self._tables.report(), self.settings.evaluations_per_hour
        first, now = window(self._context, since), self._context.clock()
        found = await self._context.stored_if_any(
            lambda store: stats_of(store, report, since=first, now=now, per_hour=per_hour)
        )
        return found or no_stats(report, per_hour=per_hour)

    # --- weights

    async def weights(self) -> WeightsReport:
        """Return the weights in force, and why an adopted table is not, if so."""
        return await self._tables.report()

    async def refresh(self) -> WeightsReport:
        """Put in force what the store says now, such as what another process changed."""
        return await self._tables.refresh()

    async def history(self, limit: int = 50) -> list[WeightChange]:
        """Return the changes of weights, the latest first."""
        return await self._tables.history(limit)

    async def table(self, name: str) -> WeightTable:
        """Return a table: `now`, `settings`, `equal`, a version, or weights as `builtin=0.6,graphiti=0.3`."""
        return await self._tables.named(name)

    async def set_weights(
        self,
        weights: Mapping[str, float],
        *,
        intent: IntentKind | None = None,
        reason: str = "",
        actor: str = "cli",
    ) -> WeightTable:
        """Put weights in force, for questions of one kind or for all; what is not given stays."""
        return await self._tables.set(weights, intent=intent, reason=reason, actor=actor)

    async def rollback(self, to: str | None = None, *, actor: str = "cli") -> WeightTable:
        """Put an earlier table in force again: a version, `settings`, or by default the one before."""
        return await self._tables.rollback(to, actor=actor)

    # --- advice

    async def advise(self, advisor: AdvisorName = "statistical", *, since: datetime | None = None) -> Advice:
        """Return a proposal and what speaks against it; nothing changes."""
        return await self._advising.advise(advisor, since=since)

    async def apply(self, advice: Advice, *, actor: str = "cli") -> WeightTable:
        """Put a proposal in force that nothing speaks against."""
        return await self._advising.apply(advice, actor=actor)

    async def adopt_proposal(self, proposal: Proposal, *, actor: str) -> WeightTable:
        """Put the table of a proposal in force that was checked."""
        return await self._tables.adopt_proposal(proposal, actor=actor)

    # --- replay

    async def queries(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        traces: Collection[str] | None = None,
    ) -> LoggedQueries:
        """Return the logged queries of this memory, or those of some traces, and what cannot be used."""
        return await queries_of(self._context, since=since, until=until, traces=traces)

    async def replay(
        self,
        change: PolicyChange,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        k: int | None = None,
        keep: int = 100,
    ) -> ReplayRun:
        """Rank logged queries again as they were and under a change, and compare with the judgements.

        The report holds at most `keep` of the queries that change, the most important first.
        """
        judgements = await telling_judgements(self._context, since)
        depth = k or self.settings.depth
        work = partial(_replayed, judgements=judgements, change=change, depth=depth, keep=keep)
        return await streamed(self._context, work, since=since, until=until)

    async def gate(
        self,
        baseline: PolicyChange,
        candidate: PolicyChange,
        *,
        since: datetime | None = None,
        k: int | None = None,
        tolerance: float = 0.0,
    ) -> GateVerdict:
        """Say whether the judged queries allow a candidate to follow a baseline.

        `tolerance`, from 0 to 1, is how far nDCG may fall.
        """
        if not 0.0 <= tolerance <= 1.0:
            raise FeedbackError("no tolerance", subject=f"{tolerance}", advice="give a number from 0 to 1")
        cases = await judged_cases(self._context, since=since)
        depth = k or self.settings.depth
        return await asyncio.to_thread(
            gate, cases, baseline, candidate, ranker=Replayer(), k=depth, tolerance=tolerance
        )

    # --- experiments

    async def start_experiment(
        self, a: WeightTable, b: WeightTable, *, alpha: float = 0.05, max_queries: int = 2000
    ) -> ExperimentRecord:
        """Serve the queries to come from both tables until one is better at the error rate `alpha`."""
        return await self._experimenting.start(a, b, alpha=alpha, max_queries=max_queries)

    async def experiment(self) -> ExperimentStatus | None:
        """Return how the running experiment stands, or else the latest."""
        await self._gather_for_credit()
        return await self._experimenting.status()

    async def end_decided_experiment(self) -> str | None:
        """End the running experiment when it is decided; return its id if so."""
        return await self._experimenting.end_if_over()

    async def stop_experiment(self, *, adopt: bool = False, actor: str = "cli") -> ExperimentStatus:
        """End the running experiment; with `adopt`, table `b` comes into force if it won."""
        await self._gather_for_credit()
        return await self._experimenting.stop(adopt=adopt, actor=actor)

    async def _gather_for_credit(self) -> None:
        if (
            self._context.log_dir is not None
        ):  # an experiment that nothing is logged of any more can be stopped
            await self._judging.gather()

    # --- golden questions

    async def record_golden(
        self, memory: Asked, questions: Sequence[GoldenQuestion], *, k: int = 10, keep: bool = True
    ) -> GoldenRun:
        """Put golden questions to an open memory; with `keep`, no table that does worse is adopted then."""
        return await self._golden.record(memory, questions, k=k, keep=keep)

    async def close(self) -> None:
        """Close the store."""
        await self._context.close()


@asynccontextmanager
async def open_learning(
    workspace: Path | str,
    *,
    state_dir: Path | str | None = None,
    config: Mapping[str, object] | Settings | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Learning]:
    """Open what the memory of a workspace has learnt, without opening any of its backends.

    The arguments are those of `open_memory`.

    Raises:
        ConfigError: the workspace is not a folder, or a setting cannot be used.
    """
    environ, now = os.environ if environ is None else environ, clock or utc_now
    folder = await asyncio.to_thread(existing_folder, Path(workspace))
    loaded = await asyncio.to_thread(load_settings, folder, overrides=config, environ=environ)
    state = await asyncio.to_thread(made_folder, Path(state_dir or default_state_dir(environ)))
    identity = await asyncio.to_thread(identify, state, folder, now=now(), name=loaded.settings.memory.id)
    async with open_ops_log(loaded.settings.memory, state_dir=state, clock=now) as ops_log:
        context = LearningContext.of(
            loaded, workspace_id=identity.id, state_dir=state, ops_log=ops_log, clock=now
        )
        learning = Learning(context)
        try:
            yield learning
        finally:
            await learning.close()


def _replayed(
    queries: RankableQueries, *, judgements: Sequence[Judgement], change: PolicyChange, depth: int, keep: int
) -> ReplayRun:
    ranker, evidence, other = Replayer(keeps=1), evidence_of(judgements), []

    def checked() -> Iterator[LoggedQuery | Case]:
        for query in queries:
            is_exact = ranker.reproduces(query)
            if not is_exact:
                other.append(query.trace_id)
            known = evidence.get((query.trace_id, query.query_id)) if is_exact else None
            yield (case_of(query, known) if known else None) or query

    report = replay(checked(), change, ranker=ranker, k=depth, keep=keep)
    return ReplayRun(
        report=report,
        reproduced=report.total - len(other),
        total=report.total,
        not_reproduced=tuple(reversed(other)),
        incomplete=queries.incomplete,
    )
