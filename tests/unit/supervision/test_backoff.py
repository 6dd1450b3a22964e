"""A call is tried again while what goes wrong may pass, and no longer."""

import asyncio
from datetime import UTC, datetime

import pytest

from composable_memory.supervision.backoff import Pace, RetryPolicy, Verdict, backoff_s, retry
from composable_memory_feedback.retry_after import retry_after_s

NOW = datetime(2026, 3, 9, 12, 0, tzinfo=UTC)


class Passing(Exception):
    """What may pass; with what the other side asks for."""

    asked_s: float | None = None


class Naps:
    """Takes no time, and remembers how much it should have taken."""

    def __init__(self, draw: float = 0.0) -> None:
        self.taken: list[float] = []
        self.pace = Pace(sleep=self._sleep, draw=lambda: draw)

    async def _sleep(self, seconds: float) -> None:
        self.taken.append(seconds)


class Call:
    """Raises what it is given, one after the other, and then returns how often it was made."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.made = 0

    async def __call__(self) -> int:
        self.made += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.made


def judge(error: Exception) -> Verdict:
    if isinstance(error, Passing):
        return Verdict(may_pass=True, asked_s=error.asked_s)
    return Verdict(may_pass=False)


def asking(seconds: float) -> Passing:
    error = Passing()
    error.asked_s = seconds
    return error


async def test_a_call_that_succeeds_is_made_once() -> None:
    naps = Naps()

    assert await retry(Call(), judge=judge, pace=naps.pace) == 1
    assert naps.taken == []


async def test_what_passes_is_waited_for() -> None:
    naps = Naps()

    assert await retry(Call(Passing(), Passing()), judge=judge, pace=naps.pace) == 3
    assert naps.taken == [0.5, 1.0]


async def test_the_fourth_failure_is_the_last() -> None:
    naps, call = Naps(), Call(*(Passing(number) for number in range(9)))

    with pytest.raises(Passing) as raised:
        await retry(call, judge=judge, pace=naps.pace)

    assert raised.value.args == (3,)
    assert (call.made, naps.taken) == (4, [0.5, 1.0, 2.0])


async def test_what_does_not_pass_is_raised_at_once() -> None:
    naps, call = Naps(), Call(Passing(), ValueError("no"))

    with pytest.raises(ValueError, match="no"):
        await retry(call, judge=judge, pace=naps.pace)

    assert (call.made, naps.taken) == (2, [0.5])


async def test_what_the_other_side_asks_for_is_waited() -> None:
    naps = Naps(draw=0.5)

    await retry(Call(asking(7), asking(0), asking(3600)), judge=judge, pace=naps.pace)

    assert naps.taken == [7.0, pytest.approx(1.1), 60.0]


async def test_a_wait_can_be_cancelled() -> None:
    asleep = asyncio.Event()

    async def sleep(_seconds: float) -> None:
        asleep.set()
        await asyncio.Event().wait()

    call = Call(Passing())
    task = asyncio.create_task(retry(call, judge=judge, pace=Pace(sleep=sleep)))
    await asleep.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.made == 1


async def test_a_cancelled_call_is_not_made_again() -> None:
    call = Call(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await retry(call, judge=judge, pace=Naps().pace)
    assert call.made == 1


def test_a_back_off_doubles_from_nothing_up_to_its_cap() -> None:
    waits = [backoff_s(failures, first_s=1.0, cap_s=60.0) for failures in (-1, 0, 1, 2, 6, 7, 5000)]

    assert waits == [0.0, 0.0, 1.0, 2.0, 32.0, 60.0, 60.0]


@pytest.mark.parametrize(
    ("failures", "least", "most"), [(1, 0.5, 0.6), (2, 1.0, 1.2), (3, 2.0, 2.4), (4, 4.0, 4.8), (9, 8.0, 8.0)]
)
def test_waits_double_with_a_little_chance_up_to_a_limit(failures: int, least: float, most: float) -> None:
    wait_s = RetryPolicy().wait_s

    assert wait_s(failures, draw=0.0) == least
    assert wait_s(failures, draw=1.0) == pytest.approx(most)


def test_both_forms_of_retry_after_are_read() -> None:
    expected = {
        "0": 0.0,
        "120": 120.0,
        " 3 ": 3.0,
        "Mon, 09 Mar 2026 12:01:30 GMT": 90.0,
        "Mon, 09 Mar 2026 11:00:00 GMT": 0.0,
        "Monday, 09-Mar-26 12:00:10 GMT": 10.0,
        None: None,
        "": None,
        "-5": None,
        "soon": None,
        "1.5": None,
        "٣": None,
        "Mon, 99 Mar 2026 12:00:00 GMT": None,
        "Mon, 09 Mar 99999999999999999999 12:00:00 GMT": None,
    }

    assert {value: retry_after_s(value, NOW) for value in expected} == expected


def test_the_real_pace_sleeps_and_draws() -> None:
    assert 0.0 <= Pace().draw() < 1.0
    assert Pace().sleep is asyncio.sleep


async def test_a_function_that_returns_an_awaitable_can_be_tried() -> None:
    call = Call(Passing())

    assert await retry(lambda: call(), judge=judge, pace=Naps().pace) == 2
