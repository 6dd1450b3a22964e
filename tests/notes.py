"""Notes in a folder: all at once, or one after the other as the contracts of syncing change them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from composable_memory.testing.contracts import WriteNote

__all__ = ["NotesInWorkspace", "write_notes"]


def write_notes(folder: Path, notes: Mapping[str, str]) -> Path:
    """Write notes below a folder, which is made where it is missing, and return the folder."""
    for path, text in notes.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="")
    return folder


class NotesInWorkspace:
    """For a contract whose backend reads the files of the fixture `workspace`."""

    @pytest.fixture
    def write_note(self, workspace: Path) -> WriteNote:
        def write(path: str, text: str | None) -> None:
            if text is None:
                (workspace / path).unlink()
            else:
                write_notes(workspace, {path: text})

        async def write_note(path: str, text: str | None) -> None:
            await asyncio.to_thread(write, path, text)

        return write_note
