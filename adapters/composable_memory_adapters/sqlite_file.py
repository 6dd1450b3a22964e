"""The one door to SQLite: a database file with one writing thread and a few reading ones, awaited on a loop.

Work is handed in as a function on a connection. A write runs alone in its transaction and is stored whole or
not at all; a read sees one state of the file from its first statement to its last. Nothing here knows what
the tables hold.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from composable_memory.errors import ComposableMemoryError, IndexDamaged, IndexProblem

__all__ = ["Connection", "SqliteFile", "Unreadable", "translate"]

T = TypeVar("T")

Connection = apsw.Connection
"""A connection to the file, given to work functions; valid only until the function returns."""

OnConnect = Callable[[Connection], None]

WRITER_CACHE_KIB = 64 * 1024
READER_CACHE_KIB = 16 * 1024
PAGE_BYTES = 16384
"""Chunks of Chinese text take 5 KB: of pages of 8 KB they leave a third empty, of these a tenth."""
WAL_LIMIT_BYTES = 64 * 1024 * 1024
WAL_RETRY_S = 0.02
STEPS_BETWEEN_LOOKS = 20_000
"""Steps of SQLite's machine, about a millisecond, after which a read looks if it is still wanted."""

DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
ADVICE: dict[type[apsw.Error], str] = {
    apsw.BusyError: "another process kept it locked for too long; try again when that has finished",
    apsw.LockedError: "another statement keeps it locked; try again",
    apsw.FullError: "the disk is full; free some space and run `cmem index`, what was indexed before is kept",
    apsw.ReadOnlyError: "it cannot be written; check the permissions of the file and its folder",
    apsw.PermissionsError: "access was refused; check the permissions of the file and its folder",
    apsw.AuthError: "access was refused; check the permissions of the file and its folder",
    apsw.CantOpenError: "it cannot be opened; check that its folder exists and may be written",
    apsw.IOError: "the disk could not be read or written; check the disk",
    apsw.NoMemError: "there was not enough memory; close other programs and try again",
    apsw.InterruptError: "the statement was interrupted; ask again",
    apsw.ExecTraceAbort: "the statement was interrupted; ask again",
    apsw.NoLFSError: "the file system cannot hold a file this large; move the index to another disk",
    apsw.TooBigError: "a text is larger than a database can hold; split the note",
}
NO_FOLDER = "its folder cannot be used; check its permissions, or choose another store.path"
DEFECT = "SQLite refused a statement; this is a defect, please report it"


def translate(path: Path, error: apsw.Error) -> ComposableMemoryError:
    """Return what `error` of SQLite means for the file at `path`, with what to do about it."""
    if isinstance(error, DAMAGED):
        return IndexDamaged(path, f"it is not a sound database ({error})")
    advice = next((text for kind, text in ADVICE.items() if isinstance(error, kind)), DEFECT)
    return IndexProblem(path, f"{advice} ({error})")


class Unreadable(Exception):
    """Raised by work that finds in the file what nobody wrote there; the caller gets `IndexDamaged`."""


class SqliteFile:
    """An SQLite database in WAL mode, used from one event loop and shared with other processes.

    Threads and connections are made when work needs them. Writes run in the order in which they were handed
    in.
    """

    def __init__(
        self, path: Path, *, readers: int, on_connect: OnConnect | None, busy_timeout_s: float
    ) -> None:
        self.path = path
        self._on_connect = on_connect
        self._busy_timeout_s = busy_timeout_s
        self._writer = _Lane(path, "write", self._connect_writer, _write_transaction, size=1)
        self._readers = _Lane(path, "read", self._connect_reader, _read_transaction, size=readers)
        self._ended: asyncio.Future[None] | None = None
        self._identity: tuple[int, int] | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: Path,
        *,
        readers: int = 4,
        on_connect: OnConnect | None = None,
        busy_timeout_s: float = 5.0,
    ) -> AsyncIterator["SqliteFile"]:
        """Yield the file at `path`; it is created, with its folder, by the first write.

        `on_connect` prepares each new connection in the thread that uses it. `busy_timeout_s` is how long a
        statement waits for another process.
        """
        file = cls(path, readers=readers, on_connect=on_connect, busy_timeout_s=busy_timeout_s)
        try:
            yield file
        finally:
            await file.close()

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction of its own; store everything it did, or nothing if it raises.

        Cancelling drops work that has not begun; work that has begun is completed.

        Raises:
            IndexProblem: the file cannot be written, or is closed.
        """
        return await self._writer.run(work, can_be_stopped=False)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one snapshot of the file; it cannot change anything.

        Cancelling ends the running statement and frees the thread.

        Raises:
            IndexProblem: the file cannot be read, or is closed.
        """
        return await self._readers.run(work, can_be_stopped=True)

    def was_replaced(self) -> bool:
        """Say whether another file, or none, is at the path by now; looks at the disk."""
        return self._identity not in (None, _identity_of(self.path))

    async def close(self) -> None:
        """Finish the writes, stop the reads, and end all threads; calling it again does nothing."""
        if self._ended is None:
            self._readers.stop()
            self._writer.refuse()
            self._ended = asyncio.get_running_loop().run_in_executor(None, self._end_lanes)
        await asyncio.shield(self._ended)

    def _end_lanes(self) -> None:
        self._readers.end()
        self._writer.end()

    def _connect_writer(self) -> Connection:
        _create_private(self.path)
        connection = apsw.Connection(str(self.path))
        self._prepare(connection)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._enter_wal(connection)
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

    def _enter_wal(self, connection: Connection) -> None:
        # SQLite does not wait for its busy timeout when two processes switch a new file to WAL at once.
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(WAL_RETRY_S)
            else:
                return


