"""The searches that the log tells of, a row for each: how long they took, and how sound they were (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import islice
from statistics import quantiles

from composable_memory.tools import PROBE_QUERY
from composable_memory_ops_logs import OpsEvent
from composable_memory_ops_logs.quick_dataclass import dataclass

FAR = 20_000
"""So many events are looked at for a page at most."""
TOGETHER = "together"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One search; `took_ms` has each backend and all `together`, `degraded` says of whom and why."""

    trace_id: str
    at: datetime
    query: str
    session: str | None
    results: int
    took_ms: Mapping[str, float]
    degraded: tuple[str, ...]
    failed: frozenset[str]

    @property
    def all_ms(self) -> float:
        """Return how long the search took, all in all."""
        return self.took_ms.get(TOGETHER, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which searches to show; what is empty does not restrict."""

    words: str = ""
    backend: str = ""
    session: str = ""
    slower_than_ms: float = 0.0
    only_degraded: bool = False
    only_empty: bool = False
    since: datetime | None = None

    def has(self, one: Search) -> bool:
        """Return whether a search is wanted."""
        took = one.took_ms.get(self.backend or TOGETHER)
        return (
            self.words.casefold() in one.query.casefold()
            and took is not None
            and took >= self.slower_than_ms
            and self.session in ("", one.session)
            and not (self.only_degraded and not one.degraded)
            and not (self.only_empty and one.results)
            and (self.since is None or one.at >= self.since)
        )


@dataclass(slots=True)
class _Part:
    """What is known so far of a search, whose events come with the last one first."""

    took_ms: dict[str, float] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    results: int = 0
    hidden: int = 0
    was_delivered: bool = False


def searches(events: Iterable[OpsEvent], memory_id: str) -> Iterator[Search]:
    """Yield the searches of one memory, newest first; `events` come newest first as well."""
    parts: dict[str, _Part] = {}
    for event in islice(events, FAR):
        told = event.detail if isinstance(event.detail, Mapping) else {}
        part = parts.setdefault(event.trace_id, _Part())
        if event.action == "query.delivered":
            part.hidden, part.was_delivered = _length(told.get("hidden")), True
        elif event.action == "query.merged":
            part.took_ms[TOGETHER] = event.duration_ms or 0.0
            part.results = _length(told.get("finalResults")) - part.hidden
            rows = told.get("degraded")
            part.degraded = [_reason(one) for one in rows] if isinstance(rows, list) else []
        elif event.action == "query.backend_result" and event.backend and not told.get("skipped"):
            part.took_ms[event.backend] = event.duration_ms or 0.0
            part.failed |= {event.backend} if event.status == "failure" else set()
        elif event.action == "query.start":
            parts[event.trace_id] = _Part()  # a trace may have another, earlier search
            is_probe = told.get("query") == PROBE_QUERY and not part.was_delivered
            if told.get("memory") == memory_id and not is_probe:
                yield _search(event, told, part)


def _search(event: OpsEvent, told: Mapping[str, object], part: _Part) -> Search:
    return Search(
        trace_id=event.trace_id,
        at=event.ts,
        query=str(told.get("query", "")),
        session=event.session_key,
        results=part.results,
        took_ms=part.took_ms,
        degraded=tuple(part.degraded),
        failed=frozenset(part.failed),
    )


def _length(value: object) -> int:
    return len(value) if isinstance(value, list) else 0


def _reason(row: object) -> str:
    return f"{row.get('backend')}: {row.get('reason')}" if isinstance(row, Mapping) else str(row)


def backends_in(rows: Iterable[Search]) -> list[str]:
    """Return who was asked, and last all together."""
    names = {name for row in rows for name in row.took_ms}
    return sorted(names, key=lambda one: (one == TOGETHER, one))


def percentiles(rows: Iterable[Search], name: str) -> tuple[float, float] | None:
    """Return the median and the 95th percentile of how long somebody took; None where nobody knows."""
    took = [row.took_ms[name] for row in rows if name in row.took_ms]
    if len(took) < 2:
        return (took[0], took[0]) if took else None
    cuts = quantiles(took, n=20, method="inclusive")
    return cuts[9], cuts[18]


def in_parts(rows: Sequence[Search], parts: int) -> list[Sequence[Search]]:
    """Return searches, newest first, as at most so many parts of equal time, oldest first."""
    if not rows:
        return []
    first, last = rows[-1].at, rows[0].at
    length = (last - first) / parts
    found: list[list[Search]] = [[] for _ in range(parts)]
    for row in rows:
        found[min(parts - 1, int((row.at - first) / length)) if length else 0].append(row)
    return [*found]
