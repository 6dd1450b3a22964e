"""Keeps a QMD server within reach: uses the one that is there, starts one where there is none, and again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from composable_memory.errors import BackendError, BackendTimeout, BackendUnavailable
from composable_memory.supervision.backoff import backoff_s
from composable_memory.supervision.file_lock import file_lock
from composable_memory.supervision.tasks import comes_first
from composable_memory_adapters.qmd.settings import DaemonSettings
from composable_memory_adapters.qmd.transport.daemon import server_registry
from composable_memory_adapters.qmd.transport.daemon.asking import Client
from composable_memory_adapters.qmd.transport.daemon.server import Server
from composable_memory_adapters.qmd.transport.daemon.server_registry import Whereabouts
from composable_memory_adapters.qmd.values import BACKEND_ID, Hit, Home, Installation, SearchRequest
from composable_memory_ops_logs import BackendDegraded, OpsLog, utc_now

__all__ = ["Daemon", "DaemonStanding", "pause_s"]

NOTE = "daemon.json"
LOCK = "daemon.lock"
HEALTH_S = 10.0
"""How long a server may take to say that it is well; one that loads a model takes its time."""

LOOK_S = 5.0
"""Pause between two looks at whether the server of another process is still there."""

MOMENT_S = 1.0
STEADY_S = 60.0
"""A server that ran as long is started again at once when it ends."""

START = "start QMD's server"
OUTDATED = "QMD's database has been replaced by a new one"

State = Literal["off", "starting", "running", "failed"]


def pause_s(failures: int) -> float:
    """Return the seconds before the next start: none at first, then 1 s, doubling to 60 s.

    `failures` counts the servers in a row that did not start, or that ended soon.
    """
    return backoff_s(failures - 1, first_s=1.0, cap_s=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStanding:
    """How it is with QMD's server: `off` if none is wanted; after `failed` it is tried again in a while.

    `is_ours` says that this process started it. `since` is when `state` became what it is.
    """

    state: State = "off"
    address: str | None = None
    pid: int | None = None
    is_ours: bool = False
    problem: str | None = None
    since: datetime | None = None


class Daemon:
    """The QMD server of a home, shared between processes; keeps `Searcher`.

    Nothing is done before `start` or `look`. Close it: a server that was started here ends with that, and at
    the latest with this process.
    """

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
        self._note = home.root / NOTE
        self._client: Client | None = None
        self._where: Whereabouts | None = None
        self._server: Server | None = None
        self._doubt = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._standing = DaemonStanding()
        self._is_closed = False

    def standing(self) -> DaemonStanding:
        """Return how it is with the server, without asking anybody."""
        return self._standing

    def start(self) -> None:
        """Begin to have a server, in the background: find one, or start one if that is allowed, and again."""
        if self._settings.enabled and self._may_start and self._keeping is None and not self._is_closed:
            self._tell("starting")
            self._keeping = asyncio.create_task(self._keep(), name="qmd-daemon")

    async def look(self) -> bool:
        """Use the server of another process, if there is one; say whether there is."""
        return self._settings.enabled and not self._is_closed and await self._found()

    async def look_at_index(self) -> None:
        """Use the server no longer if QMD's database is another one than it has opened; start one anew then.

        Without this, it is noticed within some seconds.
        """
        where = self._where
        if where is not None and await self._is_outdated(where) and self._where is where:
            self._where = None
            self._tell("starting", problem=OUTDATED)
            self._doubt.set()

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that answer, best first; see `Searcher`.

        Without a server this fails at once.
        """
        where, client = self._where, self._client
        if where is None or client is None:
            fix = "a process for the question answers as well"
            raise BackendUnavailable(BACKEND_ID, "QMD's server is not running", fix=fix, operation="search")
        try:
            return await client.ask(request, timeout_s=timeout_s)
        except (BackendUnavailable, BackendTimeout):
            self._doubt.set()
            raise

    async def close(self) -> None:
        """End the server if it was started here; calling it again does nothing."""
        self._is_closed = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._let_go()
        if self._client is not None:
            await self._client.close()
        self._tell("off")

    # --- in the background ----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                await self._find_or_start()
                problem = await self._loss()
            except BackendError as error:
                problem = str(error)
            self._where = None
            self._tell("failed", problem=problem)
            self._ops_log.emit(
                BackendDegraded(what="daemon", level="process", reason=problem),
                backend=BACKEND_ID,
                status="partial",
            )
            await self._let_go()
            failures = 1 if loop.time() - began > STEADY_S else failures + 1
            await asyncio.sleep(pause_s(failures))
            self._tell("starting", problem=problem)

    async def _find_or_start(self) -> None:
        """Have a server that answers.

        Raises:
            BackendError: there is none, and none can be started.
        """
        if await self._found():
            return
        patience_s = self._settings.start_timeout_ms / 1000.0
        async with file_lock(self._home.root / LOCK, owner=BACKEND_ID, patience_s=patience_s) as is_ours:
            if await self._found():
                return
            if not is_ours:
                what = f"another process has been starting QMD's server for {patience_s:g} s"
                raise BackendUnavailable(BACKEND_ID, what, fix="it is tried again", operation=START)
            self._server = await Server.start(self._installation, self._home, timeout_s=patience_s)
            where = await self._publish(self._server)
            if not await self._is_well(where):
                raise BackendUnavailable(
                    BACKEND_ID, "QMD's server does not answer", fix="it is tried again", operation=START
                )
            self._use(where)

    async def _found(self) -> bool:
        """Use the server that the note names, if it runs and is well."""
        where = await asyncio.to_thread(server_registry.read, self._note)
        if where is None or await self._is_outdated(where) or not await self._is_well(where):
            return False
        self._use(where)
        return True

    async def _publish(self, server: Server) -> Whereabouts:
        index = await asyncio.to_thread(server_registry.index_id, self._home.index_file)
        try:
            return await asyncio.to_thread(
                server_registry.publish, self._note, address=server.address, pid=server.pid, index=index
            )
        except OSError as error:
            what = f"{self._note} cannot be written ({error.strerror})"
            raise BackendUnavailable(BACKEND_ID, what, fix="make room for it", operation=START) from error

    async def _loss(self) -> str:
        """Wait until the server has ended, does not answer, or has an old index; return why."""
        where, server = self._where, self._server
        assert where is not None
        ended = server.ended if server is not None else partial(self._gone, where)
        while not await comes_first(ended(), self._in_doubt(where)):
            self._doubt.clear()
            if await self._is_outdated(where):
                return OUTDATED
            # One that does not answer because it has just ended will have told so in a moment.
            if not await self._is_well(where) and not await comes_first(ended(), asyncio.sleep(MOMENT_S)):
                return "QMD's server does not answer"
        return await ended()

    async def _in_doubt(self, where: Whereabouts) -> None:
        """Wait until somebody doubts that the server is well, or its index is an old one."""
        while not self._doubt.is_set() and not await self._is_outdated(where):
            await comes_first(self._doubt.wait(), asyncio.sleep(LOOK_S))

    async def _is_outdated(self, where: Whereabouts) -> bool:
        """Say whether another database has taken the place of the one that the server has opened."""
        index = await asyncio.to_thread(server_registry.index_id, self._home.index_file)
        return where.index is not None and index is not None and index != where.index

    async def _gone(self, where: Whereabouts) -> str:
        """Wait until the server of another process is not there any more; nobody tells us."""
        while await asyncio.to_thread(server_registry.read, self._note) == where:  # noqa: ASYNC110 - see above
            await asyncio.sleep(LOOK_S)
        return "the process that had started QMD's server has ended it"

    async def _is_well(self, where: Whereabouts) -> bool:
        if self._client is None or self._client.address != where.address:
            former = self._client
            self._client = await asyncio.to_thread(Client, where.address)  # the first one takes its time
            if former is not None:
                await former.close()
        return await self._client.is_healthy(timeout_s=HEALTH_S)

    async def _let_go(self) -> None:
        """End the server that was started here, and do not let anybody find it any more."""
        self._where = None
        server, self._server = self._server, None
        if server is None:
            return
        try:
            await asyncio.to_thread(
                server_registry.withdraw, self._note, address=server.address, pid=server.pid
            )
        finally:
            await server.stop()

    def _use(self, where: Whereabouts) -> None:
        self._where = where
        self._doubt.clear()
        self._tell("running")

    def _tell(self, state: State, *, problem: str | None = None) -> None:
        where, told = self._where, self._standing
        self._standing = DaemonStanding(
            state=state,
            address=where.address if where else None,
            pid=where.pid if where else None,
            is_ours=self._server is not None,
            problem=problem,
            since=told.since if told.state == state else utc_now(),
        )
