"""Keeps QMD's index up to date: exports sessions, lets QMD look at the files, and make vectors now and then.

Updates and embeddings run beside each other, for an embedding may take half an hour; of each kind one runs at
a time, for all who ask.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import Context
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from composable_memory.errors import BackendError
from composable_memory.interfaces import BackendServices, ProgressCallback
from composable_memory.supervision.single_flight import Flight, SingleFlight
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_adapters.qmd.maintenance.exporting import SessionExporter
from composable_memory_adapters.qmd.maintenance.maintenance import Maintenance, UpdateOutcome
from composable_memory_adapters.qmd.maintenance.rules import (
    UpkeepState,
    is_embedding_due,
    may_nudge,
    pause_s,
    wait_s,
)
from composable_memory_adapters.qmd.maintenance.upkeep_state import Learn, UpkeepBooks
from composable_memory_adapters.qmd.runtime.models import missing_models
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.values import BACKEND_ID, Home
from composable_memory_ops_logs.events import (
    BackendDegraded,
    ErrorInfo,
    EventDetail,
    Status,
    SyncComplete,
    SyncFailed,
    SyncStart,
)
from composable_memory_ops_logs.trace import trace

__all__ = ["Upkeep", "UpkeepStanding"]

BOOT = "boot"
MAX_PROBLEMS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepStanding:
    """How far the index is, and what stands in its way.

    `counts` are the documents of each collection. `last_update` is when the last update that went well began,
    `next_update` when the clock asks for the next. `problem` says why the last update failed, and `failures`
    how many did in a row. `running` is the reason of the update that runs now.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    last_update: datetime | None = None
    next_update: datetime | None = None
    problem: str | None = None
    failures: int = 0
    export_problems: tuple[str, ...] = ()
    last_embed: datetime | None = None
    embed_problem: str | None = None
    running: str | None = None


