"""FalkorDB as a place for graphs: values go in and come out whole, and what fails is told in our words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

from composable_memory.errors import BackendGarbled, BackendRejected, BackendTimeout, BackendUnavailable
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, ServerAddress, ServerHandle
from composable_memory_adapters.graphiti.database.falkor import FalkorDatabase
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from tests.integration.graphiti.conftest import TcpServer, free_port

pytest.importorskip("falkordb")

SLOW = "UNWIND range(1, 10000) AS x UNWIND range(1, 10000) AS y UNWIND range(1, 100) AS z RETURN sum(x)"
START = datetime(2026, 1, 1, tzinfo=UTC)
INDEX = b"CREATE INDEX FOR (n:Entity)"


@pytest.fixture
async def shared(tcp_server: TcpServer, tmp_path: Path) -> AsyncIterator[CypherDatabase]:
    settings = GraphitiSettings(url=tcp_server.url, password=SecretStr(tcp_server.password))
    async with open_database(settings, data_dir=tmp_path) as database:
        yield database


def at(url: str, user: str | None = None, password: str | None = None, **options: float) -> FalkorDatabase:
    address = ServerAddress(url=url, username=user, password=password)
    return FalkorDatabase(ServerHandle(address), **options)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        1e-7,
        2.5,
        "",
        "a \"quoted\" \\ back\\slash 'and' \n\t line",
        "Ærø 東京 🚲",
        [],
        [1, "two", None, [3.5]],
        {"a": 1, "b-c": [True]},
    ],
)
async def test_values_come_back_as_they_went(
    graph_database: CypherDatabase, group_id: str, value: object
) -> None:
    rows = await graph_database.write(group_id, "RETURN $value AS value", value=value)

    assert rows == [{"value": value}]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("nul\0byte", "nulbyte"),
        ("half \ud83d of a pair", "half ? of a pair"),
        (("a", "b"), ["a", "b"]),
        (datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))), "2026-05-01T12:00:00+00:00"),
        ([datetime(2026, 5, 1, tzinfo=UTC)], ["2026-05-01T00:00:00+00:00"]),
    ],
)
async def test_what_a_graph_cannot_hold_is_made_what_it_can(
    graph_database: CypherDatabase, group_id: str, value: object, stored: object
) -> None:
    assert await graph_database.write(group_id, "RETURN $value AS value", value=value) == [{"value": stored}]


async def test_vectors_nodes_and_facts_come_as_plain_values(
    graph_database: CypherDatabase, group_id: str
) -> None:
    rows = await graph_database.write(
        group_id,
        "CREATE (a:Entity {name: 'Ann'})-[e:RELATES_TO {fact: 'Ann rows', v: vecf32($v)}]->(a) RETURN a, e",
        v=[0.5, 0.25],
    )

    assert rows == [{"a": {"name": "Ann"}, "e": {"fact": "Ann rows", "v": [0.5, 0.25]}}]


async def test_the_group_of_the_call_stands_for_itself_in_a_statement(
    graph_database: CypherDatabase, group_id: str
) -> None:
    await graph_database.write(group_id, "CREATE (:Entity {group_id: $group_id})")

    rows = await graph_database.read(group_id, "MATCH (n:Entity {group_id: $group_id}) RETURN count(n) AS n")
    assert rows == [{"n": 1}]


async def test_a_group_that_is_not_there_has_no_rows_and_is_not_made_by_asking(
    graph_database: CypherDatabase, group_id: str
) -> None:
    assert await graph_database.read(group_id, "MATCH (n) RETURN n") == []

    assert group_id not in await graph_database.groups()


async def test_a_group_can_be_removed_twice_and_made_again_with_its_indexes(
    graph_database: CypherDatabase, group_id: str
) -> None:
    add = "CREATE (:Entity {uuid: 'u', name: $name, summary: ''})"
    await graph_database.write(group_id, add, name="Ann")
    assert group_id in await graph_database.groups()
    assert isinstance(graph_database, FalkorDatabase)
    await graph_database.drop(group_id)
    await graph_database.drop(group_id)
    assert group_id not in await graph_database.groups()

    await graph_database.write(group_id, add, name="Bob")
    search = "CALL db.idx.fulltext.queryNodes('Entity', 'bob') YIELD node RETURN node.name AS name"
    assert await graph_database.read(group_id, search) == [{"name": "Bob"}]


async def test_a_group_that_another_removed_is_made_again_with_its_indexes(
    graph_database: CypherDatabase, group_id: str, shared_graph_dir: Path
) -> None:
    await graph_database.write(group_id, "CREATE (:Entity {name: 'Ann'})")
    async with open_database(GraphitiSettings(), data_dir=shared_graph_dir) as another:
        assert isinstance(another, FalkorDatabase)
        await another.drop(group_id)

    await graph_database.write(group_id, "CREATE (:Entity {name: 'Bob'})")
    rows = await graph_database.read(group_id, "CALL db.indexes() YIELD label RETURN label ORDER BY label")
    assert [row["label"] for row in rows] == ["Entity", "Episodic", "MENTIONS", "RELATES_TO"]


async def test_no_time_has_a_range_index(graph_database: CypherDatabase, group_id: str) -> None:
    await graph_database.write(group_id, "CREATE (:Entity)")

    rows = await graph_database.read(
        group_id, "CALL db.indexes() YIELD label, types RETURN label, types ORDER BY label"
    )
    assert {row["label"]: sorted(cast("dict[str, Any]", row["types"])) for row in rows} == {
        "Entity": ["group_id", "name", "summary", "uuid"],
        "Episodic": ["content", "group_id", "name", "source", "source_description", "uuid"],
        "MENTIONS": ["group_id", "uuid"],
        "RELATES_TO": ["fact", "group_id", "name", "uuid"],
    }


async def test_times_compare_as_times(graph_database: CypherDatabase, group_id: str) -> None:
    times = [START + timedelta(hours=7 * number) for number in range(100)]
    await graph_database.write(
        group_id,
        """UNWIND range(0, size($times) - 1) AS i
        CREATE (n:Entity)-[:RELATES_TO {group_id: $group_id, valid_at: $times[i]}]->(n)""",
        times=times,
    )
    before = (
        "MATCH ()-[e:RELATES_TO {group_id: $group_id}]->() WHERE e.valid_at <= $time RETURN count(e) AS n"
    )

    for number, time in enumerate(times):
        local = time.astimezone(timezone(timedelta(hours=9)))
        assert await graph_database.read(group_id, before, time=local) == [{"n": number + 1}]


async def test_a_bad_statement_is_refused_with_what_the_server_said(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with pytest.raises(BackendRejected, match="Invalid input"):
        await graph_database.write(group_id, "CREATE (n")


async def test_a_statement_that_fails_at_its_end_is_refused(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with pytest.raises(BackendRejected, match="Type mismatch"):
        await graph_database.write(group_id, "UNWIND [1, 'a'] AS x RETURN abs(x)")


async def test_a_read_may_not_write(graph_database: CypherDatabase, group_id: str) -> None:
    await graph_database.write(group_id, "CREATE (:Entity)")

    with pytest.raises(BackendRejected, match="read-only"):
        await graph_database.read(group_id, "CREATE (:Entity)")


async def test_vectors_of_another_length_are_refused_with_what_helps(
    graph_database: CypherDatabase, group_id: str
) -> None:
    await graph_database.write(group_id, "CREATE (:Entity {v: vecf32([1.0, 2.0])})")

    with pytest.raises(BackendRejected, match=r"dimension.*cmem index --force"):
        await graph_database.read(
            group_id, "MATCH (n:Entity) RETURN vec.cosineDistance(n.v, vecf32([1.0])) AS d"
        )


async def test_a_long_query_ends_at_its_limit_and_others_go_on(tcp_server: TcpServer, group_id: str) -> None:
    database = at(tcp_server.url, password=tcp_server.password, limit_s=0.4)
    await database.write(group_id, "CREATE (:Entity)")

    with pytest.raises(BackendTimeout):
        await database.read(group_id, SLOW)
    assert await database.read(group_id, "MATCH (n:Entity) RETURN count(n) AS n") == [{"n": 1}]
    await database.close()


async def test_cancelled_calls_leave_the_connections_usable(
    graph_database: CypherDatabase, group_id: str
) -> None:
    await graph_database.write(group_id, "CREATE (:Entity)")
    for turns in range(40):
        asking = asyncio.create_task(graph_database.read(group_id, "MATCH (n:Entity) RETURN count(n) AS n"))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])

    answers = (graph_database.read(group_id, "RETURN $i AS i", i=i) for i in range(60))
    assert await asyncio.gather(*answers) == [[{"i": i}] for i in range(60)]


async def test_a_shared_server_is_asked_by_address_and_password(
    shared: CypherDatabase, tcp_server: TcpServer, group_id: str
) -> None:
    await shared.write(group_id, "CREATE (:Entity)")

    assert group_id in await shared.groups()
    assert (await shared.health()).ok
    described = shared.describe()
    assert described["place"] == f"falkor://127.0.0.1:{tcp_server.port}"
    assert described["version"].startswith("4.")


async def test_a_closed_shared_database_says_so(shared: CypherDatabase, group_id: str) -> None:
    await shared.groups()
    await shared.close()
    await shared.close()

    with pytest.raises(BackendUnavailable, match="closed"):
        await shared.read(group_id, "RETURN 1")


@pytest.mark.parametrize("user", [(None, None), (None, "wrong"), ("nobody", "wrong")])
async def test_a_wrong_password_is_called_one(
    tcp_server: TcpServer, user: tuple[str | None, str | None]
) -> None:
    database = at(tcp_server.url, *user)

    with pytest.raises(BackendUnavailable, match=r"rejects the user or password; check graphiti\.username"):
        await database.groups()
    await database.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
async def test_a_server_that_is_not_there_is_named(host: str) -> None:
    database = at(f"falkor://{host}:{free_port()}")

    with pytest.raises(BackendUnavailable, match=f"no connection to falkor://{host}:"):
        await database.groups()
    assert not (await database.health()).ok
    await database.close()


async def test_a_server_that_speaks_something_else_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        database = at(f"falkor://127.0.0.1:{port}")
        with pytest.raises(BackendGarbled, match="Protocol error"):
            await database.groups()
        await database.close()


@asynccontextmanager
async def swallowing(server: TcpServer, answers: int) -> AsyncIterator[str]:
    """Yield an address of a server that keeps back so many answers about the first index."""
    swallowed = 0
    served: list[asyncio.Task[None] | None] = []

    async def forward(source: asyncio.StreamReader, to: asyncio.StreamWriter, asked: list[bytes]) -> None:
        nonlocal swallowed
        while data := await source.read(65536):
            if asked and INDEX in asked.pop() and swallowed < answers:
                swallowed += 1
                continue
            to.write(data)
            await to.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        there, to = await asyncio.open_connection("127.0.0.1", server.port)
        asked: list[bytes] = []
        back = asyncio.create_task(forward(there, writer, asked))
        while data := await reader.read(65536):
            asked.append(data)
            to.write(data)
        for one in (to, writer):
            one.close()
        await asyncio.gather(back, to.wait_closed(), writer.wait_closed(), return_exceptions=True)

    async with await asyncio.start_server(serve, "127.0.0.1") as proxy:
        yield f"falkor://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        assert swallowed == answers
        await asyncio.gather(*filter(None, served))


async def test_an_index_whose_answer_does_not_come_is_asked_for_again(
    tcp_server: TcpServer, group_id: str
) -> None:
    async with swallowing(tcp_server, answers=1) as url:
        database = at(url, password=tcp_server.password, limit_s=8.0)
        await asyncio.gather(*(database.write(group_id, "CREATE (:Entity)") for _ in range(3)))
        labels = await database.read(group_id, "CALL db.indexes() YIELD label RETURN label ORDER BY label")
        await database.close()

    assert [row["label"] for row in labels] == ["Entity", "Episodic", "MENTIONS", "RELATES_TO"]


async def test_a_server_that_never_answers_about_an_index_is_given_up(
    tcp_server: TcpServer, group_id: str
) -> None:
    async with swallowing(tcp_server, answers=2) as url:
        database = at(url, password=tcp_server.password, limit_s=0.4)
        with pytest.raises(BackendTimeout, match="make the indexes of the graph") as told:
            await database.write(group_id, "CREATE (:Entity)")
        await database.close()

    assert told.value.limit_s == 0.4
