"""Reads logs back: pages newest first, whole traces, the tail, and lines as they are appended."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

import orjson

from composable_memory_ops_logs.events import OpsEvent, Status
from composable_memory_ops_logs.sinks import month_files, month_of
from composable_memory_ops_logs.wire import event_from_line

__all__ = ["MAX_PAGE", "EventFilter", "EventPage", "OpsLogError", "OpsLogReader"]

MAX_PAGE = 500
"""The most events one page can hold."""

_BLOCK_BYTES = 64 * 1024
_FOLLOW_BYTES = 4 * 1024 * 1024
_MIN_PREFIX_CHARS = 4
_SHOWN_CANDIDATES = 5


class OpsLogError(Exception):
    """A log cannot be read as asked: what failed, which log or trace, what to do next."""

    def __init__(self, problem: str, *, subject: str, advice: str) -> None:
        super().__init__(f"{problem}: {subject}; {advice}")
        self.subject = subject
        self.advice = advice


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events to read; what is None does not restrict. `start` and `end` are aware and inclusive."""

    action: str | None = None
    backend: str | None = None
    trace_id: str | None = None
    session_key: str | None = None
    status: Status | None = None
    start: datetime | None = None
    end: datetime | None = None

    def __post_init__(self) -> None:
        for name, time in (("start", self.start), ("end", self.end)):
            if time is not None and time.tzinfo is None:
                raise ValueError(f"{name} is {time}, without a time zone; give an aware time")

    def matches(self, event: OpsEvent) -> bool:
        """Tell whether an event is wanted."""
        return (
            self.action in (None, event.action)
            and self.backend in (None, event.backend)
            and self.trace_id in (None, event.trace_id)
            and self.session_key in (None, event.session_key)
            and self.status in (None, event.status)
            and (self.start is None or self.start <= event.ts)
            and (self.end is None or event.ts <= self.end)
        )

    def covers_month(self, month: str) -> bool:
        """Tell whether a month (`YYYY-MM`, UTC) can hold wanted events."""
        return (self.start is None or month_of(self.start) <= month) and (
            self.end is None or month <= month_of(self.end)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """One page of events, newest first."""

    events: tuple[OpsEvent, ...]
    has_more: bool
    bad_lines: int = 0
    """Lines that were looked at for this page and are not events."""


class OpsLogReader:
    """Reads the files an `OpsLog` wrote to a directory; a missing directory reads as an empty log.

    Order is the order of the lines, which is the order of writing. The plain methods read files and belong
    in a thread when called from an event loop; `follow` does that itself.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(
        self,
        filter: EventFilter | None = None,  # noqa: A002 - the word its callers use
        *,
        limit: int = 100,
        offset: int = 0,
    ) -> EventPage:
        """Return up to `limit` (1 to 500) wanted events, newest first, after passing over `offset` of them.

        Raises:
            OpsLogError: the directory or a file in it cannot be read.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise ValueError(f"limit is {limit}; give 1 to {MAX_PAGE}")
        if offset < 0:
            raise ValueError(f"offset is {offset}; give 0 or more")
        wanted = filter or EventFilter()
        scan = _Scan(wanted, _needles(wanted))
        events = tuple(islice(self._events(scan), offset, offset + limit + 1))
        return EventPage(events=events[:limit], has_more=len(events) > limit, bad_lines=scan.bad_lines)

    def events(
        self,
        filter: EventFilter | None = None,  # noqa: A002 - the word its callers use
        *,
        on_bad_line: Callable[[], None] | None = None,
    ) -> Iterator[OpsEvent]:
        """Yield all wanted events, newest first, holding one line at a time.

        `on_bad_line` is called for every line that was looked at and is not an event.

        Raises:
            OpsLogError: the directory or a file in it cannot be read; as the events are taken.
        """
        wanted = filter or EventFilter()
        return self._events(_Scan(wanted, _needles(wanted), on_bad_line=on_bad_line))

    def trace(self, trace_id: str) -> list[OpsEvent]:
        """Return all events of a trace, oldest first; a unique prefix of at least 4 characters will do.

        Raises:
            OpsLogError: several traces begin with the prefix, or the log cannot be read.
        """
        traces: dict[str, list[OpsEvent]] = {}
        for event in self._events(_Scan(EventFilter(), (_quoted(trace_id)[:-1],))):
            if _names(trace_id, event.trace_id):
                events = traces.setdefault(event.trace_id, [])
                if len(traces) == 1 or event.trace_id == trace_id:  # of the others the id is enough
                    events.append(event)
        if trace_id not in traces and len(traces) > 1:
            raise _ambiguous(trace_id, sorted(traces))
        return traces.get(trace_id, next(iter(traces.values()), []))[::-1]

    def tail(self, n: int) -> list[OpsEvent]:
        """Return the last `n` events, oldest first.

        Raises:
            OpsLogError: the directory or a file in it cannot be read.
        """
        return self._last(n, ends=None)

    async def follow(self, poll_s: float = 0.25, *, last: int = 0) -> AsyncGenerator[OpsEvent]:
        """Yield the `last` events, then every event appended from now on, looking every `poll_s` seconds.

        It goes on until its consumer stops, over the change of months and deleted files.

        Raises:
            OpsLogError: the directory or a file in it cannot be read.
        """
        ends = await asyncio.to_thread(self._ends)
        for event in await asyncio.to_thread(self._last, last, ends):
            yield event
        while True:
            for event in await asyncio.to_thread(self._appended, ends):
                yield event
            await asyncio.sleep(poll_s)

    def _last(self, n: int, ends: Mapping[Path, int] | None) -> list[OpsEvent]:
        return list(islice(self._events(_Scan(EventFilter()), ends), n))[::-1]

    def _events(self, scan: "_Scan", ends: Mapping[Path, int] | None = None) -> Iterator[OpsEvent]:
        """Yield what a scan lets through, newest first; `ends` limits how far each file is looked at."""
        with self._telling():
            for month, path in reversed(month_files(self._directory)):
                if scan.wanted.covers_month(month) and (ends is None or path in ends):
                    for line in _lines_backwards(path, None if ends is None else ends[path]):
                        if (event := scan.event_of(line)) is not None:
                            yield event

    def _ends(self) -> dict[Path, int]:
        with self._telling():
            return {path: size for _, path in month_files(self._directory) if (size := _size_of(path))}

    def _appended(self, ends: dict[Path, int]) -> list[OpsEvent]:
        """Return the events behind `ends` and move `ends` there; a line still being written waits."""
        scan = _Scan(EventFilter())
        events: list[OpsEvent | None] = []
        with self._telling():
            for _, path in month_files(self._directory):
                start = ends.get(path, 0)
                if _size_of(path) > start:
                    whole = _read(path, start)
                    ends[path] = start + len(whole)
                    events += map(scan.event_of, whole.splitlines())
        return [event for event in events if event is not None]

    @contextmanager
    def _telling(self) -> Iterator[None]:
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
    """One pass over lines: what is wanted, and how many lines could not be understood."""

    wanted: EventFilter
    needles: tuple[bytes, ...] = ()
    bad_lines: int = 0
    on_bad_line: Callable[[], None] | None = None

    def event_of(self, line: bytes) -> OpsEvent | None:
        if not line or not all(needle in line for needle in self.needles):
            return None
        try:
            event = event_from_line(line)
        except ValueError:
            self.bad_lines += 1
            if self.on_bad_line is not None:
                self.on_bad_line()
            return None
        return event if self.wanted.matches(event) else None


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
    """Return what every wanted line contains, to pass over most others without parsing them."""
    texts = (wanted.action, wanted.backend, wanted.trace_id, wanted.session_key)
    return tuple(_quoted(text) for text in texts if text is not None)


def _quoted(text: str) -> bytes:
    return orjson.dumps(text.encode("utf-8", "replace").decode())


# --- files --------------------------------------------------------------------------------------------------


def _lines_backwards(path: Path, end: int | None) -> Iterator[bytes]:
    """Yield the lines before byte `end` of a file, last line first; hold one block and one line at a time."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # retention was quicker
        return
    with file:
        position = file.seek(0, os.SEEK_END) if end is None else end
        pieces: list[bytes] = []  # of the line whose beginning is not found yet, last piece first
        while position > 0:
            size = min(_BLOCK_BYTES, position)
            position -= size
            file.seek(position)
            first, *lines = file.read(size).split(b"\n")
            if lines:
                lines[-1] = b"".join([lines[-1], *reversed(pieces)])
                pieces = []
                yield from reversed(lines)
            pieces.append(first)
        yield b"".join(reversed(pieces))


def _read(path: Path, start: int) -> bytes:
    """Return the whole lines from byte `start` on, a few megabytes at most."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(_FOLLOW_BYTES)
    except FileNotFoundError:
        return b""
    # A line longer than that is no event; it is passed over in pieces.
    return data if len(data) == _FOLLOW_BYTES and b"\n" not in data else data[: data.rfind(b"\n") + 1]


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