class _Job:
    """Work under way, which somebody may want to stop.

    Not by `sqlite3_interrupt`: it is lost when it comes just before a statement begins, and then an endless
    statement keeps its thread for good.
    """

    def __init__(self) -> None:
        self.is_stopped = False

    def may_go_on(self, _cursor: object, _sql: str, _bindings: object) -> bool:
        """Say whether the next statement may begin."""
        return not self.is_stopped

    def must_end(self) -> bool:
        """Say whether the running statement has to end."""
        return self.is_stopped


class _Lane:
    """Threads that serve one queue of jobs, each with a connection of its own."""

    def __init__(
        self,
        path: Path,
        name: str,
        connect: Callable[[], Connection],
        transaction: Callable[[Connection, _Job], AbstractContextManager[None]],
        *,
        size: int,
    ) -> None:
        self._path = path
        self._connect = connect
        self._transaction = transaction
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=f"sqlite-{name}-{path.name}")
        self._own = threading.local()
        self._connections: list[Connection] = []
        self._under_way: set[_Job] = set()
        self._is_closed = False
        self._drops_queued = False

    async def run(self, work: Callable[[Connection], T], *, can_be_stopped: bool) -> T:
        """Run `work` in a thread; what has not begun is dropped when the caller is cancelled."""
        if self._is_closed:
            raise self._closed()
        job = _Job()
        self._under_way.add(job)
        try:
            return await asyncio.wrap_future(self._pool.submit(self._do, job, work))
        except asyncio.CancelledError:
            if can_be_stopped:
                job.is_stopped = True
            raise
        finally:
            self._under_way.discard(job)

    def refuse(self) -> None:
        """Take no further jobs; finish those that were handed in."""
        self._is_closed = True

    def stop(self) -> None:
        """Take no further jobs, and stop those that were handed in."""
        self._is_closed = self._drops_queued = True
        for job in self._under_way:
            job.is_stopped = True

    def end(self) -> None:
        """Wait until the threads have ended, and close their connections; called from outside the loop."""
        self._pool.shutdown()
        for connection in self._connections:
            _part(connection)

    def _do(self, job: _Job, work: Callable[[Connection], T]) -> T:
        try:
            if self._drops_queued:
                raise self._closed()
            connection = self._connection()
            with self._transaction(connection, job):
                return work(connection)
        except apsw.Error as cause:
            raise (self._closed() if self._drops_queued else translate(self._path, cause)) from cause
        except (UnicodeDecodeError, Unreadable) as cause:  # SQLite's own checks do not look into texts
            raise IndexDamaged(self._path, f"it holds what nobody wrote there ({cause})") from cause
        except OSError as cause:
            raise IndexProblem(self._path, f"{NO_FOLDER} ({cause})") from cause
        except StopIteration as cause:  # a future cannot carry it
            raise RuntimeError("work on a database raised StopIteration") from cause

    def _connection(self) -> Connection:
        known: Connection | None = getattr(self._own, "connection", None)
        if known is None:
            known = self._own.connection = self._connect()
            self._connections.append(known)
        return known

    def _closed(self) -> IndexProblem:
        return IndexProblem(self._path, "it is closed; open it again")


@contextmanager
def _write_transaction(connection: Connection, _job: _Job) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # A full disk and the like roll back on their own.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def _read_transaction(connection: Connection, job: _Job) -> Iterator[None]:
    connection.exec_trace = job.may_go_on
    connection.set_progress_handler(job.must_end, STEPS_BETWEEN_LOOKS)
    try:
        connection.execute("BEGIN")
        yield
    finally:
        connection.exec_trace = None
        connection.set_progress_handler(None)
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _part(connection: Connection) -> None:
    """Close a connection; the last writer to leave puts its log back into the file."""
    with contextlib.suppress(apsw.Error):
        if not connection.readonly("main"):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    with contextlib.suppress(apsw.Error):
        connection.close()


def _create_private(path: Path) -> None:
    """Create an empty file that only its owner can read: an index holds the text of the notes.

    Never opens a file that exists: closing it would drop the locks SQLite holds on it in this process.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
