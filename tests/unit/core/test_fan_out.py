"""Asking several backends at once."""

import asyncio
import gc
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from composable_memory.errors import BackendError, BackendGarbled, BackendTimeout
from composable_memory.interfaces import MemorySearchManager
from composable_memory.query.fan_out import FanOut
from composable_memory.query.routing import BackendHandle, ComposableBackendEntry
from composable_memory.supervision.breaker import Breaker, BreakerState
from composable_memory.testing import fakes
from composable_memory.types import BackendAnswer, MemorySearchResult, SearchFilters, SearchOptions

QUERY = "dock"


@dataclass
class Asking:
    """Seats with their breakers, and the answers as they came in."""

    handles: list[BackendHandle] = field(default_factory=list)
    came_in: list[str] = field(default_factory=list)

    def handle(
        self,
        backend_id: str,
        manager: MemorySearchManager,
        *,
        timeout_s: float = 5.0,
        cooldown_s: float = 30.0,
    ) -> BackendHandle:
        entry = ComposableBackendEntry(id=backend_id, manager=manager, timeout_s=timeout_s)
        handle = BackendHandle.take(entry, Breaker(threshold=1, cooldown_s=cooldown_s))
        self.handles.append(handle)
        return handle

    async def ask(
        self, fan_out: FanOut | None = None, depth: int = 24, *, types: tuple[str, ...] = ()
    ) -> list[BackendAnswer]:
        options = SearchOptions(max_results=depth, filters=SearchFilters(types=types))
        return await (fan_out or FanOut()).ask_all(self.handles, QUERY, options, self._note)

    def _note(self, answer: BackendAnswer, depth: int) -> None:
        self.came_in.append(answer.backend_id)


class StubbornBackend(fakes.HangingBackend):
    """Ignores its first cancellation; `release` lets it go."""

    def __init__(self) -> None:
        super().__init__(backend_id="stubborn")
        self.release = asyncio.Event()

    async def search(self, query, options=None):  # type: ignore[no-untyped-def]
        try:
            await super().search(query, options)
        except asyncio.CancelledError:
            await self.release.wait()
        return ()


async def test_a_failing_backend_does_not_hide_the_others() -> None:
    asking = Asking()
    asking.handle("bad", fakes.RaisingBackend(RuntimeError("boom")))
    asking.handle("good", fakes.FloodBackend(3))

    bad, good = await asking.ask()

    assert isinstance(bad.error, RuntimeError)
    assert (good.error, len(good.results)) == (None, 3)


async def test_a_hanging_backend_is_cut_at_its_deadline_and_cancelled() -> None:
    asking = Asking()
    hanging = fakes.HangingBackend()
    handle = asking.handle("hanging", hanging, timeout_s=0.01)
    asking.handle("good", fakes.FloodBackend(3))

    late, good = await asking.ask()

    assert isinstance(late.error, BackendTimeout)
    assert hanging.cancelled == 1
    assert len(good.results) == 3
    assert handle.breaker.state is BreakerState.OPEN


async def test_a_backend_that_ignores_its_cancellation_is_left_behind() -> None:
    asking = Asking()
    stubborn = StubbornBackend()
    handle = asking.handle("stubborn", stubborn, timeout_s=0.01)
    fan_out = FanOut()

    [answer] = await asking.ask(fan_out)
    stubborn.release.set()
    await fan_out.close()

    assert isinstance(answer.error, BackendTimeout)
    assert asking.came_in == ["stubborn"]
    assert handle.breaker.state is BreakerState.OPEN


async def test_cancelling_cancels_every_backend_and_frees_the_breakers() -> None:
    asking = Asking()
    one, other = fakes.HangingBackend(), fakes.HangingBackend()
    asking.handle("one", one)
    asking.handle("other", other)
    task = asyncio.create_task(asking.ask())
    await asyncio.wait_for(asyncio.gather(one.started.wait(), other.started.wait()), 5)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (one.cancelled, other.cancelled) == (1, 1)
    assert all(handle.breaker.state is BreakerState.CLOSED for handle in asking.handles)


async def test_a_backend_that_cancels_itself_has_failed_and_hides_nobody() -> None:
    asking = Asking()
    handle = asking.handle("bad", fakes.RaisingBackend(asyncio.CancelledError()))
    asking.handle("good", fakes.FloodBackend(3))

    bad, good = await asking.ask()

    assert isinstance(bad.error, BackendError)
    assert len(good.results) == 3
    assert handle.breaker.state is BreakerState.OPEN


