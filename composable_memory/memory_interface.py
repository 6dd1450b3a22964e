"""What remembering, recalling and reflecting need of an open memory, which calls them itself."""

from pathlib import Path
from typing import Protocol

from composable_memory.forget.tombstones import Forgotten
from composable_memory.interfaces import SupportsFacts
from composable_memory.learning.context import LearningContext
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.recall.retained_notes import RetainedNotes
from composable_memory.types import MemoryProviderStatus


class OpenMemory(Protocol):
    """An open memory; `Memory` is one."""

    @property
    def manager(self) -> ComposableMemoryManager:
        """Return the composite to search."""
        ...

    @property
    def context(self) -> LearningContext:
        """Return the context of learning, with the log and the id of the memory."""
        ...

    @property
    def workspace_dir(self) -> Path:
        """Return the folder of the notes."""
        ...

    @property
    def notes(self) -> RetainedNotes:
        """Return the retained lines of the notes."""
        ...

    @property
    def forgotten(self) -> Forgotten:
        """Return what was forgotten."""
        ...

    def status(self) -> MemoryProviderStatus:
        """Return the status of the primary."""
        ...

    def facts_of(self) -> SupportsFacts:
        """Return the backend that keeps facts."""
        ...

    async def text_of(self, path: str, start_line: int, end_line: int) -> str | None:
        """Return lines of a note; None if there are none."""
        ...
