"""A circuit breaker that lets a failing backend rest and tries it again, one call at a time."""

from collections.abc import Callable
from enum import StrEnum
from time import monotonic

from composable_memory.supervision.backoff import backoff_s

__all__ = ["Breaker", "BreakerState"]


class BreakerState(StrEnum):
    """Whether calls pass."""

    CLOSED = "closed"
    """Calls pass."""
    OPEN = "open"
    """Calls are refused until the cool-down is over."""
    HALF_OPEN = "half-open"
    """One trial call is under way; others are refused."""


class Breaker:
    """Opens after `threshold` failures in a row; after `cooldown_s` seconds one trial decides.

    With `max_cooldown_s` every failed trial doubles the cool-down, up to that; a success resets it.
    Never locks anybody out for good: every cool-down ends in a trial. Used from one event loop only.
    """

    def __init__(
        self,
        *,
        threshold: int = 3,
        cooldown_s: float = 30.0,
        max_cooldown_s: float | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._threshold = threshold
        self._cooldown_s = cooldown_s
        self._max_cooldown_s = max(cooldown_s, max_cooldown_s or 0.0)
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._failed_trials = 0
        self._trial_under_way = False

    @property
    def state(self) -> BreakerState:
        """Return the present state."""
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._trial_under_way else BreakerState.OPEN

    @property
    def failures(self) -> int:
        """Return how many calls have failed since the last success."""
        return self._failures

    @property
    def retry_in_s(self) -> float:
        """Return the seconds until the next trial; 0 when one may start now."""
        if self._opened_at is None:
            return 0.0
        cooldown_s = backoff_s(1 + self._failed_trials, first_s=self._cooldown_s, cap_s=self._max_cooldown_s)
        return max(0.0, self._opened_at + cooldown_s - self._clock())

    def admits(self) -> bool:
        """Say whether a call may start; if it does, its outcome must be recorded."""
        if self._opened_at is None:
            return True
        if self._trial_under_way or self.retry_in_s > 0.0:
            return False
        self._trial_under_way = True
        return True

    def record_success(self) -> None:
        """Note that a call succeeded."""
        self._failures = 0
        self._opened_at = None
        self._trial_under_way = False
        self._failed_trials = 0

    def record_failure(self) -> None:
        """Note that a call failed."""
        self._failures += 1
        self._failed_trials += self._trial_under_way
        if self._trial_under_way or self._failures >= self._threshold:
            self._opened_at = self._clock()
        self._trial_under_way = False

    def record_cancelled(self) -> None:
        """Note that a call was cancelled from outside, which says nothing about the backend."""
        self._trial_under_way = False
