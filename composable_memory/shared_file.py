"""Replaces and removes files that editors and agents save too, without losing what they save in that moment.

Editors take no locks. Some replace the file with a new one, others truncate it and write it again, at any
moment. So we first move the file away from its name in one step, and then check its content: if somebody has
saved it in between, it gets its name back.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from composable_memory.paths import MAX_FILE_BYTES, opened_file
from composable_memory_ops_logs.private_files import sync_folder

SETTLE_S = 0.01
SETTLE_STEPS = 200
"""How long, and how often, to wait for an editor that has truncated a file and is about to write it."""
AT_CWD, EXCHANGE = -100, 2


class SeenFile:
    """A file as it was read. It stays open, so that later writes are seen even after it lost its name."""

    def __init__(self, target: Path, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._open = ExitStack()
        self._descriptor, self.found = self._open.enter_context(opened_file(target, max_bytes=max_bytes))
        self.data = self._now()

    def has_changed(self) -> bool:
        """Return whether somebody has saved the file since it was read; if so, read it again."""
        before = self.data
        if not self.is_being_written() and self._now() == before:
            return False
        self.settle()
        return self.data != before

    def settle(self) -> None:
        """Read the file once nobody is writing it any more."""
        for _ in range(SETTLE_STEPS):
            before, self.data = self.data, self._now()
            if self.data and self.data == before and not self.is_being_written():
                break
            time.sleep(SETTLE_S)

    def is_being_written(self) -> bool:
        """Return whether somebody has the file open for writing; only Linux can tell."""
        if sys.platform != "linux":
            return False
        try:
            # If someone opens the file right now, the kernel sends us a signal, by default one that would
            # kill us.
            fcntl.fcntl(self._descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError as error:
            return error.errno == errno.EAGAIN
        return False

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def _now(self) -> bytes:
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, size + 1, 0)


def holds(target: Path, data: bytes) -> bool:
    """Return whether this is what a file contains; False where there is none."""
    try:
        with closing(SeenFile(target)) as seen:
            return seen.data == data
    except FileNotFoundError:  # or it is a link by now
        return False


def replace_unchanged(target: Path, before: bytes, after: bytes) -> bool:
    """Replace the content of a file if it is still `before`; otherwise leave it alone and return False.

    Raises:
        OSError: it cannot be written; then it is unchanged.
    """
    if not holds(target, before):
        return False
    with written_beside(target, after, is_synced=True) as scratch:
        if not holds(target, before):  # writing took a while
            return False
        there, put = before, after
        while (found := _exchanged(scratch, target, there)) != there:  # saved in between: put that back
            there, put = put, found
        sync_folder(target.parent)
        return put is after


def remove_unchanged(target: Path, before: bytes) -> bool:
    """Remove a file if it is still `before` and nobody is writing it; otherwise leave it and return False.

    Raises:
        OSError: it cannot be removed.
    """
    if not holds(target, before):
        return False
    aside = name_beside(target)
    target.rename(aside)
    try:
        with closing(SeenFile(aside)) as seen:
            is_as_before = seen.data == before and not (seen.has_changed() or seen.is_being_written())
        if is_as_before:
            aside.unlink()
    finally:
        if os.path.lexists(aside):
            _put_back(aside, target)
    sync_folder(target.parent)
    return is_as_before


@contextmanager
def written_beside(target: Path, content: bytes, *, is_synced: bool) -> Iterator[Path]:
    """Yield a file beside `target` with other content and the same attributes; it is removed at the end."""
    scratch, found = name_beside(target), target.stat()
    try:
        with os.fdopen(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "wb") as file:
            with suppress(OSError):
                shutil.copystat(target, scratch)  # permissions, and tags set by desktop programs
            file.write(content)
            os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
            with suppress(OSError):  # only root may change the owner
                os.fchown(file.fileno(), found.st_uid, found.st_gid)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


def exchange(scratch: Path, target: Path) -> SeenFile:
    """Swap the names of two files, atomically where the system can; return the former target."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # not in every C library
            rename = ctypes.CDLL(None).renameat2
            if rename(AT_CWD, os.fsencode(scratch), AT_CWD, os.fsencode(target), EXCHANGE) == 0:
                return SeenFile(scratch)
    replaced = SeenFile(target)
    scratch.replace(target)
    scratch.write_bytes(replaced.data)
    return replaced


def name_beside(target: Path) -> Path:
    """Return an unused hidden name in the same folder, like those of `private_files.replacing`."""
    return target.with_name(f".{target.name}.{os.urandom(6).hex()}.new")


def _exchanged(scratch: Path, target: Path, expected: bytes) -> bytes:
    """Swap the names of two files; return what the former target contains, once nobody is writing it."""
    with closing(exchange(scratch, target)) as there:
        there.data = expected
        there.has_changed()
        return there.data


def _put_back(aside: Path, target: Path) -> None:
    """Give a file its name back; if another file has taken it, keep both."""
    try:
        os.link(aside, target)
    except OSError:  # the name is taken, or the file system has no hard links
        is_there = os.path.lexists(target)
        aside.rename(target.with_stem(f"{target.stem}-{os.urandom(3).hex()}") if is_there else target)
    else:
        aside.unlink()
