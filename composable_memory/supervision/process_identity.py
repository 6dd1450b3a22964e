"""Tells processes apart over time: the number of a process that has ended is given to another one.

psutil would be no stricter: it has no notion of PID namespaces, so that the processes of two containers with
one disk would be taken for each other, and it tells when a process began by a clock that can be set.
"""

import contextlib
import os
import socket
from pathlib import Path

DEAD = frozenset("ZX")
"""States of a process that has ended and that its parent has not waited for yet."""


def is_gone(pid: int, *, on_host: str, started: str | None) -> bool:
    """Return whether a process has certainly ended; about another machine or container nothing is certain.

    `on_host` and `started` are what `host` and `start_of` returned when it was known to run. Blocks briefly.
    """
    if os.name != "posix" or on_host != host():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # it exists and belongs to another user
        return False
    return start_of(pid) != started  # the number belongs to another process by now


def host() -> str:
    """Return a name for the scope in which PIDs are unique: on Linux that is more than the machine."""
    namespace = _pid_namespace()
    return socket.gethostname() if namespace is None else f"{socket.gethostname()}/{namespace}"


def start_of(pid: int) -> str | None:
    """Return when a process began, in the system's own ticks; None if it is dead or cannot be told."""
    with contextlib.suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = status.rpartition(")")[2].split()
        return None if state in DEAD else fields[18]
    return None


def _pid_namespace() -> str | None:
    """Return the name of our PID namespace, None if the system has no such thing."""
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return None
