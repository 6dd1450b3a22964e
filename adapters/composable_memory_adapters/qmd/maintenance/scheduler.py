"""Schedules the maintenance of QMD's index: session exports, updates, and occasional embeddings.

Updates and embeddings may overlap, because an embedding can take half an hour; only one of each kind runs at
a time, for all callers.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from dataclasses import replace
from datetime import datetime, timedelta

from composable_memory.errors import BackendError
from composable_memory.interfaces import BackendServices, ProgressCallback
from composable_memory.supervision.single_flight import Flight, SingleFlight, sync_complete
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_adapters.qmd.maintenance.index_commands import IndexCommands, UpdateOutcome
from composable_memory_adapters.qmd.maintenance.maintenance_state import (
    MaintenanceState,
    MaintenanceStateFile,
    StateChange,
    is_embedding_due,
    may_nudge,
    pause_s,
    wait_s,
)
from composable_memory_adapters.qmd.maintenance.session_export import SessionExporter
from composable_memory_adapters.qmd.models import missing_models
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.types import BACKEND_ID, Home
from composable_memory_ops_logs import (
    BackendDegraded,
    ErrorInfo,
    EventDetail,
    Status,
    SyncFailed,
    SyncStart,
)
from composable_memory_ops_logs.tracing import trace

BOOT = "boot"
MAX_PROBLEMS = 50


class MaintenanceScheduler:
    """Updates the index in the background from `start` to `close`, and on request from `open` on."""

    def __init__(
        self, settings: QmdSettings, *, commands: IndexCommands, home: Home, services: BackendServices
    ) -> None:
        self._settings = settings
        self._commands = commands
        self._home = home
        self._services = services
        self.exporter = SessionExporter(settings.sessions, home=home, services=services)
        self._file = MaintenanceStateFile(home)
        self._updates = SingleFlight(self._update, backend_id=BACKEND_ID)
        self._embeddings = SingleFlight(self._embed, backend_id=BACKEND_ID)
        self._tasks: set[asyncio.Task[None]] = set()
        self._nudged: asyncio.Task[None] | None = None
        self._defect: str | None = None
        self._is_scheduled = False

    @property
    def state(self) -> MaintenanceState:
        """Return what is known of updates and embeddings."""
        return self._file.state

    @property
    def problem(self) -> str | None:
        """Return why the last update failed, or why scheduled updates have stopped."""
        return self.state.problem or self._defect

    @property
    def next_update(self) -> datetime | None:
        """Return when the next scheduled update is due; None if there is none."""
        if not self._is_scheduled or self.state.last_attempt is None:
            return None
        return self.state.last_attempt + timedelta(seconds=pause_s(self._settings.update))

    async def open(self) -> None:
        """Read the state left by earlier processes, and create the folder of the exported sessions."""
        await self._file.refresh()
        await self.exporter.open()

    async def start(self) -> None:
        """Update in the background from now on; wait for the first update if the settings say so."""
        update = self._settings.update
        boot = self._spawn(self._update_in_background(BOOT)) if update.on_boot else None
        if pause_s(update) > 0.0:
            self._is_scheduled = True
            self._spawn(self._update_periodically())
        if boot is not None and update.wait_for_boot_sync:
            await asyncio.wait([boot])

    async def run(
        self, reason: str, *, force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Export, update, and embed if that is due; `force` embeds everything and replaces a damaged index.

        QMD reads every file at each update, so a forced one counts all of them as indexed. A failed embedding
        becomes a problem in the report.

        Raises:
            BackendUnavailable: closed.
            BackendError: the update failed; what was indexed stays.
        """
        report = await self._updates.join(reason, force=force, progress=progress)
        if self._is_embedding_due(force=force):
            made = await self._embeddings.join(reason, force=force, progress=progress)
            problems = (*report.problems, *made.problems)
            pending = made.embeddings_pending
            report = replace(report, embedded=made.embedded, embeddings_pending=pending, problems=problems)
        if progress is not None:
            progress(MemorySyncProgressUpdate(completed=self._steps, total=self._steps, label="Done"))
        return report

    def nudge(self, reason: str) -> None:
        """Request an update in the background because files have changed; does not wait, and never fails."""
        is_busy = self._nudged is not None or self._updates.is_one_waiting
        if not is_busy and may_nudge(self.state, now=self._services.clock()):
            self._nudged = self._spawn(self._update_in_background(reason))
            self._nudged.add_done_callback(self._forget_nudge)

    async def close(self) -> None:
        """Stop everything that runs, including QMD commands; a second call does nothing."""
        self._is_scheduled = False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(self._updates.close(), self._embeddings.close())

    # --- in the background ----------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        # In an empty context, so that the work is not part of the caller's trace.
        task = asyncio.create_task(work, name="qmd-maintenance", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        """Keep an unexpected error for the status."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._defect = f"scheduled updates have stopped: {error!r}"

    def _forget_nudge(self, _task: asyncio.Task[None]) -> None:
        self._nudged = None

    async def _update_in_background(self, reason: str) -> None:
        """Update, then start an embedding if one is due; failures are recorded in the state."""
        if await self._updates.attempt(reason) and self._is_embedding_due():
            self._embeddings.start(reason)

    async def _update_periodically(self) -> None:
        while True:
            seen = self.state.last_attempt
            await asyncio.sleep(wait_s(self.state, self._settings.update, now=self._services.clock()))
            await self._file.refresh()
            if self.state.last_attempt == seen:  # otherwise another process, or a caller of `run`, was first
                await self._update_in_background("interval")

    # --- an update ------------------------------------------------------------------------------------------

    async def _update(self, flight: Flight) -> SyncReport:
        reason = flight.reason
        with trace():
            self._emit(SyncStart(reason=reason, force=flight.force, needs_full_reindex=flight.force))
            try:
                report = await self._export_and_update(flight, reason)
            except BackendError as error:
                problem, now = str(error), self._services.clock()
                await self._file.apply(lambda state: state.failed(problem, now=now))
                self._emit(SyncFailed(reason=reason, error=ErrorInfo.of(error)), status="failure")
                raise
            status: Status = "partial" if report.problems else "success"
            self._emit(sync_complete(report, is_full=flight.force), status=status)
            return report

    async def _export_and_update(self, flight: Flight, reason: str) -> SyncReport:
        if self.exporter.folder is not None:
            self._report_progress(flight, 0, "Exporting sessions")
        exported = await self.exporter.export()
        self._report_progress(flight, 0, "Updating the index of QMD")
        began = self._services.clock()
        is_boot = BOOT in reason.split("+")
        outcome = await self._commands.update(is_patient=is_boot, force=flight.force)
        flight.mark_notes_indexed()
        now = self._services.clock()
        problems = exported.problems[:MAX_PROBLEMS]
        await self._file.apply(lambda state: state.updated(outcome, began=began, now=now))
        pending = self.state.pending if self._settings.uses_vectors else 0
        return _report(reason, outcome, pending=pending, problems=problems, is_full=flight.force)

    # --- an embedding ---------------------------------------------------------------------------------------

    def _is_embedding_due(self, *, force: bool = False) -> bool:
        settings = self._settings
        return settings.uses_vectors and is_embedding_due(
            self.state, settings.update, model=settings.models.embed, now=self._services.clock(), force=force
        )

    async def _embed(self, flight: Flight) -> SyncReport:
        """Embed; never raises, because keyword search works without embeddings."""
        reason = flight.reason
        if not self._is_embedding_due(force=flight.force):
            return SyncReport(reason=reason)
        self._report_progress(flight, 1, "Embedding")
        try:
            if lacking := await asyncio.to_thread(self._what_embedding_needs):
                return await self._skip_embedding(
                    reason, lacking, lambda state: state.embedding_blocked(lacking)
                )
            outcome = await self._commands.embed(force=flight.force)
        except BackendError as error:
            problem, now = str(error), self._services.clock()
            return await self._skip_embedding(
                reason, problem, lambda state: state.embedding_failed(problem, now=now)
            )
        if outcome.state == "elsewhere":
            return SyncReport(reason=reason, embeddings_pending=self.state.pending)
        model, now = self._settings.models.embed, self._services.clock()
        await self._file.apply(lambda state: state.embedded(outcome, model=model, now=now))
        problems = (outcome.problem,) if outcome.problem else ()
        return SyncReport(reason=reason, embedded=outcome.chunks, problems=problems)

    async def _skip_embedding(self, reason: str, problem: str, change: StateChange) -> SyncReport:
        if problem != self.state.embed_problem:
            self._emit(BackendDegraded(what="vectors", level="failed", reason=problem), status="partial")
        await self._file.apply(change)
        return SyncReport(reason=reason, embeddings_pending=self.state.pending, problems=(problem,))

    def _what_embedding_needs(self) -> str | None:
        """Return why embedding cannot work; QMD itself would retry a missing model for twelve minutes."""
        if self._home.environ.get("CI"):
            return "QMD creates no vectors while the variable CI is set; unset it"
        if missing_models(self._home, self._settings, needed=("embed",)):
            return (
                "QMD's embedding model is not on this machine, so it creates no vectors; `qmd pull` "
                "downloads it"
            )
        return None

    @property
    def _steps(self) -> int:
        return 2 if self._settings.uses_vectors else 1

    def _report_progress(self, flight: Flight, completed: int, label: str) -> None:
        flight.tell(MemorySyncProgressUpdate(completed=completed, total=self._steps, label=label))

    def _emit(self, detail: EventDetail, *, status: Status = "success") -> None:
        self._services.ops_log.emit(detail, status=status, backend=BACKEND_ID)


def _report(
    reason: str, outcome: UpdateOutcome, *, pending: int, problems: tuple[str, ...], is_full: bool
) -> SyncReport:
    """Return the report of an update; QMD counts documents, not chunks."""
    counts = outcome.counts.values()
    unchanged = sum(one.unchanged for one in counts)
    indexed = sum(one.new + one.updated for one in counts) + (unchanged if is_full else 0)
    if outcome.set_aside is not None:
        problems = (
            *problems,
            f"QMD's database was damaged: it was moved to {outcome.set_aside}, and a new one created",
        )
    return SyncReport(
        reason=reason,
        files_indexed=indexed,
        files_unchanged=0 if is_full else unchanged,
        files_removed=sum(one.removed for one in counts),
        chunks_written=indexed,
        embeddings_pending=pending,
        problems=problems,
    )
