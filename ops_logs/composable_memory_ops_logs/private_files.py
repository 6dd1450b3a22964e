"""Files and folders that only their owner may read: created, replaced atomically, and locked."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

if sys.platform != "win32":
    import fcntl

# O_BINARY exists on Windows only; without it every newline would become two characters there.
BINARY = getattr(os, "O_BINARY", 0)
Survives: TypeAlias = Literal["kill", "power cut"]
"""What a replaced file survives: a killed process, at no cost, or a power cut, which waits for the disk."""


def make_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents for their owner only; existing ones are unchanged.

    Raises:
        OSError: it cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def replace_file(target: Path, content: bytes, *, survives: Survives) -> None:
    """Replace the content of `target` atomically.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    with replacing(target, survives=survives) as scratch:
        scratch.write_bytes(content)


@contextmanager
def replacing(target: Path, *, survives: Survives) -> Iterator[Path]:
    """Yield the path of an empty file that replaces `target` if the block succeeds.

    with replacing(folder / "report.json", survives="kill") as scratch:
        scratch.write_text(report)

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    scratch = target.with_name(f".{target.name}.{os.urandom(6).hex()}.new")
    os.close(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        yield scratch
        if survives == "power cut":
            with scratch.open("rb") as written:
                os.fsync(written.fileno())
        scratch.replace(target)
        if survives == "power cut":
            sync_folder(target.parent)
    finally:
        scratch.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    if sys.platform != "win32":  # where folders cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def lock_file(descriptor: int, *, is_patient: bool = True) -> bool | None:
    """Lock a file against other processes until the descriptor is closed; False if another one has the lock.

    None if locks are not supported: lines stay whole without them, but what looks like a truncated line may
    be one that is just being written.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if is_patient else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        except OSError:  # some network file systems
            return None
        return True
    return None
