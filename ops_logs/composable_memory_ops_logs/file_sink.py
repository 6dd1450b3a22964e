"""Where events end up: the files of a log, or a list for tests."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from composable_memory_ops_logs.events import EventDetail, OpsEvent
from composable_memory_ops_logs.line_format import placed
from composable_memory_ops_logs.private_files import BINARY, lock_file, make_private_folder
from composable_memory_ops_logs.retention import Judged, Retention
from composable_memory_ops_logs.segments import (
    BLOCK_BYTES,
    Segment,
    note_length,
    noted_length,
    segments_in,
)

_OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY
_MOST_OPEN_BYTES = 16 * BLOCK_BYTES
_LEAST_OPEN_BYTES = 64 * 1024
_OPEN_SHARE = 16
"""An open file may take up at most this fraction of the total size."""

Detail = TypeVar("Detail", bound=EventDetail)


class FileSink:
    """Appends lines to `ops-YYYY-MM-DD.NNNN.jsonl` in a directory that is created when first needed.

    Several processes may append to the same file: a batch is one write in append mode, under a lock. A file's
    first line has the length of the file before it, and a sidecar file the length written so far, so that
    missing whole lines are noticed. `retention` compresses files that are full or of an earlier day, and
    deletes the oldest. Files and directory are readable by their owner only, because queries and previews are
    private.
    """

    def __init__(
        self,
        directory: Path,
        *,
        retention_days: int,
        max_bytes: int,
        judged: Judged | None = None,
        judged_days: int = 365,
    ) -> None:
        self._directory = directory
        self._most_open = min(_MOST_OPEN_BYTES, max(_LEAST_OPEN_BYTES, max_bytes // _OPEN_SHARE))
        self._current: Segment | None = None
        self.retention = Retention(
            directory,
            retention_days=retention_days,
            max_bytes=max_bytes,
            most_open=self._most_open,
            judged=judged,
            judged_days=judged_days,
        )
        self.files_begun = 0
        """Incremented whenever this sink moves on to another file."""

    def append(self, day: str, lines: Sequence[bytes]) -> None:
        """Append complete lines of a UTC day, each with its newline, in one write.

        Raises:
            OSError: they could not all be written.
        """
        segment = self._current
        if segment is None or segment.period != day:
            segment = self._last_of(day)
        while not self._append_to(segment, b"".join(lines)):
            segment = self._next_after(segment)
        if segment != self._current:
            self._current = segment
            self.files_begun += 1

    # --- appending ---

    def _append_to(self, segment: Segment, data: bytes) -> bool:
        """Append to a file; False if the caller must begin another."""
        if segment == self.retention.closing:  # we hold its lock ourselves
            return False
        descriptor = self._open(segment.open_path)
        try:
            is_alone = lock_file(descriptor)
            state = os.fstat(descriptor)
            if state.st_nlink == 0 or state.st_size >= self._most_open:
                return False
            if segment.closed_path.exists() or segment.kept_path.exists():
                if state.st_size == 0:  # new, because another process has closed the file
                    segment.open_path.unlink()
                return False
            written = state.st_size
            if _ends_within_a_line(descriptor):
                data = b"\n" + data
            elif is_alone:  # without locks, another process may be writing
                written = max(written, noted_length(segment))  # the file is shorter if lines were lost
                first = data.index(b"\n") + 1
                data = placed(data[:first], written) + data[first:]
            if (fitted := os.write(descriptor, data)) < len(data):
                if is_alone:  # half a line would count as damage for as long as the file is kept
                    os.ftruncate(descriptor, state.st_size + data.rfind(b"\n", 0, fitted) + 1)
                raise OSError(errno.ENOSPC, "the lines did not fit", str(segment.open_path))
            if is_alone:
                with suppress(OSError):  # the next note of the length will reveal any loss
                    note_length(segment, written + len(data))
            return True
        finally:
            os.close(descriptor)

    def _last_of(self, day: str) -> Segment:
        of_day = [one for one in segments_in(self._directory) if one.period == day]
        return of_day[-1] if of_day else Segment(day, 1, self._directory)

    def _next_after(self, segment: Segment) -> Segment:
        last = self._last_of(segment.period)
        return last if last > segment else Segment(segment.period, segment.number + 1, self._directory)

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, _OPEN_FLAGS, 0o600)
        except FileNotFoundError:
            if self.files_begun:  # do not recreate its parent: whoever deleted that has no use for a log
                self._directory.mkdir(mode=0o700, exist_ok=True)
            else:
                make_private_folder(self._directory)
            return os.open(path, _OPEN_FLAGS, 0o600)


class MemorySink:
    """A listener that keeps every event: `log.subscribe(sink)`, then inspect `sink.events`."""

    def __init__(self) -> None:
        self.events: list[OpsEvent] = []

    def __call__(self, event: OpsEvent) -> None:
        """Keep an event."""
        self.events.append(event)

    @property
    def actions(self) -> list[str]:
        """Return the actions of the events, in the order they were emitted."""
        return [event.action for event in self.events]

    def details(self, kind: type[Detail]) -> list[Detail]:
        """Return the details of one kind, in the order they were emitted."""
        return [event.detail for event in self.events if isinstance(event.detail, kind)]


def _ends_within_a_line(descriptor: int) -> bool:
    """Return whether the file's last line is truncated, by a full disk or a killed process."""
    if os.lseek(descriptor, 0, os.SEEK_END) == 0:
        return False
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) != b"\n"
