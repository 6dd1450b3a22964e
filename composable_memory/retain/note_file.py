"""Changes a note on the disk beside others who write it: our own processes, and editors, which lock nothing.

Our processes take turns by a lock on the note's folder. An editor puts a new file in the place of the note,
or empties and writes it, at any moment. So the changed note and the note change places in one step, and what
was there then is looked at: what an editor has saved into it meanwhile becomes the note, with the change.
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
from composable_memory.shared_file import SeenFile, exchange, remove_unchanged, written_beside
from composable_memory.supervision.file_lock import file_lock
from composable_memory.supervision.tasks import to_the_end
from composable_memory_ops_logs.private_files import sync_folder

T = TypeVar("T")
Change = Callable[[str], str]
"""Returns the text of a note with a change; the same text where the change is in it already."""

PATIENCE_S = 30.0
"""How long to wait for the lock, which others hold for milliseconds."""
ATTEMPTS, PATIENT_ATTEMPTS = 200, 3
"""How often a change is tried while others keep writing the note; after the first it is on the disk last."""
MAX_NOTE_BYTES = 8 * 1024 * 1024
LEFT_BEHIND = f".*.{'[0-9a-f]' * 12}.new"
"""What is left in the folder by a process that was killed while it wrote."""


class NoteFile(AbstractAsyncContextManager["NoteFile"]):
    """A note that is to be changed, and watched for what editors do to it until the block ends.

    async with NoteFile(workspace, "memory/2026-03-01.md") as note:
        await note.change(lambda text: text + "- more\\n")
        await index(note)
        await note.change(...)  # the same change: does nothing unless an editor has undone it
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
        """Change the note, which is made where there is none, and return its text; it is safe on the disk.

        Raises:
            NoteNotWritten: it cannot be written, or others keep writing it, or hold the lock.
        """
        return await self._alone(lambda target: self._change(target, change))

    async def remove(self, text: str) -> None:
        """Remove the note if that is still all that it says.

        Raises:
            NoteNotWritten: it cannot be removed.
        """
        await self._alone(lambda target: self._remove(target, text))

    async def _alone(self, work: Callable[[Path], T]) -> T:
        """Do something with the file while no other process changes notes of its folder."""
        try:
            target = await asyncio.to_thread(self._place)
            async with file_lock(target.parent, owner="notes", patience_s=self._patience_s) as is_ours:
                if not is_ours:
                    problem = f"another process has held the lock on its folder for {self._patience_s:g} s"
                    raise NoteNotWritten(self._path, problem, fix="try again")
                return await to_the_end(asyncio.to_thread(work, target))
        except BackendUnavailable as error:
            raise NoteNotWritten(
                self._path, error.missing, fix="keep notes on a disk that knows locks"
            ) from error
        except OSError as error:
            problem = error.strerror or str(error)
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            fix = "make room on the disk" if is_full else "see that this user may write there"
            raise NoteNotWritten(self._path, problem, fix=fix) from error

    def _place(self) -> Path:
        """Return where the note is, in a folder that exists; a link on the way is refused, as in reading."""
        try:
            target = resolve_memory_file(self._path, workspace=self._workspace, extra_paths=self._extra_paths)
        except MemoryPathError as error:
            raise NoteNotWritten(self._path, error.problem, fix="put a plain file in its place") from error
        if not self._workspace.is_dir():  # moved, or its disk is gone: what is written here nobody would find
            problem = f"the workspace {self._workspace} is not there any more"
            raise NoteNotWritten(self._path, problem, fix="put it back, or open the memory where it is now")
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(target.parent.parent)
        return target

    def _change(self, target: Path, change: Change) -> str:
        for left in target.parent.glob(LEFT_BEHIND):
            left.unlink(missing_ok=True)
        is_synced = True
        for attempt in range(ATTEMPTS):
            data = self._read(target)
            text = _text_of(data)
            wanted = change(self._with_what_editors_saved(text))
            if wanted == text:
                if not is_synced:
                    _sync(target)
                return wanted
            # Who waits for the disk is overtaken again by somebody who writes all the time.
            is_synced = attempt < PATIENT_ATTEMPTS
            with written_beside(target, _with_text(data, wanted), is_synced=is_synced) as scratch:
                if target.read_bytes() == data:
                    replaced = exchange(scratch, target)
                    replaced.data = data
                    self._replaced.append(replaced)
                    if is_synced:
                        sync_folder(target.parent)
        raise NoteNotWritten(
            self._path, "something else keeps writing it", fix="close it there, and try again"
        )

    def _remove(self, target: Path, text: str) -> None:
        if target.is_file():
            data = self._read(target)
            if _text_of(data) == text:
                remove_unchanged(target, data)

    def _with_what_editors_saved(self, text: str) -> str:
        """Return the text of the note with what was saved into files that are the note no more."""
        for saved, before in self._saved:  # an editor may have overwritten what was put back
            text = _joined(text, saved, before=before)
        for one in self._replaced:
            before = _text_of(one.data)
            if one.was_saved():
                saved = _text_of(one.data)
                text = _joined(saved, text, before=before)
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
    """Have a note that is in its place survive a power cut."""
    with opened_file(target, max_bytes=MAX_NOTE_BYTES) as (descriptor, _):
        os.fsync(descriptor)
    sync_folder(target.parent)


def _text_of(data: bytes) -> str:
    """Return the text of a note, with letters of Windows-1252 in the place of bytes that are not UTF-8."""
    return in_western(data.decode("utf-8", "surrogateescape"))


def _with_text(data: bytes, text: str) -> bytes:
    """Return what a note holds with another text: lines that stay keep their bytes."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    kept = {in_western(line): line for line in lines}
    changed = "\n".join(kept.get(line, line) for line in text.split("\n"))
    return changed.encode("utf-8", "surrogateescape")


def _joined(text: str, other: str, *, before: str) -> str:
    """Return a text with the lines that another one has gained since `before`, each below its neighbour."""
    lines, rows = text.split("\n"), other.split("\n")
    known = {*lines, *before.split("\n")}
    for above, row in pairwise(["", *rows]):
        if row not in known:
            at = len(lines) - lines[::-1].index(above) if above in lines else len(lines)
            lines.insert(at, row)
    return "\n".join(lines)


def problem_with_encoding(data: bytes) -> tuple[str, str] | None:
    """Return why a note cannot be changed, and what to do; single bytes of other encodings survive."""
    if data.startswith(UTF_16_MARKS):
        return "it is not UTF-8", "save it as UTF-8"
    return ("it holds NUL characters", "remove them") if b"\0" in data else None
