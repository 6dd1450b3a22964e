"""The log that callers write to: `emit` takes microseconds and never fails; one thread does the rest."""

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from composable_memory_ops_logs.events import EventDetail, OpsEvent, Status
from composable_memory_ops_logs.file_sink import FileSink
from composable_memory_ops_logs.log_thread import LineWriter
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.retention import Judged
from composable_memory_ops_logs.tracing import current_run_id, current_session_key, current_trace_id, new_id

DEFAULT_MAX_BYTES = 2_000_000_000
_POLL_S = 0.002
_CLOSE_TIMEOUT_S = 5.0


def utc_now() -> datetime:
    """Return the present time, aware and in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsLogStats:
    """Counts of the events so far. With a directory, `emitted == written + dropped` once flushed."""

    emitted: int
    written: int
    dropped: int
    """Events that found the queue full or the log closed, or that could not be written."""
    last_error: str | None = None
    listener_errors: int = 0


class OpsLog:
    """A log of typed events, one JSON object per line, in the files of a directory.

    Without a directory nothing is written, but listeners still receive every event. Files are deleted
    `retention_days` after their day, and the oldest ones if all take more than `max_bytes`; lines of traces
    in `judged` are kept for `judged_days`, within another `max_bytes`. `capacity` is how many events may wait
    to be written; more are dropped. With `redact`, secrets are masked in what is written; listeners get the
    original events. Close the log, or use it as `async with OpsLog(...) as log`.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        clock: Callable[[], datetime] = utc_now,
        retention_days: int = 30,
        max_bytes: int = DEFAULT_MAX_BYTES,
        judged: Judged | None = None,
        judged_days: int = 365,
        redact: bool = True,
        capacity: int = 10_000,
    ) -> None:
        if not 0 <= retention_days <= 36_500:
            raise ValueError(f"retention_days is {retention_days}; give 0 to 36500")
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; give 1 or more")
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; give 1 or more")
        self._clock = clock
        self._listeners: dict[object, Callable[[OpsEvent], None]] = {}
        self._emitted = 0
        self._listener_errors = 0
        self._writer: LineWriter | None = None
        if directory is not None:
            self._writer = LineWriter(
                FileSink(
                    directory,
                    retention_days=retention_days,
                    max_bytes=max_bytes,
                    judged=judged,
                    judged_days=judged_days,
                ),
                redacting=redact,
                capacity=capacity,
            )
            # If a log is garbage-collected without being closed, its thread still finishes and ends.
            weakref.finalize(self, self._writer.stop).atexit = False

    async def __aenter__(self) -> Self:
        """Return the log; its thread and file are created with the first event."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the log."""
        await self.close()

    @property
    def stats(self) -> OpsLogStats:
        """Return counts since the log was created."""
        writer = self._writer
        return OpsLogStats(
            emitted=self._emitted,
            written=writer.written if writer else 0,
            dropped=writer.rejected + writer.failed if writer else 0,
            last_error=writer.last_error if writer else None,
            listener_errors=self._listener_errors,
        )

    @property
    def is_heard(self) -> bool:
        """Return whether events are written or have listeners; if not, callers need not create any."""
        return self._writer is not None or bool(self._listeners)

    def emit(
        self,
        detail: EventDetail,
        *,
        status: Status = "success",
        backend: str | None = None,
        duration_ms: float | None = None,
        session_key: str | None = None,
    ) -> None:
        """Record an event in the active trace, or without one, under a new id.

        Never blocks and never raises. Listeners are called before this returns; the line is written later.
        """
        event = OpsEvent(
            id=new_id(),
            ts=self._clock(),
            action=detail.action,
            status=status,
            trace_id=current_trace_id() or new_id(),
            session_key=session_key or current_session_key(),
            run_id=current_run_id(),
            backend=backend,
            duration_ms=duration_ms,
            detail=detail,
        )
        self._emitted += 1
        for listener in self._listeners.values():
            self._notify(listener, event)
        if self._writer is not None:
            self._writer.put(event)

    def subscribe(self, listener: Callable[[OpsEvent], None]) -> Callable[[], None]:
        """Call `listener` with every event from now on; the returned function unsubscribes it.

        It is called inside `emit` and should be quick. Exceptions are counted and go no further.
        """
        token = object()
        self._listeners = {**self._listeners, token: listener}

        def unsubscribe() -> None:
            self._listeners = {key: kept for key, kept in self._listeners.items() if key is not token}

        return unsubscribe

    async def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until every event so far is written or dropped; False if the time ran out first."""
        return self._writer is None or await _wait_until(self._writer.mark(), timeout_s)

    async def close(self) -> None:
        """Write waiting events and end the thread; later events are dropped. May be called again."""
        if self._writer is not None:
            await _wait_until(self._writer.stop(), _CLOSE_TIMEOUT_S)

    def _notify(self, listener: Callable[[OpsEvent], None], event: OpsEvent) -> None:
        try:
            listener(event)
        except Exception:  # noqa: BLE001 - a listener is foreign code, and emit promises never to raise
            self._listener_errors += 1


async def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - the other thread has no event loop to signal
                await asyncio.sleep(_POLL_S)
    return condition()
