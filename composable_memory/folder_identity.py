"""Identifies a folder by its device, inode and birth time, even after it was moved or renamed.

Reads the disk: call it in a thread when an event loop is running.
"""

import ctypes
import os
import struct
import sys
from pathlib import Path
from typing import NamedTuple


class FolderIdentity(NamedTuple):
    """A folder as the file system knows it; `birth` is None if the file system does not report it."""

    path: Path
    device: str
    inode: str
    birth: str | None

    @classmethod
    def at(cls, path: Path) -> "FolderIdentity":
        """Return the identity of the folder at `path`.

        Raises:
            OSError: there is none.
        """
        real = path.resolve()
        found = real.stat()
        return cls(real, str(found.st_dev), str(found.st_ino), _birth_of(real, found))

    def is_same(self, seen: "FolderIdentity") -> bool:
        """Return whether `seen` is the same folder as this known one."""
        if self.birth is None or seen.birth is None:
            return self.path == seen.path
        is_same = (self.inode, self.birth) == (seen.inode, seen.birth)
        return is_same and (self.path == seen.path or self.device == seen.device)


def _birth_of(path: Path, found: os.stat_result) -> str | None:
    """Return a folder's birth time as text; from Python on macOS and Windows, from `statx` on Linux."""
    told = getattr(found, "st_birthtime_ns", None) or getattr(found, "st_birthtime", None)
    if told is not None or sys.platform != "linux":
        return None if told is None else str(told)
    # In struct statx: the mask of reported fields at 0, the inode at 32, the birth time at 80.
    at_cwd, wanted, room = -100, 0x800, ctypes.create_string_buffer(256)
    try:
        failed = ctypes.CDLL(None).statx(at_cwd, os.fsencode(path), 0, wanted, room)
    except (OSError, AttributeError):  # a C library without statx
        return None
    (mask,), (inode,) = struct.unpack_from("=I", room, 0), struct.unpack_from("=Q", room, 32)
    seconds, nanoseconds = struct.unpack_from("=qI", room, 80)
    is_told = not failed and mask & wanted and inode == found.st_ino and (seconds or nanoseconds)
    return f"{seconds}.{nanoseconds:09}" if is_told else None
