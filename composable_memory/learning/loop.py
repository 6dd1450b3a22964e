"""What runs while a memory is open: weights changed by others become active, and the loop learns.

A round of the loop gathers signals, judges, ends a decided experiment, and then advises and adopts, one after
another; without news it does nothing.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from datetime import timedelta
from threading import Event

from composable_memory.learning.active_weights import SURVIVED, Sleep, follow, log_failure, running
from composable_memory.learning.judging import TextReader
from composable_memory.learning.logged import log_mark
from composable_memory.learning.service import Learning
from composable_memory_feedback.errors import FeedbackError

REST_S = 0.0005
"""Pause of the advisor after each ranking, as long as one takes: the threads of a search are waiting."""
ACTOR = "loop"


class LearningLoop:
    """Runs a round every `interval_s` seconds, in the task of its caller.

    An error in `SURVIVED` ends a step but not the loop; the step is tried again in the next round. A
    cancelled step leaves everything usable.
    """

    def __init__(self, learning: Learning, read: TextReader, *, sleep: Sleep = asyncio.sleep) -> None:
        self._learning = learning
        self._context = learning.context
        self._settings = learning.settings
        self._read = read
        self._sleep = sleep
        self._is_over = Event()
        self._done: dict[str, Hashable] = {}
        """What each step was last done for; it is not repeated until something has changed."""

    async def run(self) -> None:
        """Run rounds until cancelled, the first one at once."""
        steps = {
            "signals": self.gather_signals,
            "judge": self.judge,
            "experiment": self.end_decided_experiment,
            "advise": self.advise,
        }
        while True:
            for name, step in steps.items():
                try:
                    await step()
                except SURVIVED as error:
                    log_failure(self._context.ops_log, name, error)
            await self._sleep(self._settings.interval_s)

    def end(self) -> None:
        """Make a computation that is running in a thread stop soon."""
        self._is_over.set()

    async def gather_signals(self) -> None:
        """Store the judgements implied by use since the last round, and delete those that are too old."""
        oldest = self._context.clock() - timedelta(days=self._settings.retention_days)
        await self._context.stored_if_any(lambda store: store.forget_before(oldest))
        await self._once("signals", await log_mark(self._context), self._learning.judging.gather)

    async def judge(self) -> None:
        """Have the language model judge as much as the quota allows, if there is a model."""
        if self._settings.llm.base_url is None:
            return
        mark = await log_mark(self._context)
        if mark != self._done.get("judge"):
            run = await self._learning.judging.evaluate(read=self._read)
            if not run.left:
                self._done["judge"] = mark

    async def end_decided_experiment(self) -> None:
        """End the running experiment if it is decided."""
        judged = await self._context.stored_if_any(lambda store: store.judgements_mark())
        mark = judged, await log_mark(self._context)
        await self._once("experiment", mark, self._learning.experiments.end_if_over)

    async def advise(self) -> None:
        """Ask the configured advisor, and adopt what passes every check if the settings allow it.

        The advisor is not asked without new judgements, nor while the weights are cooling down.
        """
        judged = await self._context.stored_if_any(lambda store: store.judgements_mark())
        mark = judged, (await self._learning.weights.report()).table.version
        adopts = self._settings.auto_apply
        if judged is None or mark == self._done.get("advise") or (adopts and await self._cools_down()):
            return
        advice = await self._learning.advising.advise(automatic=True, pace=self._rest)
        if adopts and advice.is_allowed:
            await self._learning.weights.adopt_proposal(advice.proposal, actor=ACTOR)
        self._done["advise"] = mark

    async def _once(self, name: str, mark: Hashable, step: Callable[[], Awaitable[object]]) -> None:
        if mark != self._done.get(name):
            await step()
            self._done[name] = mark

    async def _cools_down(self) -> bool:
        """Return whether the weights changed recently, by anyone; a change in the future counts too."""
        cool_down = timedelta(hours=self._settings.cool_down_hours)
        latest = await self._learning.weights.history(1)
        return bool(latest) and self._context.clock() - latest[0].at < cool_down

    def _rest(self) -> None:
        if self._is_over.is_set():
            raise FeedbackError("the advice was abandoned", subject="advisor", advice="the memory was closed")
        time.sleep(REST_S)


@asynccontextmanager
async def learn_in_background(
    learning: Learning, read: TextReader, *, sleep: Sleep | None = None
) -> AsyncIterator[None]:
    """Follow changes of weights, and learn if the settings say so, until the block ends.

    `sleep` is called between two checks and between two rounds of learning.
    """
    loop = LearningLoop(learning, read, sleep=sleep or asyncio.sleep)
    doing = {
        "follow weights": follow(learning.context, learning.weights.refresh, sleep or learning.context.pause)
    }
    if learning.settings.enabled:
        doing["learn"] = loop.run()
    async with running(learning.context.ops_log, doing):
        try:
            yield
        finally:
            loop.end()
