"""Connections to one FalkorDB server, the graphs behind them, and the translation of its errors."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from falkordb.asyncio.graph import AsyncGraph
from falkordb.asyncio.query_result import QueryResult
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.connection import ConnectionPool as RedisConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory_adapters.graphiti.database.cypher import LOADING_S, ConnectionLost, ServerAddress
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID

TRY_LATER = (BusyLoadingError, ClusterDownError, ClusterError, ReadOnlyError)


class Call(NamedTuple):
    """An operation, its server, and its time limit."""

    operation: str
    server: str
    limit_s: float


def translated(error: RedisError, call: Call) -> BackendError:
    """Translate a server's error."""
    message = str(error)
    match error:
        case AuthenticationError() | AuthorizationError() | AuthenticationWrongNumberOfArgsError():
            what = f"{call.server} rejects the user or password"
            return _unavailable(call, what, "check graphiti.username and graphiti.password")
        case NoPermissionError():
            return _unavailable(
                call, f"{call.server}: {message}", "grant the user that right, or use another user"
            )
        case OutOfMemoryError():
            return _unavailable(
                call, f"{call.server} is out of memory", "give it more memory, or remove groups"
            )
        case InvalidResponse():
            return BackendGarbled(BACKEND_ID, call.operation, excerpt=message, expected="an answer")
        case ResponseError() | ClusterError() | BusyLoadingError():
            return _of_response(message, call, is_passing=isinstance(error, TRY_LATER))
        case _:
            return BackendRejected(BACKEND_ID, call.operation, status=type(error).__name__, body=message)


def _of_response(message: str, call: Call, *, is_passing: bool) -> BackendError:
    if "Query timed out" in message:
        return BackendTimeout(BACKEND_ID, call.operation, limit_s=call.limit_s, elapsed_s=call.limit_s)
    if re.search("MISCONF|No space left", message):
        return _unavailable(
            call, f"the disk of {call.server} is full or broken: {message}", "free some space there"
        )
    if re.search("unknown command .?GRAPH", message, re.IGNORECASE):
        return _unavailable(call, f"{call.server} is a Redis without FalkorDB", "load its module")
    if is_passing:
        return _unavailable(call, f"{call.server}: {message}", "try again later")
    if "dimension" in message.lower():
        message = f"{message}; the vectors are from another model: `cmem index --force` recreates them"
    return BackendRejected(BACKEND_ID, call.operation, status="an error of the query", body=message)


def _unavailable(call: Call, what: str, fix: str) -> BackendUnavailable:
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=call.operation)


CONNECTIONS = 16
CONNECT_S = 10.0
FREE_CONNECTION_S = 60.0
LOADING_POLL_S = 0.05
SCHEMES = {"falkor": "redis", "falkors": "rediss"}
NOT_LOST = (AuthenticationError, AuthorizationError, BusyLoadingError)
"""Errors that the client counts as lost connections although the server answered."""


