"""Files that only their owner may read, replaced in one step: a reader sees the old or the new one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

Survives: TypeAlias = Literal["kill", "power cut"]
"""What a replaced file outlasts: a killed process, at no cost, or a power cut, which waits for the disk."""


def replace_file(target: Path, content: bytes, *, survives: Survives) -> None:
    """Make `content` the content of `target`.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    with replacing(target, survives=survives) as scratch:
        scratch.write_bytes(content)


@contextmanager
def replacing(target: Path, *, survives: Survives) -> Iterator[Path]:
    """Yield the path of an empty file beside `target`, which takes its place when the block ends well.

    with replacing(folder / "report.json", survives="kill") as scratch:
        scratch.write_text(report)

    Raises:
        OSError: it cannot be written; what was there stays.
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
    """Have the names in a folder survive a power cut."""
    if sys.platform != "win32":  # which opens no folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
