"""What goes on while a memory is open: weights that others changed come into force, and the loop learns.

A round of the loop gathers signals, judges, ends a decided experiment, and then advises, puts a proposal into
the shadow or adopts it; one after another, and idle without news.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Hashable
from contextlib import asynccontextmanager
from datetime import timedelta
from threading import Event
from typing import Literal, TypeVar

from composable_memory.learning.active_weights import SURVIVED, Sleep, follow, goes_on, tell_failure
from composable_memory.learning.judging import TextReader
from composable_memory.learning.logged import log_mark
from composable_memory.learning.reports import Advice
from composable_memory.learning.service import Learning
from composable_memory.query.live_weights import WeightTable
from composable_memory_feedback.advice import Proposal
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.guardrails import is_waiting

REST_S = 0.0005
"""How long the advisor rests after each ranking, which takes as long: all threads of a search wait for it."""
ACTOR = "loop"

StepName = Literal["signals", "judge", "experiment", "news", "review", "advise"]
_Reviewed = Literal["nothing", "dropped", "adopted", "waits", "cools down"]
_T = TypeVar("_T")


class LoopWork:
    """The steps of a round, with one memory; each may be cancelled, and leaves everything usable then."""

    def __init__(self, learning: Learning, read: TextReader) -> None:
        self._learning = learning
        self._context = learning.context
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
        oldest = self._context.clock() - timedelta(days=self._learning.settings.retention_days)
        await self._context.stored_if_any(lambda store: store.forget_before(oldest))
        mark = await log_mark(self._context)
        if mark == self._done.get("signals"):
            return 0
        found = await self._learning.judging.gather()
        self._done["signals"] = mark
        return found

    async def judge(self) -> int:
        """Have the language model judge what the quota allows; without a model nothing is judged."""
        if self._learning.settings.llm.base_url is None:
            return 0
        mark = await log_mark(self._context)
        if mark == self._done.get("judge"):
            return 0
        run = await self._learning.judging.evaluate(read=self._read)
        if not run.left:
            self._done["judge"] = mark
        return sum(one.state == "judged" for one in run.outcomes)

    async def end_decided_experiment(self) -> str | None:
        """End the running experiment when it is decided."""
        judged = await self._context.stored_if_any(lambda store: store.judgements_mark())
        mark = judged, await log_mark(self._context)
        if mark == self._done.get("experiment"):
            return None
        ended = await self._learning.experiments.end_if_over()
        self._done["experiment"] = mark
        return ended

    async def news(self) -> Hashable:
        """Return a mark, cheap to get, that changes with every judgement and with the weights in force."""
        judged = await self._context.stored_if_any(lambda store: store.judgements_mark())
        return judged, (await self._learning.weights.report()).table.version

    async def review_shadow(self) -> Advice | None:
        """Return the proposal in shadow with what speaks against adopting it unasked; None without one."""
        shadow = await self._context.stored_if_any(lambda store: store.shadow())
        return None if shadow is None else await self._learning.advising.review(shadow)

    async def drop_shadow(self, reason: str) -> None:
        """Take the proposal out of the shadow."""
        await self._context.stored(lambda store: store.clear_shadow(reason))

    async def advise(self) -> Proposal | None:
        """Return what the advisor of the settings proposes, if nothing but time speaks against it."""
        advice = await self._learning.advising.advise(automatic=True, pace=self._rest)
        return advice.proposal if advice.verdict.is_allowed or is_waiting(advice.verdict) else None

    async def put_shadow(self, proposal: Proposal) -> None:
        """Keep a proposal in shadow."""
        at = self._context.clock()
        await self._context.stored(lambda store: store.put_shadow(proposal, at))

    async def adopt(self, proposal: Proposal) -> WeightTable:
        """Put the table of a proposal in force."""
        return await self._learning.weights.adopt_proposal(proposal, actor=ACTOR)

    def trouble(self, step: StepName, error: Exception) -> None:
        """Log that a step failed."""
        tell_failure(self._context.ops_log, step, error)

    def _rest(self) -> None:
        if self._is_over.is_set():
            raise FeedbackError("the advice was given up", subject="advisor", advice="the memory was closed")
        time.sleep(REST_S)


class LearningLoop:
    """Runs a round every `interval_s` seconds, in the task of whoever runs it.

    While a proposal is in shadow no other is made: it is adopted, dropped, or waits. An error that is one of
    `SURVIVED` ends a step and not the loop; a step that failed is tried again in the next round.
    """

    def __init__(
        self,
        work: LoopWork,
        *,
        interval_s: float,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._work = work
        self._interval_s = interval_s
        self._sleep = sleep
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
            await self._attempt("signals", self._work.gather_signals())
            await self._attempt("judge", self._work.judge())
            await self._attempt("experiment", self._work.end_decided_experiment())
            await self._learn()

    async def _learn(self) -> None:
        """Review and advise, where there is news, or where a proposal only waited for the clock."""
        news = await self._attempt("news", self._work.news())
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
        review = await self._work.review_shadow()
        if review is None:
            return "nothing"
        objections = review.verdict.objections
        if objections and not is_waiting(review.verdict):
            await self._work.drop_shadow(objections[0].text)
            return "dropped"
        if not objections and self._work.auto_apply:
            await self._work.adopt(review.proposal)
            return "adopted"
        return "cools down" if any(one.code == "cool-down" for one in objections) else "waits"

    async def _advise(self) -> bool:
        """Put a proposal into the shadow; return whether there was one."""
        proposal = await self._work.advise()
        if proposal is not None:
            await self._work.put_shadow(proposal)
        return proposal is not None

    async def _attempt(self, step: StepName, doing: Awaitable[_T]) -> _T | None:
        try:
            return await doing
        except SURVIVED as error:
            self._work.trouble(step, error)
            return None


@asynccontextmanager
async def learning_goes_on(
    learning: Learning, read: TextReader, *, sleep: Sleep | None = None
) -> AsyncIterator[None]:
    """Follow changes of weights, and learn if the settings say so, until the block is left.

    `sleep` is waited for between two looks and between two rounds of learning.
    """
    work = LoopWork(learning, read)
    doing = {
        "follow weights": follow(learning.context, learning.weights.refresh, sleep or learning.context.pause)
    }
    if learning.settings.enabled:
        doing["learn"] = LearningLoop(
            work, interval_s=learning.settings.interval_s, sleep=sleep or asyncio.sleep
        ).run()
    async with goes_on(learning.context.ops_log, doing):
        try:
            yield
        finally:
            work.end()
