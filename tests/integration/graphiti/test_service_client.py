"""The client of the graph service: every route, and every way in which a request can fail."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import pytest

from composable_memory.content import (
    Health,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
)
from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.testing import FIXED_NOW
from composable_memory_adapters.graphiti.service.client import GraphitiClient
from composable_memory_adapters.http_client import MAX_ANSWER_BYTES
from composable_memory_ops_logs import GraphitiHealth, GraphitiIngest, GraphitiQuery, MemorySink, OpsLog
from tests.integration.embedders.loopback import Received, Reply
from tests.integration.graphiti.graph_service import GraphService, at, running
from tests.variants import variants

KEY = "a-key-that-nobody-should-read-0123456789"
GROUP = "main"
Ask = Callable[[GraphitiClient], Awaitable[object]]

ASKS: dict[str, Ask] = {
    "ingest": lambda client: client.ingest_episodes(episodes=[note("n1", "Ada likes tea")]),
    "search": lambda client: client.query_hybrid(query="tea"),
    "list episodes": lambda client: client.episodes(GROUP),
    "read a fact": lambda client: client.fact("f1"),
    "forget an episode": lambda client: client.forget("e1"),
    "forget a fact": lambda client: client.forget_fact("f1"),
}
READ = ["ingest", "search", "list episodes", "read a fact"]
"""Those whose answer is read, not only its status."""


def note(own_id: str, text: str | None, **known: object) -> MemoryContentObject:
    return MemoryContentObject(id=own_id, kind="message", text=text, **known)  # type: ignore[arg-type]


def failing(reply: Reply) -> GraphService:
    return GraphService(fault=lambda _: reply)


@pytest.fixture
async def service() -> AsyncIterator[GraphService]:
    async with running(GraphService(now=FIXED_NOW)) as service:
        yield service


@pytest.fixture
async def client(service: GraphService, ops_log: OpsLog) -> AsyncIterator[GraphitiClient]:
    async with GraphitiClient(base_url=service.url, ops_log=ops_log, clock=lambda: FIXED_NOW) as client:
        yield client


async def raised(service: GraphService, ask: Ask, *, api_key: str | None = None) -> BackendError:
    """Return what an ask of a service raises."""
    async with running(service), GraphitiClient(base_url=service.url, api_key=api_key) as client:
        with pytest.raises(BackendError) as caught:
            await ask(client)
    return caught.value


# --- routes -------------------------------------------------------------------------------------------------


async def test_contents_become_messages_of_a_group(service: GraphService, client: GraphitiClient) -> None:
    observed = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    content = note(
        "n1",
        "Ada moved to Oslo",
        provenance=MemoryProvenance(source="chat", actor_id="ada", citations=("memory/a.md#L3-L7",)),
        temporal=MemoryTemporalMetadata(observed_at=observed),
    )

    report = await client.ingest_episodes(episodes=[content], group_id="team-1")

    assert (report.accepted, report.skipped) == (1, 0)
    assert service.bodies("/messages") == [
        {
            "group_id": "team-1",
            "messages": [
                {
                    "name": "n1",
                    "content": "Ada moved to Oslo",
                    "role_type": "user",
                    "role": "ada",
                    "timestamp": observed.isoformat(),
                    "source_description": "memory/a.md#L3-L7",
                }
            ],
        }
    ]


async def test_a_message_never_has_an_id_that_would_end_the_worker(
    service: GraphService, client: GraphitiClient
) -> None:
    await client.ingest_episodes(
        episodes=[note(f"n{number}", f"Ada likes tea {number}") for number in range(3)]
    )
    await service.caught_up()

    assert not service.died.is_set()
    assert [one.name for one in await client.episodes(GROUP)] == ["n0", "n1", "n2"]


@pytest.mark.parametrize("group_id", ["", "a:b", "a b", "ä", "a/b", "a\n"])
async def test_a_group_that_would_end_the_worker_is_not_sent(
    service: GraphService, client: GraphitiClient, group_id: str
) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        await client.ingest_episodes(episodes=[note("n1", "Ada likes tea")], group_id=group_id)

    assert service.received == []


@pytest.mark.parametrize(
    ("content", "role_type", "role"),
    [
        (note("n1", "hi"), "user", None),
        (note("n1", "hi", metadata={"role": "assistant"}), "assistant", None),
        (note("n1", "hi", metadata={"role": "tool"}), "user", None),
        (MemoryContentObject(id="n1", kind="document", text="hi"), "system", None),
        (note("n1", "hi", provenance=MemoryProvenance(source="s", actor_id="a(b)\nc")), "user", "a b c"),
    ],
)
async def test_a_role_is_one_that_the_service_knows(
    service: GraphService,
    client: GraphitiClient,
    content: MemoryContentObject,
    role_type: str,
    role: str | None,
) -> None:
    await client.ingest_episodes(episodes=[content])

    (sent,) = service.bodies("/messages")[0]["messages"]
    assert (sent["role_type"], sent["role"]) == (role_type, role)


async def test_contents_without_text_are_named_and_not_sent(
    service: GraphService, client: GraphitiClient
) -> None:
    report = await client.ingest_episodes(episodes=[note("n1", None), note("n2", "  ")])

    assert (report.accepted, report.skipped, service.received) == (0, 2, [])
    assert [warning.code for warning in report.warnings] == ["graphiti.no_text"] * 2


async def test_times_without_a_zone_and_from_the_future_are_sent_in_utc_and_as_past(
    service: GraphService, client: GraphitiClient
) -> None:
    naive = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - what is tested
    future = datetime(2999, 1, 1, tzinfo=UTC)
    contents = [
        note("n1", "Ada likes tea", temporal=MemoryTemporalMetadata(observed_at=naive)),
        note("n2", "Bob likes tea", temporal=MemoryTemporalMetadata(observed_at=future)),
    ]

    await client.ingest_episodes(episodes=contents)

    sent = [datetime.fromisoformat(one["timestamp"]) for one in service.bodies("/messages")[0]["messages"]]
    assert all(moment.utcoffset() is not None for moment in sent)
    assert sent == [naive.replace(tzinfo=UTC), FIXED_NOW]


@pytest.mark.parametrize(
    "text", ["Ünïcödé 東京 🍵", "a\0b", "half a pair \ud800 here", '"quotes" \\ and\nlines']
)
async def test_any_text_arrives(service: GraphService, client: GraphitiClient, text: str) -> None:
    await client.ingest_episodes(episodes=[note("n1", text)])

    (sent,) = service.bodies("/messages")[0]["messages"]
    assert sent["content"] == text.replace("\0", " ").replace("\ud800", "?")


async def test_facts_keep_their_times_nodes_and_episodes(
    service: GraphService, client: GraphitiClient
) -> None:
    service.tell(
        GROUP,
        "Ada lives in Oslo",
        valid_at=at("2026-01-02"),
        invalid_at="2026-02-03T00:00:00",
        expired_at="2026-02-04T02:00:00+02:00",
        episodes=["e1"],
        something_new=1,
    )

    (fact,) = await client.query_hybrid(query="Where does Ada live?", group_ids=[GROUP])

    assert (fact.fact, fact.name, fact.episodes) == ("Ada lives in Oslo", "RELATES_TO", ("e1",))
    assert fact.valid_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert fact.invalid_at == datetime(2026, 2, 3, tzinfo=UTC)
    assert fact.expired_at == datetime(2026, 2, 4, tzinfo=UTC)
    assert fact.created_at == FIXED_NOW
    assert len({fact.source_node_uuid, fact.target_node_uuid} - {""}) == 2


async def test_a_search_brings_no_more_facts_than_were_asked_for(
    service: GraphService, client: GraphitiClient
) -> None:
    for group_id in ("a", "b"):
        for number in range(3):
            service.tell(group_id, f"Ada likes tea {number}")

    facts = await client.query_hybrid(query="tea", limit=2, group_ids=["a", "b"])

    assert len(facts) == 2
    assert service.bodies("/search") == [{"query": "tea", "max_facts": 2, "group_ids": ["a", "b"]}]


async def test_a_search_without_groups_names_none(service: GraphService, client: GraphitiClient) -> None:
    await client.query_hybrid(query="tea")

    assert service.bodies("/search") == [{"query": "tea", "max_facts": 10}]


async def test_a_blank_query_is_not_asked(service: GraphService, client: GraphitiClient) -> None:
    assert await client.query_hybrid(query=" \n") == ()
    assert service.received == []


async def test_one_fact_is_read_and_forgotten(service: GraphService, client: GraphitiClient) -> None:
    told = service.tell(GROUP, "Ada likes tea")

    found = await client.fact(told["uuid"])
    forgotten = [await client.forget_fact(told["uuid"]) for _ in range(2)]

    assert found is not None
    assert found.fact == "Ada likes tea"
    assert forgotten == [True, False]
    assert await client.fact(told["uuid"]) is None


async def test_an_episode_is_forgotten_once(service: GraphService, client: GraphitiClient) -> None:
    await client.ingest_episodes(episodes=[note("n1", "Ada likes tea")])
    await service.caught_up()
    (episode,) = await client.episodes(GROUP, last_n=1)

    assert [await client.forget(episode.uuid) for _ in range(2)] == [True, False]


async def test_an_id_stays_one_part_of_the_path(service: GraphService, client: GraphitiClient) -> None:
    assert await client.fact("../episode/ä?x=1#y") is None
    assert service.received[0].path.startswith("/entity-edge/..%2Fepisode%2F%C3%A4%3Fx%3D1%23y")


async def test_the_service_says_that_it_is_well(service: GraphService, client: GraphitiClient) -> None:
    assert await client.health() == Health(ok=True, message="healthy")


async def test_a_service_below_a_path_is_asked_there(service: GraphService) -> None:
    service.fault = lambda received: (
        Reply.of({"status": "healthy"}) if received.path == "/graph/healthcheck" else None
    )
    async with GraphitiClient(base_url=f"{service.url}/graph/") as client:
        assert (await client.health()).ok


async def test_host_and_port_are_an_address_too(service: GraphService) -> None:
    port = int(service.url.rpartition(":")[2])
    async with GraphitiClient(server_host="127.0.0.1", service_port=port) as client:
        assert (await client.health()).ok


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("status", variants([500, 502, 503, 429, 408], 503))
async def test_trouble_of_the_service_is_an_error_and_no_empty_answer(ask: Ask, status: int) -> None:
    error = await raised(failing(Reply(status=status, body=b"Internal Server Error")), ask)

    assert type(error) is BackendUnavailable
    assert f"answered {status}" in str(error)
    assert "Internal Server Error" in str(error)


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
async def test_a_refused_request_is_told_with_the_reason(ask: Ask) -> None:
    detail = [{"loc": ["body", "x"], "msg": "Field required"}]
    error = await raised(failing(Reply.of({"detail": detail}, 422)), ask)

    assert type(error) is BackendRejected
    assert "422" in str(error)
    assert "Field required" in str(error)


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
async def test_a_server_that_is_no_graph_service_is_told(ask: Ask) -> None:
    error = await raised(failing(Reply.of({"detail": "Not Found"}, 404)), ask)

    assert type(error) is BackendUnavailable
    assert "memory.graphiti.base_url" in str(error)


@pytest.mark.parametrize("operation", READ)
@pytest.mark.parametrize("body", [b"", b"<html>", b"null", b"[1]", b'{"facts": 1}', b'{"facts": [{}]}'])
async def test_an_unreadable_answer_is_an_error(operation: str, body: bytes) -> None:
    error = await raised(failing(Reply(body=body)), ASKS[operation])

    assert type(error) is BackendGarbled
    assert error.operation == operation


async def test_messages_that_are_not_taken_are_an_error() -> None:
    error = await raised(failing(Reply.of({"success": False, "message": "full"}, 202)), ASKS["ingest"])

    assert type(error) is BackendGarbled
    assert "full" in str(error)


@pytest.mark.parametrize("ask", variants(ASKS.values(), next(iter(ASKS.values()))), ids=ASKS)
async def test_an_answer_without_end_is_cut(ask: Ask) -> None:
    error = await raised(failing(Reply(body=b" " * (MAX_ANSWER_BYTES + 1))), ask)

    assert type(error) is BackendGarbled
    assert f"{MAX_ANSWER_BYTES // 2**20} MiB" in str(error)


async def test_a_large_answer_is_read(service: GraphService, client: GraphitiClient) -> None:
    for number in range(300):
        service.tell(GROUP, f"Ada likes tea {number} " + "x" * 3000)

    assert len(await client.query_hybrid(query="tea", limit=300)) == 300


async def test_a_connection_that_breaks_off_is_an_error() -> None:
    error = await raised(failing(Reply(body=b'{"facts": []}', cut=True)), ASKS["search"])

    assert type(error) is BackendUnavailable
    assert "broke off" in str(error)


async def test_nobody_at_the_address_is_an_error(service: GraphService) -> None:
    async with running(GraphService()) as gone:
        url = gone.url
    async with GraphitiClient(base_url=url) as client:
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            await client.query_hybrid(query="tea")


@pytest.mark.parametrize("location", ["http://elsewhere.invalid/search", "/search/"])
async def test_redirects_are_not_followed(location: str) -> None:
    service = failing(Reply(status=307, headers={"location": location}))
    error = await raised(service, ASKS["search"])

    assert type(error) is BackendUnavailable
    assert "redirects are not followed" in str(error)
    assert len(service.received) == 1


@pytest.mark.parametrize("reply", [Reply(body=b'{"facts": []}', drip=True), None], ids=["drips", "hangs"])
async def test_an_answer_that_never_comes_is_waited_for_so_long(reply: Reply | None) -> None:
    service = GraphService(fault=lambda _: reply)
    if reply is None:
        service.answer = lambda _: asyncio.Event().wait()  # type: ignore[assignment,method-assign,return-value]
    async with running(service), GraphitiClient(base_url=service.url, timeout_ms=200) as client:
        with pytest.raises(BackendTimeout) as caught:
            await client.query_hybrid(query="tea")
        async with asyncio.timeout(10):
            await service.deserted.wait()

    assert caught.value.limit_s == 0.2


async def test_health_is_told_and_not_raised() -> None:
    replies = [
        Reply(status=500),
        Reply.of({"status": "degraded"}),
        Reply(body=b"?"),
        Reply.of({"detail": "Not Found"}, 404),
    ]
    for reply in replies:
        service = failing(reply)
        async with running(service), GraphitiClient(base_url=service.url) as client:
            assert not (await client.health()).ok


async def test_a_cancelled_request_goes_away_and_leaves_the_client_usable(
    service: GraphService, client: GraphitiClient
) -> None:
    arrived, usual = asyncio.Event(), service.answer

    async def hang(received: Received) -> Reply:
        if received.path == "/search":
            arrived.set()
            await asyncio.Event().wait()
        return await usual(received)

    assert service._loopback is not None
    service._loopback.answer = hang
    asking = asyncio.create_task(client.query_hybrid(query="tea"))
    async with asyncio.timeout(10):
        await arrived.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await service.deserted.wait()

    assert (await client.health()).ok


async def test_a_closed_client_says_so(service: GraphService, client: GraphitiClient) -> None:
    await client.health()
    await client.close()
    await client.close()

    for ask in ASKS.values():
        with pytest.raises(BackendUnavailable, match="closed"):
            await ask(client)


async def test_closing_ends_what_is_asked(service: GraphService) -> None:
    arrived = asyncio.Event()

    async def hang(_: Received) -> Reply:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    assert service._loopback is not None
    service._loopback.answer = hang
    client = GraphitiClient(base_url=service.url, timeout_ms=60_000)
    asking = asyncio.create_task(client.query_hybrid(query="tea"))
    async with asyncio.timeout(10):
        await arrived.wait()
        await client.close()
        with pytest.raises(BackendError):
            await asking


# --- keys ---------------------------------------------------------------------------------------------------


async def test_a_key_goes_along() -> None:
    service = GraphService(key=KEY)
    async with running(service), GraphitiClient(base_url=service.url, api_key=KEY) as client:
        assert (await client.health()).ok
        assert await client.query_hybrid(query="tea") == ()


async def test_without_a_key_none_is_sent(service: GraphService, client: GraphitiClient) -> None:
    await client.health()

    assert "authorization" not in service.received[0].headers


async def test_a_wrong_key_is_no_fault_of_the_contents() -> None:
    error = await raised(GraphService(key=KEY), ASKS["ingest"], api_key="wrong")

    assert type(error) is BackendUnavailable
    assert "memory.graphiti.api_key" in str(error)


@pytest.mark.parametrize("status", [200, 302, 401, 422, 500])
async def test_the_key_is_never_told(status: int, ops_log: OpsLog, events: MemorySink) -> None:
    body = json.dumps({"detail": f"not with Bearer {KEY}"}).encode()
    location = f"http://user:{KEY}@elsewhere.invalid/"
    service = failing(
        Reply(status=status, body=body, headers={"location": location} if status == 302 else {})
    )
    async with running(service):
        url = service.url.replace("http://", f"http://user:{KEY}@")
        async with GraphitiClient(base_url=url, api_key=KEY, ops_log=ops_log) as client:
            with pytest.raises(BackendError) as caught:
                await client.query_hybrid(query="tea")
            health = await client.health()

    chain = []
    error: BaseException | None = caught.value
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__
    assert KEY not in "".join(map(repr, chain))
    assert KEY not in repr(health)
    assert KEY not in repr([event.detail for event in events.events])


# --- events -------------------------------------------------------------------------------------------------


async def test_events_carry_the_trace_of_the_caller(
    service: GraphService, client: GraphitiClient, events: MemorySink
) -> None:
    content = note("n1", "Ada likes tea", temporal=MemoryTemporalMetadata(observed_at=FIXED_NOW))
    await client.ingest_episodes(episodes=[content], trace_id="abc-123")
    await service.caught_up()
    (fact,) = await client.query_hybrid(query="tea", limit=3, trace_id="abc-124")
    await client.health()

    ingest, query, health = events.events
    assert [(one.action, one.status, one.backend) for one in events.events] == [
        ("graphiti.ingest", "success", "graphiti"),
        ("graphiti.query", "success", "graphiti"),
        ("graphiti.health", "success", "graphiti"),
    ]
    assert (ingest.trace_id, query.trace_id) == ("abc-123", "abc-124")
    assert ingest.detail == GraphitiIngest(episode_count=1, episode_ids=["n1"], warnings=[])
    assert query.detail == GraphitiQuery(
        query="tea",
        limit=3,
        fact_count=1,
        node_ids=[fact.source_node_uuid, fact.target_node_uuid],
        episode_ids=list(fact.episodes),
    )
    assert health.detail == GraphitiHealth(ok=True, message="healthy")


async def test_failures_are_events_too(ops_log: OpsLog, events: MemorySink) -> None:
    service = failing(Reply(status=500))
    async with running(service), GraphitiClient(base_url=service.url, ops_log=ops_log) as client:
        for operation in ("ingest", "search"):
            with pytest.raises(BackendError):
                await ASKS[operation](client)
        await client.health()

    assert [(one.action, one.status) for one in events.events] == [
        ("graphiti.ingest", "failure"),
        ("graphiti.query", "failure"),
        ("graphiti.health", "failure"),
    ]
    for one in events.events[:2]:
        assert isinstance(one.detail, GraphitiIngest | GraphitiQuery)
        assert one.detail.error is not None
        assert one.detail.error.type == "BackendUnavailable"
