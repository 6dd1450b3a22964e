"""The learning loop: signals, judgements, advice, shadow, adoption; one after another, idle without news.

It decides only what is done next. All that reads, judges, replays and stores is behind `LoopActions`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, Protocol, TypeVar

from composable_memory_feedback.advice import Proposal, Verdict
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.guardrails import is_waiting
from composable_memory_feedback.weights import WeightTable

__all__ = ["LearningLoop", "LoopActions", "ShadowReview", "StepName", "TickReport"]

StepName = Literal["signals", "judge", "experiment", "news", "review", "advise"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowReview:
    """A proposal in shadow, and what the guardrails say of adopting it without being asked."""

    proposal: Proposal
    verdict: Verdict


class LoopActions(Protocol):
    """All that the loop has done for it; every call may be cancelled, and leaves all usable then."""

    @property
    def auto_apply(self) -> bool:
        """Say whether weights may change without a person."""
        ...

    async def gather_signals(self) -> int:
        """Read what the log says since the last call and keep its signals; return how many are new."""
        ...

    async def judge(self) -> int:
        """Have a model judge queries within the quota; return how many it judged, 0 without a model."""
        ...

    async def end_decided_experiment(self) -> str | None:
        """Credit the running experiment and end it when it is decided; return the id of an ended one."""
        ...

    async def news(self) -> Hashable:
        """Return a mark, cheap to get, that changes with every judgement and with the weights in force.

        None where there is nothing to learn from yet. What the loop puts into the shadow does not change it.
        """
        ...

    async def review_shadow(self) -> ShadowReview | None:
        """Check the proposal in shadow against what came since, as an automatic change; None without one.

        A proposal whose starting point is no longer in force is not allowed.
        """
        ...

    async def drop_shadow(self, reason: str) -> None:
        """Take the proposal out of the shadow, for good."""
        ...

    async def advise(self) -> Proposal | None:
        """Make a proposal from all judgements, tamed; None where more than time speaks against it."""
        ...

    async def put_shadow(self, proposal: Proposal) -> None:
        """Keep a proposal in shadow, to be reviewed with the queries to come."""
        ...

    async def adopt(self, proposal: Proposal) -> WeightTable:
        """Put the table of a proposal in force, and take it out of the shadow; return it with its version."""
        ...

    def trouble(self, step: StepName, error: Exception) -> None:
        """Take note that a step failed; the loop goes on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TickReport:
    """What one round of the loop did."""

    at: datetime
    signals: int = 0
    judged: int = 0
    experiment: str | None = None
    """The id of an experiment that ended."""
    review: ShadowReview | None = None
    """What was found of the proposal in shadow."""
    dropped: str | None = None
    """Why that proposal left the shadow."""
    adopted: WeightTable | None = None
    proposal: Proposal | None = None
    """What went into the shadow."""
    troubles: tuple[StepName, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Say whether there was nothing to do."""
        return self == TickReport(at=self.at)


class LearningLoop:
    """Goes round every `interval_s` seconds, in the task of whoever runs it.

    While a proposal is in shadow no other is made: it is adopted, dropped, or waits. Errors of the classes in
    `survives` end a step and not the loop; a step that failed is tried again in the next round.
    """

    def __init__(
        self,
        actions: LoopActions,
        *,
        interval_s: float,
        clock: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        survives: tuple[type[Exception], ...] = (FeedbackError, OSError),
    ) -> None:
        self._actions = actions
        self._interval_s = interval_s
        self._clock = clock
        self._sleep = sleep
        self._survives = survives
        self._one_at_a_time = asyncio.Lock()
        self._seen: Hashable = None
        self._review_is_due = True

    async def run(self) -> None:
        """Go round until cancelled; the first round is at once."""
        while True:
            await self.tick()
            await self._sleep(self._interval_s)

    async def tick(self) -> TickReport:
        """Go round once; several callers take turns."""
        async with self._one_at_a_time:
            steps = _Steps(actions=self._actions, survives=self._survives)
            report = TickReport(
                at=self._clock(),
                signals=await steps.attempt("signals", self._actions.gather_signals()) or 0,
                judged=await steps.attempt("judge", self._actions.judge()) or 0,
                experiment=await steps.attempt("experiment", self._actions.end_decided_experiment()),
            )
            report = await self._learn(steps, report)
            return replace(report, troubles=tuple(steps.troubles))

    async def _learn(self, steps: "_Steps", report: TickReport) -> TickReport:
        """Review and advise, where there is news, or where a proposal only waited for the clock."""
        news = await steps.attempt("news", self._actions.news())
        is_new = news is not None and news != self._seen
        if not is_new and not self._review_is_due:
            return report
        reviewed = await steps.attempt("review", self._review(report))
        self._review_is_due = reviewed is None or _waits_for_the_clock(reviewed)
        if reviewed is None or not is_new:
            return reviewed or report
        if reviewed.review is None or reviewed.dropped is not None:
            advised = await steps.attempt("advise", self._advise(reviewed))
            if advised is None:
                return reviewed
            reviewed = advised
            self._review_is_due = advised.proposal is not None
        self._seen = news
        return reviewed

    async def _review(self, report: TickReport) -> TickReport:
        """Adopt the proposal in shadow, drop it, or leave it there."""
        review = await self._actions.review_shadow()
        if review is None:
            return report
        report = replace(report, review=review)
        if not review.verdict.is_allowed and not is_waiting(review.verdict):
            reason = review.verdict.objections[0].text
            await self._actions.drop_shadow(reason)
            return replace(report, dropped=reason)
        if review.verdict.is_allowed and self._actions.auto_apply:
            return replace(report, adopted=await self._actions.adopt(review.proposal))
        return report

    async def _advise(self, report: TickReport) -> TickReport:
        proposal = await self._actions.advise()
        if proposal is not None:
            await self._actions.put_shadow(proposal)
        return replace(report, proposal=proposal)


@dataclass(slots=True, kw_only=True)
class _Steps:
    """The steps of one round, of which each may fail without the others."""

    actions: LoopActions
    survives: tuple[type[Exception], ...]
    troubles: list[StepName] = field(default_factory=list)

    async def attempt(self, step: StepName, doing: Awaitable[_T]) -> _T | None:
        try:
            return await doing
        except self.survives as error:
            self.troubles.append(step)
            self.actions.trouble(step, error)
            return None


def _waits_for_the_clock(report: TickReport) -> bool:
    """Say whether a proposal in shadow may become ready without any news."""
    review = report.review
    if review is None or report.dropped is not None:
        return False
    return any(one.code == "cool-down" for one in review.verdict.objections)
