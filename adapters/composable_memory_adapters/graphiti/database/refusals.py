"""Translates the errors of a FalkorDB server into ours."""

import re
from typing import NamedTuple

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

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
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
