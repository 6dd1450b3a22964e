"""Tries a call again while what goes wrong may pass: the one door to tenacity."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

__all__ = ["Pace", "RetryPolicy", "Verdict", "retry", "retry_after_s"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a call is tried, and how long is waited before it is tried again.

    The wait begins with `first_wait_s` and doubles each time; it is lengthened at random by up to `jitter` of
    itself, and never longer than `max_wait_s`. What the other side asks for counts where it is longer, up to
    `max_asked_s`.
    """

    tries: int = 4
    first_wait_s: float = 0.5
    jitter: float = 0.2
    max_wait_s: float = 8.0
    max_asked_s: float = 60.0

    def wait_s(self, failures: int, *, asked_s: float | None = None, draw: float = 0.0) -> float:
        """Return the seconds to wait after so many failures; `draw` is a random number in [0, 1)."""
        doubled = self.first_wait_s * 2.0 ** (failures - 1)
        own = min(self.max_wait_s, doubled * (1.0 + self.jitter * draw))
        return max(own, min(self.max_asked_s, asked_s or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How time passes between two tries, and where chance comes from: a number in [0, 1) a draw."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a failure may pass, and for how many seconds the other side asks to be left alone."""

    may_pass: bool
    asked_s: float | None = None


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    judge: Callable[[BaseException], Verdict],
    policy: RetryPolicy | None = None,
    pace: Pace | None = None,
) -> T:
    """Await `call` until it succeeds, fails for good, or has been tried as often as `policy` allows.

    The last failure is raised as it is. Cancelling ends the waiting as well: `judge` must not let it pass.
    """
    policy, pace = policy or RetryPolicy(), pace or Pace()

    def wait_s(state: RetryCallState) -> float:
        error = _failure(state)
        asked_s = None if error is None else judge(error).asked_s
        return policy.wait_s(state.attempt_number, asked_s=asked_s, draw=pace.draw())

    async def once() -> T:  # tenacity looks whether a function is `async`, which a lambda never is
        return await call()

    attempts = AsyncRetrying(
        stop=stop_after_attempt(policy.tries),
        retry=retry_if_exception(lambda error: judge(error).may_pass),
        wait=wait_s,
        sleep=pace.sleep,
        reraise=True,
    )
    return await attempts(once)


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Return how many seconds from `now` a `Retry-After` header asks to wait; None if it cannot be read.

    The header holds whole seconds or a date (RFC 9110, 10.2.3). A date that is over asks for nothing: 0.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())


def _failure(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
