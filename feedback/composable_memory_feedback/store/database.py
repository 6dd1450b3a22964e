"""One SQLite file: safe opening, versions, transactions, and translated errors."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import mkstemp
from threading import Lock
from types import TracebackType
from typing import Self

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store import earlier_layouts, readable
from composable_memory_feedback.store.entries import APPLICATION_ID, VERSION, Entries, damaged, make_table
from composable_memory_feedback.store.salvage import (
    DAMAGE,
    copies_of,
    copy_into,
    copy_of,
    damaged_of,
    keep_copy,
    mend,
    take_over,
)
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.private_files import make_private_folder

BUSY_TIMEOUT_S = 5.0
"""How long a store waits for another process that is writing."""

_WAL_PAUSE_S = 0.02
_MANY_CHANGES = 2**40
"""More changes than anybody makes to one file, so that the change mark of a replaced file is greater."""


class Database:
    """One connection behind a lock: any thread may use it, and other processes may have the file open.

    Every SQLite error is raised as a `FeedbackError` that names the file.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        *,
        clock: Callable[[], datetime] = utc_now,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        remark: str | None = None,
    ) -> None:
        self.path = path
        self.remark = remark
        """What happened to a damaged file, or why no copy could be kept; for the user."""
        self._connection: sqlite3.Connection | None = connection
        self._file = _identity(path)
        self._clock = clock
        self._busy_timeout_s = busy_timeout_s
        self._files_before = 0
        self._has_copy = False
        self._lock = Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        clock: Callable[[], datetime] = utc_now,
    ) -> Self:
        """Open a file: create it if it is missing, and migrate it to the current version.

        From a damaged file, everything readable is saved first; `remark` says so. A wait for another process
        that is writing ends after `busy_timeout_s`.

        Raises:
            FeedbackError: The file is of another program or of a later version (it is left as it was), or
                cannot be opened.
        """
        with _told(path):
            remark = mend(path, clock())
            connection = _opened_file(path, busy_timeout_s)
        return cls(path, connection, clock=clock, busy_timeout_s=busy_timeout_s, remark=remark)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Entries]:
        """Hold the connection, and read one consistent snapshot."""
        with self._held() as connection, connection:
            connection.execute("BEGIN")
            yield Entries(connection)

    @contextmanager
    def writing(self) -> Iterator[Entries]:
        """Hold the connection for one transaction, rolled back if the block raises."""
        with self._held() as connection:
            self._keep_copy(connection)
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            while _identity(self.path) != self._file:  # it was replaced while we waited for the lock
                connection.execute("ROLLBACK")
                connection = self._opened()
                connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield Entries(connection)

    def change_mark(self) -> int:
        """Return a number that grows with every change to the file, by any process; it is cheap.

        Only marks from the same open store can be compared.
        """
        with self._held() as connection:
            (others,) = connection.execute("PRAGMA data_version").fetchone()
            return self._files_before * _MANY_CHANGES + int(others) + connection.total_changes

    def copy_into(self, target: Path) -> None:
        """Write a copy of the current state, also while others write; it replaces a file atomically."""
        with self._held() as connection:
            copy_into(connection, target)

    def take_over(self, source: Path) -> None:
        """Replace the content of this store by that of a copy, all or nothing; it is migrated."""
        with closing(_connect(Path(":memory:"), BUSY_TIMEOUT_S)) as copy:
            with _told(source):
                _refuse_strangers(source, BUSY_TIMEOUT_S, is_copy=True)
                take_over(copy, source)
                _migrate(copy)  # a damaged copy fails here, before anything is replaced
            with self._held() as connection:
                copy.backup(connection)  # other connections stay open, and see it from then on

    def scrub(self) -> None:
        """Rebuild the file and its newest copy without deleted content; remove older and damaged copies."""
        with self._held() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if copies := copies_of(self.path):
                copy_into(connection, copies[-1])
            for one in (*copies[:-1], *damaged_of(self.path)):
                one.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @contextmanager
    def _held(self) -> Iterator[sqlite3.Connection]:
        """Reserve the file for one caller; damage that shows is repaired for the next one."""
        with self._lock, _told(self.path):
            try:
                yield self._opened()
            except sqlite3.DatabaseError as error:
                if _code(error) in DAMAGE:
                    self._mend()
                raise

    def _mend(self) -> None:
        found = mend(self.path, self._clock(), however_large=True)
        self.remark = found or self.remark

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise FeedbackError(
                "the feedback store is closed", subject=str(self.path), advice="open it again"
            )
        if _identity(self.path) != self._file and self.path.exists():
            # Another process saved what was readable of a damaged file, and replaced it.
            self._connection.close()
            self._connection = _opened_file(self.path, self._busy_timeout_s)
            self._file = _identity(self.path)
            self._files_before += 1
        return self._connection

    def _keep_copy(self, connection: sqlite3.Connection) -> None:
        """Keep a copy from before the first change of a day; writing goes on if that fails."""
        if self._has_copy:
            return
        self._has_copy = True
        has_entries = connection.execute("SELECT 1 FROM entries").fetchone()
        if has_entries and not copy_of(self.path, self._clock()).exists():
            self._copy_today()

    def _renew_copy(self) -> None:
        """Copy rarely stored values, which are lost with the file, into the day's copy at once."""
        with self._held():
            self._copy_today()

    def _copy_today(self) -> None:
        try:
            self._mend()  # a copy of a damaged file would replace a sound one
            keep_copy(self._opened(), self.path, self._clock())
        except (sqlite3.Error, OSError) as error:
            self.remark = self.remark or f"could not keep a copy of the feedback store: {error}"


