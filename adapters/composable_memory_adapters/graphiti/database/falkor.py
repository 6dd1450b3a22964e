"""FalkorDB, private or shared: finds its server and queries its graphs, one per group."""

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from composable_memory.content import Health
from composable_memory.errors import BackendError, BackendRejected, BackendTimeout, BackendUnavailable
from composable_memory.supervision.deadline import deadline
from composable_memory_adapters.graphiti.database.cypher import (
    LOADING_S,
    ConnectionLost,
    CutOff,
    DatabaseKind,
    Row,
    ServerAddress,
    ServerHandle,
    plain_map,
    readable,
)
from composable_memory_adapters.graphiti.database.requirements import INSTALL, Reason
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID

if TYPE_CHECKING:
    from falkordb.asyncio.query_result import QueryResult

    from composable_memory_adapters.graphiti.database.connections import ConnectionPool, Graph
    from composable_memory_adapters.graphiti.database.server import PrivateServer

QUERY_LIMIT_S = 60.0
INDEX_POLL_S = 0.005
GRACE_S = 2.0
INDEX_TRIES = (0.25, 0.75)
"""The share of the time limit for each attempt to create an index."""
WRITE = "GRAPH.QUERY"
"""The only command that may change something; all others can safely be sent twice."""
MAKE_INDEXES = "make the indexes of the graph"

STOPWORDS = (
    "a is the an and are as at be but by for if in into it no not of on or such "
    "that their then there these they this to was will with"
).split()
"""The stop words of graphiti-core, so that it finds its own index already there."""

INDEXES = (
    # None on times: FalkorDB stores them as text, and compares that wrongly through a range index. Range
    # indexes come first: look-ups fail if the full text of a property was indexed before.
    "CREATE INDEX FOR (n:Entity) ON (n.uuid, n.group_id, n.name)",
    "CREATE INDEX FOR (n:Episodic) ON (n.uuid, n.group_id, n.name)",
    "CREATE INDEX FOR ()-[e:RELATES_TO]-() ON (e.uuid, e.group_id, e.name)",
    "CREATE INDEX FOR ()-[e:MENTIONS]-() ON (e.uuid, e.group_id)",
    f"""CREATE FULLTEXT INDEX FOR (n:Episodic) ON (n.content, n.source, n.source_description, n.group_id)
    OPTIONS {{stopwords: {STOPWORDS}}}""",
    f"""CREATE FULLTEXT INDEX FOR (n:Entity) ON (n.name, n.summary, n.group_id)
    OPTIONS {{stopwords: {STOPWORDS}}}""",
    "CREATE FULLTEXT INDEX FOR ()-[e:RELATES_TO]-() ON (e.name, e.fact, e.group_id)",
)

UNFINISHED_INDEXES = "CALL db.indexes() YIELD status WHERE status <> 'OPERATIONAL' RETURN status"
"""Finds the indexes that FalkorDB is still building in the background."""


class PrivateServerHandle(ServerHandle):
    """A server started by us, or by another process of this machine for the same folder."""

    def __init__(self, server: "PrivateServer") -> None:
        self._server = server

    @property
    def name(self) -> str:
        """Return the folder of the server."""
        return f"the server of {self._server.data_dir}"

    async def address(self) -> ServerAddress:
        """Return the socket of the server that currently has the folder."""
        return ServerAddress(url=f"unix://{await asyncio.to_thread(self._server.address)}")

    async def reason(self) -> Reason | None:
        """Return the reason found in the log of our server."""
        return await asyncio.to_thread(self._server.reason)

    async def close(self) -> None:
        """Stop the server if it is ours, even if the caller is cancelled meanwhile."""
        await asyncio.to_thread(self._server.close)


