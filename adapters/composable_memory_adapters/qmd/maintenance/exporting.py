"""Exports sessions beside the loop: one process at a time, and not a moment longer than somebody waits."""

import asyncio
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from composable_memory.interfaces import BackendServices
from composable_memory.state.folders import file_name_of
from composable_memory.supervision.file_lock import file_lock
from composable_memory_adapters.qmd.maintenance.session_export import ExportReport, export_sessions
from composable_memory_adapters.qmd.settings import SessionExportSettings
from composable_memory_adapters.qmd.values import BACKEND_ID, Home

__all__ = ["SessionExporter"]

PATIENCE_S = 5.0
"""How long to wait while another process exports the same sessions; what it writes will do for us."""


class SessionExporter:
    """Exports an agent's sessions to where QMD finds them, if the settings want that."""

    def __init__(self, settings: SessionExportSettings, *, home: Home, services: BackendServices) -> None:
        self._settings = settings
        self._home = home
        self._services = services

    @property
    def folder(self) -> Path | None:
        """Return the folder of the exported sessions; None if they are not exported."""
        if not self._settings.enabled:
            return None
        if self._settings.export_dir is None:
            return self._home.root / "sessions"
        return self._services.state_dir / self._settings.export_dir.expanduser()

    @property
    def transcripts(self) -> Path:
        """Return the folder of the transcripts, which need not exist."""
        state_dir = self._services.state_dir
        if self._settings.dir is not None:
            return state_dir / self._settings.dir.expanduser()
        return state_dir / "agents" / file_name_of(self._services.agent_id) / "sessions"

    async def open(self) -> None:
        """Make the folder of the exported sessions, so that QMD finds it from the beginning."""
        if self.folder is not None:
            with suppress(OSError):  # an export will say why
                await asyncio.to_thread(self.folder.mkdir, mode=0o700, parents=True, exist_ok=True)

    async def export(self) -> ExportReport:
        """Export what has changed; what goes wrong is in the report.

        Raises:
            BackendUnavailable: the home cannot be written.
        """
        folder = self.folder
        if folder is None:
            return ExportReport()
        async with file_lock(
            self._home.root / "export.lock", owner=BACKEND_ID, patience_s=PATIENCE_S
        ) as is_ours:
            return await self._export_to(folder) if is_ours else ExportReport()

    async def _export_to(self, folder: Path) -> ExportReport:
        """Export in a thread; when cancelled, return only when the thread has stopped."""
        is_unwanted = threading.Event()
        export = partial(
            export_sessions,
            self.transcripts,
            folder,
            retention_days=self._settings.retention_days,
            now=self._services.clock(),
            is_cancelled=is_unwanted.is_set,
        )
        work = asyncio.create_task(asyncio.to_thread(export), name="qmd-export")
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            is_unwanted.set()
            await asyncio.wait([work])
            raise
