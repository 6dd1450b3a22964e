"""Connections to one FalkorDB server, the graphs that are asked over them, and what its errors mean."""

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol
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
from composable_memory_adapters.graphiti.database.cypher import ServerAddress
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID

TRY_LATER = (BusyLoadingError, ClusterDownError, ClusterError, ReadOnlyError)


class Call(NamedTuple):
    """What was being done, where, and how long it may take."""

    operation: str
    server: str
    limit_s: float


def translated(error: RedisError, call: Call) -> BackendError:
    """Return what a server's error means as one of ours."""
    message = str(error)
    match error:
        case AuthenticationError() | AuthorizationError() | AuthenticationWrongNumberOfArgsError():
            what = f"{call.server} refuses user or password"
            return _unavailable(call, what, "check graphiti.username and graphiti.password")
        case NoPermissionError():
            return _unavailable(
                call, f"{call.server}: {message}", "give the user the right, or use another one"
            )
        case OutOfMemoryError():
            return _unavailable(call, f"{call.server} is out of memory", "give it more, or remove groups")
        case InvalidResponse():
            return BackendGarbled(BACKEND_ID, call.operation, excerpt=message, expected="an answer")
        case ResponseError() | ClusterError() | BusyLoadingError():
            return _of_response(message, call, is_passing=isinstance(error, TRY_LATER))
        case _:
            return BackendRejected(BACKEND_ID, call.operation, status=type(error).__name__, body=message)


def exceeds_time_limit(error: BackendError) -> bool:
    """Return whether a read was refused since the server allows less time than was asked for."""
    return "TIMEOUT_MAX" in str(error)


def is_missing_graph(error: BackendError) -> bool:
    """Return whether a graph was refused since it is not there."""
    return re.search("Invalid graph operation on empty key|no such key", str(error)) is not None


def is_existing_index(error: BackendError) -> bool:
    """Return whether an index was refused since it is there."""
    return re.search("already indexed|Stopwords are already set", str(error)) is not None


def _of_response(message: str, call: Call, *, is_passing: bool) -> BackendError:
    if "Query timed out" in message:
        return BackendTimeout(BACKEND_ID, call.operation, limit_s=call.limit_s, elapsed_s=call.limit_s)
    if re.search("MISCONF|No space left", message):
        return _unavailable(
            call, f"the disk of {call.server} is full or broken: {message}", "make room there"
        )
    if re.search("unknown command .?GRAPH", message, re.IGNORECASE):
        return _unavailable(call, f"{call.server} is a Redis without FalkorDB", "load its module")
    if is_passing:
        return _unavailable(call, f"{call.server}: {message}", "try again later")
    if "dimension" in message.lower():
        message = f"{message}; the vectors are another model's: `cmem index --force` makes them anew"
    return BackendRejected(BACKEND_ID, call.operation, status="an error of the query", body=message)


def _unavailable(call: Call, what: str, fix: str) -> BackendUnavailable:
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=call.operation)


CONNECTIONS = 16
CONNECT_S = 10.0
FREE_CONNECTION_S = 60.0
SCHEMES = {"falkor": "redis", "falkors": "rediss"}
NOT_LOST = (AuthenticationError, AuthorizationError, BusyLoadingError)
"""What the client counts among lost connections, though the server answered."""


class CommandSender(Protocol):
    """What a graph sends its commands through."""

    async def execute_command(self, *command: object) -> object:
        """Return the answer to a command."""
        ...

    def refused(self, error: RedisError) -> BackendError:
        """Return what a refusal means."""
        ...


class ConnectionLost(Exception):
    """The connection broke; `was_sent` says whether the server may have got the command."""

    def __init__(self, cause: Exception, *, was_sent: bool) -> None:
        super().__init__(str(cause))
        self.was_sent = was_sent


class ConnectionPool:
    """A few connections to one server, made when they are needed. Belongs to one event loop.

    The client's own pool gives out connections after it was closed, and forgets those of calls that are
    cancelled while they give theirs back. Here a connection is in `_connections` from before it is opened.
    """

    def __init__(self, address: ServerAddress) -> None:
        parts = urlsplit(address.url)
        self.address = address
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
            driver_info=None,  # to introduce itself, it would look up its own version on the disk
            socket_connect_timeout=CONNECT_S,
            socket_timeout=None,  # who asks knows how long an answer may take
            retry=Retry(NoBackoff(), 0),  # or a write that was cut off would be done twice
        )

    async def send(self, *command: object) -> object:
        """Send one command, once, and return the answer.

        Raises:
            ConnectionLost: there is no connection, or there is none any more.
            RedisError: the server refused.
        """
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
        """Close all connections, also those in use; calling it again does nothing."""
        self._is_closed = True
        for connection in self._connections:
            await _drop(connection)
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn

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
    """Connect, and anew where the server has gone or an answer stands that nobody waited for."""
    await connection.connect()
    if await connection.can_read():
        await _drop(connection)
        await connection.connect()


async def _drop(connection: AbstractConnection) -> None:
    """Close a connection without waiting for anything, so that no cancellation can come between."""
    await connection.disconnect(nowait=True)


class Graph(AsyncGraph):  # type: ignore[misc]  # the package is an extra, and unknown where it is not installed
    """A graph whose errors are ours, also those that stand at the end of an answer.

    Each learns anew which number stands for which name: that changes when a graph is removed and made again.
    """

    def __init__(self, server: CommandSender, name: str) -> None:
        super().__init__(server, name)
        self._server = server

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
            raise self._server.refused(error) from error


class _NumberList:
    """A list of numbers that is written out already: the client would write a vector number by number."""

    __slots__ = ("_text",)

    def __init__(self, numbers: list[object]) -> None:
        self._text = str(numbers)

    def __str__(self) -> str:
        return self._text


def _serialized(value: object) -> object:
    """Return a parameter with the lists of numbers in it written out."""
    if isinstance(value, dict):
        return {name: _serialized(item) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(type(item) is float for item in value):
        return _NumberList(value)
    return [_serialized(item) for item in value]
