"""Tells processes apart over time: a number alone is given to another process when the first has ended."""

import contextlib
import os
import socket
from pathlib import Path

__all__ = ["host", "is_gone", "start_of"]

DEAD = frozenset("ZX")
"""States of a process that has ended and that its parent has not looked after yet."""


def is_gone(pid: int, *, on_host: str, started: str | None) -> bool:
    """Say whether a process has certainly ended; of another machine or container nothing is certain.

    `on_host` and `started` are what `host` and `start_of` said when it was known to run. Looks at the disk.
    """
    if os.name != "posix" or on_host != host():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # there is one, of another user
        return False
    return start_of(pid) != started  # the number belongs to another process by now


def host() -> str:
    """Return a name of where process numbers mean the same: on Linux that is more than the machine."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}/{Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def start_of(pid: int) -> str | None:
    """Return when a process began, in the system's own ticks; None if it is dead, or cannot be told."""
    with contextlib.suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = status.rpartition(")")[2].split()
        return None if state in DEAD else fields[18]
    return None
