"""The searches in the log, one by one: how long they took, and whether they were degraded."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import islice
from statistics import quantiles
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from composable_memory.query.filters import parse_since
from composable_memory.tools.document import Document
from composable_memory.tools.status import PROBE_QUERY
from composable_memory_ops_logs import EventFilter, OpsEvent, OpsLogReader
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

FAR = 20_000
"""How many events to read for a page, at most."""
TOGETHER = "together"


@dataclass(slots=True)
class Search:
    """One search; `took_ms` has each backend and all `together`, `degraded` each backend's problem."""

    trace_id: str
    at: datetime
    query: str = ""
    session: str | None = None
    took_ms: dict[str, float] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    results: int = 0
    hidden: int | None = None
    """How many results were hidden as too weak; None if nobody was given results."""

    @property
    def all_ms(self) -> float:
        """Return how long it took in total."""
        return self.took_ms.get(TOGETHER, 0.0)


class TracesRequest(Document):
    """Which searches to list, newest first."""

    query: str = Field(default="", description="Words of the question")
    backend: str = Field(default="", description="Only those that queried it")
    session: str = ""
    slower_than_ms: Annotated[float, Field(ge=0.0)] = 0.0
    degraded: bool = Field(default=False, description="Only incomplete ones")
    empty: bool = Field(default=False, description="Only those without results")
    since: str | None = Field(default=None, description="2026-05-03, 2026-05, last week, 7d")
    limit: Annotated[int, Field(ge=1, le=500)] = 50

    def has(self, one: Search) -> bool:
        """Return whether a search matches; those before `since` are not even read."""
        took = one.took_ms.get(self.backend or TOGETHER)
        return (
            took is not None
            and took >= self.slower_than_ms
            and self.query.casefold() in one.query.casefold()
            and self.session in ("", one.session)
            and (bool(one.degraded) or not self.degraded)
            and (one.results == 0 or not self.empty)
        )


async def logged_searches(memory: "Memory", wanted: TracesRequest) -> list[Search]:
    """Return the latest matching searches of a memory, newest first.

    Raises:
        InvalidArgument: the time is invalid.
        OpsLogError: the log cannot be read.
    """
    since = parse_since(wanted.since, memory.manager.asked_at()) if wanted.since else None
    await memory.ops_log.flush()
    events = OpsLogReader(memory.ops_log_dir).events(EventFilter(start=since))
    found = filter(wanted.has, searches(events, memory.context.memory_id))
    return await asyncio.to_thread(lambda: [*islice(found, wanted.limit)])


def searches(events: Iterable[OpsEvent], memory_id: str) -> Iterator[Search]:
    """Yield the searches of one memory, newest first, from events in the same order."""
    known: dict[str, Search] = {}
    for event in islice(events, FAR):
        told = event.logged
        one = known.setdefault(event.trace_id, Search(trace_id=event.trace_id, at=event.ts))
        match event.action:
            case "query.delivered":
                one.hidden = len(_rows(told, "hidden"))
            case "query.merged":
                one.took_ms[TOGETHER] = event.duration_ms or 0.0
                one.results = len(_rows(told, "finalResults")) - (one.hidden or 0)
                one.degraded = [f"{row['backend']}: {row['reason']}" for row in _rows(told, "degraded")]
            case "query.backend_result" if event.backend and not told.get("skipped"):
                one.took_ms[event.backend] = event.duration_ms or 0.0
                one.failed |= {event.backend} if event.status == "failure" else set()
            case "query.start":
                one.at, one.query, one.session = event.ts, str(told.get("query", "")), event.session_key
                del known[event.trace_id]  # the trace may have another, earlier search
                is_probe = one.query == PROBE_QUERY and one.hidden is None
                if told.get("memory") == memory_id and not is_probe:
                    yield one


def _rows(told: Mapping[str, object], name: str) -> list[dict[str, object]]:
    rows = told.get(name)
    return rows if isinstance(rows, list) else []


def percentiles(rows: Iterable[Search], name: str) -> tuple[float, float] | None:
    """Return the median and the 95th percentile of the times of `name`; None if there are none."""
    took = [row.took_ms[name] for row in rows if name in row.took_ms]
    if len(took) < 2:
        return (took[0], took[0]) if took else None
    cuts = quantiles(took, n=20, method="inclusive")
    return cuts[9], cuts[18]


def in_parts(rows: Sequence[Search], parts: int) -> list[list[Search]]:
    """Split searches, newest first, into this many periods of equal length, oldest first."""
    first = rows[-1].at
    length = (rows[0].at - first) / parts
    found: list[list[Search]] = [[] for _ in range(parts)]
    for row in rows:
        found[min(parts - 1, int((row.at - first) / length)) if length else 0].append(row)
    return found
