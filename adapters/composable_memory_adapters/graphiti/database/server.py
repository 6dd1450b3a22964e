"""The private graph server: one per folder, started on first use, shared by all processes.

The server itself holds the folder's lock, so the lock is free exactly when no server runs. Its address is
recorded beside the lock. It ends with the process that started it; the next process that needs it starts
another.

Its journal contains statements, and replaying them at a start takes as long as running them did: 3,000 facts
are 8 MB and 8 s. A rewritten journal contains the result: 2 MB, read in 0.05 s.
"""

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from errno import ENOSPC
from pathlib import Path
from typing import Literal

from composable_memory.errors import BackendError, BackendTimeout, BackendUnavailable
from composable_memory.supervision.file_lock import hold_lock
from composable_memory.supervision.process import GuardedServer, new_socket
from composable_memory.supervision.server_record import publish_record, read_record
from composable_memory_adapters.graphiti.database import requirements
from composable_memory_adapters.graphiti.database.requirements import Reason, read_reason
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.settings import PrivateServerSettings
from composable_memory_ops_logs.private_files import make_private_folder

LOG = "server.log"
LONGEST_LOG = 1_000_000  # bytes; a longer log is restarted when the server starts
LONGEST_QUERY_MS = 600_000  # so that a server can always be stopped
POLL_S = 0.01
THREADS = 2  # queries that a server runs in parallel
SHORTEN_S = 10.0
START = "start the graph server"


class PrivateServer:
    """A private FalkorDB over a folder. All calls block, and may come from several threads at once."""

    def __init__(self, settings: PrivateServerSettings, data_dir: Path) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._process: GuardedServer | None = None
        self._socket: Path | None = None
        self._log_start = 0
        self._one_at_a_time = threading.Lock()
        self._closed = threading.Event()

    @property
    def data_dir(self) -> Path:
        """Return the folder with the graphs."""
        return self._data_dir

    def address(self) -> Path:
        """Return the socket of a responsive server; start one if none runs.

        Raises:
            BackendUnavailable: it cannot be started or reached, or it was closed.
            BackendTimeout: it does not answer in time.
        """
        with self._one_at_a_time:
            try:
                return self._address()
            except BackendError:
                self._stop()
                raise
            except OSError as error:
                self._stop()
                what = f"{self._data_dir} cannot be used ({error})"
                other = "set graphiti.private.dir to a folder that can be used"
                fix = "free some space there" if error.errno == ENOSPC else other
                raise self._unavailable(what, fix) from error

    def reason(self) -> Reason | None:
        """Return why the server ended, if its log says so."""
        # In the log of another process's server, old and new entries cannot be told apart.
        since = self._log_start if self._process is not None else None
        return read_reason(self._data_dir / LOG, since=since, data_dir=self._data_dir)

    def close(self) -> None:
        """Stop the server if it was started here; calling it again does nothing."""
        self._closed.set()  # a start in progress gives up
        with self._one_at_a_time:
            if self._process and self._socket and _is_journal_long(self._data_dir):
                _rewrite(self._socket, limit_s=SHORTEN_S)
            self._stop()

    def _address(self) -> Path:
        make_private_folder(self._data_dir)
        began = time.monotonic()
        is_started = False
        while not self._closed.is_set():
            with hold_lock(self._data_dir / LOCK) as lock:
                if lock is not None and is_started:
                    raise self._ended()
                if lock is not None:
                    self._start(lock)
                    is_started = True
            if found := _running(self._data_dir):
                if found != self._socket:
                    self._stop()  # ours has ended, and another process was faster
                elif is_started and _is_journal_long(self._data_dir):
                    _begin_rewriting(found)
                return found
            self._check_time(began)
            self._closed.wait(POLL_S)
        raise self._unavailable("it was closed", "open the memory again")

    def _start(self, lock: int) -> None:
        self._stop()  # clean up after one that has ended
        parts = requirements.find_binaries()
        if parts is None:
            raise self._unavailable(
                "the graph server is not installed", requirements.missing_binaries() or ""
            )
        log = self._open_log()
        try:
            self._socket = new_socket()
            command = self._command(parts, self._socket)
            self._process = self._launch(command, self._socket.parent, lock=lock, log=log)
            guard = self._process.guard_pid
            publish_record(self._data_dir / RECORD, address=str(self._socket), pid=guard)
        finally:
            os.close(log)

    def _launch(self, command: Sequence[str], folder: Path, *, lock: int, log: int) -> GuardedServer:
        try:
            return GuardedServer(command, owner=BACKEND_ID, lock=lock, log=log, folder=folder)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _command(self, parts: requirements.Binaries, socket: Path) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": socket,
            "unixsocketperm": "700",
            "dir": self._data_dir.resolve(),
            "logfile": self._data_dir.resolve() / LOG,
            "loglevel": "warning",
            "databases": "1",
            "save": "",  # only the journal stores the data
            "appendonly": "yes",
            "appenddirname": JOURNAL_FOLDER,
            "appendfsync": self._settings.fsync,
            **JOURNAL_OPTIONS,
            "aof-load-truncated": "yes",
            # Otherwise a crashing server tests all its memory first, and is unresponsive for seconds.
            "crash-memcheck-enabled": "no",
            "locale-collate": "C",  # otherwise it refuses to start if the environment names an unknown locale
        }
        module = {
            "THREAD_COUNT": THREADS,
            "OMP_THREAD_COUNT": THREADS,
            "TIMEOUT_MAX": LONGEST_QUERY_MS,
            "CMD_INFO": "no",  # else the latest queries and all they write are kept beside each graph
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        extra = [str(word) for pair in module.items() for word in pair]
        return [str(parts.server), *words, "--loadmodule", str(parts.module), *extra]

    def _open_log(self) -> int:
        path = self._data_dir / LOG
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if os.fstat(log).st_size > LONGEST_LOG:
            os.ftruncate(log, 0)
        self._log_start = os.fstat(log).st_size
        return log

    def _check_time(self, began: float) -> None:
        elapsed_s, limit_s = time.monotonic() - began, self._settings.start_timeout_ms / 1000
        if elapsed_s < limit_s:
            return
        if self._process is None and not _is_listening(self._data_dir):
            raise self._unavailable(
                f"{self._data_dir} is in use by a server that cannot be reached from here",
                f"end the processes that hold it, or have all of them {requirements.SHARE_INSTEAD}",
            )
        operation = f"{START} within graphiti.private.startTimeoutMs"
        raise BackendTimeout(BACKEND_ID, operation, limit_s=limit_s, elapsed_s=elapsed_s)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _ended(self) -> BackendUnavailable:
        reason = self.reason() or Reason("it ended at once", f"read {self._data_dir / LOG}")
        return self._unavailable(reason.what, reason.fix)

    def _unavailable(self, what: str, fix: str) -> BackendUnavailable:
        return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=START)


