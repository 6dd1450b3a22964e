"""Where events end up: monthly files, or a list for tests."""

import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from composable_memory_ops_logs.events import EventDetail, OpsEvent

if sys.platform != "win32":
    import fcntl

__all__ = ["FileSink", "MemorySink", "month_files", "month_of"]

_NAME = re.compile(r"ops-(\d{4})-(0[1-9]|1[0-2])\.jsonl")
# O_BINARY exists on Windows only; without it every newline would become two characters there.
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)

Detail = TypeVar("Detail", bound=EventDetail)


def month_of(ts: datetime) -> str:
    """Return the UTC month of a time as `YYYY-MM`."""
    return ts.astimezone(UTC).isoformat()[:7]


def month_files(directory: Path) -> list[tuple[str, Path]]:
    """Return the log files of a directory with their months, oldest first; none when it does not exist.

    Raises:
        OSError: the directory cannot be listed.
    """
    try:
        found = [(match, path) for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))]
    except FileNotFoundError:
        return []
    return sorted((f"{match[1]}-{match[2]}", path) for match, path in found)


class FileSink:
    """Appends lines to `ops-YYYY-MM.jsonl` in a directory that is made when first needed.

    Several processes may append to the same file: a batch is one write in append mode, under a lock. Files
    and directory are readable by their owner only, because queries and previews are private.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path_of(self, month: str) -> Path:
        """Return the file of a month given as `YYYY-MM`."""
        return self._directory / f"ops-{month}.jsonl"

    def append(self, month: str, lines: Sequence[bytes]) -> None:
        """Append whole lines, each with its newline, in one write.

        Raises:
            OSError: they could not all be written.
        """
        descriptor = self._open(self.path_of(month))
        try:
            _lock(descriptor)
            data = b"".join(lines)
            if _ends_within_a_line(descriptor):
                data = b"\n" + data
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, "the lines did not fit", str(self.path_of(month)))
        finally:
            os.close(descriptor)

    def prune(self, now: datetime, retention_days: int) -> None:
        """Delete the files whose month had ended `retention_days` before `now`; never the current month's.

        Raises:
            OSError: a file cannot be deleted, or the directory cannot be listed.
        """
        # A month has ended at a moment exactly if it comes before the month of that moment.
        kept_from = month_of(now - timedelta(days=retention_days))
        for month, path in month_files(self._directory):
            if month < kept_from:
                with suppress(FileNotFoundError):  # another process was quicker
                    path.unlink()

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, _OPEN_FLAGS, 0o600)
        except FileNotFoundError:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, _OPEN_FLAGS, 0o600)


class MemorySink:
    """A listener that keeps every event: `log.subscribe(sink)`, then look at `sink.events`."""

    def __init__(self) -> None:
        self.events: list[OpsEvent] = []

    def __call__(self, event: OpsEvent) -> None:
        """Keep an event."""
        self.events.append(event)

    @property
    def actions(self) -> list[str]:
        """The actions of the events, in the order they were emitted."""
        return [event.action for event in self.events]

    def details(self, kind: type[Detail]) -> list[Detail]:
        """Return the details of one kind, in the order they were emitted."""
        return [event.detail for event in self.events if isinstance(event.detail, kind)]


def _lock(descriptor: int) -> None:
    """Wait for other processes that append; closing the descriptor ends the lock."""
    # Lines would stay whole without it. But what looks like a cut line may be one that is being written.
    if sys.platform != "win32":
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def _ends_within_a_line(descriptor: int) -> bool:
    """Tell whether the file's last line was cut, by a full disk or a killed process."""
    if os.lseek(descriptor, 0, os.SEEK_END) == 0:
        return False
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) != b"\n"
