"""The circuit breaker, on a clock of its own."""

from composable_memory.supervision.breaker import Breaker, BreakerState


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(threshold=2, cooldown_s=10.0, clock=clock)
    breaker.record_failure()
    breaker.record_failure()
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = opened(Clock())

    assert breaker.state is BreakerState.OPEN
    assert not breaker.admits()


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker(threshold=2, clock=Clock())
    breaker.record_failure()
    breaker.record_success()
    breaker.record_failure()

    assert breaker.state is BreakerState.CLOSED


def test_one_trial_is_admitted_after_the_cooldown() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10.0

    assert [breaker.admits(), breaker.admits()] == [True, False]
    assert breaker.state is BreakerState.HALF_OPEN


def test_a_good_trial_closes_it() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10.0
    breaker.admits()
    breaker.record_success()

    assert breaker.state is BreakerState.CLOSED
    assert breaker.admits()


def test_a_bad_trial_starts_another_cooldown() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 12.0
    breaker.admits()
    breaker.record_failure()

    assert breaker.retry_in_s == 10.0
    assert not breaker.admits()


def test_a_cancelled_trial_leaves_room_for_the_next() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10.0
    breaker.admits()
    breaker.record_cancelled()

    assert breaker.admits()


def test_a_bad_trial_doubles_the_cooldown_up_to_its_limit() -> None:
    clock = Clock()
    breaker = Breaker(threshold=1, cooldown_s=5.0, max_cooldown_s=15.0, clock=clock)
    breaker.record_failure()
    rests = [breaker.retry_in_s]
    for _ in range(3):
        clock.now += breaker.retry_in_s
        breaker.admits()
        breaker.record_failure()
        rests.append(breaker.retry_in_s)

    assert rests == [5.0, 10.0, 15.0, 15.0]
    assert breaker.failures == 4


def test_a_success_brings_back_the_first_cooldown() -> None:
    clock = Clock()
    breaker = Breaker(threshold=1, cooldown_s=5.0, max_cooldown_s=60.0, clock=clock)
    breaker.record_failure()
    clock.now = 5.0
    breaker.admits()
    breaker.record_failure()
    clock.now = 15.0
    breaker.admits()
    breaker.record_success()
    breaker.record_failure()

    assert breaker.retry_in_s == 5.0
