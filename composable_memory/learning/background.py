"""What goes on while a memory is open: weights that others changed come into force, and the loop learns."""

import asyncio
import time
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from datetime import timedelta
from threading import Event

from composable_memory.learning.active_weights import SURVIVED, Sleep, follow, goes_on, tell_failure
from composable_memory.learning.judging import TextReader
from composable_memory.learning.logged import log_mark
from composable_memory.learning.service import Learning
from composable_memory.query.weights import WeightTable
from composable_memory_feedback.advice import Proposal
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.guardrails import is_waiting
from composable_memory_feedback.loop import LearningLoop, ShadowReview, StepName

__all__ = ["LoopWork", "learning_goes_on"]

REST_S = 0.0005
"""How long the advisor rests after each ranking, which takes as long: all threads of a search wait for it."""
ACTOR = "loop"


class LoopWork:
    """Does for the loop what it asks for, with one memory."""

    def __init__(self, learning: Learning, read: TextReader) -> None:
        self._learning = learning
        self._read = read
        self._is_over = Event()
        self._done: dict[StepName, Hashable] = {}
        """What each step was last done for; with nothing new it is not done again."""

    @property
    def auto_apply(self) -> bool:
        """Return whether weights may change without a person."""
        return self._learning.settings.auto_apply

    def end(self) -> None:
        """Have a computation that is under way in a thread give up soon."""
        self._is_over.set()

    async def gather_signals(self) -> int:
        """Keep what use implied since the last round, and forget what is too old."""
        oldest = self._learning.context.clock() - timedelta(days=self._learning.settings.retention_days)
        await self._learning.context.stored_if_any(lambda store: store.forget_before(oldest))
        mark = await log_mark(self._learning.context)
        if mark == self._done.get("signals"):
            return 0
        found = await self._learning.judging.gather()
        self._done["signals"] = mark
        return found

    async def judge(self) -> int:
        """Have the language model judge what the quota allows; without a model nothing is judged."""
        if self._learning.settings.llm.base_url is None:
            return 0
        mark = await log_mark(self._learning.context)
        if mark == self._done.get("judge"):
            return 0
        run = await self._learning.judging.evaluate(read=self._read)
        if not run.left:
            self._done["judge"] = mark
        return sum(one.state == "judged" for one in run.outcomes)

    async def end_decided_experiment(self) -> str | None:
        """End the running experiment when it is decided."""
        judged = await self._learning.context.stored_if_any(lambda store: store.judgements_mark())
        mark = judged, await log_mark(self._learning.context)
        if mark == self._done.get("experiment"):
            return None
        ended = await self._learning.experiments.end_if_over()
        self._done["experiment"] = mark
        return ended

    async def news(self) -> Hashable:
        """Return a mark that changes with every judgement and with the weights in force."""
        judged = await self._learning.context.stored_if_any(lambda store: store.judgements_mark())
        return judged, (await self._learning.weights.report()).table.version

    async def review_shadow(self) -> ShadowReview | None:
        """Return the proposal in shadow with what speaks against adopting it."""
        shadow = await self._learning.context.stored_if_any(lambda store: store.shadow())
        if shadow is None:
            return None
        advice = await self._learning.advising.review(shadow)
        return ShadowReview(proposal=advice.proposal, verdict=advice.verdict)

    async def drop_shadow(self, reason: str) -> None:
        """Take the proposal out of the shadow."""
        await self._learning.context.stored(lambda store: store.clear_shadow(reason))

    async def advise(self) -> Proposal | None:
        """Return what the statistical advisor proposes, if nothing but time speaks against it."""
        advice = await self._learning.advising.advise("statistical", automatic=True, pace=self._rest)
        return advice.proposal if advice.verdict.is_allowed or is_waiting(advice.verdict) else None

    async def put_shadow(self, proposal: Proposal) -> None:
        """Keep a proposal in shadow."""
        at = self._learning.context.clock()
        await self._learning.context.stored(lambda store: store.put_shadow(proposal, at))

    async def adopt(self, proposal: Proposal) -> WeightTable:
        """Put the table of a proposal in force."""
        return await self._learning.weights.adopt_proposal(proposal, actor=ACTOR)

    def trouble(self, step: StepName, error: Exception) -> None:
        """Log that a step failed."""
        tell_failure(self._learning.context.ops_log, step, error)

    def _rest(self) -> None:
        if self._is_over.is_set():
            raise FeedbackError("the advice was given up", subject="advisor", advice="the memory was closed")
        time.sleep(REST_S)


@asynccontextmanager
async def learning_goes_on(
    learning: Learning, read: TextReader, *, sleep: Sleep = asyncio.sleep
) -> AsyncIterator[None]:
    """Follow changes of weights, and learn if the settings say so, until the block is left.

    `sleep` is waited for between two looks and between two rounds of learning.
    """
    work = LoopWork(learning, read)
    doing = {"follow weights": follow(learning.context, learning.weights.refresh, sleep)}
    if learning.settings.enabled:
        loop = LearningLoop(
            work,
            interval_s=learning.settings.interval_s,
            sleep=sleep,
            survives=SURVIVED,
        )
        doing["learn"] = loop.run()
    async with goes_on(learning.context.ops_log, doing):
        try:
            yield
        finally:
            work.end()
