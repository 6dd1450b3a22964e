"""The lock that says whether a folder has a server, and the note that says where it listens."""

import contextlib
import json
import os
import socket
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple

from composable_memory.supervision.file_lock import hold_lock
from composable_memory.supervision.process_identity import pid_namespace, start_of
from composable_memory_ops_logs.private_files import replace_file

LOCK = "server.lock"
NOTE = "server.json"
ANSWER_S = 2.0
LONGEST_ANSWER = 16_384


def lock(data_dir: Path) -> AbstractContextManager[int | None]:
    """Hold the lock that says that a folder has a server, see `hold_lock`; the server inherits it."""
    return hold_lock(data_dir / LOCK)


def publish(data_dir: Path, address: Path, *, guard: int) -> None:
    """Write down where the server of a folder listens, and the process number of its guard."""
    note = data_dir / NOTE
    text = json.dumps([str(address), guard, pid_namespace()])
    replace_file(note, text.encode(), survives="kill")


def running(data_dir: Path) -> Path | None:
    """Return the socket of the folder's server, if it answers and has somebody to stop it."""
    note = _read(data_dir)
    if note is None or _state(note.address) != "ready":
        return None
    if note.is_orphan():
        _shut_down(note.address)
        return None
    return note.address


def is_listening(data_dir: Path) -> bool:
    """Return whether there is a server, though it may still be reading its journal."""
    note = _read(data_dir)
    return note is not None and _state(note.address) is not None


class _Note(NamedTuple):
    address: Path
    guard: int
    namespace: str | None

    def is_orphan(self) -> bool:
        """Return whether the guard is certainly gone; process numbers mean the same only in one namespace."""
        is_from_here = self.namespace is not None and self.namespace == pid_namespace()
        return is_from_here and start_of(self.guard) is None


def _read(data_dir: Path) -> _Note | None:
    try:
        address, guard, namespace = json.loads((data_dir / NOTE).read_text(encoding="utf-8"))
        note = _Note(Path(address), int(guard), namespace)
        # A name of a folder that is gone may have been taken by another user.
        return note if note.address.parent.stat().st_uid == os.geteuid() else None
    except (OSError, TypeError, ValueError):
        return None


def _state(address: Path) -> Literal["ready", "loading"] | None:
    answer = send(address, b"PING\r\n")
    if answer.startswith(b"+PONG"):
        return "ready"
    return "loading" if answer.startswith(b"-LOADING") else None


def _shut_down(address: Path) -> None:
    """End a server and clear up after it, as its guard would have done."""
    send(address, b"SHUTDOWN NOSAVE\r\n")
    with contextlib.suppress(OSError):
        address.unlink(missing_ok=True)
        address.parent.rmdir()


def send(address: Path, command: bytes) -> bytes:
    """Send a command to the server at a socket, and return its answer; nothing if there is none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(str(address))
        connection.sendall(command)
        return connection.recv(LONGEST_ANSWER)
    return b""
