"""Laws of a memory with a fallback that hold whatever the two do: slow, wrong, deaf, gone, and back again.

Time is a number here that moves on when nothing is left to do, so that hours pass in a moment and every
deadline can be measured to the millisecond.
"""

import asyncio
import math
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from composable_memory.errors import BackendError, BackendUnavailable, MemoryPathError
from composable_memory.interfaces import Capability
from composable_memory.runtime.failover import FailoverMember, FallbackMemoryManager
from composable_memory.supervision.breaker import Breaker
from composable_memory.testing import FIXED_NOW
from composable_memory.types import (
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    SearchAnswer,
    SearchOptions,
)

PRIMARY_S, FALLBACK_S, OPEN_S = 4.0, 3.0, 10.0
LONGEST_REST_S = 300.0
GRACE_S = 0.02
ABLE = frozenset({Capability.ANSWER, Capability.READ_FILE})

Opening = Literal["works", "slow", "fails", "hangs"]
Asking = Literal["works", "slow", "fails", "strange", "hangs", "deaf", "rubbish"]
Closing = Literal["works", "slow", "fails", "hangs"]


@dataclass
class Condition:
    """What a memory does just now, and what has been done with it."""

    name: str
    opening: Opening = "works"
    asking: Asking = "works"
    closing: Closing = "works"
    open_now: int = 0
    most_open: int = 0
    asked: int = 0
    is_hard_to_close: bool = False
    held_up: float = -1.0
    """When it was last held up by an opening or a closing that took longer than a call has time for."""

    def is_well_since(self, moment: float) -> bool:
        """Say whether it could have answered a call that began then."""
        answers = self.opening in ("works", "slow") and self.asking in ("works", "slow")
        return answers and self.held_up < moment

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Troubled"]:
        await self._pass(self.opening)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            yield Troubled(self)
        finally:
            self.is_hard_to_close |= self.closing in ("fails", "hangs")
            try:
                await self._pass(self.closing)
            finally:
                self.open_now -= 1

    async def _pass(self, state: str) -> None:
        self.held_up = math.inf
        try:
            await passing(state)
        finally:
            is_quick = state in ("works", "fails") or self.open_now == 0
            self.held_up = -1.0 if is_quick and state != "hangs" else asyncio.get_running_loop().time()


async def passing(state: str) -> None:
    """Take the time that a state takes, or fail as it does."""
    if state == "slow":
        await asyncio.sleep(1.0)
    elif state == "fails":
        raise BackendUnavailable("memory", "it is broken", fix="mend it")
    elif state == "strange":
        raise KeyError("strange")
    elif state == "hangs":
        await asyncio.sleep(1000.0)
    elif state == "deaf":
        try:
            await asyncio.sleep(1000.0)
        except asyncio.CancelledError:
            await asyncio.sleep(50.0)


class Troubled:
    """A memory in some condition; its answers name it."""

    capabilities = ABLE

    def __init__(self, condition: Condition) -> None:
        self._condition = condition

    async def search(self, query: str, options: SearchOptions | None = None) -> tuple[()]:
        return (await self.answer(query, options)).results  # type: ignore[return-value]

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        del query, options
        self._condition.asked += 1
        await passing(self._condition.asking)
        if self._condition.asking == "rubbish":
            return "rubbish"  # type: ignore[return-value]
        return SearchAnswer(results=(), engines={"search": self._condition.name})

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        del from_line, lines
        raise MemoryPathError(rel_path, "it is not there")

    def status(self) -> MemoryProviderStatus:
        return MemoryProviderStatus(backend=self._condition.name, provider="troubled")

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        return MemoryEmbeddingProbeResult(ok=True)

    async def probe_vector_availability(self) -> bool:
        return True

    async def close(self) -> None:
        pass


class _Patience(selectors.DefaultSelector):
    """Does not wait: what would be waited for has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        assert ready or timeout is not None, "everybody waits, and nobody will wake them"
        self.passed_s += 0.0 if ready else max(timeout or 0.0, 0.0)
        return ready


class HastyLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves on when nothing is left to do."""

    def __init__(self) -> None:
        self.patience = _Patience()
        super().__init__(self.patience)

    def time(self) -> float:
        return self.patience.passed_s


@dataclass
class World:
    """A pair of memories on the time of the loop, and those who ask it."""

    primary: Condition = field(default_factory=lambda: Condition("first"))
    fallback: Condition = field(default_factory=lambda: Condition("second"))
    is_closed: bool = False

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.manager = FallbackMemoryManager(
            FailoverMember(id="first", open=self.primary.open, timeout_s=PRIMARY_S, capabilities=ABLE),
            FailoverMember(id="second", open=self.fallback.open, timeout_s=FALLBACK_S, capabilities=ABLE),
            open_timeout_s=OPEN_S,
            clock=lambda: FIXED_NOW + timedelta(seconds=self.loop.time()),
            breaker=Breaker(threshold=1, cooldown_s=5.0, max_cooldown_s=LONGEST_REST_S, clock=self.loop.time),
        )

    async def ask(self, *, gives_up_after_s: float | None = None) -> SearchAnswer | None:
        """Ask once, and check what an answer or an error may be; None if it was given up."""
        began = self.loop.time()
        asking = asyncio.create_task(self.manager.answer("gateway"))
        if gives_up_after_s is not None:
            await asyncio.wait([asking], timeout=gives_up_after_s)
            asking.cancel()
            await asyncio.wait([asking])
            if asking.cancelled():
                assert self.loop.time() - began <= gives_up_after_s + GRACE_S
                return None
        try:
            answer = await asking
        except BackendError:
            assert self.is_closed or not self.fallback.is_well_since(began)
            return None
        finally:
            assert self.loop.time() - began <= PRIMARY_S + FALLBACK_S + GRACE_S
        is_replaced = [one.code for one in answer.degraded] == ["fallback"]
        assert list(answer.engines.values()) == ["second" if is_replaced else "first"]
        return answer