def _opened_file(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    if not path.exists():
        _make(path, busy_timeout_s)
    _refuse_strangers(path, busy_timeout_s)
    connection = _connect(path, busy_timeout_s)
    try:
        _write_ahead(connection, busy_timeout_s)
        _migrate(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file, which differs if another takes its name; None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)


def _make(path: Path, busy_timeout_s: float) -> None:
    """Put in place a store with all its tables: an empty file then means that somebody else emptied it."""
    make_private_folder(path.parent)
    # Readable by its owner only; SQLite gives its companion files the permissions of the file itself.
    descriptor, name = mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    os.close(descriptor)
    try:
        with closing(_connect(Path(name), busy_timeout_s)) as fresh:
            _migrate(fresh)
        try:
            os.link(name, path)
        except FileExistsError:
            pass  # another process was faster
        except OSError:  # a file system without hard links
            Path(name).rename(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _refuse_strangers(path: Path, busy_timeout_s: float, *, is_copy: bool = False) -> None:
    """Check before anything is written: a file of another program or a later version stays as it is."""
    # The first to open a file undoes what a power cut left half written; a read-only connection cannot.
    is_half_written = path.with_name(f"{path.name}-journal").exists()
    way = "mode=rw" if is_half_written else "mode=ro&immutable=1" if is_copy else "mode=ro"
    address = f"{path.absolute().as_uri()}?{way}"
    with closing(sqlite3.connect(address, uri=True, timeout=busy_timeout_s, isolation_level=None)) as file:
        file.execute("BEGIN")  # all three from one snapshot: another process may be creating the file
        (tables,) = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = file.execute("PRAGMA application_id").fetchone()
        version = _version(file)
    if tables and application != APPLICATION_ID:
        raise FeedbackError(
            "the file belongs to another program", subject=str(path), advice="name another file for feedback"
        )
    if version > VERSION:
        raise FeedbackError(
            f"the feedback store is version {version}, but this program knows {VERSION}",
            subject=str(path),
            advice="update composable-memory; the file was not changed",
        )


def _write_ahead(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Switch to write-ahead logging, so that reads continue during a write.

    Two processes that switch a new file at the same time may get "locked" without the usual wait.
    """
    latest = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > latest:
                raise
            time.sleep(_WAL_PAUSE_S)
    # With NORMAL a commit is only synced at the next checkpoint, which an open reader delays: a power cut
    # could lose acknowledged judgements, and nothing can rebuild them.
    connection.execute("PRAGMA synchronous = FULL")


def _migrate(connection: sqlite3.Connection) -> None:
    """Create the table, or convert a file with an earlier layout."""
    if _version(connection) >= VERSION:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        version = _version(connection)
        if version >= VERSION:  # another process was faster
            return
        make_table(connection)
        if version in earlier_layouts.VERSIONS:
            _convert(connection)


def _convert(connection: sqlite3.Connection) -> None:
    found = earlier_layouts.found_in(connection)
    Entries(connection).put(found.entries.values())
    if not found.is_sound or readable.found_in(connection).entries != found.entries:
        raise damaged("an entry has been altered")
    for table in earlier_layouts.ALL_TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        problem, advice = _EXPLAINED.get(_code(error), ("the feedback store cannot be used", "see the cause"))
        raise FeedbackError(f"{problem} ({error})", subject=str(path), advice=advice) from error
    except UnicodeDecodeError as error:
        problem, advice = _DAMAGED
        raise FeedbackError(f"{problem} ({error})", subject=str(path), advice=advice) from error
    except (OverflowError, UnicodeEncodeError) as error:
        problem, advice = _REFUSED
        raise FeedbackError(f"{problem} ({error})", subject=str(path), advice=advice) from error
    except OSError as error:
        raise FeedbackError(
            f"the feedback store cannot be opened ({error.strerror})",
            subject=str(path),
            advice="use a file in a writable folder",
        ) from error


def _code(error: sqlite3.Error) -> int:
    """Return the primary code without SQLite's extension; 0 for errors of the module itself."""
    # Invalid text has no code: the module itself reports that it cannot decode it.
    unreadable = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else 0
    return getattr(error, "sqlite_errorcode", unreadable) & 0xFF


_DAMAGED = ("the feedback store is damaged", "try again: everything readable was saved")
_REFUSED = ("the feedback store refused a value", "see the cause")

_EXPLAINED = {
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_ERROR: _DAMAGED,  # one of our tables is missing
    sqlite3.SQLITE_BUSY: ("another process keeps the feedback store busy", "try again in a moment"),
    sqlite3.SQLITE_FULL: ("there is no disk space for the feedback store", "free some disk space"),
    sqlite3.SQLITE_READONLY: (
        "the feedback store cannot be written",
        "make the file and its folder writable",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the feedback store cannot be opened",
        "use a file in an accessible folder",
    ),
    sqlite3.SQLITE_CONSTRAINT: _REFUSED,
    sqlite3.SQLITE_IOERR: ("the feedback store cannot be read or written", "check the disk"),
}
