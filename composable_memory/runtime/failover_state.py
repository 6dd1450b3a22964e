"""Whether a memory serves: its failures, the rest that they bring it, and the trials that end the rest."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import Clock
from composable_memory.supervision.breaker import Breaker, BreakerState
from composable_memory.types import JsonValue
from composable_memory_ops_logs import BackendDegraded, BackendRecovered, OpsLog

__all__ = ["Outage", "Outages"]

FIRST_COOLDOWN_S = 5.0
LONGEST_COOLDOWN_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Why and since when a memory does not serve, when it is tried next, and how often it failed in a row."""

    reason: str
    since: datetime
    next_try: datetime
    failures: int


class Outages:
    """Keeps book on the memory `backend_id`, for which `stand_in` answers meanwhile, and logs what changes.

    Unless a `breaker` is given, the first failure brings a rest of 5 s, which every failed trial doubles, up
    to 5 minutes.
    """

    def __init__(
        self,
        backend_id: str,
        stand_in: str | None,
        *,
        clock: Clock,
        ops_log: OpsLog,
        breaker: Breaker | None = None,
    ) -> None:
        self._backend_id = backend_id
        self._stand_in = stand_in
        self._clock = clock
        self._ops_log = ops_log
        self._breaker = breaker or Breaker(
            threshold=1, cooldown_s=FIRST_COOLDOWN_S, max_cooldown_s=LONGEST_COOLDOWN_S
        )
        self._latest: Outage | None = None

    @property
    def latest(self) -> Outage | None:
        """Return what is known of the failures since the last success, None if there are none."""
        return self._latest

    @property
    def rest(self) -> Outage | None:
        """Return the outage because of which the memory is not to be asked, None if it is."""
        return None if self._breaker.state is BreakerState.CLOSED else self._latest

    @property
    def failures(self) -> int:
        """Return how often it failed in a row."""
        return self._breaker.failures

    def begin_trial(self) -> bool:
        """Say whether a trial is due; if so it has begun, and has to be ended."""
        return self._breaker.admits()

    def end_trial(self) -> None:
        """Note that a trial is over; one without an outcome says nothing about the memory."""
        if self._breaker.state is BreakerState.HALF_OPEN:
            self._breaker.record_cancelled()

    def note_failure(self, reason: str, operation: str, *, in_trial: bool = False) -> Outage:
        """Let the memory rest. Of calls that fail at once the first counts; beside a trial only the trial."""
        if self.rest is not None and not in_trial:
            return self.rest
        self._breaker.record_failure()
        now = self._clock()
        self._latest = Outage(
            reason=reason,
            since=self._latest.since if self._latest else now,
            next_try=now + timedelta(seconds=self._breaker.retry_in_s),
            failures=self._breaker.failures,
        )
        level = "fallback" if self._stand_in else "unavailable"
        self._ops_log.emit(
            BackendDegraded(what=operation, level=level, reason=self.told(self._latest)),
            status="partial" if self._stand_in else "failure",
            backend=self._backend_id,
        )
        return self._latest

    def note_success(self, *, in_trial: bool = False) -> None:
        """Let the memory serve; a call that was under way when others failed does not decide that."""
        if self.rest is not None and not in_trial:
            return
        latest, self._latest = self._latest, None
        failures = self._breaker.failures
        self._breaker.record_success()
        if latest is not None:
            after_s = (self._clock() - latest.since).total_seconds()
            recovered = BackendRecovered(what=self._stand_in or "", failures=failures, after_s=after_s)
            self._ops_log.emit(recovered, backend=self._backend_id)

    def told(self, outage: Outage) -> str:
        """Return an outage in one sentence for people."""
        who = f"{self._stand_in} answers" if self._stand_in else "nobody answers"
        return (
            f"{outage.reason}; {who} in place of {self._backend_id} since {_moment(outage.since)}, "
            f"which is tried again at {_moment(outage.next_try)}"
        )

    def error(self, outage: Outage, operation: str, *, second: str | None = None) -> BackendUnavailable:
        """Return an outage as an error, with the reason why the stand-in did not help either."""
        problem = f"it rests after a failure ({outage.reason})"
        if second is not None:
            problem = f"neither it nor its stand-in answers ({outage.reason}; {second})"
        fix = f"it is tried again at {_moment(outage.next_try)}"
        return BackendUnavailable(self._backend_id, problem, fix=fix, operation=operation)

    def as_json(self) -> dict[str, JsonValue]:
        """Return all of it for a status."""
        latest = self._latest
        return {
            "from": self._backend_id,
            "to": self._stand_in,
            "reason": latest.reason if latest else None,
            "since": _moment(latest.since) if latest else None,
            "next_try": _moment(latest.next_try) if latest else None,
            "failures": latest.failures if latest else 0,
            "state": self._breaker.state.value,
        }


def _moment(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
