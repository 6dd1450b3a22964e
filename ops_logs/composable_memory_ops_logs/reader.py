"""Reads logs: pages newest first, whole traces, the tail, and lines as they are appended."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import orjson

from composable_memory_ops_logs.errors import OpsLogError
from composable_memory_ops_logs.events import OpsEvent, Status
from composable_memory_ops_logs.line_format import format_time, is_sealed, is_whole
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.segments import (
    FIRST_MS,
    LAST_MS,
    Segment,
    day_of,
    lines_backwards,
    lines_forwards,
    open_size,
    segments_in,
)
from composable_memory_ops_logs.short_form import events_from_line

MAX_PAGE = 500
"""The maximum number of events in a page."""

_LONGEST_QUERY = timedelta(minutes=10)
"""Maximum time between the events of one line."""
_FOLLOW_BYTES = 4 * 1024 * 1024
_CLOSED = sys.maxsize
"""The end of a file to which nothing is appended any more."""
_MIN_PREFIX_CHARS = 4
_SHOWN_CANDIDATES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events to read; None does not restrict. `start` and `end` are aware and inclusive."""

    action: str | None = None
    backend: str | None = None
    trace_id: str | None = None
    session_key: str | None = None
    status: Status | None = None
    start: datetime | None = None
    end: datetime | None = None
    traces: frozenset[str] | None = None
    """Only these traces; other lines are skipped as soon as their trace id is known."""

    def __post_init__(self) -> None:
        for name, time in (("start", self.start), ("end", self.end)):
            if time is not None and time.tzinfo is None:
                raise ValueError(f"{name} is {time}, without a time zone; give an aware time")

    def matches(self, event: OpsEvent) -> bool:
        """Return whether an event is wanted."""
        return (
            self.action in (None, event.action)
            and self.backend in (None, event.backend)
            and self.trace_id in (None, event.trace_id)
            and (self.traces is None or event.trace_id in self.traces)
            and self.session_key in (None, event.session_key)
            and self.status in (None, event.status)
            and (self.start is None or self.start <= event.ts)
            and (self.end is None or event.ts <= self.end)
        )

    def covers(self, segment: Segment) -> bool:
        """Return whether a file may contain wanted events."""
        if self.start is not None and segment.is_over(day_of(self.start)):
            return False
        return self.end is None or segment.period <= day_of(_later(self.end, _LONGEST_QUERY))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """One page of events, newest first."""

    events: tuple[OpsEvent, ...]
    has_more: bool
    bad_lines: int = 0
    """Lines read for this page that are not events."""


