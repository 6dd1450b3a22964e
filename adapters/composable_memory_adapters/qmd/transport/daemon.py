"""The QMD server of a home: found or started, shared between processes, supervised, and restarted."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from composable_memory.errors import BackendError, BackendTimeout, BackendUnavailable
from composable_memory.supervision.backoff import backoff_s
from composable_memory.supervision.file_lock import file_lock
from composable_memory.supervision.server_record import (
    ServerRecord,
    publish_record,
    read_record,
    withdraw_record,
)
from composable_memory.supervision.tasks import comes_first
from composable_memory_adapters.qmd.settings import DaemonSettings
from composable_memory_adapters.qmd.transport.daemon_client import DaemonClient
from composable_memory_adapters.qmd.transport.daemon_server import QmdServer
from composable_memory_adapters.qmd.types import (
    BACKEND_ID,
    Hit,
    Home,
    Installation,
    SearchRequest,
    TransportName,
)
from composable_memory_ops_logs import BackendDegraded, OpsLog
from composable_memory_ops_logs.quick_dataclass import dataclass

RECORD = "daemon.json"
LOCK = "daemon.lock"
HEALTH_S = 10.0
"""Time limit of a health check; a server that is loading a model answers late."""

POLL_S = 5.0
"""Pause between two checks whether another process's server is still there."""

MOMENT_S = 1.0
STEADY_S = 60.0
"""A server that ran this long is restarted at once when it ends."""

START = "start QMD's server"
REPLACED = "QMD's database has been replaced by a new one"

State = Literal["off", "starting", "running", "failed"]


