"""A session with a FalkorDB server: reconnects when it moves, repeats reads, and makes indexes."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from falkordb.asyncio.query_result import QueryResult
from redis.exceptions import BusyLoadingError, RedisError

from composable_memory.errors import BackendError, BackendTimeout, BackendUnavailable
from composable_memory.supervision.deadline import deadline
from composable_memory_adapters.graphiti.database.connections import (
    Call,
    ConnectionLost,
    ConnectionPool,
    Graph,
    exceeds_time_limit,
    is_existing_index,
    is_missing_graph,
    translated,
)
from composable_memory_adapters.graphiti.database.cypher import (
    CutOff,
    Row,
    ServerAddress,
    ServerHandle,
    plain_map,
    readable,
)
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID

LOADING_S = 30.0
LOADING_POLL_S = 0.05
INDEX_POLL_S = 0.005
GRACE_S = 2.0
INDEX_TRIES = (0.25, 0.75)
"""Which share of the limit each try to make an index has."""
WRITE = "GRAPH.QUERY"
"""The one command that may change something; all others may be sent twice."""
MAKE_INDEXES = "make the indexes of the graph"

STOPWORDS = (
    "a is the an and are as at be but by for if in into it no not of on or such "
    "that their then there these they this to was will with"
).split()
"""Those of graphiti-core, so that it finds its own index made when it makes it."""

INDEXES = (
    # None on times: FalkorDB keeps them as texts, and compares these wrongly by means of a range index.
    # Ranges first: looking something up fails where the full text of a property was indexed before.
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
"""Finds the indexes of FalkorDB that are still being built, in the background."""


class Session:
    """Sends everything that is asked of one server; one for a database and event loop."""

    def __init__(self, server: ServerHandle, *, limit_s: float) -> None:
        self._server = server
        self._limit_s = limit_s
        self._pool: ConnectionPool | None = None
        self._connecting = asyncio.Lock()
        self._preparing = asyncio.Lock()
        self._prepared: set[str] = set()
        self._indexed: set[str] = set()
        self._read_limit_ms: int | None = _earlier_ms(limit_s)
        self._is_closed = False
        self.version: str | None = None

    async def read(self, group_id: str, cypher: str, parameters: Mapping[str, object]) -> list[Row]:
        """Run a statement that changes nothing; a group without a graph has no rows."""
        known = plain_map({**parameters, "group_id": group_id})
        try:
            if group_id not in self._indexed:
                await self._await_indexes(group_id)
            rows = _rows(await Graph(self, group_id).ro_query(cypher, known, self._read_limit_ms))
            if group_id in self._indexed:
                return rows
        except BackendError as error:
            if is_missing_graph(error):
                return []
            if self._read_limit_ms is None or not exceeds_time_limit(error):
                raise
            self._read_limit_ms = None  # the server has a lower limit of its own
        # Or the answer was that of another server, which has just started.
        return await self.read(group_id, cypher, parameters)

    async def write(self, group_id: str, cypher: str, parameters: Mapping[str, object]) -> list[Row]:
        """Run a statement that may change the graph; it is on the disk when this returns."""
        known = plain_map({**parameters, "group_id": group_id})
        await self._prepare(group_id)
        return _rows(await Graph(self, group_id).query(cypher, known))

    async def groups(self) -> Sequence[str]:
        """Return the names of all graphs."""
        names = await self.execute_command("GRAPH.LIST")
        return sorted(str(name) for name in names) if isinstance(names, list) else []

    async def drop(self, group_id: str) -> None:
        """Remove a graph, if it is there."""
        self._prepared.discard(group_id)
        try:
            await self.execute_command("GRAPH.DELETE", group_id)
        except BackendError as error:
            if not is_missing_graph(error):
                raise

    async def rename(self, group_id: str, to: str) -> None:
        """Let a graph take the place of another at once, if it is there."""
        try:
            await self.execute_command("RENAME", group_id, to)
        except BackendError as error:
            if not is_missing_graph(error):
                raise

    async def rewrite_journal(self) -> None:
        """Have the server write its journal anew, and wait until the former one is gone."""
        async with deadline(BACKEND_ID, "write the journal anew", LOADING_S):
            while await self._is_rewriting():  # noqa: ASYNC110 - one that began before may hold it yet
                await asyncio.sleep(INDEX_POLL_S)
            # A server that an earlier version started keeps the latest queries, with all they wrote.
            await self.execute_command("GRAPH.CONFIG", "SET", "CMD_INFO", "no")
            for group in await self.groups():
                await self.execute_command("DEL", f"telemetry{{{group}}}")
            await self.execute_command("BGREWRITEAOF")
            while await self._is_rewriting():  # noqa: ASYNC110 - nobody tells when it is done
                await asyncio.sleep(INDEX_POLL_S)
            if "aof_last_bgrewrite_status:err" in await self._persistence():
                problem = "the journal of the graph server could not be written anew"
                fix = "see that there is room on the disk, then try again"
                raise BackendUnavailable(BACKEND_ID, problem, fix=fix, operation="forget")

    async def _is_rewriting(self) -> bool:
        info = await self._persistence()
        return "aof_rewrite_in_progress:1" in info or "aof_rewrite_scheduled:1" in info

    async def _persistence(self) -> str:
        return str(await self.execute_command("INFO", "persistence"))

    async def execute_command(self, *command: object) -> object:
        """Send a command and return the answer."""
        return await self._send(command, may_repeat=command[0] != WRITE)

    def refused(self, error: RedisError, operation: str = "ask the graph") -> BackendError:
        """Return what a refusal means."""
        return translated(error, Call(operation, self._server.name, self._limit_s))

    async def ping(self) -> None:
        """Return if the server answers."""
        await self.execute_command("PING")

    async def close(self) -> None:
        """Close the connections, and make no more."""
        self._is_closed = True
        if self._pool is not None:
            await self._pool.close()

    async def _prepare(self, group_id: str) -> None:
        """See to it that the graph has its indexes; another process may have removed it meanwhile."""
        if await self._is_prepared(group_id):
            return
        async with self._preparing:
            if await self._is_prepared(group_id):  # another call was quicker
                return
            for statement in INDEXES:
                await self._make(group_id, statement)
            await self._await_indexes(group_id)
            self._prepared.add(group_id)

    async def _is_prepared(self, group_id: str) -> bool:
        return group_id in self._prepared and bool(await self.execute_command("EXISTS", group_id))

    async def _make(self, group_id: str, statement: str) -> None:
        """Make an index, unless it is there already.

        The server fills it later, so it answers soon; and twice is as once. So an answer that does not come
        is not waited for to the end, but asked for again over another connection.
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

        One that is being built, as some are when a server has just started, finds nothing; and what is
        written meanwhile may not get into it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOADING_S):
                while _rows(await Graph(self, group_id).ro_query(UNFINISHED_INDEXES, {})):  # noqa: ASYNC110
                    await asyncio.sleep(INDEX_POLL_S)  # nobody tells when it is so
        self._indexed.add(group_id)

    async def _send(
        self, command: Sequence[object], *, may_repeat: bool, limit_s: float | None = None
    ) -> object:
        """Send a command; once more, if the connection was lost and that does no harm."""
        operation = "write to the graph" if command[0] == WRITE else "read the graph"
        lost_pool: ConnectionPool | None = None
        while True:
            pool = await self._connected(lost_pool)
            try:
                return await self._send_once(pool, command, operation, limit_s or self._limit_s)
            except ConnectionLost as lost:
                if lost_pool is not None or (lost.was_sent and not may_repeat):
                    raise await self._connection_error(lost, operation) from lost
                lost_pool = pool

    async def _send_once(
        self, pool: ConnectionPool, command: Sequence[object], operation: str, limit_s: float
    ) -> object:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with deadline(BACKEND_ID, operation, limit_s):
                while True:
                    try:
                        return await pool.send(*command)
                    except BusyLoadingError:
                        if loop.time() - began > LOADING_S:
                            raise
                    await asyncio.sleep(LOADING_POLL_S)
        except RedisError as error:
            raise self.refused(error, operation) from error

    async def _connected(self, lost_pool: ConnectionPool | None) -> ConnectionPool:
        """Return connections; other than the lost ones, if the server has another address by now."""
        async with self._connecting:
            if self._pool is not None and self._pool is not lost_pool:
                return self._pool
            address = await self._server.address()
            if self._is_closed:
                raise BackendUnavailable(BACKEND_ID, "it was closed", fix="open the memory again")
            if self._pool is None or self._pool.address != address:
                await self._connect(address)
            assert self._pool is not None
            return self._pool

    async def _connect(self, address: ServerAddress) -> None:
        lost, pool = self._pool, ConnectionPool(address)
        self._pool = pool
        self._indexed.clear()
        if lost is not None:
            await lost.close()
        # Some users may not ask for this, and what does not work will show when it is used.
        with contextlib.suppress(BackendError, ConnectionLost):
            modules = await self._send_once(pool, ("MODULE", "LIST"), "ask the graph", self._limit_s)
            self.version = _version(modules)

    async def _connection_error(self, lost: ConnectionLost, operation: str) -> BackendUnavailable:
        kind = CutOff if lost.was_sent else BackendUnavailable
        reason = await self._server.reason()
        if reason is not None:
            return kind(BACKEND_ID, reason.what, fix=reason.fix, operation=operation)
        what = f"no connection to {self._server.name}: {str(lost).rstrip('.')}"
        fix = "whether it was done is not known; try again" if lost.was_sent else "see whether it runs"
        return kind(BACKEND_ID, what, fix=fix, operation=operation)


def _earlier_ms(limit_s: float) -> int:
    """Return a limit for the server that ends a little before ours, so that it is free for the next."""
    return int(max(limit_s - GRACE_S, limit_s / 2) * 1000)


def _rows(result: QueryResult) -> list[Row]:
    names = [name for _, name in result.header]
    return [
        {name: readable(value) for name, value in zip(names, row, strict=False)} for row in result.result_set
    ]


def _version(modules: object) -> str | None:
    """Return the version of FalkorDB from the list of a server's modules, which come as lists of pairs."""
    for module in modules if isinstance(modules, list) else ():
        facts = dict(zip(module[::2], module[1::2], strict=False))
        if facts.get("name") == "graph":
            number = int(facts["ver"])
            return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return None