async def test_cancelling_an_older_call_leaves_the_trial_of_another_alone() -> None:
    asking = Asking()
    hanging = fakes.HangingBackend()
    breaker = asking.handle("hanging", hanging, cooldown_s=0.0).breaker
    task = asyncio.create_task(asking.ask())
    await asyncio.wait_for(hanging.started.wait(), 5)
    breaker.record_failure()
    assert breaker.admits()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not breaker.admits()


async def test_a_cancelled_trial_may_be_tried_again() -> None:
    asking = Asking()
    hanging = fakes.HangingBackend()
    breaker = asking.handle("hanging", hanging, cooldown_s=0.0).breaker
    breaker.record_failure()
    assert breaker.admits()
    task = asyncio.create_task(asking.ask())
    await asyncio.wait_for(hanging.started.wait(), 5)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert breaker.admits()


async def test_cancelling_leaves_no_complaint_to_the_loop() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    asking = Asking()
    hanging = fakes.HangingBackend()
    asking.handle("hanging", hanging)
    task = asyncio.create_task(asking.ask())
    await asyncio.wait_for(hanging.started.wait(), 5)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()

    assert complaints == []


async def test_a_flood_is_cut_to_the_depth() -> None:
    asking = Asking()
    asking.handle("flood", fakes.FloodBackend(10_000))
    for types in ((), ("md",)):
        [answer] = await asking.ask(depth=24, types=types)

        assert len(answer.results) == 24


async def test_an_answer_in_another_order_is_sorted_by_score() -> None:
    class Upside(fakes.FloodBackend):
        async def search(self, query, options=None):  # type: ignore[no-untyped-def]
            return (await super().search(query, options))[::-1]

    asking = Asking()
    asking.handle("upside", Upside(5))

    [answer] = await asking.ask(depth=3)

    assert [result.path for result in answer.results] == [f"memory/flood/0000{at}.md" for at in range(3)]


async def test_scores_of_another_type_become_plain_numbers() -> None:
    """What is written as 1 and read back as 1.0 would not be the same to the byte."""
    asking = Asking()
    asking.handle(
        "whole", fakes.RubbishBackend([_scored("a.md", 1), _scored("b.md", True), _scored("c.md", 0)])
    )

    [answer] = await asking.ask()

    assert [repr(result.score) for result in answer.results] == ["1.0", "1.0", "0.0"]


def _scored(path: str, score: float) -> MemorySearchResult:
    return MemorySearchResult(path=path, start_line=1, end_line=2, score=score, snippet="dock")


async def test_highlights_that_no_snippet_has_are_left_out() -> None:
    asking = Asking()
    marks: list[Any] = [((0, 2), (3, 99)), "dock", None, [(True, 2)]]
    results = [replace(_scored(f"{at}.md", 0.5), highlights=one) for at, one in enumerate(marks)]
    asking.handle("marked", fakes.RubbishBackend([*results, replace(results[0], text=cast("str", None))]))

    [answer] = await asking.ask()

    assert [result.highlights for result in answer.results] == [((0, 2),), (), (), (), ((0, 2),)]
    assert {result.text for result in answer.results} == {""}


async def test_rubbish_is_left_out_and_counted() -> None:
    asking = Asking()
    asking.handle("rubbish", fakes.RubbishBackend())

    [answer] = await asking.ask()

    assert "memory/good.md" in {result.path for result in answer.results}
    assert [one.code for one in answer.degraded] == ["garbled"]
    assert all(isinstance(result.score, int | float) for result in answer.results)


@pytest.mark.parametrize("rubbish", [None, 42, ("a", "b")])
async def test_an_answer_of_nothing_but_rubbish_is_an_error(rubbish: object) -> None:
    asking = Asking()
    asking.handle("rubbish", fakes.RubbishBackend(rubbish))

    [answer] = await asking.ask()

    assert isinstance(answer.error, BackendGarbled)


async def test_answers_are_reported_as_they_come_in() -> None:
    asking = Asking()
    asking.handle("slow", fakes.SlowBackend(0.02))
    asking.handle("fast", fakes.FloodBackend(1))

    answers = await asking.ask()

    assert asking.came_in == ["fast", "slow"]
    assert [answer.backend_id for answer in answers] == ["slow", "fast"]
