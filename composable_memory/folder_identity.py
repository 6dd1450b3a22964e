"""Which folder a folder is: known again by its device, inode and birth time, though it was moved or renamed.

Looks at the disk, so call it in a thread where an event loop runs.
"""

import ctypes
import os
import struct
import sys
from pathlib import Path
from typing import NamedTuple


class FolderIdentity(NamedTuple):
    """A folder as the disk knows it; `birth` is None where the file system does not tell."""

    path: Path
    device: str
    inode: str
    birth: str | None

    @classmethod
    def at(cls, path: Path) -> "FolderIdentity":
        """Return the folder at `path`.

        Raises:
            OSError: there is none.
        """
        real = path.resolve()
        found = real.stat()
        return cls(real, str(found.st_dev), str(found.st_ino), _birth_of(real, found))

    def is_same(self, seen: "FolderIdentity") -> bool:
        """Return whether a folder that was seen is this one, which is known."""
        if self.birth is None or seen.birth is None:
            return self.path == seen.path
        is_same = (self.inode, self.birth) == (seen.inode, seen.birth)
        return is_same and (self.path == seen.path or self.device == seen.device)


def _birth_of(path: Path, found: os.stat_result) -> str | None:
    """Return when a folder was made, as text; Python tells it on macOS and Windows, Linux by `statx`."""
    told = getattr(found, "st_birthtime_ns", None) or getattr(found, "st_birthtime", None)
    if told is not None or sys.platform != "linux":
        return None if told is None else str(told)
    # Of struct statx: the mask of what is told at 0, the inode at 32, the time of birth at 80.
    at_cwd, wanted, room = -100, 0x800, ctypes.create_string_buffer(256)
    try:
        failed = ctypes.CDLL(None).statx(at_cwd, os.fsencode(path), 0, wanted, room)
    except (OSError, AttributeError):  # a C library without it
        return None
    (mask,), (inode,) = struct.unpack_from("=I", room, 0), struct.unpack_from("=Q", room, 32)
    seconds, nanoseconds = struct.unpack_from("=qI", room, 80)
    is_told = not failed and mask & wanted and inode == found.st_ino and (seconds or nanoseconds)
    return f"{seconds}.{nanoseconds:09}" if is_told else None
