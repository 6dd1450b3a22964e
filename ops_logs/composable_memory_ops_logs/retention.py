"""Compresses closed files of a log, and deletes those that are too old or too much."""

import os
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, TypeAlias

import orjson

from composable_memory_ops_logs.private_files import BINARY, lock_file, sync_folder
from composable_memory_ops_logs.segments import (
    BlockWriter,
    Segment,
    blocks_of,
    day_of,
    index_path,
    lines_backwards,
    noted_length,
    segments_in,
    write_index,
)

LOCK_NAME = "ops.lock"

Judged: TypeAlias = Callable[[], Collection[str]]
"""Returns the traces with judgements, or raises an `OSError` if they cannot be determined."""


class Retention:
    """Keeps the files of a log within limits of time and size, while other processes append to them.

    Lines of traces in `judged` outlive their file: for `judged_days`, within another `max_bytes`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        retention_days: int,
        max_bytes: int,
        most_open: int,
        judged: Judged | None = None,
        judged_days: int = 365,
    ) -> None:
        self._directory = directory
        self._retention_days = retention_days
        self._max_bytes = max_bytes
        self._most_open = most_open
        self._judged = judged
        self._judged_days = judged_days
        self.closing: Segment | None = None
        """The file whose lock we hold at the moment."""

    def apply(self, now: datetime) -> Generator[None]:
        """Compress closed files and delete what is too old or too much, step by step.

        Only one process at a time does this. Whenever it stops, killed or closed, nothing is lost or
        duplicated: a file appears under its name only when complete, and thereby replaces another.

        Raises:
            OSError: something cannot be read, written or deleted; the rest can be tried again.
        """
        with maintenance_lock(self._directory, is_patient=False) as is_mine:
            if is_mine is False:
                return
            problem: OSError | None = None
            try:
                if is_mine:
                    yield from self._compress_closed(now)
            except OSError as error:  # there may be no room to compress now, but later
                problem = error
            yield from self._drop_old(now)
            if problem is not None:
                raise problem

    def _clear_scratch(self) -> None:
        """Delete what a process that was killed during maintenance has left."""
        for path in (*self._directory.glob("ops-*.tmp"), *self._directory.glob(".ops-*.new")):
            path.unlink(missing_ok=True)

    def _closed_segments(self, today: str) -> list[Segment]:
        """Return the uncompressed files to which nothing is appended any more."""
        sizes = _sizes_in(self._directory)
        return [
            one
            for one in segments_in(self._directory)
            if (size := sizes.get(one.open_path.name)) is not None
            and (one.is_over(today) or (one.number > 0 and size >= self._most_open))
        ]

    def _compress_closed(self, now: datetime) -> Generator[None]:
        self._clear_scratch()
        for segment in self._closed_segments(day_of(now)):
            yield from self._compress(segment)

    def _compress(self, segment: Segment) -> Generator[None]:
        """Replace an open file by a compressed one."""
        with self._locked_open(segment) as file:
            if file is not None and not segment.closed_path.exists():  # a process may have been killed here
                yield from write_closed(segment.closed_path, blocks_of(file, noted_length(segment)))
            segment.open_path.unlink(missing_ok=True)

    @contextmanager
    def _locked_open(self, segment: Segment) -> Iterator[BinaryIO | None]:
        """Lock an open file, so that nothing is appended to it: waiting processes then use another."""
        try:
            descriptor = os.open(segment.open_path, os.O_RDWR | BINARY)
        except FileNotFoundError:
            yield None
            return
        with os.fdopen(descriptor, "rb") as file:
            self.closing = segment
            try:
                lock_file(file.fileno())
                yield file
            finally:
                self.closing = None

    def _drop_old(self, now: datetime) -> Generator[None]:
        """Delete files that are too old, and the oldest while all take too much; never one being written."""
        today, first_day = day_of(now), day_of(now - timedelta(days=self._retention_days))
        sizes, stored = _sizes_in(self._directory), dict[Segment, int]()
        kept = dict[Segment, int]()
        for one in segments_in(self._directory):
            # An earlier version that is still running appends to the file of its month.
            if one.number or one.is_over(today):
                stored[one] = sum(sizes.get(path.name, 0) for path in _files_of(one))
                if not stored[one]:
                    kept[one] = sizes.get(one.kept_path.name, 0)
        yield from self._drop_kept(now, kept)
        stored = {one: size for one, size in stored.items() if size}
        left = sum(stored.values())
        for segment in list(stored)[:-1]:
            is_too_old = segment.is_over(first_day)
            if is_too_old or left > self._max_bytes:
                left -= stored[segment]
                yield from self._drop(segment)

    def _drop_kept(self, now: datetime, kept: Mapping[Segment, int]) -> Generator[None]:
        """Delete lines of judged traces that are too old, or exceed their own size limit."""
        first_day, left = day_of(now - timedelta(days=self._judged_days)), sum(kept.values())
        for segment, size in kept.items():
            if not segment.is_over(first_day) and left <= self._max_bytes:
                return
            left -= size
            segment.kept_path.unlink(missing_ok=True)
            index_path(segment.kept_path).unlink(missing_ok=True)
            yield

    def _drop(self, segment: Segment) -> Generator[None]:
        """Delete a file, keeping only its lines of judged traces."""
        known: Collection[str] = ()
        with self._locked_open(segment):
            while self._judged is not None and (judged := frozenset(self._judged())) != known:
                known = judged
                kept = [line for line in lines_backwards(segment) if _trace_of(line) in judged][::-1]
                if kept:
                    yield from write_closed(segment.kept_path, [b"\n".join(kept) + b"\n"])
            for path in _files_of(segment):
                path.unlink(missing_ok=True)
        yield


@contextmanager
def maintenance_lock(directory: Path, *, is_patient: bool) -> Iterator[bool | None]:
    """Keep other processes from maintaining the files of a log during the block.

    Yields False if one of them is doing so, which is waited for if `is_patient`, and None if locks are not
    supported.
    """
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | BINARY, 0o600)
    try:
        yield lock_file(descriptor, is_patient=is_patient)
    finally:
        os.close(descriptor)


def write_closed(path: Path, blocks: Iterable[bytes]) -> Generator[None]:
    """Write a compressed file and its index; it gets its name once it is complete and on disk."""
    scratch = path.with_name(f"{path.name}.tmp")
    descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | BINARY, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as out:
            writer = BlockWriter(out)
            for block in blocks:
                writer.add(block)
                yield
            out.flush()
            os.fsync(out.fileno())
            with suppress(OSError):  # readers rebuild a missing index
                write_index(index_path(path), writer.index(), out)
        scratch.replace(path)
        sync_folder(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


def write_closed_at_once(path: Path, blocks: Iterable[bytes]) -> None:
    """Do the same as `write_closed`, in one step."""
    for _ in write_closed(path, blocks):
        pass


def _files_of(segment: Segment) -> tuple[Path, ...]:
    return segment.open_path, segment.closed_path, index_path(segment.open_path)


def _sizes_in(directory: Path) -> dict[str, int]:
    sizes = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another process was faster
                sizes[entry.name] = entry.stat().st_size
    return sizes


def _trace_of(line: bytes) -> object:
    try:
        return orjson.loads(line)["traceId"]
    except (KeyError, TypeError, ValueError):
        return None
