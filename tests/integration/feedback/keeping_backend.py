"""A backend that keeps what no source brings back: one file of words in the state folder."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from composable_memory.config.settings import SettingsModel
from composable_memory.errors import BackendError, BackendRejected
from composable_memory.interfaces import BackendServices, BackendSpec, Capability
from composable_memory.testing.in_memory import FakeBackend
from composable_memory.types import MemorySearchResult, SearchOptions

__all__ = ["ENTRY_POINTS", "WORDS", "keeping", "keeping_more"]

ENTRY_POINTS = f"keeping = {__name__}:keeping\nkeeping_more = {__name__}:keeping_more\n"
WORDS = "words.txt"


class KeepingBackend(FakeBackend):
    """Finds nothing, and keeps a file."""

    def __init__(self, backend_id: str, file: Path) -> None:
        super().__init__(backend_id)
        self._file = file

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return nothing."""
        self.note_question(query, options)
        return []

    async def backup(self, folder: Path) -> Mapping[str, int]:
        """Copy the file."""
        if not await asyncio.to_thread(self._file.exists):
            raise BackendError(self.id, "backup", "its words are gone")
        await asyncio.to_thread(lambda: (folder / WORDS).write_bytes(self._file.read_bytes()))
        return {"words": 1}

    async def restore(self, folder: Path, *, replace: bool = False) -> Mapping[str, int]:
        """Take the file in."""
        if await asyncio.to_thread(self._file.exists) and not replace:
            raise BackendRejected(self.id, "restore", status="conflict", body="it keeps words already")
        try:
            await asyncio.to_thread(lambda: self._file.write_bytes((folder / WORDS).read_bytes()))
        except OSError as error:
            raise BackendError(self.id, "restore", str(error)) from error
        return {"words": 1}


def _spec(backend_id: str, name: str) -> BackendSpec:
    @asynccontextmanager
    async def opened(_settings: SettingsModel, services: BackendServices) -> AsyncIterator[KeepingBackend]:
        yield KeepingBackend(backend_id, services.state_dir / name)

    return BackendSpec(
        id=backend_id,
        summary="Keeps words.",
        settings=SettingsModel,
        open=opened,
        capabilities=frozenset({Capability.BACKUP, Capability.CALIBRATED}),
    )


keeping = _spec("keeping", WORDS)
keeping_more = _spec("keeping_more", f"more-{WORDS}")
