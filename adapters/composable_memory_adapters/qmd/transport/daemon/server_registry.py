"""The note that says where the QMD server of a home listens, and which process it is."""

import contextlib
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from composable_memory.supervision.process_identity import host, is_gone, start_of

__all__ = ["Whereabouts", "index_id", "publish", "read", "withdraw"]


class Whereabouts(BaseModel):
    """The socket of a server, and the process it is: a number, and the host and time that make it unique.

    `index` tells QMD's database that the server has opened from one that has taken its place since.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(pattern=r"^/")
    pid: int = Field(gt=0)
    host: str
    started: str | None
    index: str | None = None


def index_id(file: Path) -> str | None:
    """Return what tells a file from another one of its name; None if there is none. Blocks."""
    try:
        status = file.stat()
    except OSError:
        return None
    return f"{status.st_dev}:{status.st_ino}"


def publish(note: Path, *, address: str, pid: int, index: str | None = None) -> Whereabouts:
    """Write down where a server listens that has just been started; blocks.

    Raises:
        OSError: the note cannot be written.
    """
    where = Whereabouts(address=address, pid=pid, host=host(), started=start_of(pid), index=index)
    fresh = note.with_suffix(f".{os.getpid()}.new")
    fresh.touch(mode=0o600)
    fresh.write_text(where.model_dump_json(), encoding="utf-8")
    fresh.replace(note)
    return where


def read(note: Path) -> Whereabouts | None:
    """Return where a server listens, unless there is none, its process has ended, or it is elsewhere; blocks.

    What another machine that shares the folder calls its own address is an address of somebody else here.
    """
    where = _written(note)
    if where is None or where.host != host():
        return None
    return None if is_gone(where.pid, on_host=where.host, started=where.started) else where


def withdraw(note: Path, *, address: str, pid: int) -> None:
    """Remove the note, if it is still about this server; blocks."""
    where = _written(note)
    if where is not None and (where.address, where.pid) == (address, pid):
        with contextlib.suppress(OSError):
            note.unlink()


def _written(note: Path) -> Whereabouts | None:
    try:
        where = Whereabouts.model_validate_json(note.read_bytes())
        # The name of a folder that is gone may have been taken by another user.
        return where if Path(where.address).parent.stat().st_uid == os.geteuid() else None
    except (OSError, ValueError):
        return None
