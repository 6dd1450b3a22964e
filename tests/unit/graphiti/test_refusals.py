"""Everything that FalkorDB's client raises has its meaning in our errors."""

import inspect

import pytest

pytest.importorskip("redis")

from redis import exceptions

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory_adapters.graphiti.database.connections import (
    NOT_LOST,
    Call,
    translated,
)
from composable_memory_adapters.graphiti.database.falkor import is_missing_graph

CALL = Call(operation="read the graph", server="falkor://graph:6379", limit_s=60.0)

NEVER_MET = {
    "ChildDeadlockedError",  # none of these comes from a single server that is sent single commands
    "CrossSlotTransactionError",
    "IncorrectPolicyType",
    "InvalidPipelineStack",
    "RedisClusterException",
    "SlotNotCoveredError",
}
LOST = (exceptions.ConnectionError, exceptions.TimeoutError)
"""These mean that the connection broke; `ConnectionPool` tells them apart from refusals."""


def foreign() -> list[type[Exception]]:
    return [
        kind
        for name, kind in inspect.getmembers(exceptions, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == exceptions.__name__ and name not in NEVER_MET
    ]


@pytest.mark.parametrize("kind", foreign(), ids=lambda kind: kind.__name__)
def test_every_error_of_the_client_has_a_meaning(kind: type[Exception]) -> None:
    assert issubclass(kind, exceptions.RedisError)
    if issubclass(kind, LOST) and not issubclass(kind, NOT_LOST):
        return
    error = kind.__new__(kind)
    error.args = ("1234 graph:6379",)

    assert isinstance(translated(error, CALL), BackendError)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            exceptions.AuthenticationError("WRONGPASS"),
            BackendUnavailable,
            "rejects the user or password; check",
        ),
        (exceptions.NoPermissionError("no right to graph.query"), BackendUnavailable, "no right"),
        (exceptions.OutOfMemoryError("command not allowed"), BackendUnavailable, "out of memory; give"),
        (exceptions.ReadOnlyError("a read only replica"), BackendUnavailable, "read only replica; try again"),
        (exceptions.BusyLoadingError("is loading"), BackendUnavailable, "is loading; try again"),
        (
            exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
            BackendUnavailable,
            "full or broken",
        ),
        (
            exceptions.ResponseError("unknown command 'GRAPH.QUERY', with args beginning with: 'g'"),
            BackendUnavailable,
            "a Redis without FalkorDB; load its module",
        ),
        (exceptions.ResponseError("Query timed out"), BackendTimeout, "limit 60 s"),
        (exceptions.ResponseError("Vector dimension mismatch"), BackendRejected, "cmem index --force"),
        (exceptions.ResponseError("errMsg: Invalid input"), BackendRejected, "errMsg: Invalid input"),
        (exceptions.InvalidResponse("got H"), BackendGarbled, "expected an answer, got"),
        (exceptions.DataError("Invalid input of type"), BackendRejected, "DataError"),
    ],
    ids=lambda value: None if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
def test_a_refusal_says_what_it_means(
    error: exceptions.RedisError, kind: type[BackendError], message: str
) -> None:
    meant = translated(error, CALL)

    assert type(meant) is kind
    assert message in str(meant)


def test_a_graph_that_is_not_there_is_told_from_other_refusals() -> None:
    absent = exceptions.ResponseError("Invalid graph operation on empty key")

    assert is_missing_graph(translated(absent, CALL))
    assert not is_missing_graph(translated(exceptions.ResponseError("errMsg: other"), CALL))
