"""One sync of an index at a time, shared by all callers.

A caller that comes while a sync runs joins the next one: the running one may already have passed the note
that the caller has just changed. So at most one runs and one waits, however many callers there are.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import ProgressCallback
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_ops_logs import ErrorInfo, Status, SyncComplete, SyncFailed


class Flight:
    """A sync shared by callers: all their reasons, and `force` if any of them asked for it."""

    def __init__(self) -> None:
        self.force = False
        self.is_watched = True
        """Whether all callers were told by a file watcher what has changed."""
        self.progress: MemorySyncProgressUpdate | None = None
        self.notes_indexed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the text of all notes is searchable; cancelled if the sync ends before that."""
        self.reasons: dict[str, None] = {}
        """Why the sync runs, in the order of the callers."""
        self.has_successor = False
        """Whether another sync was requested since this one began."""
        self._listeners: list[ProgressCallback] = []

    @property
    def reason(self) -> str:
        """Return why the sync runs: all reasons, in the order of the callers."""
        return "+".join(self.reasons)

    def join(
        self, reason: str, *, force: bool, progress: ProgressCallback | None, is_watched: bool = False
    ) -> None:
        """Add a caller."""
        self.reasons[reason] = None
        self.force |= force
        self.is_watched &= is_watched
        if progress is not None:
            self._listeners.append(progress)

    def leave(self, progress: ProgressCallback | None) -> None:
        """Remove a caller, which then gets no more progress reports."""
        if progress in self._listeners:
            self._listeners.remove(progress)

    def mark_notes_indexed(self) -> None:
        """Record that all text is searchable and only vectors are missing."""
        if not self.notes_indexed.done():
            self.notes_indexed.set_result(None)

    def tell(self, update: MemorySyncProgressUpdate) -> None:
        """Report progress to all callers; one that raises is logged by the loop and affects no other."""
        self.progress = update
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, update)


class SingleFlight:
    """Runs at most one sync and keeps at most one waiting.

    syncs = SingleFlight(self._sync, backend_id="builtin")
    report = await syncs.join("search", progress=show)  # shared with others who ask meanwhile
    await syncs.close()
    """

    def __init__(self, run: Callable[[Flight], Awaitable[SyncReport]], *, backend_id: str) -> None:
        self._run = run
        self._backend_id = backend_id
        self._tasks: dict[Flight, asyncio.Task[SyncReport]] = {}
        self._running: Flight | None = None
        self._waiting: Flight | None = None
        self._is_closed = False
        self.failure: BaseException | None = None
        """What the last sync raised; None if it succeeded."""

    @property
    def current(self) -> Flight | None:
        """Return the flight that runs or is about to, if any."""
        return self._running or self._waiting

    @property
    def is_one_waiting(self) -> bool:
        """Return whether another sync was requested since the running one began."""
        return self._running is not None and self._waiting is not None

    def start(
        self,
        reason: str,
        *,
        force: bool = False,
        progress: ProgressCallback | None = None,
        is_watched: bool = False,
    ) -> Flight:
        """Join the next flight and make sure it starts; does not wait for it.

        Raises:
            BackendUnavailable: closed.
        """
        if self._is_closed:
            raise self._closed()
        if self._waiting is None:
            flight = self._waiting = Flight()
            if self._running is not None:
                self._running.has_successor = True
            before = self._tasks[self._running] if self._running else None
            task = asyncio.create_task(self._fly(flight, before), name=f"{self._backend_id}-sync")
            self._tasks[flight] = task
            task.add_done_callback(lambda task: self._land(flight, task))
        self._waiting.join(reason, force=force, progress=progress, is_watched=is_watched)
        return self._waiting

    async def join(
        self, reason: str, *, force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Sync and return the report; cancelling a caller leaves the sync to the others waiting for it.

        Raises:
            BackendUnavailable: closed before the sync was done.
        """
        flight = self.start(reason, force=force, progress=progress)
        task = self._tasks[flight]
        try:
            await asyncio.wait([task])
        finally:
            flight.leave(progress)
        if task.cancelled():
            raise self._closed()
        return task.result()

    async def attempt(self, reason: str) -> bool:
        """Sync and return whether it succeeded; if not, `failure` is what it raised.

        Raises:
            BackendUnavailable: closed.
        """
        task = self._tasks[self.start(reason, is_watched=reason == "watch")]
        await asyncio.wait([task])
        return not task.cancelled() and task.exception() is None

    async def close(self) -> None:
        """Stop the running sync between two steps, and refuse all further calls."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _fly(self, flight: Flight, before: asyncio.Task[SyncReport] | None) -> SyncReport:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._waiting = flight, None
        return await self._run(flight)

    def _land(self, flight: Flight, task: asyncio.Task[SyncReport]) -> None:
        del self._tasks[flight]
        if self._running is flight:
            self._running = None
        if self._waiting is flight:
            self._waiting = None
        if not task.cancelled():
            self.failure = task.exception()
        if task.cancelled() or self.failure is not None:
            flight.notes_indexed.cancel()
        flight.mark_notes_indexed()

    def _closed(self) -> BackendUnavailable:
        return BackendUnavailable(
            self._backend_id, "it is closed", fix="open the memory again", operation="sync"
        )


def sync_ended(
    report: SyncReport | None, *, reason: str, is_full: bool
) -> tuple[SyncComplete | SyncFailed, Status] | None:
    """Return the event that ends a sync, and its status; None if the sync was cancelled.

    Call it in a `finally`: without a report, the event describes the exception being raised.
    """
    if report is not None:
        return sync_complete(report, is_full=is_full), "partial" if report.problems else "success"
    if isinstance(error := sys.exception(), Exception):
        return SyncFailed(reason=reason, error=ErrorInfo.of(error)), "failure"
    return None


def sync_complete(report: SyncReport, *, is_full: bool) -> SyncComplete:
    """Return the event for a sync that succeeded; `is_full` says that the index was rebuilt."""
    return SyncComplete(
        reason=report.reason,
        full_reindex=is_full,
        files_indexed=report.files_indexed,
        chunks_written=report.chunks_written,
        embedded=report.embedded,
        removed=report.files_removed,
        embeddings_pending=report.embeddings_pending,
        problems=report.problems,
    )