class ConnectionPool:
    """A few connections to one server, opened on demand. Belongs to one event loop.

    The client's own pool hands out connections after it was closed, and loses those of calls that are
    cancelled while returning them. Here a connection is in `_connections` before it is opened.
    """

    def __init__(self, address: ServerAddress, *, server: str, limit_s: float) -> None:
        parts = urlsplit(address.url)
        self.address = address
        self._server = server
        self._limit_s = limit_s
        self._is_closed = False
        self._connections: list[AbstractConnection] = []
        self._idle: list[AbstractConnection] = []
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._maker = RedisConnectionPool.from_url(
            parts._replace(scheme=SCHEMES.get(parts.scheme, parts.scheme)).geturl(),
            username=address.username,
            password=address.password,
            decode_responses=True,
            protocol=2,
            driver_info=None,  # to introduce itself, the client would read its own version from disk
            socket_connect_timeout=CONNECT_S,
            socket_timeout=None,  # the caller knows how long an answer may take
            retry=Retry(NoBackoff(), 0),  # a retry would repeat a write that was interrupted
        )

    async def ask(self, command: Sequence[object], operation: str) -> object:
        """Send one command, once, and return the answer; waits for a server that is loading its graphs.

        Raises:
            ConnectionLost: there is no connection, or it broke.
            BackendError: the server refused.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            while True:
                try:
                    return await self._sent(command)
                except BusyLoadingError:
                    if loop.time() - began > LOADING_S:
                        raise
                await asyncio.sleep(LOADING_POLL_S)
        except RedisError as error:
            raise self.refused(error, operation) from error

    def refused(self, error: RedisError, operation: str = "ask the graph") -> BackendError:
        """Translate a refusal."""
        return translated(error, Call(operation, self._server, self._limit_s))

    def graph(self, sender: object, name: str) -> "Graph":
        """Return a graph of the server, queried through `sender`."""
        return Graph(sender, name, self.refused)

    async def _sent(self, command: Sequence[object]) -> object:
        try:
            async with asyncio.timeout(FREE_CONNECTION_S):
                await self._free.acquire()
        except TimeoutError as error:
            raise ConnectionLost(error, was_sent=False) from error
        try:
            return await self._send(self._take(), command)
        finally:
            self._free.release()

    async def close(self) -> None:
        """Close all connections, including those in use; calling it again does nothing."""
        self._is_closed = True
        for connection in self._connections:
            await _drop(connection)
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration

    def _take(self) -> AbstractConnection:
        if self._is_closed:
            raise ConnectionLost(NoConnection("the connections were closed"), was_sent=False)
        if not self._idle:
            self._idle.append(self._maker.make_connection())
            self._connections.append(self._idle[-1])
        return self._idle.pop()

    async def _send(self, connection: AbstractConnection, command: Sequence[object]) -> object:
        was_sent = False
        try:
            await _ensure_open(connection)
            was_sent = True
            await connection.send_command(*command)
            return await connection.read_response()
        except NOT_LOST:
            raise
        except (NoConnection, NoAnswer, OSError) as error:
            raise ConnectionLost(error, was_sent=was_sent) from error
        finally:
            self._idle.append(connection)
            if self._is_closed:
                await _drop(connection)


async def _ensure_open(connection: AbstractConnection) -> None:
    """Connect; reconnect if the server has gone, or if an answer that nobody waited for is pending."""
    await connection.connect()
    if await connection.can_read():
        await _drop(connection)
        await connection.connect()


async def _drop(connection: AbstractConnection) -> None:
    """Close a connection without awaiting anything, so that no cancellation can interrupt."""
    await connection.disconnect(nowait=True)


class Graph(AsyncGraph):  # type: ignore[misc]  # the package is an extra, and unknown where it is not installed
    """A graph that raises our errors, including those at the end of an answer.

    Each instance learns the numbers of names anew: they change when a graph is removed and recreated.
    """

    def __init__(self, sender: object, name: str, refused: Callable[[RedisError], BackendError]) -> None:
        super().__init__(sender, name)
        self._refused = refused

    async def _query(
        self,
        q: str,
        params: dict[str, object] | None = None,
        timeout: int | None = None,  # noqa: ASYNC109 - theirs, in milliseconds, and kept by the server
        read_only: bool = False,
    ) -> QueryResult:
        written = {name: _serialized(value) for name, value in params.items()} if params else params
        try:
            return await super()._query(q, written, timeout, read_only)
        except RedisError as error:
            raise self._refused(error) from error


class _NumberList:
    """A list of numbers already formatted as text: the client would format a vector number by number."""

    __slots__ = ("_text",)

    def __init__(self, numbers: list[object]) -> None:
        self._text = str(numbers)

    def __str__(self) -> str:
        return self._text


def _serialized(value: object) -> object:
    """Return a parameter with its lists of numbers formatted as text."""
    if isinstance(value, dict):
        return {name: _serialized(item) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(type(item) is float for item in value):
        return _NumberList(value)
    return [_serialized(item) for item in value]
