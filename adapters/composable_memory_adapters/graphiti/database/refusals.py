"""What a FalkorDB server's refusals mean, in our errors."""

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

__all__ = ["Call", "is_about_limit", "is_about_nothing", "is_done_already", "refused"]

TRY_LATER = (BusyLoadingError, ClusterDownError, ClusterError, ReadOnlyError)


class Call(NamedTuple):
    """What was being done, where, and how long it may take."""

    backend_id: str
    operation: str
    place: str
    limit_s: float


def refused(error: RedisError, call: Call) -> BackendError:
    """Return the error of ours that says the same as the server."""
    said = str(error)
    match error:
        case AuthenticationError() | AuthorizationError() | AuthenticationWrongNumberOfArgsError():
            what = f"{call.place} refuses user or password"
            return _unavailable(call, what, "check graphiti.username and graphiti.password")
        case NoPermissionError():
            return _unavailable(call, f"{call.place}: {said}", "give the user the right, or use another one")
        case OutOfMemoryError():
            return _unavailable(call, f"{call.place} is out of memory", "give it more, or remove groups")
        case InvalidResponse():
            return BackendGarbled(call.backend_id, call.operation, excerpt=said, expected="an answer")
        case ResponseError() | ClusterError() | BusyLoadingError():
            return _of_response(said, call, is_passing=isinstance(error, TRY_LATER))
        case _:
            return BackendRejected(call.backend_id, call.operation, status=type(error).__name__, body=said)


def is_about_limit(error: BackendError) -> bool:
    """Return whether a read was refused since the server allows less time than was asked for."""
    return "TIMEOUT_MAX" in str(error)


def is_about_nothing(error: BackendError) -> bool:
    """Return whether a graph was refused since it is not there."""
    return re.search("Invalid graph operation on empty key|no such key", str(error)) is not None


def is_done_already(error: BackendError) -> bool:
    """Return whether an index was refused since it is there."""
    return re.search("already indexed|Stopwords are already set", str(error)) is not None


def _of_response(said: str, call: Call, *, is_passing: bool) -> BackendError:
    if "Query timed out" in said:
        return BackendTimeout(call.backend_id, call.operation, limit_s=call.limit_s, elapsed_s=call.limit_s)
    if re.search("MISCONF|No space left", said):
        return _unavailable(call, f"the disk of {call.place} is full or broken: {said}", "make room there")
    if re.search("unknown command .?GRAPH", said, re.IGNORECASE):
        return _unavailable(call, f"{call.place} is a Redis without FalkorDB", "load its module")
    if is_passing:
        return _unavailable(call, f"{call.place}: {said}", "try again later")
    if "dimension" in said.lower():
        said = f"{said}; the vectors are another model's: `cmem index --force` makes them anew"
    return BackendRejected(call.backend_id, call.operation, status="an error of the query", body=said)


def _unavailable(call: Call, what: str, fix: str) -> BackendUnavailable:
    return BackendUnavailable(call.backend_id, what, fix=fix, operation=call.operation)
