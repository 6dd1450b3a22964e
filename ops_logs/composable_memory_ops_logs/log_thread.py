"""The thread behind a log: takes events from a queue, appends them as lines, and maintains the files."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from composable_memory_ops_logs.events import BackendResult, OpsEvent, QueryMerged
from composable_memory_ops_logs.file_sink import FileSink
from composable_memory_ops_logs.line_format import event_to_wire, sealed, texts_in, to_line
from composable_memory_ops_logs.redaction.redactor import CleanTexts, redact, redact_value
from composable_memory_ops_logs.segments import day_of
from composable_memory_ops_logs.short_form import short_line

_LINGER_S = 0.005
"""How long the thread waits for more: the events of one query then share one write and one wake-up."""

_BATCH_EVENTS = 500
_EXIT_TIMEOUT_S = 2.0
_MAINTENANCE_AT_END_S = 0.5
"""How long maintenance of the files may delay the end of the program."""
_HOLD_S = 10.0
"""How long answers of backends wait for the merged list, to be written together with it."""
_MOST_HELD = 256

# What rendering an event with a value of the wrong type may raise; only that event is dropped.
_UNRENDERABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

_logger = logging.getLogger(__name__)


class _Mark:
    """A marker in the queue, behind the events that it waits for."""

    passed = False


_Group: TypeAlias = tuple[OpsEvent, ...]
_Item: TypeAlias = OpsEvent | _Mark


class _Held:
    """The backend answers of queries that have no merged list yet."""

    def __init__(self) -> None:
        self._held: dict[tuple[str | None, ...], list[OpsEvent]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def groups(self, items: Sequence[_Item], *, is_all: bool) -> Iterator[_Group]:
        """Yield what can be written now; with `is_all`, everything that is held."""
        for item in items:
            if isinstance(item, _Mark):
                is_all = True
                continue
            detail = item.detail
            if isinstance(detail, BackendResult) and detail.query_id:
                self._held.setdefault(_query_of(item, detail.query_id), []).append(item)
            elif isinstance(detail, QueryMerged):
                yield (*self._held.pop(_query_of(item, detail.query_id), ()), item)
            else:
                yield (item,)
        while self._held and (is_all or len(self._held) > _MOST_HELD):
            for event in self._held.pop(next(iter(self._held))):
                yield (event,)


def _query_of(event: OpsEvent, query_id: str) -> tuple[str | None, ...]:
    return event.trace_id, query_id, event.session_key, event.run_id


class LineWriter:
    """A bounded queue and the daemon thread that writes it to a sink.

    With `redacting`, secrets are masked. The thread starts with the first event, and maintains the sink's
    files between batches. Failures are counted, kept in `last_error` and warned of once.
    """

    def __init__(self, sink: FileSink, *, redacting: bool, capacity: int) -> None:
        self._sink = sink
        self._render = _Renderer(redacting)
        self._capacity = capacity
        # `SimpleQueue.put` never blocks and is reentrant: the garbage collector may call `stop`.
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop_mark: _Mark | None = None
        self._warned = False
        self._held = _Held()
        self._maintenance: Generator[None] | None = None
        self._maintenance_for: tuple[date, int] | None = None
        self.written = 0
        self.rejected = 0
        self.failed = 0
        self.last_error: str | None = None

    def put(self, event: OpsEvent) -> None:
        """Queue an event, or count it as rejected. Never blocks, never raises."""
        if self._stop_mark is not None:
            self._reject("the log is closed")
        elif self._queue.qsize() >= self._capacity:
            self._reject(f"{self._capacity} events were already waiting")
        elif self._is_running() or self._start(event.ts):
            self._queue.put(event)

    def mark(self) -> Callable[[], bool]:
        """Return a function that says whether all events queued so far have been handled."""
        mark = _Mark()
        if not self._is_running():
            return lambda: True
        self._queue.put(mark)
        return lambda: mark.passed or not self._is_running()

    def stop(self) -> Callable[[], bool]:
        """Let the thread finish the queue and end; return a function that says whether it has ended."""
        if self._stop_mark is None:
            self._stop_mark = _Mark()
            self._queue.put(self._stop_mark)
        return lambda: not self._is_running()

    def _reject(self, reason: str) -> None:
        self.rejected += 1
        self.last_error = reason

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self, now: datetime) -> bool:
        with self._starting:
            if self._is_running():
                return True
            thread = threading.Thread(target=self._run, args=(now,), name="ops-log-writer", daemon=True)
            atexit.register(self._finish)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads, or the interpreter is shutting down
                atexit.unregister(self._finish)
                self._reject(str(error))
                return False
            self._thread = thread
            return True

    # --- in the thread ---

    def _run(self, now: datetime) -> None:
        while self._stop_mark is None or not self._stop_mark.passed or not self._queue.empty():
            batch = self._next_batch()
            groups_now = self._held.groups(batch, is_all=not batch and self._maintenance is None)
            for day, groups in groupby(groups_now, key=lambda group: day_of(group[-1].ts)):
                self._write(day, list(groups))
            now = next((item.ts for item in reversed(batch) if isinstance(item, OpsEvent)), now)
            for item in batch:
                if isinstance(item, _Mark):
                    item.passed = True
            self._start_maintenance(now)
            self._maintain(until=0.0)
            self._warn_once()
        self._maintain(until=time.monotonic() + _MAINTENANCE_AT_END_S)
        self._stop_maintenance()
        self._warn_once()
        atexit.unregister(self._finish)

    def _finish(self) -> None:
        """Give the last events of a program that does not close its log time to reach the disk."""
        self.stop()
        if self._thread is not None:
            self._thread.join(_EXIT_TIMEOUT_S)

    def _start_maintenance(self, now: datetime) -> None:
        """Start maintenance: at the beginning, and with every new day and every new file."""
        if (maintenance_for := (now.date(), self._sink.files_begun)) != self._maintenance_for:
            self._stop_maintenance()
            self._maintenance_for = maintenance_for
            self._maintenance = self._sink.retention.apply(now)

    def _maintain(self, until: float) -> None:
        """Do one step of maintenance, and more if there is time."""
        while self._maintenance is not None:
            try:
                next(self._maintenance)
            except StopIteration:
                self._maintenance = None
            except OSError as error:
                self._maintenance = None
                self._fail(0, error)
            if time.monotonic() >= until:
                return

    def _stop_maintenance(self) -> None:
        """Abandon maintenance; it starts over another time."""
        if self._maintenance is not None:
            self._maintenance.close()
            self._maintenance = None

    def _next_batch(self) -> list[_Item]:
        """Wait for events, but only briefly if there is maintenance or held answers."""
        batch: list[_Item] = []
        try:
            if self._maintenance is not None:
                batch.append(self._queue.get_nowait())
            else:
                batch.append(self._queue.get(timeout=_HOLD_S if self._held else None))
            time.sleep(_LINGER_S)
            while len(batch) < _BATCH_EVENTS:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        return batch

    def _write(self, day: str, groups: Sequence[_Group]) -> None:
        rendered = [one for group in groups for one in self._render_lines(group)]
        if not rendered:
            return
        count = sum(events for events, _ in rendered)
        try:
            self._sink.append(day, [lines for _, lines in rendered])
            self.written += count
        except OSError as error:
            self._fail(count, error)

    def _render_lines(self, group: _Group) -> Iterator[tuple[int, bytes]]:
        """Yield lines, each time with the number of their events."""
        try:
            yield len(group), self._render(group)
        except _UNRENDERABLE as error:
            if len(group) == 1:
                return self._fail(1, error)
            for event in group:  # drop only what cannot be rendered
                yield from self._render_lines((event,))

    def _fail(self, events: int, error: Exception) -> None:
        self.failed += events
        self.last_error = f"{type(error).__name__}: {error}"

    def _warn_once(self) -> None:
        if self.last_error is not None and not self._warned:
            self._warned = True
            _logger.warning("the ops log has trouble: %s", self.last_error)


# --- from events to lines -----------------------------------------------------------------------------------


class _Renderer:
    """Renders an event, or those of a finished query, as lines, and masks secrets.

    Nearly all events have none, so a quick check precedes the walk through the values.
    """

    def __init__(self, redacting: bool) -> None:
        self._clean = CleanTexts() if redacting else None

    def __call__(self, events: Sequence[OpsEvent]) -> bytes:
        return b"".join([sealed(to_line(wire)) for wire in self._wires(events)])

    def _wires(self, events: Sequence[OpsEvent]) -> list[dict[str, Any]]:
        *answers, last = events
        if isinstance(last.detail, QueryMerged):
            with suppress(TypeError, ValueError):  # an answer was already written on its own
                return [self._masked_head(short_line(last, answers, self._masked))]
        wires = map(self._masked_head, map(event_to_wire, events))
        return [wire | {"detail": self._masked(wire["detail"])} for wire in wires]

    def _masked_head(self, wire: dict[str, Any]) -> dict[str, Any]:
        if self._clean and not self._clean.covers([session_key := wire.get("sessionKey", "")]):
            wire["sessionKey"] = redact(session_key)
        return wire

    def _masked(self, detail: dict[str, Any]) -> dict[str, Any]:
        if self._clean is None or self._clean.covers(texts_in(detail)):
            return detail
        masked: dict[str, Any] = redact_value(detail)
        return masked
