"""The only module that opens SQLite: a database file with one writer thread and several readers, for asyncio.

Work is passed as a function on a connection. A write runs alone in its transaction and is stored whole or not
at all; a read sees one snapshot of the file from its first statement to its last. Nothing here depends on
what the tables hold.
"""

import asyncio
import contextlib
import glob
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from composable_memory.errors import ComposableMemoryError, IndexDamaged, IndexProblem
from composable_memory_adapters.sqlite_transactions import (
    Job,
    Transaction,
    no_transaction,
    read_transaction,
    write_transaction,
)
from composable_memory_ops_logs.private_files import make_private_folder
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")
P = ParamSpec("P")

Connection = apsw.Connection
"""A connection to the file, passed to work functions; valid only until the function returns."""

OnConnect = Callable[[Connection], None]

WRITER_CACHE_KIB = 64 * 1024
READER_CACHE_KIB = 16 * 1024
PAGE_BYTES = 16384
"""A chunk of Chinese takes 5 KB, leaving a third of an 8 KB page empty, but a tenth of a 16 KB page."""
WAL_LIMIT_BYTES = 64 * 1024 * 1024
WAL_RETRY_S = 0.02
EMPTYING_WAIT_MS = 200
"""How long emptying the log keeps out writers while it waits for the last reader."""
COMPACT_PAGES = 256
LOG_SUFFIXES = ("-wal", "-shm")
"""Suffixes of the files that belong to a database."""

DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
ADVICE: dict[type[apsw.Error], str] = {
    apsw.BusyError: "another process kept it locked for too long; try again when that has finished",
    apsw.LockedError: "another statement keeps it locked; try again",
    apsw.FullError: "the disk is full; free some space and run `cmem index`, what was indexed before is kept",
    apsw.ReadOnlyError: "it cannot be written; check the permissions of the file and its folder",
    apsw.PermissionsError: "access was refused; check the permissions of the file and its folder",
    apsw.AuthError: "access was refused; check the permissions of the file and its folder",
    apsw.CantOpenError: "it cannot be opened; check that its folder exists and may be written",
    apsw.IOError: "the disk could not be read or written; check that it has space left and no errors",
    apsw.NoMemError: "there was not enough memory; close other programs and try again",
    apsw.InterruptError: "the statement was interrupted; ask again",
    apsw.ExecTraceAbort: "the statement was interrupted; ask again",
    apsw.NoLFSError: "the file system cannot hold a file this large; move the index to another disk",
    apsw.TooBigError: "a text is larger than a database can hold; split the note",
}
NO_FOLDER = "its folder cannot be used; check its permissions, or choose another store.path"
DEFECT = "SQLite refused a statement; this is a defect, please report it"


def translate(path: Path, error: apsw.Error) -> ComposableMemoryError:
    """Translate an SQLite error into one that names the file at `path` and what to do."""
    if isinstance(error, DAMAGED):
        return IndexDamaged(path, f"it is not a valid database ({error})")
    advice = next((text for kind, text in ADVICE.items() if isinstance(error, kind)), DEFECT)
    return IndexProblem(path, f"{advice} ({error})")


def set_aside(path: Path) -> Path:
    """Rename a damaged database together with its log; return its new path. Blocks."""
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
    for suffix in ("", *LOG_SUFFIXES):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    return aside


def remove_set_aside(path: Path) -> None:
    """Delete the damaged databases that were set aside from `path`. Blocks."""
    for aside in path.parent.glob(f"{glob.escape(path.name)}.damaged*"):
        aside.unlink(missing_ok=True)


class Unreadable(Exception):
    """Raised by work that finds data nobody wrote; the caller gets `IndexDamaged`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How often work was retried on a new connection, and how that ended.

    It is retried once if the file has become read-only, or another file has replaced it.
    """

    attempts: int = 0
    successes: int = 0
    failures: int = 0
    last_error: str | None = None
    """SQLite's error before the last retry."""


