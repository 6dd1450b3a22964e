"""Several tasks at once: the first error or result counts, and nothing is left running."""

import asyncio

import pytest

from composable_memory.supervision.tasks import all_of, comes_first, until_done


class Endless:
    """A call that never returns; notes when it began and when it was cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.is_cancelled = False

    async def __call__(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise


async def value(of: object) -> object:
    await asyncio.sleep(0)
    return of


async def failing(error: Exception, after: asyncio.Event) -> None:
    await after.wait()
    raise error from ValueError("its cause")


async def test_all_results_come_in_the_order_of_the_calls() -> None:
    assert await all_of(value(1), value("two")) == (1, "two")
    assert await all_of(*(value(number) for number in range(5))) == (0, 1, 2, 3, 4)
    assert await all_of() == ()


async def test_the_first_error_ends_the_others_and_is_raised_alone() -> None:
    endless, error = Endless(), KeyError("gone")

    with pytest.raises(KeyError) as raised:
        await all_of(endless(), failing(error, endless.began))

    assert raised.value is error
    assert isinstance(error.__cause__, ValueError)
    assert endless.is_cancelled


async def test_cancelling_all_cancels_each() -> None:
    calls = Endless(), Endless()
    task = asyncio.create_task(all_of(*(call() for call in calls)))
    for call in calls:
        await call.began.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert [call.is_cancelled for call in calls] == [True, True]


async def test_what_comes_first_is_told_and_the_other_is_cancelled() -> None:
    endless = Endless()

    assert await comes_first(value(1), endless())
    assert not await comes_first(endless(), value(1))
    assert endless.is_cancelled


async def test_work_is_waited_for_though_the_wait_is_cancelled() -> None:
    work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    calls = []
    waiting = asyncio.create_task(until_done(work, when_cancelled=lambda: calls.append("cancelled")))
    for _ in range(2):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    work.set_result(1)

    assert isinstance(await waiting, asyncio.CancelledError)
    assert calls == ["cancelled", "cancelled"]
