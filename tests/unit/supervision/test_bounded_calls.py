"""Calls of others under a deadline: whatever they do comes back as a value, in time."""

import asyncio

import pytest

from composable_memory.errors import BackendError, BackendTimeout, BackendUnavailable
from composable_memory.supervision.deadline import BoundedCalls, Failure, deadline

LIMIT_S = 0.01


class Deaf:
    """A call that ignores its cancellation until it is let go."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.times_cancelled = 0

    async def __call__(self) -> str:
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.times_cancelled += 1
        return "late"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def raising(error: BaseException) -> str:
    raise error


async def run(error: BaseException) -> Failure:
    outcome = await BoundedCalls().run("other", "search", raising(error), None)
    assert isinstance(outcome, Failure)
    return outcome


async def test_what_a_call_returns_comes_back() -> None:
    async def call() -> int:
        return 1

    assert await BoundedCalls().run("other", "search", call(), LIMIT_S) == 1


async def test_an_answer_that_is_there_when_the_deadline_is_looked_at_counts() -> None:
    async def call() -> int:
        return 1

    # As after a loop that was held up: the call ends in the very turn in which its deadline comes due.
    assert await BoundedCalls().run("other", "search", call(), 0.0) == 1


async def test_what_a_call_raises_comes_back_as_a_failure() -> None:
    error = KeyError("gone")

    assert (await run(error)).error is error
    assert (await run(error)).reason == "KeyError: 'gone'"
    own = BackendUnavailable("other", "it is closed", fix="open it again")
    assert (await run(own)).reason == str(own)


async def test_what_would_end_the_loop_or_cannot_be_printed_is_a_failure_of_its_owner() -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    failures = [await run(error) for error in (SystemExit(3), GeneratorExit("end"), Unprintable())]
    cancelled = await BoundedCalls().run("other", "search", cancels_itself(), None)

    for failure, expected in zip(failures, ("SystemExit", "GeneratorExit", "Unprintable"), strict=True):
        assert isinstance(failure.error, BackendError)
        assert expected in failure.reason
    assert isinstance(cancelled, Failure)
    assert isinstance(cancelled.error, BackendError)


async def test_an_overdue_call_is_cancelled_and_one_that_ignores_that_is_left_behind() -> None:
    calls, deaf = BoundedCalls(), Deaf()

    heeding = await calls.run("other", "search", asyncio.Event().wait(), LIMIT_S)
    ignoring = await calls.run("other", "search", deaf(), LIMIT_S)

    for outcome in (heeding, ignoring):
        assert isinstance(outcome, Failure)
        assert isinstance(outcome.error, BackendTimeout)
        assert outcome.error.limit_s == LIMIT_S
    assert deaf.times_cancelled == 1
    await calls.cancel()
    assert deaf.times_cancelled == 2
    deaf.may_end.set()


async def test_a_call_whose_caller_is_cancelled_is_cancelled_and_not_waited_for() -> None:
    deaf = Deaf()
    calling = asyncio.create_task(BoundedCalls().run("other", "search", deaf(), None))
    await asyncio.sleep(0)
    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
    assert deaf.times_cancelled == 1
    deaf.may_end.set()


async def test_a_block_that_takes_too_long_is_a_timeout_of_its_owner() -> None:
    with pytest.raises(BackendTimeout) as raised:
        async with deadline("other", "search", LIMIT_S):
            await asyncio.Event().wait()

    assert (raised.value.backend_id, raised.value.operation) == ("other", "search")
    assert raised.value.limit_s == LIMIT_S


async def test_the_deadline_of_something_inside_says_more() -> None:
    with pytest.raises(BackendTimeout) as raised:
        async with deadline("other", "search", 60.0), deadline("server", "answer", LIMIT_S):
            await asyncio.Event().wait()

    assert raised.value.backend_id == "server"


async def test_a_timeout_from_within_is_one_of_the_owner_and_other_errors_pass() -> None:
    with pytest.raises(BackendTimeout):
        async with deadline("other", "connect", 60.0):
            raise TimeoutError("the network's")
    with pytest.raises(KeyError):
        async with deadline("other", "search", 60.0):
            raise KeyError("gone")
    with pytest.raises(asyncio.CancelledError):
        async with deadline("other", "search", 60.0):
            raise asyncio.CancelledError