JOURNAL_FOLDER = "appendonlydir"
LONG_BYTES = 512 * 1024
LONG_PERCENT = 25
JOURNAL_OPTIONS = {
    "auto-aof-rewrite-min-size": str(LONG_BYTES),
    "auto-aof-rewrite-percentage": str(LONG_PERCENT),
}
"""With these the server rewrites by itself, but counts only what was added since it started."""


def _is_journal_long(data_dir: Path) -> bool:
    """Return whether the journal of a folder has many statements; reads the disk."""
    statements, whole = _bytes(data_dir, "*.incr.aof"), _bytes(data_dir, "*.base.rdb")
    return statements > max(LONG_BYTES, whole * LONG_PERCENT / 100)


def _begin_rewriting(address: Path) -> None:
    """Have a server start rewriting its journal, while it goes on answering."""
    _send(address, b"BGREWRITEAOF\r\n")


def _rewrite(address: Path, *, limit_s: float) -> None:
    """Have a server rewrite its journal, and wait for that; without disk space the journal stays as it is."""
    ends = time.monotonic() + limit_s
    _begin_rewriting(address)
    while time.monotonic() < ends and _is_busy(_send(address, b"INFO persistence\r\n")):
        time.sleep(POLL_S)


def _is_busy(persistence: bytes) -> bool:
    return b"aof_rewrite_in_progress:1" in persistence or b"aof_rewrite_scheduled:1" in persistence


def _bytes(data_dir: Path, pattern: str) -> int:
    total = 0
    for path in (data_dir / JOURNAL_FOLDER).glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # it was just replaced
            total += path.stat().st_size
    return total


# --- the server's address, for other processes --------------------------------------------------------------

LOCK = "server.lock"
"""The server inherits this lock, so that it is held while the server runs."""
RECORD = "server.json"
"""Names the socket, and the guard process that stops the server."""
ANSWER_S = 2.0
LONGEST_ANSWER = 16_384


def _running(data_dir: Path) -> Path | None:
    """Return the socket of the folder's server, if it answers and has a guard to stop it."""
    record = read_record(data_dir / RECORD)
    if record is None or _state(address := Path(record.address)) != "ready":
        return None
    if record.has_ended:
        _shut_down(address)
        return None
    return address


def _is_listening(data_dir: Path) -> bool:
    """Return whether a server exists, even if it is still loading its journal."""
    record = read_record(data_dir / RECORD)
    return record is not None and _state(Path(record.address)) is not None


def _state(address: Path) -> Literal["ready", "loading"] | None:
    answer = _send(address, b"PING\r\n")
    if answer.startswith(b"+PONG"):
        return "ready"
    return "loading" if answer.startswith(b"-LOADING") else None


def _shut_down(address: Path) -> None:
    """Stop a server and clean up after it, as its guard would have done."""
    _send(address, b"SHUTDOWN NOSAVE\r\n")
    with contextlib.suppress(OSError):
        address.unlink(missing_ok=True)
        address.parent.rmdir()


def _send(address: Path, command: bytes) -> bytes:
    """Send a command to the server at a socket, and return its answer; empty if there is no server."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(str(address))
        connection.sendall(command)
        return connection.recv(LONGEST_ANSWER)
    return b""