@dataclass(frozen=True)
class Change:
    """From now on, one of the two does something otherwise."""

    who: Literal["first", "second"]
    what: Literal["opening", "asking", "closing"]
    to: str


@dataclass(frozen=True)
class Ask:
    """So many ask at once, and some give up after a while."""

    patience_s: list[float | None]


@dataclass(frozen=True)
class Wait:
    """Nothing happens for some time."""

    seconds: float


Scene = list[Change | Ask | Wait]

SIDES = st.sampled_from(["first", "second"])
SLOW = ["works", "slow", "fails", "hangs"]
PATIENCE = st.one_of(st.none(), st.sampled_from([0.0, 0.001, 0.5, 1.0, 3.999, 4.0, 4.001, 6.0]))
SCENES: st.SearchStrategy[Scene] = st.lists(
    st.one_of(
        st.builds(Change, SIDES, st.sampled_from(["opening", "closing"]), st.sampled_from(SLOW)),
        st.builds(Change, SIDES, st.just("asking"), st.sampled_from([*SLOW, "strange", "deaf", "rubbish"])),
        st.builds(Ask, st.lists(PATIENCE, min_size=1, max_size=4)),
        st.builds(Wait, st.sampled_from([0.0, 0.5, 4.0, 5.0, 10.0, 40.0, 400.0])),
    ),
    max_size=12,
)

KEEPS_FAILING: Scene = [
    Change("first", "asking", "fails"),
    Change("first", "closing", "hangs"),
    *(Ask([None]), Wait(5.0), Ask([None]), Wait(10.0), Ask([None]), Wait(40.0)),
]
"""A primary that is closed because it keeps failing, and takes longer for that than anybody waits."""


async def play(world: World, scene: Scene) -> None:
    """Let everything in a scene happen, one after another."""
    for step in scene:
        match step:
            case Ask(patience_s):
                await asyncio.gather(*(world.ask(gives_up_after_s=one) for one in patience_s))
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Change(who, what, to):
                condition = world.primary if who == "first" else world.fallback
                setattr(condition, what, to)


async def ended(world: World) -> None:
    """Close the pair and check that it answers nobody, and that in the end nothing of it is left."""
    began = world.loop.time()
    world.is_closed = True
    try:
        await world.manager.close()
    except BackendError:
        assert any(one.is_hard_to_close for one in (world.primary, world.fallback))
    assert world.loop.time() - began <= 2 * 30.0 + GRACE_S
    asked = world.primary.asked
    for call in (world.manager.answer("gateway"), world.manager.open()):
        with pytest.raises(BackendUnavailable, match="closed"):
            await call
    await asyncio.sleep(5000.0)
    assert world.primary.asked == asked
    for condition in (world.primary, world.fallback):
        assert condition.open_now == 0
        assert condition.most_open <= 1
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert {task.get_name() for task in others} <= {"play"}


def run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run something on a loop of its own, in no time."""
    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        runner.run(main())


@given(scene=SCENES, is_opened=st.booleans())
@example(scene=KEEPS_FAILING, is_opened=True)
def test_every_call_ends_in_time_says_who_answered_and_leaves_nothing(
    scene: Scene, *, is_opened: bool
) -> None:
    async def main() -> None:
        world = World()
        if is_opened:
            await world.manager.open()
        await play(world, scene)
        await ended(world)

    run(main)


@given(scene=SCENES)
def test_a_primary_that_is_well_again_serves_again_after_its_rest(scene: Scene) -> None:
    async def main() -> None:
        world = World()
        await play(world, scene)
        for one in (world.primary, world.fallback):
            one.opening = one.asking = one.closing = "works"
        await asyncio.sleep(2000.0)  # what was left behind has ended, and the longest rest is over
        await world.ask()
        await asyncio.sleep(OPEN_S + PRIMARY_S)

        answer = await world.ask()

        assert answer is not None
        assert answer.engines == {"search": "first"}
        await ended(world)

    run(main)


@given(scene=SCENES, closes_after_s=st.sampled_from([0.0, 0.001, 1.0, 4.0, 4.001, 5.0, 10.0, 30.0, 400.0]))
def test_it_may_be_closed_at_any_moment(scene: Scene, closes_after_s: float) -> None:
    async def main() -> None:
        world = World()
        others = asyncio.create_task(play(world, scene), name="play")
        await asyncio.sleep(closes_after_s)

        await ended(world)

        await others

    run(main)
