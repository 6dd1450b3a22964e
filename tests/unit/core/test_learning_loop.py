"""The learning loop: what it does when, and that it goes on."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

import pytest

from composable_memory.learning.loop import LearningLoop, LoopWork, StepName
from composable_memory.learning.reports import Advice
from composable_memory_feedback.advice import Objection, Proposal, Verdict
from composable_memory_feedback.advice.proposal import ObjectionCode
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.weights import WeightTable

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
NO_CONNECTION = OSError("no connection")
ALLOWED = Verdict()


def against(*codes: ObjectionCode) -> Verdict:
    return Verdict(objections=tuple(Objection(code=code, text=f"because of {code}") for code in codes))


def proposal(weight: float) -> Proposal:
    current, table = (WeightTable.fixed({"qmd": one}, made_at=NOW) for one in (1.0, weight))
    return Proposal(
        advisor="statistical", current=current, table=table, changes=(), sample_size=99, made_at=NOW
    )


@dataclass
class Actions(LoopWork):
    """Steps in memory: what they are told to answer, and what was asked of them."""

    auto_apply: bool = True
    signals: int = 0
    judgements: int = 1
    weights: WeightTable | None = None
    shadow: Proposal | None = None
    verdict: Verdict = ALLOWED
    next_proposal: Proposal | None = None
    broken: dict[str, Exception] = field(default_factory=dict)
    stuck: str | None = None
    is_stuck: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[str] = field(default_factory=list)
    troubles: list[tuple[StepName, Exception]] = field(default_factory=list)

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.stuck:
            self.is_stuck.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        if name in self.broken:
            raise self.broken[name]

    async def gather_signals(self) -> int:
        await self._called("gather_signals")
        self.judgements += self.signals
        return self.signals

    async def judge(self) -> int:
        await self._called("judge")
        return 0

    async def end_decided_experiment(self) -> str | None:
        await self._called("end_decided_experiment")
        return None

    async def news(self) -> Hashable:
        await self._called("news")
        return (self.judgements, self.weights and self.weights.version) if self.judgements else None

    async def review_shadow(self) -> Advice | None:
        await self._called("review_shadow")
        return None if self.shadow is None else Advice(proposal=self.shadow, verdict=self.verdict, cases=99)

    async def drop_shadow(self, reason: str) -> None:
        await self._called(f"drop_shadow {reason}")
        self.shadow = None

    async def advise(self) -> Proposal | None:
        await self._called("advise")
        return self.next_proposal

    async def put_shadow(self, proposal: Proposal) -> None:
        await self._called("put_shadow")
        self.shadow = proposal

    async def adopt(self, proposal: Proposal) -> WeightTable:
        await self._called("adopt")
        self.shadow, self.weights = None, proposal.table
        return proposal.table

    def trouble(self, step: StepName, error: Exception) -> None:
        self.troubles.append((step, error))

    def learnt(self) -> list[str]:
        """Return what was asked since the last time, but for what every round asks."""
        asked = [
            one
            for one in self.calls
            if one not in ("gather_signals", "judge", "end_decided_experiment", "news")
        ]
        self.calls.clear()
        return asked


def loop_over(actions: Actions) -> LearningLoop:
    return LearningLoop(actions, interval_s=60.0)


async def test_a_round_goes_step_by_step() -> None:
    actions = Actions(next_proposal=proposal(0.9))

    await loop_over(actions).tick()

    assert actions.calls == [
        "gather_signals",
        "judge",
        "end_decided_experiment",
        "news",
        "review_shadow",
        "advise",
        "put_shadow",
    ]
    assert actions.shadow == actions.next_proposal


async def test_without_news_it_is_idle() -> None:
    actions = Actions()
    loop = loop_over(actions)
    await loop.tick()
    actions.learnt()

    await loop.tick()

    assert actions.learnt() == []


async def test_with_nothing_to_learn_from_nothing_is_advised() -> None:
    actions = Actions(judgements=0)

    await loop_over(actions).tick()

    assert "advise" not in actions.calls


async def test_new_judgements_are_a_reason_to_advise() -> None:
    actions = Actions()
    loop = loop_over(actions)
    await loop.tick()
    actions.learnt()

    actions.signals = 3
    await loop.tick()

    assert actions.learnt() == ["review_shadow", "advise"]


async def test_a_proven_proposal_is_adopted() -> None:
    actions = Actions(shadow=proposal(0.9))

    await loop_over(actions).tick()

    assert (actions.weights, actions.shadow) == (proposal(0.9).table, None)
    assert actions.learnt() == ["review_shadow", "adopt"]


async def test_without_leave_a_proven_proposal_waits_for_a_person() -> None:
    actions = Actions(shadow=proposal(0.9), auto_apply=False)
    loop = loop_over(actions)

    for _ in range(3):
        await loop.tick()

    assert actions.learnt() == ["review_shadow"]
    assert (actions.weights, actions.shadow) == (None, proposal(0.9))


async def test_changed_weights_are_news_once_they_are_in_force() -> None:
    actions = Actions(shadow=proposal(0.9))
    loop = loop_over(actions)
    await loop.tick()
    actions.learnt()

    await loop.tick()

    assert actions.learnt() == ["review_shadow", "advise"]


async def test_while_a_proposal_proves_itself_no_other_is_made() -> None:
    actions = Actions(shadow=proposal(0.9), verdict=against("shadow"), signals=1)
    loop = loop_over(actions)

    await loop.tick()
    await loop.tick()

    assert actions.learnt() == ["review_shadow", "review_shadow"]


async def test_a_proposal_that_cools_down_is_reviewed_without_news() -> None:
    actions = Actions(shadow=proposal(0.9), verdict=against("cool-down"))
    loop = loop_over(actions)
    await loop.tick()
    actions.learnt()

    await loop.tick()
    actions.verdict = ALLOWED
    await loop.tick()

    assert actions.learnt() == ["review_shadow", "review_shadow", "adopt"]


async def test_a_proposal_that_just_went_into_the_shadow_is_reviewed_once() -> None:
    actions = Actions(next_proposal=proposal(0.9), verdict=against("shadow"))
    loop = loop_over(actions)

    for _ in range(3):
        await loop.tick()

    assert actions.learnt() == ["review_shadow", "advise", "put_shadow", "review_shadow"]


async def test_a_refuted_proposal_is_dropped_and_another_is_made() -> None:
    actions = Actions(
        shadow=proposal(0.9), verdict=against("golden-floor", "cool-down"), next_proposal=proposal(0.8)
    )

    await loop_over(actions).tick()

    assert actions.learnt() == [
        "review_shadow",
        "drop_shadow because of golden-floor",
        "advise",
        "put_shadow",
    ]
    assert proposal(0.8) == actions.shadow


@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("gather_signals", "signals"),
        ("judge", "judge"),
        ("end_decided_experiment", "experiment"),
        ("news", "news"),
        ("review_shadow", "review"),
        ("advise", "advise"),
        ("put_shadow", "advise"),
    ],
)
async def test_a_step_that_fails_is_told_and_tried_again(call: str, step: StepName) -> None:
    actions = Actions(next_proposal=proposal(0.9), verdict=against("shadow"), broken={call: NO_CONNECTION})
    loop = loop_over(actions)

    await loop.tick()
    actions.broken.clear()
    await loop.tick()

    assert actions.troubles == [(step, NO_CONNECTION)]
    assert actions.shadow is not None
    assert actions.calls.count(call) == 2


async def test_an_adoption_that_fails_is_tried_again() -> None:
    error = FeedbackError("The store is full", subject="disk", advice="make room")
    actions = Actions(shadow=proposal(0.9), broken={"adopt": error})
    loop = loop_over(actions)

    await loop.tick()
    actions.broken.clear()
    await loop.tick()

    assert (actions.troubles, actions.weights) == ([("review", error)], proposal(0.9).table)


async def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        await loop_over(Actions(broken={"judge": ZeroDivisionError()})).tick()


@pytest.mark.parametrize(
    "call",
    ["gather_signals", "judge", "end_decided_experiment", "news", "review_shadow", "advise", "put_shadow"],
)
async def test_a_round_that_was_cancelled_is_made_up_for(call: str) -> None:
    actions = Actions(next_proposal=proposal(0.9), stuck=call)
    loop = loop_over(actions)
    task = asyncio.create_task(loop.tick())
    await actions.is_stuck.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    actions.stuck = None
    await loop.tick()

    assert (actions.troubles, actions.shadow) == ([], proposal(0.9))


async def test_callers_take_turns() -> None:
    actions = Actions()
    loop = loop_over(actions)

    await asyncio.gather(loop.tick(), loop.tick())

    assert (actions.calls[:6]) == [
        "gather_signals",
        "judge",
        "end_decided_experiment",
        "news",
        "review_shadow",
        "advise",
    ]


async def test_it_goes_round_until_it_is_cancelled() -> None:
    actions, rounds, slept = Actions(), count(1), list[float]()
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if next(rounds) == 3:
            enough.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(LearningLoop(actions, interval_s=60.0, sleep=sleep).run())
    await enough.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (slept, actions.calls.count("judge")) == ([60.0] * 3, 3)