class SqliteFile:
    """An SQLite database in WAL mode, used from one event loop and shared with other processes.

    Threads and connections are created on demand. Writes run in the order in which they were submitted. Work
    may run a second time from the beginning, after everything it did has been rolled back.
    """

    def __init__(
        self,
        path: Path,
        *,
        readers: int,
        on_connect: OnConnect | None,
        busy_timeout_s: float,
        close_timeout_s: float,
    ) -> None:
        self.path = path
        self._close_timeout_s = close_timeout_s
        self._on_connect = on_connect
        self._busy_timeout_s = busy_timeout_s
        self._recoveries = _Recoveries()
        self._writer = _Lane(path, "write", self._connect_writer, self._recoveries, size=1)
        self._readers = _Lane(path, "read", self._connect_reader, self._recoveries, size=readers)
        self._ended: asyncio.Future[None] | None = None
        self._identity: tuple[int, int] | None = None
        self.writes = 0
        """How many writes have been submitted so far."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: Path,
        *,
        readers: int = 4,
        on_connect: OnConnect | None = None,
        busy_timeout_s: float = 5.0,
        close_timeout_s: float = 60.0,
    ) -> AsyncIterator["SqliteFile"]:
        """Open the file at `path`, which the first write creates together with its folder.

        `on_connect` prepares each new connection in the thread that opens it. `busy_timeout_s` is how long a
        statement waits for another process, `close_timeout_s` how long closing waits for running work.
        """
        file = cls(
            path,
            readers=readers,
            on_connect=on_connect,
            busy_timeout_s=busy_timeout_s,
            close_timeout_s=close_timeout_s,
        )
        try:
            yield file
        finally:
            await file.close()

    @property
    def recovery(self) -> Recovery:
        """Return how often a connection has been replaced so far."""
        return self._recoveries.so_far

    async def write(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run `work` in a transaction of its own; store everything it did, or nothing if it raises.

        await file.write(remove_rows, ids=[1, 2])  # calls remove_rows(connection, ids=[1, 2])

        Cancelling drops work that has not begun; work that has begun is completed.

        Raises:
            IndexProblem: the file cannot be written, or is closed.
        """

        def call(connection: Connection) -> T:
            return work(connection, *args, **options)

        self.writes += 1
        return await self._writer.run(call, write_transaction)

    async def read(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run `work` on one snapshot of the file, which it cannot change.

        Cancelling stops the running statement and frees the thread.

        Raises:
            IndexProblem: the file cannot be read, or is closed.
        """

        def call(connection: Connection) -> T:
            return work(connection, *args, **options)

        return await self._readers.run(call, read_transaction, can_be_stopped=True)

    async def compact(self) -> None:
        """Return unused space in the file and its log to the disk; other writes may run in between.

        The file only shrinks if it was created with incremental vacuum. The log stays while a reader needs
        it.

        Raises:
            IndexProblem: the file cannot be written, or is closed.
        """
        free = await self.read(_free_pages)
        while free:
            began = time.monotonic()
            left = await self.write(_give_back)
            if left >= free:
                break
            free = left
            await asyncio.sleep(time.monotonic() - began)  # equal time for writers in other processes
        await self._writer.run(_empty_log, no_transaction)

    async def scrub(self) -> None:
        """Erase every trace of deleted data: in the file, in its log, and in damaged files set aside.

        Raises:
            IndexProblem: the file cannot be written or is closed, or a reader keeps an older snapshot too
            long.
        """
        await self._writer.run(_vacuum, no_transaction)
        await asyncio.to_thread(remove_set_aside, self.path)
        if not await self._writer.run(_empty_log, no_transaction):
            raise IndexProblem(self.path, "another process keeps reading it; end that process and try again")

    def check_folder(self) -> None:
        """Check that a missing file could be created; reads the disk, and changes nothing.

        Raises:
            IndexProblem: its folder is not a folder, or cannot be written to.
        """
        nearest = next(parent for parent in self.path.absolute().parents if os.path.lexists(parent))
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise IndexProblem(self.path, f"{NO_FOLDER} ({nearest})")

    def was_replaced(self) -> bool:
        """Return whether another file, or none, is now at the path; reads the disk."""
        return self._identity not in (None, _identity_of(self.path))

    async def close(self) -> None:
        """Finish the writes, stop the reads, and end all threads; idempotent.

        Raises:
            IndexProblem: running work has not ended in time; its threads end when it does.
        """
        if self._ended is None:
            self._readers.stop()
            self._writer.refuse()
            self._ended = asyncio.get_running_loop().run_in_executor(None, self._end_lanes)
        # Work may also read other files, and a read from a disk that hangs cannot be cancelled.
        await asyncio.wait({self._ended}, timeout=self._close_timeout_s)
        if not self._ended.done():
            problem = f"it was not closed within {self._close_timeout_s:g} s: the disk does not respond"
            raise IndexProblem(self.path, problem)
        self._ended.result()

    def _end_lanes(self) -> None:
        self._readers.end()
        self._writer.end()

    def _connect_writer(self) -> Connection:
        _create_private(self.path)
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        self._prepare(connection)
        self._lay_out(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        return connection

    def _connect_reader(self) -> Connection:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)
        self._prepare(connection)
        connection.execute("PRAGMA query_only = 1")
        connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
        return connection

    def _prepare(self, connection: Connection) -> None:
        self._identity = self._identity or _identity_of(self.path)
        connection.set_busy_timeout(int(self._busy_timeout_s * 1000))
        if self._on_connect is not None:
            self._on_connect(connection)

    def _lay_out(self, connection: Connection) -> None:
        # If two processes switch a new file to WAL at once, SQLite ignores its busy timeout.
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                if not connection.pragma("page_count"):
                    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # 0.1 % of size; for `compact`
                connection.execute("PRAGMA journal_mode = WAL")
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(WAL_RETRY_S)
            else:
                return


class _Recoveries:
    """Counts recoveries; thread-safe."""

    def __init__(self) -> None:
        self.so_far = Recovery()
        self._counting = threading.Lock()

    @contextmanager
    def counted(self, cause: apsw.Error) -> Iterator[None]:
        """Count an attempt and its outcome."""
        with self._counting:
            attempts = self.so_far.attempts + 1
            self.so_far = replace(self.so_far, attempts=attempts, last_error=str(cause))
        is_done = False
        try:
            yield
            is_done = True
        finally:
            with self._counting:
                successes, failures = self.so_far.successes + is_done, self.so_far.failures + (not is_done)
                self.so_far = replace(self.so_far, successes=successes, failures=failures)


@dataclass(frozen=True, slots=True)
class _Held:
    """A connection, and the file it was opened on."""

    connection: Connection
    identity: tuple[int, int] | None


class _Lane:
    """Threads that serve one queue of jobs, each job with exclusive use of a connection.

    The connection used last is used next, since its pages are in the processor's cache; rotating among four
    connections made searches a fifth slower.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        connect: Callable[[], Connection],
        recoveries: _Recoveries,
        *,
        size: int,
    ) -> None:
        self._path = path
        self._connect = connect
        self._recoveries = recoveries
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=f"sqlite-{name}-{path.name}")
        self._idle: list[_Held] = []
        self._under_way: set[Job] = set()
        self._is_closed = False
        self._drops_queued = False

    async def run(
        self, work: Callable[[Connection], T], within: Transaction, *, can_be_stopped: bool = False
    ) -> T:
        """Run `work` in a thread; if the caller is cancelled, work that has not begun is dropped."""
        if self._is_closed:
            raise self._closed()
        job = Job()
        self._under_way.add(job)
        try:
            return await asyncio.wrap_future(self._pool.submit(self._do, job, work, within))
        except asyncio.CancelledError:
            if can_be_stopped:
                job.is_stopped = True
            raise
        finally:
            self._under_way.discard(job)

    def refuse(self) -> None:
        """Accept no more jobs; finish those already submitted."""
        self._is_closed = True

    def stop(self) -> None:
        """Accept no more jobs, and stop those already submitted."""
        self._is_closed = self._drops_queued = True
        for job in self._under_way:
            job.is_stopped = True

    def end(self) -> None:
        """Wait until the threads have ended, and close their connections; must not run on the event loop."""
        self._pool.shutdown()
        for held in self._idle:
            _close(held.connection)

    def _do(self, job: Job, work: Callable[[Connection], T], within: Transaction) -> T:
        try:
            if self._drops_queued:
                raise self._closed()
            return self._do_or_recover(job, work, within)
        except apsw.Error as cause:
            raise (self._closed() if self._drops_queued else translate(self._path, cause)) from cause
        except (UnicodeDecodeError, Unreadable) as cause:  # SQLite's own checks do not look inside texts
            raise IndexDamaged(self._path, f"it contains data that was never written ({cause})") from cause
        except OSError as cause:
            raise IndexProblem(self._path, f"{NO_FOLDER} ({cause})") from cause
        except StopIteration as cause:  # a future cannot raise it
            raise RuntimeError("work on a database raised StopIteration") from cause

    def _do_or_recover(self, job: Job, work: Callable[[Connection], T], within: Transaction) -> T:
        held: _Held | None = None
        with contextlib.suppress(IndexError):
            held = self._idle.pop()
        try:
            try:
                held = held or self._opened()
                return _do_once(held.connection, job, work, within)
            except apsw.Error as cause:
                if not isinstance(cause, apsw.ReadOnlyError) and not self._is_outdated(held):
                    raise
                with self._recoveries.counted(cause):
                    if held is not None:
                        _close(held.connection)
                    held = None
                    held = self._opened()
                    return _do_once(held.connection, job, work, within)
        finally:
            if held is not None:
                self._idle.append(held)

    def _opened(self) -> _Held:
        # Taken first: a file that replaces this one meanwhile counts as another.
        identity = _identity_of(self._path)
        _mend_log(self._path)
        return _Held(self._connect(), identity)

    def _is_outdated(self, held: _Held | None) -> bool:
        """Return whether another file has replaced the one that a connection has open."""
        return held is not None and _identity_of(self._path) not in (None, held.identity)

    def _closed(self) -> IndexProblem:
        return IndexProblem(self._path, "it is closed; open it again")