class Upkeep:
    """Follows the files from `start` to `close`, and updates whenever somebody asks, from `open` on."""

    def __init__(
        self, settings: QmdSettings, *, maintenance: Maintenance, home: Home, services: BackendServices
    ) -> None:
        self._settings = settings
        self._maintenance = maintenance
        self._home = home
        self._services = services
        self._exporter = SessionExporter(settings.sessions, home=home, services=services)
        self._books = UpkeepBooks(home)
        self._updates = SingleFlight(self._update, backend_id=BACKEND_ID)
        self._embeddings = SingleFlight(self._embed, backend_id=BACKEND_ID)
        self._tasks: set[asyncio.Task[None]] = set()
        self._nudged: asyncio.Task[None] | None = None
        self._defect: str | None = None
        self._is_following = False

    @property
    def export_dir(self) -> Path | None:
        """Return the folder of the exported sessions; None if they are not exported."""
        return self._exporter.folder

    @property
    def transcripts(self) -> Path | None:
        """Return the folder of the transcripts that are exported; None if they are not."""
        return self._exporter.transcripts if self._settings.sessions.enabled else None

    async def open(self) -> None:
        """Learn what earlier processes have done, and make the folder of the exported sessions."""
        await self._books.look_up()
        await self._exporter.open()

    async def start(self) -> None:
        """Update in the background from now on; waits for the first one if the settings want that."""
        update = self._settings.update
        boot = self._spawn(self._freshen(BOOT)) if update.on_boot else None
        if pause_s(update) > 0.0:
            self._is_following = True
            self._spawn(self._keep_interval())
        if boot is not None and update.wait_for_boot_sync:
            await asyncio.wait([boot])

    async def run(
        self, reason: str, *, force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Export, update, and embed if that is due; `force` embeds all anew and mends a damaged index.

        QMD reads every file at each update, so that a forced one counts all of them as indexed. An embedding
        that fails leaves a report with a problem.

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
        """Ask for an update in the background, because files have changed; does not wait, and never fails."""
        is_busy = self._nudged is not None or self._updates.is_one_waiting
        if not is_busy and may_nudge(self._state, now=self._services.clock()):
            self._nudged = self._spawn(self._freshen(reason))
            self._nudged.add_done_callback(self._forget_nudge)

    def standing(self) -> UpkeepStanding:
        """Return what is known; asks nobody."""
        state, running = self._state, self._updates.current
        next_update = None
        if self._is_following and state.last_attempt is not None:
            next_update = state.last_attempt + timedelta(seconds=pause_s(self._settings.update))
        return UpkeepStanding(
            last_update=state.last_update,
            next_update=next_update,
            counts=state.counts,
            problem=state.problem or self._defect,
            failures=state.failures,
            export_problems=state.export_problems,
            last_embed=state.last_embed,
            embed_problem=state.embed_problem,
            running=running.reason if running is not None else None,
        )

    async def close(self) -> None:
        """Stop what runs, commands of QMD included; calling it again does nothing."""
        self._is_following = False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(self._updates.close(), self._embeddings.close())

    # --- in the background ----------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        # In a context of its own, so that what comes does not belong to the trace in which this is called.
        task = asyncio.create_task(work, name="qmd-upkeep", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        """Let a defect be seen in the status."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._defect = f"following the files ended: {error!r}"

    def _forget_nudge(self, _task: asyncio.Task[None]) -> None:
        self._nudged = None

    async def _freshen(self, reason: str) -> None:
        """Update; embed behind that, where it is due. What goes wrong is in the state."""
        if await self._updates.attempt(reason) and self._is_embedding_due():
            self._embeddings.start(reason)

    async def _keep_interval(self) -> None:
        while True:
            seen = self._state.last_attempt
            await asyncio.sleep(wait_s(self._state, self._settings.update, now=self._services.clock()))
            await self._books.look_up()
            if self._state.last_attempt == seen:  # else another process, or somebody who asked, was quicker
                await self._freshen("interval")

    # --- an update ------------------------------------------------------------------------------------------

    async def _update(self, flight: Flight) -> SyncReport:
        reason = flight.reason
        with trace():
            self._emit(SyncStart(reason=reason, force=flight.force, needs_full_reindex=flight.force))
            try:
                report = await self._export_and_update(flight, reason)
            except BackendError as error:
                problem, now = str(error), self._services.clock()
                await self._books.learn(lambda state: state.failed(problem, now=now))
                self._emit(SyncFailed(reason=reason, error=ErrorInfo.of(error)), status="failure")
                raise
            status: Status = "partial" if report.problems else "success"
            self._emit(_completed(report, is_full=flight.force), status=status)
            return report

    async def _export_and_update(self, flight: Flight, reason: str) -> SyncReport:
        self._tell(flight, 0, "Exporting sessions" if self.export_dir else "Updating the index of QMD")
        exported = await self._exporter.export()
        self._tell(flight, 0, "Updating the index of QMD")
        began = self._services.clock()
        is_boot = BOOT in reason.split("+")
        outcome = await self._maintenance.update(is_patient=is_boot, force=flight.force)
        flight.mark_notes_indexed()
        now = self._services.clock()
        problems = exported.problems[:MAX_PROBLEMS]
        await self._books.learn(
            lambda state: replace(state.updated(outcome, began=began, now=now), export_problems=problems)
        )
        pending = self._state.pending if self._settings.uses_vectors else 0
        return _report(reason, outcome, pending=pending, problems=problems, is_full=flight.force)

    # --- an embedding ---------------------------------------------------------------------------------------

    def _is_embedding_due(self, *, force: bool = False) -> bool:
        settings = self._settings
        return settings.uses_vectors and is_embedding_due(
            self._state, settings.update, model=settings.models.embed, now=self._services.clock(), force=force
        )

    async def _embed(self, flight: Flight) -> SyncReport:
        """Embed; never fails, for the words of the files are indexed without."""
        reason = flight.reason
        if not self._is_embedding_due(force=flight.force):
            return SyncReport(reason=reason)
        self._tell(flight, 1, "Embedding")
        try:
            if lacking := await asyncio.to_thread(self._what_embedding_lacks):
                return await self._leave_embedding(
                    reason, lacking, lambda state: state.embedding_waits(lacking)
                )
            outcome = await self._maintenance.embed(force=flight.force)
        except BackendError as error:
            problem, now = str(error), self._services.clock()
            return await self._leave_embedding(
                reason, problem, lambda state: state.embedding_failed(problem, now=now)
            )
        if outcome.state == "elsewhere":
            return SyncReport(reason=reason, embeddings_pending=self._state.pending)
        model, now = self._settings.models.embed, self._services.clock()
        await self._books.learn(lambda state: state.embedded(outcome, model=model, now=now))
        problems = (outcome.problem,) if outcome.problem else ()
        return SyncReport(reason=reason, embedded=outcome.chunks, problems=problems)

    async def _leave_embedding(self, reason: str, problem: str, learn: Learn) -> SyncReport:
        if problem != self._state.embed_problem:
            self._emit(BackendDegraded(what="vectors", level="failed", reason=problem), status="partial")
        await self._books.learn(learn)
        return SyncReport(reason=reason, embeddings_pending=self._state.pending, problems=(problem,))

    def _what_embedding_lacks(self) -> str | None:
        """Return why there is no use in trying: QMD would look for a missing model for twelve minutes."""
        if self._home.environ.get("CI"):
            return "QMD makes no vectors where the variable CI is set; unset it"
        if missing_models(self._home, self._settings, needed=("embed",)):
            return (
                "QMD's embedding model is not on this machine, so it makes no vectors; `qmd pull` fetches it"
            )
        return None

    # --- what is known --------------------------------------------------------------------------------------

    @property
    def _state(self) -> UpkeepState:
        return self._books.state

    @property
    def _steps(self) -> int:
        return 2 if self._settings.uses_vectors else 1

    def _tell(self, flight: Flight, completed: int, label: str) -> None:
        flight.tell(MemorySyncProgressUpdate(completed=completed, total=self._steps, label=label))

    def _emit(self, detail: EventDetail, *, status: Status = "success") -> None:
        self._services.ops_log.emit(detail, status=status, backend=BACKEND_ID)


def _report(
    reason: str, outcome: UpdateOutcome, *, pending: int, problems: tuple[str, ...], is_full: bool
) -> SyncReport:
    """Return the report of an update; QMD tells of documents, not of chunks."""
    counts = outcome.counts.values()
    unchanged = sum(one.unchanged for one in counts)
    indexed = sum(one.new + one.updated for one in counts) + (unchanged if is_full else 0)
    if outcome.set_aside is not None:
        problems = (
            *problems,
            f"QMD's database was damaged: it is now {outcome.set_aside}, and there is a new one",
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


def _completed(report: SyncReport, *, is_full: bool) -> SyncComplete:
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
