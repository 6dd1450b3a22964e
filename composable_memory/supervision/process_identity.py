"""Tells apart processes that had the same PID at different times.

psutil would be no stricter: it does not know PID namespaces, so it would confuse processes of two containers
that share a disk, and it derives start times from a clock that can be set.
"""

import contextlib
import os
import socket
from pathlib import Path

DEAD = frozenset("ZX")
"""States of a process that has ended and that its parent has not waited for."""


def is_gone(pid: int, *, on_host: str, started: str | None) -> bool:
    """Return whether a process has certainly ended, which is unknown on another machine or in a container.

    `on_host` and `started` are the values of `host` and `start_of` when it was running. Blocks briefly.
    """
    if os.name != "posix" or on_host != host():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # it exists and belongs to another user
        return False
    return start_of(pid) != started  # another process may have the PID by now


def host() -> str:
    """Return a name for the scope in which PIDs are unique: on Linux it is narrower than the machine."""
    namespace = _pid_namespace()
    return socket.gethostname() if namespace is None else f"{socket.gethostname()}/{namespace}"


def start_of(pid: int) -> str | None:
    """Return the start time of a process, in the system's own ticks; None if it is dead or unknown."""
    with contextlib.suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = status.rpartition(")")[2].split()
        return None if state in DEAD else fields[18]
    return None


def _pid_namespace() -> str | None:
    """Return the name of our PID namespace, None if the system has none."""
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return None
