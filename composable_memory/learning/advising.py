"""Asks an advisor for weights, checks the proposal, and lets a replay decide what it is worth."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from composable_memory.learning.chat_model import language_model
from composable_memory.learning.context import LearningContext
from composable_memory.learning.logged import judged_cases, window
from composable_memory.learning.weight_tables import WeightTables
from composable_memory.query.replay import Replayer
from composable_memory_feedback.advice.evidence import Case, score
from composable_memory_feedback.advice.proposal import (
    HARDLY,
    AdvisorName,
    Objection,
    Proposal,
    check,
    clamp_steps,
)
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.golden import GoldenRecord, compare_golden
from composable_memory_feedback.judgements import Judgement, backend_days
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay import LEAST_CASES, PolicyChange, gate
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.weights import WeightTable, same_proportions
from composable_memory_ops_logs import WeightsAdvised
from composable_memory_ops_logs.quick_dataclass import dataclass

WORST_QUERIES = 10
MAX_ROLLBACKS = 1000
"""How many changes to look back for tables that were rolled back."""
ROLLED_BACK = Objection(
    code="taken-back",
    text="the same weights were rolled back before; `cmem advise --apply` adopts them anyway",
)

Pace = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A proposal, the objections to adopting it, and the number of judged queries behind it."""

    proposal: Proposal
    objections: tuple[Objection, ...] = ()
    cases: int

    @property
    def is_allowed(self) -> bool:
        """Return whether there are no objections."""
        return not self.objections


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Everything that advice is based on."""

    cases: Sequence[Case]
    judgements: Sequence[Judgement]
    golden: Sequence[GoldenRecord]
    current: WeightTable
    rolled_back: Sequence[WeightTable]
    """Tables that someone rolled back; only needed when no one is asked before a change."""


class Advising:
    """Makes and applies advice for one memory."""

    def __init__(self, context: LearningContext, tables: WeightTables) -> None:
        self._context = context
        self._tables = tables

    async def advise(
        self,
        advisor: AdvisorName | None = None,
        *,
        since: datetime | None = None,
        automatic: bool = False,
        pace: Pace = lambda: None,
    ) -> Advice:
        """Return a proposal with the objections to it, by default from the advisor of the settings.

        Nothing changes. An `automatic` change must not repeat one that someone rolled back.

        Raises:
            FeedbackError: there is no log or store, or the language model is missing or fails.
        """
        known = await self._known(since, automatic)
        if (advisor or self._context.settings.advisor) == "llm":
            advice = await self._from_model(known)
        else:
            advice = await asyncio.to_thread(self._computed, known, pace)
        self._log(advice)
        return advice

    async def apply(self, advice: Advice, *, actor: str = "cli") -> WeightTable:
        """Activate a proposal.

        Raises:
            FeedbackError: there are objections, or the weights changed after it was made.
        """
        if not advice.is_allowed:
            against = "; ".join(one.text for one in advice.objections)
            raise FeedbackError("the weights are unchanged", subject=against, advice="see `cmem advise`")
        return await self._tables.adopt_proposal(advice.proposal, actor=actor)

    async def _known(self, since: datetime | None, automatic: bool) -> _Known:
        context, first = self._context, window(self._context, since)
        cases = await judged_cases(context, since=first)
        report = await self._tables.report()
        read = await context.stored_if_any(
            lambda store: (
                store.judgements(since=first),
                store.golden(),
                _rolled_back(store) if automatic else (),
            )
        )
        judgements, golden, rolled_back = read or ((), (), ())
        # Lists every enabled backend, and no other.
        current = replace(report.table, weights={one: report.table[one] for one in context.backends})
        return _Known(
            cases=cases, judgements=judgements, golden=golden, current=current, rolled_back=rolled_back
        )

    async def _from_model(self, known: _Known) -> Advice:
        from composable_memory_feedback.advice.llm import propose

        worst = await asyncio.to_thread(self._worst, known.cases)
        async with language_model(self._context.settings.llm) as model:
            raw = await propose(
                model,
                current=known.current,
                days=backend_days(known.judgements),
                worst=worst,
                limits=self._context.settings.limits,
                clock=self._context.clock,
            )
        return await asyncio.to_thread(self._judged, known, raw)

    def _computed(self, known: _Known, pace: Pace) -> Advice:
        from composable_memory_feedback.advice import statistical  # imports numpy

        proposal = statistical.advise(
            known.cases,
            current=known.current,
            backends=self._context.backends,
            ranker=Replayer(),
            limits=self._context.settings.limits,
            k=self._context.settings.depth,
            now=self._context.clock(),
            pace=pace,
        )
        return self._checked(known, proposal)

    def _judged(self, known: _Known, raw: Proposal) -> Advice:
        """Clamp a proposal that was not made by a replay, and replay it to find out what it is worth.

        If it goes further than one step, it is replayed unclamped as well.
        """
        backends, limits = self._context.backends, self._context.settings.limits
        table = clamp_steps(raw.table, current=known.current, limits=limits, backends=backends)
        proposal = replace(raw, table=table, gain=self._gain(known, table), sample_size=len(known.cases))
        if not same_proportions(table, raw.table, backends=backends, tolerance=HARDLY):
            way = self._gain(known, raw.table)
            proposal = replace(proposal, destination=raw.table, destination_gain=way)
        return self._checked(known, proposal)

    def _checked(self, known: _Known, proposal: Proposal) -> Advice:
        backends, golden = self._context.backends, None
        if known.golden:
            golden = compare_golden(known.golden, proposal.table, Replayer(), k=self._context.settings.depth)
        limits = self._context.settings.limits
        objections = check(proposal, limits=limits, golden=golden, backends=backends)
        if any(same_proportions(proposal.table, one, backends=backends) for one in known.rolled_back):
            objections = (*objections, ROLLED_BACK)
        return Advice(proposal=proposal, objections=objections, cases=len(known.cases))

    def _gain(self, known: _Known, table: WeightTable) -> Interval | None:
        """Return the gain of a table when replaying the judged queries; None if there are too few."""
        if len(known.cases) < LEAST_CASES:
            return None
        before, after = PolicyChange(table=known.current), PolicyChange(table=table)
        depth = self._context.settings.depth
        return gate(known.cases, before, after, ranker=Replayer(), k=depth).judged.difference

    def _worst(self, cases: Sequence[Case]) -> list[tuple[Case, float]]:
        """Return the queries with the worst answers, with their nDCG."""
        depth = self._context.settings.depth
        scored = sorted(
            ((score(case.query.shown, case.evidence, k=depth), at) for at, case in enumerate(cases))
        )
        return [(cases[at], value) for value, at in scored[:WORST_QUERIES]]

    def _log(self, advice: Advice) -> None:
        proposal, gain = advice.proposal, advice.proposal.gain
        self._context.ops_log.emit(
            WeightsAdvised(
                advisor=proposal.advisor,
                current=proposal.current.weights,
                suggested=proposal.table.weights,
                sample_size=proposal.sample_size,
                gain=[] if gain is None else [gain.mean, gain.low, gain.high],
                objections=[one.text for one in advice.objections],
            ),
            status="success" if advice.is_allowed else "partial",
        )


def _rolled_back(store: FeedbackStore) -> list[WeightTable]:
    """Return the tables that someone rolled back; the loop must not activate them again."""
    replaced = (one.replaced for one in store.history(MAX_ROLLBACKS) if one.action != "adopt")
    return [store.table(version) for version in replaced if version is not None]
