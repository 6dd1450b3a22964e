"""Keeping open what an async context manager opens, and opening it once for all who need it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar

import pytest

from composable_memory.supervision.resource import LazyResource, Once, Resource, open_resource

place: ContextVar[str] = ContextVar("place", default="nowhere")


class Room:
    """A room with a door; notes who opened and closed it, and can be made to hold up or to fail."""

    def __init__(self) -> None:
        self.opened: list[asyncio.Task[object] | None] = []
        self.closed: list[asyncio.Task[object] | None] = []
        self.may_open = asyncio.Event()
        self.may_close = asyncio.Event()
        self.may_open.set()
        self.may_close.set()
        self.is_opening = asyncio.Event()
        self.is_closing = asyncio.Event()
        self.ends = asyncio.Event()
        self.trouble: Exception | None = None
        self.trouble_at_end: Exception | None = None
        self.place = ""

    @asynccontextmanager
    async def enter(self) -> AsyncIterator["Room"]:
        self.is_opening.set()
        try:
            await self.may_open.wait()
            if self.trouble is not None:
                raise self.trouble
            self.opened.append(asyncio.current_task())
            self.place = place.get()
            yield self
        finally:
            self.is_closing.set()
            await self.may_close.wait()
            self.closed.append(asyncio.current_task())
        if self.trouble_at_end is not None:
            raise self.trouble_at_end


@asynccontextmanager
async def with_a_task_group(failing: asyncio.Event) -> AsyncIterator[asyncio.TaskGroup]:
    async def fail() -> None:
        await failing.wait()
        raise ZeroDivisionError

    async with asyncio.TaskGroup() as group:
        child = group.create_task(fail())
        yield group
        child.cancel()


def nothing_is_left() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


async def in_another_task(close: Callable[[], object]) -> None:
    await asyncio.create_task(close())  # type: ignore[arg-type]  # every one of them is a coroutine function


async def test_what_is_kept_is_opened_and_closed_by_one_task() -> None:
    room = Room()
    kept = await open_resource(room.enter)
    await in_another_task(kept.close)

    assert kept.value is room
    assert room.opened == room.closed != [asyncio.current_task()]
    assert nothing_is_left()


async def test_a_task_group_may_be_kept_and_closed_from_elsewhere() -> None:
    kept = await open_resource(lambda: with_a_task_group(asyncio.Event()))
    await in_another_task(kept.close)

    assert not kept.is_open
    assert nothing_is_left()


async def test_an_error_of_opening_reaches_the_caller() -> None:
    room = Room()
    room.trouble = ZeroDivisionError("no such room")

    with pytest.raises(ZeroDivisionError, match="no such room"):
        await open_resource(room.enter)

    assert len(room.closed) == 1
    assert nothing_is_left()


async def test_an_opener_that_is_none_is_told_at_once() -> None:
    def no_opener() -> AbstractAsyncContextManager[Room]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await open_resource(no_opener)


async def test_an_opening_that_cancels_itself_does_not_look_like_a_cancelled_caller() -> None:
    room = Room()
    room.trouble = asyncio.CancelledError()  # type: ignore[assignment]  # a wrong one is what is tested

    with pytest.raises(RuntimeError, match="cancelled from within"):
        await open_resource(room.enter)


async def test_an_error_of_closing_reaches_the_caller() -> None:
    room = Room()
    room.trouble_at_end = ZeroDivisionError("the lock is stuck")
    kept = await open_resource(room.enter)

    with pytest.raises(ZeroDivisionError, match="the lock is stuck"):
        await kept.close()
    assert not kept.is_open


async def test_closing_twice_closes_once() -> None:
    room = Room()
    kept = await open_resource(room.enter)
    await asyncio.gather(kept.close(), kept.close())
    await kept.close()

    assert len(room.closed) == 1


async def test_a_cancelled_opening_has_closed_everything_when_it_ends() -> None:
    room = Room()
    room.may_open.clear()
    room.may_close.clear()
    opening = asyncio.create_task(open_resource(room.enter))
    await room.is_opening.wait()
    opening.cancel()
    await room.is_closing.wait()
    ended_early = opening.done()
    room.may_close.set()

    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not ended_early
    assert len(room.closed) == 1
    assert nothing_is_left()


async def test_who_is_cancelled_again_cancels_the_closing_too() -> None:
    room = Room()
    room.may_open.clear()
    room.may_close.clear()
    opening = asyncio.create_task(open_resource(room.enter))
    await room.is_opening.wait()
    opening.cancel()
    await room.is_closing.wait()
    opening.cancel()

    with pytest.raises(asyncio.CancelledError):
        await opening
    assert nothing_is_left()


@pytest.mark.parametrize("turns", range(8))
async def test_cancelled_at_any_moment_an_opening_leaves_nothing(turns: int) -> None:
    room = Room()
    opening = asyncio.create_task(open_resource(room.enter))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled():
        await opening.result().close()

    assert len(room.opened) <= len(room.closed)
    assert nothing_is_left()


async def test_a_cancelled_close_closes_all_the_same() -> None:
    room = Room()
    room.may_close.clear()
    kept = await open_resource(room.enter)
    closing = asyncio.create_task(kept.close())
    await room.is_closing.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    room.may_close.set()
    await kept.close()

    assert len(room.closed) == 1
    assert nothing_is_left()


async def test_what_fails_inside_ends_it_and_closing_tells_why() -> None:
    failing = asyncio.Event()
    kept: Resource[asyncio.TaskGroup] = await open_resource(lambda: with_a_task_group(failing))
    failing.set()
    await kept.wait_closed()

    assert not kept.is_open
    with pytest.raises(ExceptionGroup) as raised:
        await kept.close()
    assert [type(one) for one in raised.value.exceptions] == [ZeroDivisionError]


async def test_what_is_kept_does_not_belong_to_the_context_that_asked_for_it() -> None:
    room = Room()
    token = place.set("in a request")
    kept = await open_resource(room.enter)
    place.reset(token)
    await kept.close()

    assert room.place == "nowhere"


async def test_all_who_need_it_at_once_get_the_same_one() -> None:
    room = Room()
    door = LazyResource(room.enter)
    got = await asyncio.gather(*(door.get() for _ in range(5)))
    await door.close()

    assert got == [room] * 5
    assert len(room.opened) == len(room.closed) == 1
    assert nothing_is_left()


async def test_who_stops_waiting_does_not_stop_the_opening() -> None:
    room = Room()
    room.may_open.clear()
    door = LazyResource(room.enter)
    impatient, patient = asyncio.create_task(door.get()), asyncio.create_task(door.get())
    await room.is_opening.wait()
    impatient.cancel()
    room.may_open.set()

    assert await patient is room
    assert impatient.cancelled()
    assert len(room.opened) == 1
    await door.close()


async def test_what_could_not_be_opened_is_tried_again_by_the_next() -> None:
    room = Room()
    room.trouble = ZeroDivisionError()
    door = LazyResource(room.enter)
    outcomes = await asyncio.gather(door.get(), door.get(), return_exceptions=True)
    room.trouble = None

    assert [type(one) for one in outcomes] == [ZeroDivisionError] * 2
    assert await door.get() is room
    await door.close()


async def test_what_was_closed_is_opened_anew() -> None:
    room = Room()
    door = LazyResource(room.enter)
    await door.get()
    await door.close()
    between = door.value
    await door.get()
    await door.close()

    assert between is None
    assert len(room.opened) == len(room.closed) == 2


async def test_it_is_not_opened_anew_before_the_old_one_is_closed() -> None:
    room = Room()
    room.may_close.clear()
    door = LazyResource(room.enter)
    await door.get()
    closing = asyncio.create_task(door.close())
    await room.is_closing.wait()
    again = asyncio.create_task(door.get())
    await asyncio.sleep(0)
    opened_beside = len(room.opened)
    room.may_close.set()
    await asyncio.gather(closing, again)
    await door.close()

    assert (opened_beside, len(room.opened)) == (1, 2)


async def test_what_ended_by_itself_is_opened_anew() -> None:
    failing = asyncio.Event()
    door = LazyResource(lambda: with_a_task_group(failing))
    first = await door.get()
    failing.set()
    while door.value is not None:  # noqa: ASYNC110 - what ends by itself tells nobody
        await asyncio.sleep(0)
    failing.clear()
    second = await door.get()
    await door.close()

    assert second is not first


async def test_closing_stops_an_opening_and_tells_who_waits() -> None:
    room = Room()
    room.may_open.clear()
    door = LazyResource(room.enter)
    waiting = asyncio.create_task(door.get())
    await room.is_opening.wait()
    await door.close()

    with pytest.raises(RuntimeError, match="closed while it opened"):
        await waiting
    assert room.opened == []
    assert nothing_is_left()


async def test_an_opening_has_a_limit() -> None:
    room = Room()
    room.may_open.clear()
    door = LazyResource(room.enter, limit_s=0.01)

    with pytest.raises(TimeoutError, match=r"not open after 0\.01 s"):
        await door.get()
    assert nothing_is_left()


async def test_closing_what_was_never_opened_does_nothing() -> None:
    await LazyResource(Room().enter).close()

    assert nothing_is_left()


async def test_work_that_is_done_once_is_shared_and_survives_who_is_cancelled() -> None:
    began, may_end, times = asyncio.Event(), asyncio.Event(), 0

    async def work() -> int:
        nonlocal times
        times += 1
        began.set()
        await may_end.wait()
        return times

    once = Once(work, name="work")
    assert not once.has_begun
    first, second = asyncio.create_task(once()), asyncio.create_task(once())
    await began.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    may_end.set()

    assert (await second, await once(), times, once.has_begun) == (1, 1, 1, True)


async def test_work_that_failed_once_has_failed_for_all() -> None:
    async def work() -> None:
        raise KeyError("gone")

    once = Once(work, name="work")
    for _ in range(2):
        with pytest.raises(KeyError):
            await once()
