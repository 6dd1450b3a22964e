"""How long to wait after failures, and a retry loop for those that may be temporary."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")

MAX_DOUBLINGS = 64
"""Beyond this every wait has reached its cap; a larger exponent would overflow a float."""


def backoff_s(
    failures: int, *, first_s: float, cap_s: float, jitter: float = 0.0, draw: float = 0.0
) -> float:
    """Return the seconds to wait after this many failures in a row: doubling from `first_s` up to `cap_s`.

    `jitter` lengthens the wait by up to that share of itself; `draw`, a random number in [0, 1), decides by
    how much, so that clients that failed together do not all come back together.

        backoff_s(0, first_s=1.0, cap_s=60.0)  # 0: nothing has failed
        backoff_s(3, first_s=1.0, cap_s=60.0)  # 4 s
        backoff_s(9, first_s=1.0, cap_s=60.0)  # 60 s
    """
    if failures < 1:
        return 0.0
    doubled = first_s * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
    return min(cap_s, doubled * (1.0 + jitter * draw))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a call is tried and how long to wait in between, see `backoff_s`.

    If the server asks for a longer wait (`Retry-After`), that is used instead, up to `max_asked_s`.
    """

    tries: int = 4
    first_wait_s: float = 0.5
    jitter: float = 0.2
    max_wait_s: float = 8.0
    max_asked_s: float = 60.0

    def wait_s(self, failures: int, *, asked_s: float | None = None, draw: float = 0.0) -> float:
        """Return the seconds to wait after this many failures; `draw` is a random number in [0, 1)."""
        own = backoff_s(
            failures, first_s=self.first_wait_s, cap_s=self.max_wait_s, jitter=self.jitter, draw=draw
        )
        return max(own, min(self.max_asked_s, asked_s or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Clock and randomness of `retry`: how to sleep, and how to draw a number in [0, 1)."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a failure may be temporary, and how many seconds the server asks us to wait."""

    may_pass: bool
    asked_s: float | None = None


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    judge: Callable[[Exception], Verdict],
    policy: RetryPolicy | None = None,
    pace: Pace | None = None,
) -> T:
    """Await `call` until it succeeds, fails for good, or has been tried as often as `policy` allows.

    The last failure is raised as it is. Cancellation is never retried and also ends the waiting.

        await retry(partial(client.post, url), judge=lambda error: Verdict(may_pass=is_busy(error)))
    """
    policy, pace = policy or RetryPolicy(), pace or Pace()
    for attempt in count(1):
        try:
            return await call()
        except Exception as error:
            verdict = judge(error)
            if not verdict.may_pass or attempt >= policy.tries:
                raise
        await pace.sleep(policy.wait_s(attempt, asked_s=verdict.asked_s, draw=pace.draw()))
    raise AssertionError("unreachable: count() does not end")