class OpsLogReader:
    """Reads the files that an `OpsLog` wrote to a directory; a missing directory reads as an empty log.

    The order is that of the lines, as they were written. The plain methods block: call them in a thread when
    an event loop is running; `follow` does that itself. All raise an `OpsLogError` if the directory or a file
    in it cannot be read. `on_bad_line` is called for every line read that is not an event. With `as_written`,
    a finished query in the short form is one event.
    """

    def __init__(
        self,
        directory: Path,
        *,
        on_bad_line: Callable[[], object] | None = None,
        as_written: bool = False,
    ) -> None:
        self._directory = directory
        self._on_bad_line = on_bad_line
        self._as_written = as_written

    def read(
        self,
        filter: EventFilter | None = None,  # noqa: A002 - the natural word for callers
        *,
        limit: int = 100,
        offset: int = 0,
    ) -> EventPage:
        """Return up to `limit` (1 to 500) wanted events, newest first, after skipping `offset`."""
        if not 1 <= limit <= MAX_PAGE:
            raise ValueError(f"limit is {limit}; give 1 to {MAX_PAGE}")
        if offset < 0:
            raise ValueError(f"offset is {offset}; give 0 or more")
        wanted = filter or EventFilter()
        scan = self._scan(wanted)
        events = tuple(islice(self._events(scan), offset, offset + limit + 1))
        return EventPage(events=events[:limit], has_more=len(events) > limit, bad_lines=scan.bad_lines)

    def events(
        self,
        filter: EventFilter | None = None,  # noqa: A002 - the natural word for callers
    ) -> Iterator[OpsEvent]:
        """Yield all wanted events, newest first, holding one line in memory at a time."""
        return self._events(self._scan(filter or EventFilter()))

    def trace(self, trace_id: str) -> list[OpsEvent]:
        """Return all events of a trace, oldest first; accepts a unique prefix of at least 4 characters.

        Raises:
            OpsLogError: several traces have the prefix, or the log cannot be read.
        """
        traces: dict[str, list[OpsEvent]] = {}
        for event in self._events(self._scan(EventFilter(), trace=_quoted(trace_id)[1:-1])):
            if _names(trace_id, event.trace_id):
                events = traces.setdefault(event.trace_id, [])
                if len(traces) == 1 or event.trace_id == trace_id:  # of other traces only the id is needed
                    events.append(event)
        if trace_id not in traces and len(traces) > 1:
            raise _ambiguous(trace_id, sorted(traces))
        return traces.get(trace_id, next(iter(traces.values()), []))[::-1]

    def tail(self, n: int) -> list[OpsEvent]:
        """Return the last `n` events, oldest first."""
        return self._last(n, ends=None)

    def damage(self) -> list[str]:
        """Read the whole log; return a message for each file with damaged or missing lines.

        Adjacent missing lines count as one.
        """
        found = []
        with self._translated_errors():
            for segment in segments_in(self._directory):
                scan = self._scan(EventFilter(traces=frozenset()))
                for line in lines_backwards(segment):
                    scan.events_of(line)
                if scan.bad_lines:
                    found.append(
                        f"{segment.stem} has {scan.bad_lines} damaged or missing lines; they are left out,"
                        " and they cannot be repaired"
                    )
        return found

    async def follow(self, poll_s: float = 0.25, *, last: int = 0) -> AsyncGenerator[OpsEvent]:
        """Yield the `last` events, then every event appended from now on, polling every `poll_s` seconds.

        Continues until its consumer stops, even when files are replaced, compressed or deleted.
        """
        ends = await asyncio.to_thread(self._ends)
        for event in await asyncio.to_thread(self._last, last, ends):
            yield event
        while True:
            for event in await asyncio.to_thread(self._appended, ends):
                yield event
            await asyncio.sleep(poll_s)

    def _last(self, n: int, ends: Mapping[Segment, int] | None) -> list[OpsEvent]:
        return list(islice(self._events(self._scan(EventFilter()), ends), n))[::-1]

    def _events(self, scan: "_Scan", ends: Mapping[Segment, int] | None = None) -> Iterator[OpsEvent]:
        """Yield what a scan lets through, newest first; `ends` limits how far each file is read."""
        with self._translated_errors():
            for segment in reversed(segments_in(self._directory)):
                if scan.wanted.covers(segment) and (ends is None or segment in ends):
                    end = None if ends is None else ends[segment]
                    lines = lines_backwards(
                        segment, since_ms=scan.since_ms, until_ms=scan.until_ms, trace=scan.trace_key, end=end
                    )
                    for line in lines:
                        yield from reversed(scan.events_of(line))

    def _scan(self, wanted: EventFilter, trace: bytes | None = None) -> "_Scan":
        return _Scan(wanted, trace=trace, on_bad_line=self._on_bad_line, as_written=self._as_written)

    def _ends(self) -> dict[Segment, int]:
        with self._translated_errors():
            return {one: open_size(one, or_else=_CLOSED) for one in segments_in(self._directory)}

    def _appended(self, ends: dict[Segment, int]) -> list[OpsEvent]:
        """Return the events after `ends`, and advance `ends`; a line still being written has to wait."""
        scan = self._scan(EventFilter())
        events: list[OpsEvent] = []
        with self._translated_errors():
            for segment in segments_in(self._directory):
                start = ends.get(segment, 0)
                size = open_size(segment, or_else=_CLOSED)  # before reading: later lines have to wait
                if size <= start:
                    continue
                whole = lines_forwards(segment, start, _FOLLOW_BYTES)
                ends[segment] = start + len(whole) if whole or size != _CLOSED else _CLOSED
                for line in whole.splitlines():
                    events += scan.events_of(line)
        return events

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OpsLogError(
                f"cannot read the ops log ({error.strerror or error})",
                subject=str(error.filename or self._directory),
                advice="check that it is a directory of log files and that you may read it",
            ) from error


