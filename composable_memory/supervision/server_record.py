"""Where a shared server listens, and which process runs it: a file beside its data."""

import contextlib
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from composable_memory.supervision.process_identity import host, is_gone, start_of
from composable_memory_ops_logs.private_files import replace_file


class ServerRecord(BaseModel):
    """The socket of a server, and the process that runs or ends it. Whatever reads the disk blocks.

    `host` and `started` tell that process from others with the same PID. `index` identifies the file that the
    server has open, in case it is replaced.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(pattern=r"^/")
    pid: int = Field(gt=0)
    host: str
    started: str | None
    index: str | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the process has certainly ended; on another machine that is unknown."""
        return is_gone(self.pid, on_host=self.host, started=self.started)

    @property
    def runs_here(self) -> bool:
        """Return whether the process is on this machine; the address of another machine's is useless here."""
        return self.host == host() and not self.has_ended


def publish_record(file: Path, *, address: str, pid: int, index: str | None = None) -> ServerRecord:
    """Record where a newly started server listens.

    Raises:
        OSError: the file cannot be written.
    """
    record = ServerRecord(address=address, pid=pid, host=host(), started=start_of(pid), index=index)
    replace_file(file, record.model_dump_json().encode(), survives="kill")
    return record


def read_record(file: Path) -> ServerRecord | None:
    """Return the last record; None if there is none, or the socket cannot be this user's."""
    try:
        record = ServerRecord.model_validate_json(file.read_bytes())
        # The folder may have been deleted, and created again by another user.
        return record if Path(record.address).parent.stat().st_uid == os.geteuid() else None
    except (OSError, ValueError):
        return None


def withdraw_record(file: Path, *, address: str, pid: int) -> None:
    """Remove the record if it is still about this server."""
    record = read_record(file)
    if record is not None and (record.address, record.pid) == (address, pid):
        with contextlib.suppress(OSError):
            file.unlink()
