"""The thread behind a log: takes events from a queue and appends their lines in the order they came."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import date, datetime
from itertools import groupby
from queue import Empty, SimpleQueue

from composable_memory_ops_logs.events import OpsEvent
from composable_memory_ops_logs.sinks import FileSink, month_of

__all__ = ["LineWriter"]

_LINGER_S = 0.005
"""How long the thread waits for company: the events of one question then share one write and one wake-up."""

_BATCH_EVENTS = 500
_EXIT_TIMEOUT_S = 2.0

# What a value of the wrong type can raise while its event is rendered; such an event is dropped alone.
_UNRENDERABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

_logger = logging.getLogger(__name__)


class _Mark:
    """Travels through the queue behind the events it waits for."""

    passed = False


class LineWriter:
    """A bounded queue and the daemon thread that empties it into a sink.

    `open_renderer` is called once, in the thread, and gives the function from event to line. The thread
    starts with the first event. Failures are counted, kept in `last_error` and warned of once.
    """

    def __init__(
        self,
        sink: FileSink,
        *,
        open_renderer: Callable[[], Callable[[OpsEvent], bytes]],
        retention_days: int,
        capacity: int,
    ) -> None:
        self._sink = sink
        self._open_renderer = open_renderer
        self._retention_days = retention_days
        self._capacity = capacity
        # Putting never blocks, and is safe inside finalizers: `stop` may be called by the garbage collector.
        self._queue: SimpleQueue[OpsEvent | _Mark] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop_mark: _Mark | None = None
        self._warned = False
        self._pruned_on: date | None = None
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
        """Return a function that tells whether all events queued so far have been dealt with."""
        mark = _Mark()
        if not self._is_running():
            return lambda: True
        self._queue.put(mark)
        return lambda: mark.passed or not self._is_running()

    def stop(self) -> Callable[[], bool]:
        """Let the thread finish what is queued and end; return a function that tells whether it has ended."""
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
        render = self._open_renderer()
        self._prune(now)
        while self._stop_mark is None or not self._stop_mark.passed or not self._queue.empty():
            batch = self._next_batch()
            events = [item for item in batch if isinstance(item, OpsEvent)]
            self._write(render, events)
            if events and events[-1].ts.date() != self._pruned_on:
                self._prune(events[-1].ts)
            for item in batch:
                if isinstance(item, _Mark):
                    item.passed = True
            self._warn_once()
        atexit.unregister(self._finish)

    def _finish(self) -> None:
        """Give the last events of a program that does not close its log time to reach the disk."""
        self.stop()
        if self._thread is not None:
            self._thread.join(_EXIT_TIMEOUT_S)

    def _prune(self, now: datetime) -> None:
        """Delete what is past its time: at the start, and once a day in a process that runs on."""
        self._pruned_on = now.date()
        try:
            self._sink.prune(now, self._retention_days)
        except OSError as error:
            self._fail(0, error)

    def _next_batch(self) -> list[OpsEvent | _Mark]:
        batch = [self._queue.get()]
        time.sleep(_LINGER_S)
        try:
            while len(batch) < _BATCH_EVENTS:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        return batch

    def _write(self, render: Callable[[OpsEvent], bytes], events: Sequence[OpsEvent]) -> None:
        for month, group in groupby(events, key=lambda event: month_of(event.ts)):
            self._append(month, [line for event in group if (line := self._line(render, event))])

    def _append(self, month: str, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        try:
            self._sink.append(month, lines)
            self.written += len(lines)
        except OSError as error:
            self._fail(len(lines), error)

    def _line(self, render: Callable[[OpsEvent], bytes], event: OpsEvent) -> bytes:
        try:
            return render(event)
        except _UNRENDERABLE as error:
            self._fail(1, error)
            return b""

    def _fail(self, events: int, error: Exception) -> None:
        self.failed += events
        self.last_error = f"{type(error).__name__}: {error}"

    def _warn_once(self) -> None:
        if self.last_error is not None and not self._warned:
            self._warned = True
            _logger.warning("the ops log has trouble: %s", self.last_error)
