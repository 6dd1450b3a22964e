"""A circuit breaker: leaves a failing backend alone for a while, then probes it with one call."""

from collections.abc import Callable
from enum import StrEnum
from time import monotonic

from composable_memory.supervision.backoff import backoff_s


class BreakerState(StrEnum):
    """Whether calls may start."""

    CLOSED = "closed"
    """Calls may start."""
    OPEN = "open"
    """Calls are refused until the cool-down is over."""
    HALF_OPEN = "half-open"
    """One call, the probe, is running; others are refused."""


class Breaker:
    """Opens after `threshold` failures in a row; after `cooldown_s` seconds one probe decides.

    With `max_cooldown_s`, every failed probe doubles the cool-down up to that; a success resets it. A backend
    is never locked out for good: every cool-down ends in a probe. Use from one event loop only.

        if breaker.admits():
            try:
                answer = await backend.search(query)
            except BackendError:
                breaker.record_failure()
            else:
                breaker.record_success()
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
        self._failed_probes = 0
        self._is_probing = False

    @property
    def state(self) -> BreakerState:
        """Return the current state."""
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._is_probing else BreakerState.OPEN

    @property
    def failures(self) -> int:
        """Return how many calls have failed since the last success."""
        return self._failures

    @property
    def retry_in_s(self) -> float:
        """Return the seconds until the next probe; 0 when one may start now."""
        if self._opened_at is None:
            return 0.0
        cooldown_s = backoff_s(1 + self._failed_probes, first_s=self._cooldown_s, cap_s=self._max_cooldown_s)
        return max(0.0, self._opened_at + cooldown_s - self._clock())

    def admits(self) -> bool:
        """Return whether a call may start; if it does, its outcome must be recorded."""
        if self._opened_at is None:
            return True
        if self._is_probing or self.retry_in_s > 0.0:
            return False
        self._is_probing = True
        return True

    def record_success(self) -> None:
        """Record that a call succeeded."""
        self._failures = 0
        self._opened_at = None
        self._is_probing = False
        self._failed_probes = 0

    def record_failure(self) -> None:
        """Record that a call failed."""
        self._failures += 1
        self._failed_probes += self._is_probing
        if self._is_probing or self._failures >= self._threshold:
            self._opened_at = self._clock()
        self._is_probing = False

    def record_cancelled(self) -> None:
        """Record that a call was cancelled by the caller, which says nothing about the backend."""
        self._is_probing = False