@dataclass(slots=True)
class _Scan:
    """One pass over lines: what is wanted, and how many lines could not be parsed."""

    wanted: EventFilter
    trace: bytes | None = None
    """The prefix of a trace id, as written in lines."""
    bad_lines: int = 0
    on_bad_line: Callable[[], object] | None = None
    as_written: bool = False
    _needles: tuple[bytes, ...] = field(init=False)
    _start: bytes = field(init=False)

    def __post_init__(self) -> None:
        self._needles = _needles(self.wanted) + (() if self.trace is None else (b'"' + self.trace,))
        self._start = b"" if self.wanted.start is None else format_time(self.wanted.start).encode()

    @property
    def since_ms(self) -> int:
        """Return the time from which lines are wanted."""
        return FIRST_MS if self.wanted.start is None else int(self.wanted.start.timestamp() * 1000)

    @property
    def until_ms(self) -> int:
        """Return the time until which lines are wanted."""
        return LAST_MS if self.wanted.end is None else int(self.wanted.end.timestamp() * 1000)

    @property
    def trace_key(self) -> bytes | None:
        """Return the prefix of the wanted trace id for the index; None if a line may spell it differently."""
        key = self.trace if self.wanted.trace_id is None else _quoted(self.wanted.trace_id)[1:-1]
        return None if key is None or b"\\" in key else key

    def events_of(self, line: bytes) -> Sequence[OpsEvent]:
        """Return the wanted events in a line."""
        if not line:
            return ()
        if not is_whole(line):  # first, because a damaged line may be a wanted one that does not look like it
            return self._bad_line()
        if not all(needle in line for needle in self._needles):
            return ()
        if self._is_too_old(line) or self._is_of_unwanted_trace(line):
            return ()
        try:
            events = events_from_line(line, as_written=self.as_written)
        except ValueError:
            return self._bad_line()
        return [event for event in events if self.wanted.matches(event)]

    def _bad_line(self) -> tuple[()]:
        self.bad_lines += 1
        if self.on_bad_line is not None:
            self.on_bad_line()
        return ()

    def _is_too_old(self, line: bytes) -> bool:
        """Return whether a line in our format is too old; any other must be parsed."""
        if not self._start:
            return False
        written = _WRITTEN_AT.match(line)
        return written is not None and written[1] < self._start

    def _is_of_unwanted_trace(self, line: bytes) -> bool:
        """Return whether a line in our format belongs to an unwanted trace."""
        if self.wanted.traces is None or not is_sealed(line):  # possibly damaged: it must be parsed
            return False
        named = _TRACE_OF.match(line)
        return named is not None and named[1].decode() not in self.wanted.traces


_TRACE_OF = re.compile(
    rb'\{"id":"[^"\\]*","ts":"[^"\\]*","action":"[^"\\]*","status":"\w*","traceId":"([^"\\]*)"'
)
_WRITTEN_AT = re.compile(rb'\{"id":"[0-9a-f-]{36}","ts":"(\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z)"')


def _names(wanted: str, trace_id: str) -> bool:
    return trace_id == wanted or (len(wanted) >= _MIN_PREFIX_CHARS and trace_id.startswith(wanted))


def _ambiguous(prefix: str, candidates: Sequence[str]) -> OpsLogError:
    shown = ", ".join(candidates[:_SHOWN_CANDIDATES])
    more = len(candidates) - _SHOWN_CANDIDATES
    return OpsLogError(
        f"{len(candidates)} traces begin with this prefix",
        subject=prefix,
        advice=f"give more characters of one of {shown}" + (f" and {more} more" if more > 0 else ""),
    )


def _needles(wanted: EventFilter) -> tuple[bytes, ...]:
    """Return what every wanted line contains, to skip most others without parsing them."""
    texts = (wanted.backend, wanted.trace_id, wanted.session_key)
    needles = tuple(_quoted(text) for text in texts if text is not None)
    if wanted.action in (None, "query.backend_result"):  # these are also in the line of the merged list
        return needles
    return (*needles, _quoted(wanted.action))


def _quoted(text: str) -> bytes:
    return orjson.dumps(text.encode("utf-8", "replace").decode())


def _later(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
