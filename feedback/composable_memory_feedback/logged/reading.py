"""Reads queries, and what followed them, from the files of an ops log.

The log is read backwards, so that the newest are found without reading the rest. The lines of a query are
between its `query.start` and its `query.merged`; when its start is reached, everything about it is known.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from composable_memory_feedback.logged.logged_query import (
    LoggedAnswer,
    LoggedQueries,
    LoggedQuery,
    LoggedRead,
)
from composable_memory_feedback.logged.parsing import (
    MissingLines,
    answer_from,
    query_from,
    read_from,
    start_from,
)
from composable_memory_ops_logs import SCHEMA_VERSION, EventFilter, OpsEvent, OpsLogReader

BAD_LINES = "bad lines"
"""Lines that are not events."""
LINES_MISSING = "lines of its trace are missing"
"""Queries that did not end, or some of whose lines were lost or deleted."""
NEWER_VERSION = "written by a newer version"
NOT_UNDERSTOOD = "lines of it cannot be understood"
"""Queries, or other events, with an invalid line: wrong types, or impossible numbers."""

WRITTEN_TWICE = "copies of another query"
"""Files that were concatenated again may have lines twice; a query counts once, or it would weigh double."""

UNKNOWN_RANKING = "ranked by a method that this version does not know"

LONGEST_QUERY = timedelta(minutes=10)
"""Maximum time between the lines of one query."""
_PATIENCE_LINES = 100
"""This many consecutive lines that are too old end a reading; a single one may have a wrong clock."""
_STEPS = ("query.backend_result", "query.merged")

Read = TypeVar("Read")

TrafficItem: TypeAlias = LoggedQuery | LoggedRead | LoggedAnswer
LineTest = Callable[[OpsEvent, Sequence[OpsEvent]], bool]
"""Decides from the lines of a query, start and rest, whether it is wanted: cheaper than parsing it."""


class QueryStream:
    """The complete queries that began from `since` to `until`, both inclusive, newest first, one at a time.

    `memory` is the id of the wanted memory; None takes all. With `traces` only their lines are read. What
    `wants` rejects is skipped without being counted. What cannot be used, or not be ranked, is counted in
    `incomplete` by reason, as far as the log was read.

    Raises:
        OpsLogError: the directory or a file in it cannot be read, while iterating; a missing directory is no
            error.
        ValueError: a time has no time zone.
    """

    def __init__(
        self,
        directory: Path,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        memory: str | None = None,
        traces: frozenset[str] | None = None,
        wants: LineTest | None = None,
        can_be_ranked: Callable[[LoggedQuery], bool] = lambda _: True,
    ) -> None:
        self.incomplete: Counter[str] = Counter()
        self._directory, self._memory = directory, memory
        self._wanted = EventFilter(start=since, end=until, traces=traces)
        self._wants, self._can_be_ranked = wants, can_be_ranked
        self._open: dict[tuple[str, str], list[OpsEvent]] = {}
        """The lines of each query whose start is still to come."""
        self._made: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[LoggedQuery]:
        for event in self._newest_first():
            if (query := self._add(event)) is not None:
                yield query

    def with_traffic(self) -> Iterator[TrafficItem]:
        """Yield the queries, together with the reads and answers of the same time."""
        for event in self._newest_first():
            if event.action == "memory.read":
                reads = self._parse_other(event, read_from)
                yield from (
                    one for one in reads if self._memory is None or one.memory in (None, self._memory)
                )
            elif event.action == "answer.given":
                yield from self._parse_other(event, answer_from)
            elif (query := self._add(event)) is not None:
                yield query

    def together(self) -> LoggedQueries:
        """Return all the queries, oldest first."""
        queries = [*self][::-1]  # not sorted: those of one moment keep the order of writing
        ordered = tuple(sorted(queries, key=lambda query: query.at))
        return LoggedQueries(queries=ordered, incomplete=dict(self.incomplete))

    def _newest_first(self) -> Iterator[OpsEvent]:
        """Yield the events of the wanted time, and of the length of a query around it."""
        earliest = _shift(self._wanted.start, -LONGEST_QUERY)
        latest = _shift(self._wanted.end, LONGEST_QUERY)
        too_old = 0
        # We cannot see that skipped lines are too old, so the reader has to stop there.
        traces = self._wanted.traces
        wanted = EventFilter(start=None if traces is None else earliest, end=latest, traces=traces)
        reader = OpsLogReader(
            self._directory, on_bad_line=partial(self.incomplete.update, [BAD_LINES]), as_written=True
        )
        for event in reader.events(wanted):
            if earliest is None or event.ts >= earliest:
                too_old = 0
                yield event
            elif (too_old := too_old + 1) == _PATIENCE_LINES:
                break
        for lines in self._open.values():  # their starts are missing
            if self._wanted.matches(lines[-1]):
                self.incomplete[LINES_MISSING] += 1
        self._open.clear()

    def _add(self, event: OpsEvent) -> LoggedQuery | None:
        """Add an event; return the query that it completes, if that one is wanted and usable."""
        if event.action in _STEPS:
            self._open.setdefault(_name(event), []).append(event)
        elif event.action == "query.start":
            rest = self._open.pop(_name(event), [])[::-1]
            if self._wanted.matches(event) and (self._wants is None or self._wants(event, rest)):
                return self._query(event, rest)
        return None

    def _parse_other(self, event: OpsEvent, read: Callable[[OpsEvent], Read]) -> list[Read]:
        """Parse an event of another kind, if it is wanted and valid."""
        if not self._wanted.matches(event):
            return []
        try:
            return [read(event)]
        except ValueError:
            self.incomplete[NOT_UNDERSTOOD] += 1
            return []

    def _query(self, event: OpsEvent, rest: list[OpsEvent]) -> LoggedQuery | None:
        """Build the query that begins with an event; if that fails, count the reason."""
        if max(one.schema_version for one in (event, *rest)) > SCHEMA_VERSION:
            self.incomplete[NEWER_VERSION] += 1
            return None
        try:
            start = start_from(event)
            if self._memory not in (None, start.memory):
                return None
            query = query_from(event, start, rest)
            if (name := _name(event)) in self._made:
                self.incomplete[WRITTEN_TWICE] += 1
            elif not self._can_be_ranked(query):
                self.incomplete[UNKNOWN_RANKING] += 1
            else:
                self._made.add(name)
                return query
        except MissingLines:
            self.incomplete[LINES_MISSING] += 1
        except ValueError:
            self.incomplete[NOT_UNDERSTOOD] += 1
        return None


def read_queries(
    directory: Path,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    memory: str | None = None,
) -> LoggedQueries:
    """Return the queries of a `QueryStream` together, oldest first.

    Raises:
        OpsLogError: the directory or a file in it cannot be read; a missing directory is no error.
        ValueError: a time has no time zone.
    """
    return QueryStream(directory, since=since, until=until, memory=memory).together()


def _shift(at: datetime | None, by: timedelta) -> datetime | None:
    """Shift a time; None, which is no limit, beyond the ends of the calendar."""
    try:
        return None if at is None else at + by
    except OverflowError:
        return None


def _name(event: OpsEvent) -> tuple[str, str]:
    """Return the trace and query id of a line."""
    query_id = event.detail.get("queryId", "") if isinstance(event.detail, Mapping) else ""
    return event.trace_id, query_id if isinstance(query_id, str) else repr(query_id)
