"""Tracks whether the primary or its fallback is active: failures, cool-downs, and probes."""

from datetime import UTC, datetime, timedelta

from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import Clock
from composable_memory.supervision.breaker import Breaker, BreakerState
from composable_memory.types import JsonValue
from composable_memory_ops_logs import BackendDegraded, BackendRecovered, OpsLog
from composable_memory_ops_logs.quick_dataclass import dataclass

FIRST_COOLDOWN_S = 5.0
LONGEST_COOLDOWN_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """Why and since when the primary is inactive, its next probe, and its number of failures in a row."""

    reason: str
    since: datetime
    next_probe: datetime
    failures: int


class FailoverState:
    """The state of the primary `primary_id`, with `fallback_id` standing in for it; logs every change.

    Without a `breaker`, the first failure opens one for 5 s, doubled by every failed probe, up to 5 minutes.
    """

    def __init__(
        self,
        primary_id: str,
        fallback_id: str,
        *,
        clock: Clock,
        ops_log: OpsLog,
        breaker: Breaker | None = None,
    ) -> None:
        self._primary_id = primary_id
        self._fallback_id = fallback_id
        self._clock = clock
        self._ops_log = ops_log
        self._breaker = breaker or Breaker(
            threshold=1, cooldown_s=FIRST_COOLDOWN_S, max_cooldown_s=LONGEST_COOLDOWN_S
        )
        self.latest: Failover | None = None
        """The failures since the last success, if any."""

    @property
    def active(self) -> Failover | None:
        """Return the failover that keeps the primary from being asked, None if it is active."""
        return None if self._breaker.state is BreakerState.CLOSED else self.latest

    @property
    def failures(self) -> int:
        """Return the primary's number of failures in a row."""
        return self._breaker.failures

    def begin_probe(self) -> bool:
        """Return whether a probe is due; if so, the breaker is now half-open: call `end_probe` afterwards."""
        return self._breaker.admits()

    def end_probe(self) -> None:
        """Record the end of a probe; one without an outcome says nothing about the primary."""
        if self._breaker.state is BreakerState.HALF_OPEN:
            self._breaker.record_cancelled()

    def note_failure(self, reason: str, operation: str, *, in_probe: bool = False) -> Failover:
        """Fail over. Of concurrent failures only the first counts; during a probe, only the probe."""
        if self.active is not None and not in_probe:
            return self.active
        self._breaker.record_failure()
        now = self._clock()
        self.latest = Failover(
            reason=reason,
            since=self.latest.since if self.latest else now,
            next_probe=now + timedelta(seconds=self._breaker.retry_in_s),
            failures=self._breaker.failures,
        )
        self._ops_log.emit(
            BackendDegraded(what=operation, level="fallback", reason=self.describe(self.latest)),
            status="partial",
            backend=self._primary_id,
        )
        return self.latest

    def note_success(self, *, in_probe: bool = False) -> None:
        """Fail back, unless the call was already running when others failed."""
        if self.active is not None and not in_probe:
            return
        latest, self.latest = self.latest, None
        failures = self._breaker.failures
        self._breaker.record_success()
        if latest is not None:
            after_s = (self._clock() - latest.since).total_seconds()
            recovered = BackendRecovered(what=self._fallback_id, failures=failures, after_s=after_s)
            self._ops_log.emit(recovered, backend=self._primary_id)

    def describe(self, failover: Failover) -> str:
        """Describe a failover in one sentence."""
        return (
            f"{failover.reason}; {self._fallback_id} has answered in place of {self._primary_id} since "
            f"{_moment(failover.since)}, which is tried again at {_moment(failover.next_probe)}"
        )

    def error(self, failover: Failover, operation: str, *, second: str | None = None) -> BackendUnavailable:
        """Return a failover as an error; `second` is why the fallback failed too."""
        problem = f"it is paused after a failure ({failover.reason})"
        if second is not None:
            problem = f"neither it nor its fallback answers ({failover.reason}; {second})"
        fix = f"it is tried again at {_moment(failover.next_probe)}"
        return BackendUnavailable(self._primary_id, problem, fix=fix, operation=operation)

    def as_json(self) -> dict[str, JsonValue]:
        """Return the state for a status report."""
        latest = self.latest
        return {
            "from": self._primary_id,
            "to": self._fallback_id,
            "reason": latest.reason if latest else None,
            "since": _moment(latest.since) if latest else None,
            "next_try": _moment(latest.next_probe) if latest else None,
            "failures": latest.failures if latest else 0,
            "state": self._breaker.state.value,
        }


def _moment(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
