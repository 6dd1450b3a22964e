"""The lock that says whether a folder has a server, and the note that says where it listens."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["is_listening", "lock", "publish", "running", "say"]

LOCK = "server.lock"
NOTE = "server.json"
ANSWER_S = 2.0
LONGEST_ANSWER = 16_384


@contextmanager
def lock(data_dir: Path) -> Iterator[int | None]:
    """Hold the lock of a folder for the time of the block, and longer where a process inherits it.

    Yields its descriptor, or None when somebody else holds it.

    Raises:
        OSError: the folder cannot be written.
    """
    descriptor = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor if _is_taken(descriptor) else None
    finally:
        os.close(descriptor)


def publish(data_dir: Path, address: Path, *, guard: int) -> None:
    """Write down where the server of a folder listens, and the process number of its guard."""
    note = data_dir / NOTE
    fresh = note.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps([str(address), guard, _namespace()]), encoding="utf-8")
    fresh.replace(note)


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
    """Say whether there is a server, though it may still be reading its journal."""
    note = _read(data_dir)
    return note is not None and _state(note.address) is not None


class _Note(NamedTuple):
    address: Path
    guard: int
    namespace: str | None

    def is_orphan(self) -> bool:
        """Say whether the guard is certainly gone; process numbers mean the same only in one namespace."""
        if self.namespace is None or self.namespace != _namespace():
            return False
        try:
            stat = Path(f"/proc/{self.guard}/stat").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return True
        return stat.rpartition(")")[2].split()[0] == "Z"  # ended, and nobody took note


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(data_dir: Path) -> _Note | None:
    try:
        address, guard, namespace = json.loads((data_dir / NOTE).read_text(encoding="utf-8"))
        note = _Note(Path(address), int(guard), namespace)
        # A name of a folder that is gone may have been taken by another user.
        return note if note.address.parent.stat().st_uid == os.geteuid() else None
    except (OSError, TypeError, ValueError):
        return None


def _state(address: Path) -> Literal["ready", "loading"] | None:
    answer = say(address, b"PING\r\n")
    if answer.startswith(b"+PONG"):
        return "ready"
    return "loading" if answer.startswith(b"-LOADING") else None


def _shut_down(address: Path) -> None:
    """End a server and clear up after it, as its guard would have done."""
    say(address, b"SHUTDOWN NOSAVE\r\n")
    with contextlib.suppress(OSError):
        address.unlink(missing_ok=True)
        address.parent.rmdir()


def say(address: Path, words: bytes) -> bytes:
    """Say something to the server at a socket, and return what it says to that; nothing if there is none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(ANSWER_S)
        line.connect(str(address))
        line.sendall(words)
        return line.recv(LONGEST_ANSWER)
    return b""


def _namespace() -> str | None:
    """Return a name of where process numbers mean the same, where the system has one."""
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return None
