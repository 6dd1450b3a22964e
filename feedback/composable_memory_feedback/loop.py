"""The learning loop: signals, judgements, advice, shadow, adoption; one after another, idle without news.

It decides only what is done next; reading, judging, replaying and storing is done by `LoopActions`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from composable_memory_feedback.advice import Proposal, Verdict
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.guardrails import is_waiting
from composable_memory_feedback.weights import WeightTable

__all__ = ["LearningLoop", "LoopActions", "ShadowReview", "StepName"]

StepName = Literal["signals", "judge", "experiment", "news", "review", "advise"]
_Reviewed = Literal["nothing", "dropped", "adopted", "waits", "cools down"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowReview:
    """A proposal in shadow, and what the guardrails say of adopting it without being asked."""

    proposal: Proposal
    verdict: Verdict


class LoopActions(Protocol):
    """What the loop has done for it; every call may be cancelled, and leaves everything usable then."""

    @property
    def auto_apply(self) -> bool:
        """Return whether weights may change without a person."""
        ...

    async def gather_signals(self) -> int:
        """Keep the signals that the log holds since the last call; return how many are new."""
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
        """Check the proposal in shadow against what came since, as an automatic change; None without one."""
        ...

    async def drop_shadow(self, reason: str) -> None:
        """Take the proposal out of the shadow, for good."""
        ...

    async def advise(self) -> Proposal | None:
        """Make a proposal from all judgements; None where more than time speaks against it."""
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


class LearningLoop:
    """Runs a round every `interval_s` seconds, in the task of whoever runs it.

    While a proposal is in shadow no other is made: it is adopted, dropped, or waits. Errors of the classes in
    `survives` end a step and not the loop; a step that failed is tried again in the next round.
    """

    def __init__(
        self,
        actions: LoopActions,
        *,
        interval_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        survives: tuple[type[Exception], ...] = (FeedbackError, OSError),
    ) -> None:
        self._actions = actions
        self._interval_s = interval_s
        self._sleep = sleep
        self._survives = survives
        self._one_at_a_time = asyncio.Lock()
        self._seen: Hashable = None
        self._review_is_due = True

    async def run(self) -> None:
        """Run rounds until cancelled; the first one is at once."""
        while True:
            await self.tick()
            await self._sleep(self._interval_s)

    async def tick(self) -> None:
        """Run one round; several callers take turns."""
        async with self._one_at_a_time:
            await self._attempt("signals", self._actions.gather_signals())
            await self._attempt("judge", self._actions.judge())
            await self._attempt("experiment", self._actions.end_decided_experiment())
            await self._learn()

    async def _learn(self) -> None:
        """Review and advise, where there is news, or where a proposal only waited for the clock."""
        news = await self._attempt("news", self._actions.news())
        is_new = news is not None and news != self._seen
        if not is_new and not self._review_is_due:
            return
        reviewed = await self._attempt("review", self._review())
        self._review_is_due = reviewed in (None, "cools down")
        if reviewed is None or not is_new:
            return
        if reviewed in ("nothing", "dropped"):
            is_proposed = await self._attempt("advise", self._advise())
            if is_proposed is None:
                return
            self._review_is_due = is_proposed
        self._seen = news

    async def _review(self) -> _Reviewed:
        """Adopt the proposal in shadow, drop it, or leave it there."""
        review = await self._actions.review_shadow()
        if review is None:
            return "nothing"
        objections = review.verdict.objections
        if objections and not is_waiting(review.verdict):
            await self._actions.drop_shadow(objections[0].text)
            return "dropped"
        if not objections and self._actions.auto_apply:
            await self._actions.adopt(review.proposal)
            return "adopted"
        return "cools down" if any(one.code == "cool-down" for one in objections) else "waits"

    async def _advise(self) -> bool:
        """Put a proposal into the shadow; return whether there was one."""
        proposal = await self._actions.advise()
        if proposal is not None:
            await self._actions.put_shadow(proposal)
        return proposal is not None

    async def _attempt(self, step: StepName, doing: Awaitable[_T]) -> _T | None:
        try:
            return await doing
        except self._survives as error:
            self._actions.trouble(step, error)
            return None