class FalkorDatabase:
    """A FalkorDB server, found, and its client loaded, on first use. Implements `CypherDatabase`.

    It reconnects when the server moves, repeats reads, and creates indexes.
    """

    def __init__(self, server: ServerHandle, *, limit_s: float = QUERY_LIMIT_S) -> None:
        self._server = server
        self._limit_s = limit_s
        self._client: type[ConnectionPool] | None = None
        self._pool: ConnectionPool | None = None
        self._connecting = asyncio.Lock()
        self._preparing = asyncio.Lock()
        self._prepared: set[str] = set()
        self._indexed: set[str] = set()
        self._read_limit_ms: int | None = _earlier_ms(limit_s)
        self._is_closed = False
        self._version: str | None = None

    @property
    def kind(self) -> DatabaseKind:
        """Return the dialect."""
        return "falkordb"

    async def read(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a read-only statement; a group without a graph has no rows."""
        known = plain_map({**parameters, "group_id": group_id})
        try:
            if group_id not in self._indexed:
                await self._await_indexes(group_id)
            rows = _rows(await (await self._graph(group_id)).ro_query(cypher, known, self._read_limit_ms))
            if group_id in self._indexed:
                return rows
        except BackendError as error:
            if is_missing_graph(error):
                return []
            if self._read_limit_ms is None or not exceeds_time_limit(error):
                raise
            self._read_limit_ms = None  # the server has a lower limit of its own
        # Or the answer came from another server, which has just started.
        return await self.read(group_id, cypher, **parameters)

    async def write(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that may change the graph; it is on disk when this returns."""
        known = plain_map({**parameters, "group_id": group_id})
        await self._prepare(group_id)
        return _rows(await (await self._graph(group_id)).query(cypher, known))

    async def groups(self) -> Sequence[str]:
        """Return the names of all graphs."""
        names = await self.execute_command("GRAPH.LIST")
        return sorted(str(name) for name in names) if isinstance(names, list) else []

    async def drop(self, group_id: str) -> None:
        """Remove a graph if it exists."""
        self._prepared.discard(group_id)
        try:
            await self.execute_command("GRAPH.DELETE", group_id)
        except BackendError as error:
            if not is_missing_graph(error):
                raise

    async def rename(self, group_id: str, to: str) -> None:
        """Rename a graph, if it exists, atomically replacing the graph named `to`."""
        try:
            await self.execute_command("RENAME", group_id, to)
        except BackendError as error:
            if not is_missing_graph(error):
                raise

    async def rewrite_journal(self) -> None:
        """Have the server rewrite its journal, and wait until the old one is gone."""
        async with deadline(BACKEND_ID, "rewrite the journal", LOADING_S):
            # A server started by an earlier version keeps the latest queries, with all they wrote.
            await self.execute_command("GRAPH.CONFIG", "SET", "CMD_INFO", "no")
            for group in await self.groups():
                await self.execute_command("DEL", f"telemetry{{{group}}}")
            is_begun = False
            while not is_begun:
                await self._wait_for_rewriting()  # an earlier rewrite may still hold it
                is_begun = await self._begin_rewriting()
            await self._wait_for_rewriting()
            if "aof_last_bgrewrite_status:err" in await self._persistence():
                problem = "the journal of the graph server could not be rewritten"
                fix = "free some disk space, then try again"
                raise BackendUnavailable(BACKEND_ID, problem, fix=fix, operation="forget")

    async def _begin_rewriting(self) -> bool:
        """Start a rewrite; return False if one has started meanwhile."""
        try:
            await self.execute_command("BGREWRITEAOF")
        except BackendRejected as error:
            if "rewriting already in progress" not in str(error):
                raise
            return False
        return True

    async def _wait_for_rewriting(self) -> None:
        info = await self._persistence()
        while "aof_rewrite_in_progress:1" in info or "aof_rewrite_scheduled:1" in info:
            await asyncio.sleep(INDEX_POLL_S)  # the server does not notify us
            info = await self._persistence()

    async def _persistence(self) -> str:
        return str(await self.execute_command("INFO", "persistence"))

    async def execute_command(self, *command: object) -> object:
        """Send a command and return the answer."""
        return await self._send(command, may_repeat=command[0] != WRITE)

    def describe(self) -> Mapping[str, str]:
        """Return kind, location and, after the first request, version."""
        version = {"version": self._version} if self._version else {}
        return {"kind": self.kind, "place": self._server.name} | version

    async def health(self) -> Health:
        """Return whether it answers; starts a private server for that."""
        try:
            await self.execute_command("PING")
        except BackendError as error:
            return Health(ok=False, message=str(error))
        return Health(ok=True)

    async def close(self) -> None:
        """Close the connections, and stop the server if it is ours."""
        self._is_closed = True
        try:
            if self._pool is not None:
                await self._pool.close()
        finally:
            await self._server.close()

    async def _graph(self, group_id: str) -> "Graph":
        return (await self._connected(None)).graph(self, group_id)

    async def _prepare(self, group_id: str) -> None:
        """Ensure that the graph has its indexes; another process may have removed it meanwhile."""
        if await self._is_prepared(group_id):
            return
        async with self._preparing:
            if await self._is_prepared(group_id):  # another call was faster
                return
            for statement in INDEXES:
                await self._make(group_id, statement)
            await self._await_indexes(group_id)
            self._prepared.add(group_id)

    async def _is_prepared(self, group_id: str) -> bool:
        return group_id in self._prepared and bool(await self.execute_command("EXISTS", group_id))

    async def _make(self, group_id: str, statement: str) -> None:
        """Create an index unless it exists.

        The server fills it later, so it answers soon; creating it twice is harmless. So a late answer is not
        awaited to the end, but requested again over another connection.
        """
        began = asyncio.get_running_loop().time()
        for share in INDEX_TRIES:
            try:
                command = (WRITE, group_id, statement)
                await self._send(command, may_repeat=True, limit_s=share * self._limit_s)
                return
            except BackendTimeout:
                continue
            except BackendError as error:
                if not is_existing_index(error):
                    raise
                return
        elapsed_s = asyncio.get_running_loop().time() - began
        raise BackendTimeout(BACKEND_ID, MAKE_INDEXES, limit_s=self._limit_s, elapsed_s=elapsed_s)

    async def _await_indexes(self, group_id: str) -> None:
        """Wait until all indexes are in use.

        An index under construction, as after a server start, finds nothing; and what is written meanwhile may
        be missing from it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOADING_S):
                while _rows(await (await self._graph(group_id)).ro_query(UNFINISHED_INDEXES, {})):  # noqa: ASYNC110
                    await asyncio.sleep(INDEX_POLL_S)  # the server does not notify us
        self._indexed.add(group_id)

    async def _send(
        self, command: Sequence[object], *, may_repeat: bool, limit_s: float | None = None
    ) -> object:
        """Send a command; repeat it once if the connection was lost and that is safe."""
        operation = "write to the graph" if command[0] == WRITE else "read the graph"
        lost_pool: ConnectionPool | None = None
        while True:
            pool = await self._connected(lost_pool)
            try:
                async with deadline(BACKEND_ID, operation, limit_s or self._limit_s):
                    return await pool.ask(command, operation)
            except ConnectionLost as lost:
                if lost_pool is not None or (lost.was_sent and not may_repeat):
                    raise await self._connection_error(lost, operation) from lost
                lost_pool = pool

    async def _connected(self, lost_pool: "ConnectionPool | None") -> "ConnectionPool":
        """Return connections: new ones, not the lost ones, if the server has a new address."""
        self._require_open()
        client = self._client or await self._load()
        async with self._connecting:
            if self._pool is not None and self._pool is not lost_pool:
                return self._pool
            address = await self._server.address()
            self._require_open()
            if self._pool is not None and self._pool.address == address:
                return self._pool
            lost, self._pool = self._pool, client(address, server=self._server.name, limit_s=self._limit_s)
            await self._begin(self._pool, lost)
            return self._pool

    async def _load(self) -> "type[ConnectionPool]":
        """Import the client while the server starts: one computes, the other waits."""
        try:
            _, client = await asyncio.gather(self._server.address(), asyncio.to_thread(_load_client))
        except ImportError as error:
            what = f"the client of FalkorDB cannot be loaded ({error})"
            raise BackendUnavailable(BACKEND_ID, what, fix=INSTALL) from error
        self._require_open()
        self._client = client
        return client

    def _require_open(self) -> None:
        if self._is_closed:
            raise BackendUnavailable(BACKEND_ID, "it was closed", fix="open the memory again")

    async def _begin(self, pool: "ConnectionPool", lost: "ConnectionPool | None") -> None:
        self._indexed.clear()
        if lost is not None:
            await lost.close()
        # Some users may not ask for this, and real problems will show on use.
        with contextlib.suppress(BackendError, ConnectionLost):
            async with deadline(BACKEND_ID, "ask the graph", self._limit_s):
                self._version = _version(await pool.ask(("MODULE", "LIST"), "ask the graph"))

    async def _connection_error(self, lost: ConnectionLost, operation: str) -> BackendUnavailable:
        kind = CutOff if lost.was_sent else BackendUnavailable
        reason = await self._server.reason()
        if reason is not None:
            return kind(BACKEND_ID, reason.what, fix=reason.fix, operation=operation)
        what = f"no connection to {self._server.name}: {str(lost).rstrip('.')}"
        fix = "it may or may not have been done; try again" if lost.was_sent else "check that it is running"
        return kind(BACKEND_ID, what, fix=fix, operation=operation)


def _load_client() -> "type[ConnectionPool]":
    from composable_memory_adapters.graphiti.database.connections import ConnectionPool

    return ConnectionPool


def exceeds_time_limit(error: BackendError) -> bool:
    """Return whether a read was refused because the server's time limit is lower than ours."""
    return "TIMEOUT_MAX" in str(error)


def is_missing_graph(error: BackendError) -> bool:
    """Return whether the error is that a graph does not exist."""
    return re.search("Invalid graph operation on empty key|no such key", str(error)) is not None


def is_existing_index(error: BackendError) -> bool:
    """Return whether the error is that an index already exists."""
    return re.search("already indexed|Stopwords are already set", str(error)) is not None


def _earlier_ms(limit_s: float) -> int:
    """Return a limit for the server slightly shorter than ours, so that it is free for the next query."""
    return int(max(limit_s - GRACE_S, limit_s / 2) * 1000)


def _rows(result: "QueryResult") -> list[Row]:
    names = [name for _, name in result.header]
    return [
        {name: readable(value) for name, value in zip(names, row, strict=False)} for row in result.result_set
    ]


def _version(modules: object) -> str | None:
    """Return the version of FalkorDB from a server's module list, which is a list of flat pairs."""
    for module in modules if isinstance(modules, list) else ():
        facts = dict(zip(module[::2], module[1::2], strict=False))
        if facts.get("name") == "graph":
            number = int(facts["ver"])
            return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return None