def _do_once(connection: Connection, job: Job, work: Callable[[Connection], T], within: Transaction) -> T:
    with within(connection, job):
        return work(connection)


def _free_pages(connection: Connection) -> int:
    """Return how many pages are unused and can be returned to the disk."""
    if not connection.pragma("auto_vacuum"):
        return 0
    return int(connection.pragma("freelist_count"))


def _give_back(connection: Connection) -> int:
    connection.execute(f"PRAGMA incremental_vacuum({COMPACT_PAGES})").fetchall()
    return _free_pages(connection)


def _vacuum(connection: Connection) -> None:
    connection.execute("VACUUM")


def _empty_log(connection: Connection) -> bool:
    """Checkpoint the log and truncate it; False if a reader needs it for long."""
    usual = connection.pragma("busy_timeout")
    connection.set_busy_timeout(min(usual, EMPTYING_WAIT_MS))
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False  # its size is bounded all the same, and closing the file empties it
    finally:
        connection.set_busy_timeout(usual)
    return True


def _close(connection: Connection) -> None:
    """Close a connection; the last writer checkpoints its log first."""
    with contextlib.suppress(apsw.Error):
        if not connection.readonly("main"):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    with contextlib.suppress(apsw.Error):
        connection.close()


def _create_private(path: Path) -> None:
    """Create an empty file that only its owner can read: an index holds the text of the notes.

    Never opens an existing file: closing it would drop the locks that SQLite holds on it in this process.
    """
    make_private_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _mend_log(path: Path) -> None:
    """Make a log left beside a read-only file writable for its owner.

    SQLite creates a log with the permissions of its file, and does not remove one that it may not write. If
    left in place, it would keep all connections of the process from writing, even after the file was
    repaired.
    """
    for suffix in LOG_SUFFIXES:
        part = path.with_name(path.name + suffix)
        with contextlib.suppress(OSError):
            mode = stat.S_IMODE(part.stat().st_mode)
            if not mode & stat.S_IWUSR:
                part.chmod(mode | stat.S_IWUSR)


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
