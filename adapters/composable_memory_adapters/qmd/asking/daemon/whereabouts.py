"""The note that says where the QMD server of a home listens, and which process it is."""

import contextlib
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from composable_memory_adapters.process_identity import host, is_gone, start_of

__all__ = ["Whereabouts", "index_id", "publish", "read", "withdraw"]

LAST_PORT = 65_535


class Whereabouts(BaseModel):
    """Where a server listens, and the process it is: a number, and the host and time that make it unique.

    `index` tells QMD's database that the server has opened from one that has taken its place since.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(pattern=r"^http://127\.0\.0\.1:[0-9]{1,5}$")
    pid: int = Field(gt=0)
    host: str
    started: str | None
    index: str | None = None

    @field_validator("address")
    @classmethod
    def _with_a_port(cls, address: str) -> str:
        if int(address.rpartition(":")[2]) > LAST_PORT:
            raise ValueError("there is no such port")
        return address


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
        return Whereabouts.model_validate_json(note.read_bytes())
    except (OSError, ValidationError):
        return None
