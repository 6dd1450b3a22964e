"""What goes on while a memory is open: weights that others changed come into force, and the loop learns.

A round of the loop gathers signals, judges, ends a decided experiment, and then advises and adopts; one after
another, and idle without news.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from datetime import timedelta
from threading import Event

from composable_memory.learning.active_weights import SURVIVED, Sleep, follow, running, tell_failure
from composable_memory.learning.judging import TextReader
from composable_memory.learning.logged import log_mark
from composable_memory.learning.service import Learning
from composable_memory_feedback.errors import FeedbackError

REST_S = 0.0005
"""How long the advisor rests after each ranking, which takes as long: all threads of a search wait for it."""
ACTOR = "loop"


class LearningLoop:
    """Runs a round every `interval_s` seconds, in the task of whoever runs it.

    An error that is one of `SURVIVED` ends a step and not the loop; a step that failed is tried again in the
    next round. A step may be cancelled, and leaves everything usable then.
    """

    def __init__(self, learning: Learning, read: TextReader, *, sleep: Sleep = asyncio.sleep) -> None:
        self._learning = learning
        self._context = learning.context
        self._settings = learning.settings
        self._read = read
        self._sleep = sleep
        self._is_over = Event()
        self._done: dict[str, Hashable] = {}
        """What each step was last done for; with nothing new it is not done again."""

    async def run(self) -> None:
        """Run rounds until cancelled; the first one is at once."""
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
                    tell_failure(self._context.ops_log, name, error)
            await self._sleep(self._settings.interval_s)

    def end(self) -> None:
        """Have a computation that is under way in a thread give up soon."""
        self._is_over.set()

    async def gather_signals(self) -> None:
        """Keep what use implied since the last round, and forget what is too old."""
        oldest = self._context.clock() - timedelta(days=self._settings.retention_days)
        await self._context.stored_if_any(lambda store: store.forget_before(oldest))
        await self._once("signals", await log_mark(self._context), self._learning.judging.gather)

    async def judge(self) -> None:
        """Have the language model judge what the quota allows; without a model nothing is judged."""
        if self._settings.llm.base_url is None:
            return
        mark = await log_mark(self._context)
        if mark != self._done.get("judge"):
            run = await self._learning.judging.evaluate(read=self._read)
            if not run.left:
                self._done["judge"] = mark

    async def end_decided_experiment(self) -> None:
        """End the running experiment when it is decided."""
        judged = await self._context.stored_if_any(lambda store: store.judgements_mark())
        mark = judged, await log_mark(self._context)
        await self._once("experiment", mark, self._learning.experiments.end_if_over)

    async def advise(self) -> None:
        """Ask the advisor of the settings, and adopt what passes every check where the settings allow that.

        Nobody is asked while nothing new was judged, nor while weights that would be adopted have to rest.
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
        """Return whether the weights changed lately, by whomever; a change still to come counts as well."""
        cool_down = timedelta(hours=self._settings.cool_down_hours)
        latest = await self._learning.weights.history(1)
        return bool(latest) and self._context.clock() - latest[0].at < cool_down

    def _rest(self) -> None:
        if self._is_over.is_set():
            raise FeedbackError("the advice was given up", subject="advisor", advice="the memory was closed")
        time.sleep(REST_S)


@asynccontextmanager
async def learn_in_background(
    learning: Learning, read: TextReader, *, sleep: Sleep | None = None
) -> AsyncIterator[None]:
    """Follow changes of weights, and learn if the settings say so, until the block is left.

    `sleep` is waited for between two looks and between two rounds of learning.
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
