"""Neo4j as a place for graphs, as far as it shows without a server."""

import asyncio
import re

import pytest

pytest.importorskip("neo4j")

from neo4j import exceptions, time

from composable_memory.content import Health
from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory_adapters.graphiti.database import neo4j
from composable_memory_adapters.graphiti.database.cypher import ServerAddress


def at(url: str, **options: float) -> neo4j.Neo4jDatabase:
    address = ServerAddress(url=url, password="secret")
    return neo4j.Neo4jDatabase(address, database="notes", **options)


def kinds(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(kind for below in root.__subclasses__() for kind in kinds(below))]


def of_code(code: str) -> exceptions.Neo4jError:
    return exceptions.Neo4jError._hydrate_neo4j(code=code, message="what the server said")


@pytest.mark.parametrize(
    "kind", [*kinds(exceptions.Neo4jError), *kinds(exceptions.DriverError)], ids=lambda kind: kind.__name__
)
def test_every_error_of_the_driver_has_a_meaning(kind: type[Exception]) -> None:
    error = kind.__new__(kind)
    error.args = ("said",)
    if isinstance(error, exceptions.Neo4jError):
        error._neo4j_code, error._message = "Neo.ClientError.Statement.Odd", "said"

    assert isinstance(at("neo4j://graph")._refused(error, "read the graph"), BackendError)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            of_code("Neo.ClientError.Security.Unauthorized"),
            BackendUnavailable,
            "rejects the user or password",
        ),
        (of_code("Neo.ClientError.Security.Forbidden"), BackendUnavailable, "grant the user that right"),
        (of_code("Neo.ClientError.Statement.SyntaxError"), BackendRejected, "what the server said"),
        (of_code("Neo.ClientError.Database.DatabaseNotFound"), BackendUnavailable, "no database 'notes'"),
        (of_code("Neo.ClientError.Transaction.TransactionTimedOut"), BackendTimeout, "limit 60 s"),
        (of_code("Neo.TransientError.General.MemoryPoolOutOfMemoryError"), BackendUnavailable, "try again"),
        (of_code("Neo.DatabaseError.General.UnknownError"), BackendUnavailable, "try again later"),
        (exceptions.ServiceUnavailable("no route"), BackendUnavailable, "no connection to neo4j://graph"),
        (exceptions.IncompleteCommit("cut"), BackendUnavailable, "may or may not have been done"),
        (exceptions.ConfigurationError("odd scheme"), BackendUnavailable, "check graphiti.url"),
        (exceptions.BrokenRecordError("torn"), BackendGarbled, "torn"),
        (exceptions.ResultError(None, "used twice"), BackendRejected, "ResultError"),
    ],
    ids=lambda value: None if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
def test_an_error_says_what_it_means(error: Exception, kind: type[BackendError], message: str) -> None:
    meant = at("neo4j://graph")._refused(error, "read the graph")

    assert type(meant) is kind
    assert message in str(meant)
    assert "secret" not in str(meant)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    databases = [at(url) for url in ("bolt://127.0.0.1:1", "neo4j://no-such-host.invalid")]
    reads = (database.read("g", "RETURN 1") for database in databases)
    probes = (database.health() for database in databases)

    *found, first, second = await asyncio.gather(*reads, *probes, return_exceptions=True)

    for one in found:
        assert isinstance(one, BackendUnavailable)
        assert "no connection to" in str(one) or "check graphiti" in str(one)
    assert [one.ok for one in (first, second) if isinstance(one, Health)] == [False, False]
    for database in databases:
        await database.close()


async def test_a_server_that_speaks_something_else_is_unavailable() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        database = at(f"bolt://127.0.0.1:{server.sockets[0].getsockname()[1]}", limit_s=1.0)
        with pytest.raises((BackendUnavailable, BackendTimeout, BackendRejected)):
            await database.groups()
        await database.close()


async def test_a_closed_database_says_so() -> None:
    database = at("bolt://127.0.0.1:1")
    await database.close()
    await database.close()

    with pytest.raises(BackendUnavailable, match="closed"):
        await database.read("g", "RETURN 1")


def test_what_is_known_without_asking_has_no_secrets() -> None:
    assert at("neo4j://graph:7687?policy=eu").describe() == {
        "kind": "neo4j",
        "place": "neo4j://graph:7687",
        "database": "notes",
    }


def test_times_of_the_driver_come_as_texts() -> None:
    found = neo4j._readable({"at": [time.DateTime(2026, 5, 1, 12)], "n": 1})

    assert found == {"at": ["2026-05-01T12:00:00+00:00"], "n": 1}


def test_indexes_have_the_names_that_graphiti_core_asks_for() -> None:
    named = [re.search(r"INDEX (\w+) IF NOT EXISTS", statement) for statement in neo4j.INDEXES]

    names = [found[1] for found in named if found]
    assert len(names) == len(set(names)) == len(neo4j.INDEXES)
    assert {"edge_name_and_fact", "node_name_and_summary", "episode_content"} <= set(names)