def pause_s(failures: int) -> float:
    """Return the seconds until the next start: none at first, then 1 s, doubling to 60 s.

    `failures` counts the servers in a row that did not start, or that ended early.
    """
    return backoff_s(failures - 1, first_s=1.0, cap_s=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """The state of QMD's server: `off` if none is wanted; `failed` until the next attempt.

    `is_ours` means that this process started it.
    """

    state: State = "off"
    address: str | None = None
    pid: int | None = None
    is_ours: bool = False
    problem: str | None = None


class Daemon:
    """The QMD server of a home, shared between processes; implements `Transport`.

    Nothing happens before `start` or `find`. Close it to stop a server that it started, which otherwise ends
    with this process.
    """

    name: TransportName = "daemon"

    def __init__(
        self,
        installation: Installation,
        home: Home,
        settings: DaemonSettings,
        *,
        may_start: bool,
        ops_log: OpsLog,
    ) -> None:
        self._installation = installation
        self._home = home
        self._settings = settings
        self._may_start = may_start
        self._ops_log = ops_log
        self._file = home.root / RECORD
        self._client: DaemonClient | None = None
        self._record: ServerRecord | None = None
        self._server: QmdServer | None = None
        self._doubt = asyncio.Event()
        self._supervision: asyncio.Task[None] | None = None
        self._state: State = "off"
        self._problem: str | None = None
        self._is_closed = False

    @property
    def is_up(self) -> bool:
        """Return whether the server was running at the last check."""
        return self._state == "running"

    @property
    def status(self) -> DaemonStatus:
        """Return the state of the server, as far as it is known."""
        record = self._record
        return DaemonStatus(
            state=self._state,
            address=record.address if record else None,
            pid=record.pid if record else None,
            is_ours=self._server is not None,
            problem=self._problem,
        )

    def start(self) -> None:
        """Keep a server running in the background from now on: find one, or start one if allowed."""
        if self._settings.enabled and self._may_start and self._supervision is None and not self._is_closed:
            self._set_state("starting")
            self._supervision = asyncio.create_task(self._supervise(), name="qmd-daemon")

    async def find(self) -> bool:
        """Use the server of another process if there is one, and return whether there is."""
        return self._settings.enabled and not self._is_closed and await self._found() is not None

    async def check_index(self) -> None:
        """Stop using the server if QMD's database was replaced since it opened it; a new one is then started.

        Without this call, that takes some seconds to be noticed.
        """
        record = self._record
        if record is not None and await self._is_outdated(record) and self._record is record:
            self._record = None
            self._set_state("starting", problem=REPLACED)
            self._doubt.set()

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that match, best first; see `Transport`. Without a server it fails at once."""
        if self._record is None or self._client is None:
            fix = "meanwhile each query starts a process of its own"
            raise BackendUnavailable(BACKEND_ID, "QMD's server is not running", fix=fix, operation="search")
        try:
            return await self._client.ask(request, timeout_s=timeout_s)
        except (BackendUnavailable, BackendTimeout):
            self._doubt.set()
            raise

    async def close(self) -> None:
        """Stop the server if it was started here; a second call does nothing."""
        self._is_closed = True
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.wait([self._supervision])
        await self._stop_server()
        if self._client is not None:
            await self._client.close()
        self._set_state("off")

    def _set_state(self, state: State, *, problem: str | None = None) -> None:
        self._state, self._problem = state, problem

    # --- in the background ----------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                problem = await self._lost(await self._find_or_start())
            except BackendError as error:
                problem = str(error)
            self._record = None
            self._set_state("failed", problem=problem)
            self._ops_log.emit(
                BackendDegraded(what="daemon", level="process", reason=problem),
                backend=BACKEND_ID,
                status="partial",
            )
            await self._stop_server()
            failures = 1 if loop.time() - began > STEADY_S else failures + 1
            await asyncio.sleep(pause_s(failures))
            self._set_state("starting", problem=problem)

    async def _find_or_start(self) -> ServerRecord:
        """Return the record of a server that answers.

        Raises:
            BackendError: there is none, and none can be started.
        """
        if found := await self._found():
            return found
        patience_s = self._settings.start_timeout_ms / 1000.0
        async with file_lock(self._home.root / LOCK, owner=BACKEND_ID, patience_s=patience_s) as is_ours:
            if found := await self._found():
                return found
            if not is_ours:
                raise _failed(f"another process has been starting QMD's server for {patience_s:g} s")
            self._server = await QmdServer.start(self._installation, self._home, timeout_s=patience_s)
            record = await self._publish(self._server)
            if not await self._is_healthy(record):
                raise _failed("QMD's server does not answer")
            return self._use(record)

    async def _found(self) -> ServerRecord | None:
        """Use the server that the record names, if it is running and healthy."""
        record = await asyncio.to_thread(self._recorded)
        if record is None or await self._is_outdated(record) or not await self._is_healthy(record):
            return None
        return self._use(record)

    def _recorded(self) -> ServerRecord | None:
        """Return the record of a server that is running on this machine; blocks."""
        record = read_record(self._file)
        return record if record is not None and record.runs_here else None

    def _use(self, record: ServerRecord) -> ServerRecord:
        self._record = record
        self._doubt.clear()
        self._set_state("running")
        return record

    async def _publish(self, server: QmdServer) -> ServerRecord:
        index = await asyncio.to_thread(_identity, self._home.index_file)
        try:
            return await asyncio.to_thread(
                publish_record, self._file, address=server.address, pid=server.pid, index=index
            )
        except OSError as error:
            what = f"{self._file} cannot be written ({error.strerror})"
            raise BackendUnavailable(BACKEND_ID, what, fix="free some space", operation=START) from error

    async def _lost(self, record: ServerRecord) -> str:
        """Wait until the server has ended, stopped answering or lost its index; return which."""
        server = self._server
        ended = server.ended if server is not None else partial(self._withdrawn, record)
        while not await comes_first(ended(), self._doubted(record)):
            self._doubt.clear()
            if await self._is_outdated(record):
                return REPLACED
            # If it does not answer because it has just ended, the reason arrives shortly.
            if not await self._is_healthy(record) and not await comes_first(ended(), asyncio.sleep(MOMENT_S)):
                return "QMD's server does not answer"
        return await ended()

    async def _doubted(self, record: ServerRecord) -> None:
        """Wait until a request has failed, or QMD's database has been replaced."""
        while not self._doubt.is_set() and not await self._is_outdated(record):
            await comes_first(self._doubt.wait(), asyncio.sleep(POLL_S))

    async def _withdrawn(self, record: ServerRecord) -> str:
        """Wait until another process's server is gone; nobody notifies us, so this polls."""
        while await asyncio.to_thread(self._recorded) == record:  # noqa: ASYNC110 - see above
            await asyncio.sleep(POLL_S)
        return "the process that started QMD's server has stopped it"

    async def _is_outdated(self, record: ServerRecord) -> bool:
        """Return whether another database has replaced the one opened by the server."""
        index = await asyncio.to_thread(_identity, self._home.index_file)
        return record.index is not None and index is not None and index != record.index

    async def _is_healthy(self, record: ServerRecord) -> bool:
        if self._client is None or self._client.address != record.address:
            former = self._client
            self._client = await asyncio.to_thread(DaemonClient, record.address)  # slow the first time
            if former is not None:
                await former.close()
        return await self._client.is_healthy(timeout_s=HEALTH_S)

    async def _stop_server(self) -> None:
        """Withdraw the record of the server that was started here, then stop it."""
        self._record = None
        server, self._server = self._server, None
        if server is None:
            return
        try:
            await asyncio.to_thread(withdraw_record, self._file, address=server.address, pid=server.pid)
        finally:
            await server.stop()


def _failed(what: str) -> BackendUnavailable:
    return BackendUnavailable(BACKEND_ID, what, fix="it is retried", operation=START)


def _identity(file: Path) -> str | None:
    """Return the identity of a file, which differs if it is replaced; None if it is missing. Blocks."""
    try:
        status = file.stat()
    except OSError:
        return None
    return f"{status.st_dev}:{status.st_ino}"
