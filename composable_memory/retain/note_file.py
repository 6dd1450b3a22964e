"""Edits a note on disk while others write it: our own processes, and editors, which do not lock.

Our processes exclude each other by a lock on the note's folder. An editor may replace the note, or truncate
and rewrite it, at any moment. So the edited note and the original are exchanged atomically, and then the
original is checked: whatever an editor has saved into it meanwhile becomes the note again, with the edit
applied.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from composable_memory.errors import BackendUnavailable, MemoryPathError, NoteNotWritten
from composable_memory.paths import UTF_16_MARKS, in_western, opened_file, resolve_memory_file
from composable_memory.shared_file import SeenFile, exchange, holds, remove_unchanged, written_beside
from composable_memory.supervision.file_lock import file_lock
from composable_memory.supervision.tasks import to_the_end
from composable_memory_ops_logs.private_files import sync_folder

T = TypeVar("T")
Change = Callable[[str], str]
"""Returns the edited text of a note, or the same text if the edit is already there."""

PATIENCE_S = 30.0
"""How long to wait for the lock, which is normally held for milliseconds."""
ATTEMPTS, PATIENT_ATTEMPTS = 200, 3
"""How often to retry while others keep writing the note; later attempts sync to disk only at the end."""
MAX_NOTE_BYTES = 8 * 1024 * 1024
LEFT_BEHIND = f".*.{'[0-9a-f]' * 12}.new"
"""Pattern of the files that a killed process leaves behind."""


def require_workspace(workspace: Path, path: str) -> None:
    """Refuse to write into a workspace that was moved, or whose disk is gone: nobody would find the note.

    Raises:
        NoteNotWritten: the folder is not there.
    """
    if not workspace.is_dir():
        problem = f"the workspace {workspace} no longer exists"
        raise NoteNotWritten(path, problem, fix="put it back, or open the memory at its new place")


class NoteFile(AbstractAsyncContextManager["NoteFile"]):
    """A note to edit, watched for changes by editors until the block ends.

    async with NoteFile(workspace, "memory/2026-03-01.md") as note:
        await note.change(lambda text: text + "- more\\n")
        await index(note)
        await note.change(...)  # the same edit: does nothing unless an editor has undone it
    """

    def __init__(
        self,
        workspace: Path,
        path: str,
        *,
        extra_paths: Sequence[Path] = (),
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._workspace = workspace
        self._extra_paths = extra_paths
        self._path = path
        self._patience_s = patience_s
        self._replaced: list[SeenFile] = []
        self._saved: list[tuple[str, str]] = []

    async def __aexit__(self, *_: object) -> None:
        for one in self._replaced:
            one.close()

    async def change(self, change: Change) -> str:
        """Edit the note, creating it if missing, and return its text, which is then safely on disk.

        Raises:
            NoteNotWritten: it cannot be written, or others keep writing it, or hold the lock.
        """
        return await self._locked(lambda target: self._change_or_leave(target, change))

    async def remove(self, text: str) -> None:
        """Remove the note if it still has exactly this text.

        Raises:
            NoteNotWritten: it cannot be removed.
        """
        await self._locked(lambda target: self._remove(target, text))

    async def _locked(self, work: Callable[[Path], T]) -> T:
        """Do something with the file while no other process changes notes in its folder."""
        try:
            target = await asyncio.to_thread(self._place)
            async with file_lock(target.parent, owner="notes", patience_s=self._patience_s) as is_ours:
                if not is_ours:
                    problem = f"another process has held the lock on its folder for {self._patience_s:g} s"
                    raise NoteNotWritten(self._path, problem, fix="try again")
                return await to_the_end(asyncio.to_thread(work, target))
        except BackendUnavailable as error:
            raise NoteNotWritten(
                self._path, error.missing, fix="keep notes on a disk that supports locks"
            ) from error
        except OSError as error:
            problem = error.strerror or str(error)
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            fix = "free some disk space" if is_full else "make it writable for this user"
            raise NoteNotWritten(self._path, problem, fix=fix) from error

    def _place(self) -> Path:
        """Return the path of the note, in an existing folder; links on the way are refused, as in reading."""
        try:
            target = resolve_memory_file(self._path, workspace=self._workspace, extra_paths=self._extra_paths)
        except MemoryPathError as error:
            raise NoteNotWritten(self._path, error.problem, fix="replace it with a regular file") from error
        require_workspace(self._workspace, self._path)
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(target.parent.parent)
        return target

    def _change_or_leave(self, target: Path, change: Change) -> str:
        is_new = not target.exists()
        try:
            return self._change(target, change)
        finally:
            if is_new:  # a full disk leaves no empty note behind
                remove_unchanged(target, b"")

    def _change(self, target: Path, change: Change) -> str:
        for left in target.parent.glob(LEFT_BEHIND):
            left.unlink(missing_ok=True)
        is_synced = True
        for attempt in range(ATTEMPTS):
            data = self._read(target)
            text = _text_of(data)
            wanted = change(self._merge_saved(text))
            if wanted == text:
                if not is_synced:
                    _sync(target)
                return wanted
            # While we wait for the disk, a program that writes all the time gets ahead of us again.
            is_synced = attempt < PATIENT_ATTEMPTS
            with written_beside(target, _with_text(data, wanted), is_synced=is_synced) as scratch:
                if holds(target, data):
                    replaced = exchange(scratch, target)
                    replaced.data = data
                    self._replaced.append(replaced)
                    if is_synced:
                        sync_folder(target.parent)
        raise NoteNotWritten(
            self._path, "another program keeps writing it", fix="close it there, and try again"
        )

    def _remove(self, target: Path, text: str) -> None:
        if target.is_file():
            data = self._read(target)
            if _text_of(data) == text:
                remove_unchanged(target, data)

    def _merge_saved(self, text: str) -> str:
        """Return the text of the note merged with whatever was saved into replaced files."""
        for saved, before in self._saved:  # an editor may have overwritten what was restored
            text = _merge_lines(text, saved, before=before)
        for one in self._replaced:
            before = _text_of(one.data)
            if one.has_changed():
                saved = _text_of(one.data)
                text = _merge_lines(saved, text, before=before)
                self._saved.append((saved, before))
        return text

    def _read(self, target: Path) -> bytes:
        is_made = False
        while True:
            try:
                seen = SeenFile(target, max_bytes=MAX_NOTE_BYTES)
            except FileNotFoundError:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                is_made = True
                continue
            with closing(seen):
                if seen.is_being_written() or not (seen.data or is_made):
                    seen.settle()
            problem = problem_with_encoding(seen.data)
            if not seen.found.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
                problem = ("it is read-only", "allow writing to it")
            if problem:
                raise NoteNotWritten(self._path, problem[0], fix=problem[1])
            return seen.data


def _sync(target: Path) -> None:
    """Make a note that was exchanged survive a power cut."""
    with opened_file(target, max_bytes=MAX_NOTE_BYTES) as (descriptor, _):
        os.fsync(descriptor)
    sync_folder(target.parent)


def _text_of(data: bytes) -> str:
    """Return the text of a note; bytes that are not UTF-8 are read as Windows-1252."""
    return in_western(data.decode("utf-8", "surrogateescape"))


def _with_text(data: bytes, text: str) -> bytes:
    """Return the bytes of a note with another text; unchanged lines keep their bytes."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    kept = {in_western(line): line for line in lines}
    changed = "\n".join(kept.get(line, line) for line in text.split("\n"))
    return changed.encode("utf-8", "surrogateescape")


def _merge_lines(text: str, other: str, *, before: str) -> str:
    """Add to `text` the lines that `other` has gained since `before`, each below the same neighbour."""
    lines, rows = text.split("\n"), other.split("\n")
    known = {*lines, *before.split("\n")}
    for above, row in pairwise(["", *rows]):
        if row not in known:
            at = len(lines) - lines[::-1].index(above) if above in lines else len(lines)
            lines.insert(at, row)
    return "\n".join(lines)


def problem_with_encoding(data: bytes) -> tuple[str, str] | None:
    """Return why a note cannot be changed, and how to fix it; stray bytes of other encodings survive."""
    if data.startswith(UTF_16_MARKS):
        return "it is not UTF-8", "save it as UTF-8"
    return ("it holds NUL characters", "remove them") if b"\0" in data else None
