"""Episodes are read with a language model: its facts are stored, and what it cannot do leaves nothing."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from composable_memory.content import MemoryContentObject, MemoryTemporalMetadata
from composable_memory.errors import (
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.interfaces import EmbedderAdapter
from composable_memory.testing import FIXED_NOW, HashEmbedder
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.fact_stores import Added
from composable_memory_adapters.graphiti.settings import GraphitiSettings, LlmSettings
from tests.integration.graphiti.chat_endpoint import Call, ChatEndpoint, Reply, facts_of

pytest.importorskip("graphiti_core")

from composable_memory_adapters.graphiti.library.episode_reader import EpisodeReader, open_reader

OBSERVED = datetime(2026, 3, 1, tzinfo=UTC)
FACTS = "MATCH (s)-[e:RELATES_TO]->(t) RETURN e.fact AS fact, e.episodes AS episodes ORDER BY fact"
ENTITIES = "MATCH (n:Entity) RETURN n.name AS name ORDER BY name"
EVERYTHING = "MATCH (n) WHERE NOT n:CmemMeta RETURN labels(n) AS labels, n.name AS name"


def draft(group_id: str, content_id: str = "c1", *, observed_at: datetime = OBSERVED) -> EpisodeDraft:
    text = f"Zelda keeps the boat in Bergen ({content_id})"
    return EpisodeDraft(
        id=graph_id(group_id, content_id),
        group_id=group_id,
        content=MemoryContentObject(id=content_id, kind="message", text=text),
        text=text,
        observed_at=observed_at,
        ingested_at=FIXED_NOW,
        source="message",
        description="memory/2026-03-01.md#L3",
    )


@asynccontextmanager
async def reader(
    database: CypherDatabase,
    endpoint: ChatEndpoint,
    *,
    embedder: EmbedderAdapter | None = None,
    timeout_s: float = 30.0,
    waits: list[float] | None = None,
    **settings: object,
) -> AsyncIterator[EpisodeReader]:
    async def wait(seconds: float) -> None:
        waited.append(seconds)

    waited = [] if waits is None else waits
    async with open_reader(
        database,
        LlmSettings.model_validate({"base_url": endpoint.url, **settings}),
        embedder=embedder or HashEmbedder(16),
        clock=lambda: FIXED_NOW,
        locks=defaultdict(asyncio.Lock),
        timeout_s=timeout_s,
        pace=wait,
    ) as opened:
        yield opened


async def test_the_facts_of_an_episode_are_stored_under_our_id(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(facts_of) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            added = await reading.read(draft(group_id))

        assert added == Added(entities=3, facts=2)
    assert await graph_database.read(group_id, FACTS) == [
        {"fact": "The boat lies in Bergen", "episodes": [draft(group_id).id]},
        {"fact": "Zelda keeps the boat in Bergen", "episodes": [draft(group_id).id]},
    ]
    (episode,) = await graph_database.read(group_id, "MATCH (e:Episodic) RETURN properties(e) AS p")
    stored = episode["p"]
    assert isinstance(stored, dict)
    assert (stored["uuid"], stored["name"], stored["content"]) == (
        draft(group_id).id,
        "c1",
        draft(group_id).text,
    )
    assert stored["valid_at"] == OBSERVED.isoformat()
    assert len(stored["entity_edges"]) == 2


async def test_what_is_of_a_day_is_read_as_of_when_it_was_written_that_day(
    graph_database: CypherDatabase, group_id: str
) -> None:
    day = OBSERVED.replace(hour=0, minute=0, second=0, microsecond=0)
    for name, written_at in (("that-day", day + timedelta(hours=15)), ("later", day + timedelta(days=2))):
        told = draft(group_id, name, observed_at=day)
        temporal = MemoryTemporalMetadata(observed_at=day, created_at=written_at)
        told = replace(told, content=replace(told.content, temporal=temporal))
        with ChatEndpoint(facts_of) as endpoint:
            async with reader(graph_database, endpoint) as reading:
                await reading.read(told)

    rows = await graph_database.read(group_id, "MATCH (e:Episodic) RETURN e.name AS name, e.valid_at AS at")
    at = {row["name"]: row["at"] for row in rows}
    assert at == {"that-day": (day + timedelta(hours=15)).isoformat(), "later": day.isoformat()}


async def test_an_episode_that_was_read_is_not_read_again(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(facts_of) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            await reading.read(draft(group_id))
            asked = len(endpoint.calls)
            again = await reading.read(draft(group_id))

        assert (again, len(endpoint.calls)) == (Added(), asked)


async def test_temperature_is_zero_and_the_key_goes_along(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(facts_of) as endpoint:
        async with reader(graph_database, endpoint, api_key="sk-1", max_tokens=100) as reading:
            await reading.read(draft(group_id))

        assert {call.authorization for call in endpoint.calls} == {"Bearer sk-1"}
        assert {(call.body["temperature"], call.body["max_tokens"]) for call in endpoint.calls} == {(0, 100)}


@pytest.mark.parametrize(
    "wrap",
    [
        "```json\n{}\n```",
        "Of course! This is what I found:\n\n{}\n\nTell me if you need more.",
        "<think>Is {{it}} so?</think>{}",
    ],
)
async def test_json_within_words_is_understood(
    wrap: str, graph_database: CypherDatabase, group_id: str
) -> None:
    def script(call: Call) -> Reply:
        return Reply(text=wrap.replace("{}", facts_of(call).text))

    with ChatEndpoint(script) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            assert (await reading.read(draft(group_id))).facts == 2

        assert len(endpoint.calls) == 4, "no question was asked twice"


async def test_the_model_is_told_what_was_wrong_and_may_try_again(
    graph_database: CypherDatabase, group_id: str
) -> None:
    wrong = [Reply(text="I would rather not."), Reply(text='{"extracted_entities": [{"name": 7}]}')]

    def script(call: Call) -> Reply:
        return wrong.pop(0) if call.schema == "ExtractedEntities" and wrong else facts_of(call)

    with ChatEndpoint(script) as endpoint:
        async with reader(graph_database, endpoint, structured_output="json_schema") as reading:
            assert (await reading.read(draft(group_id))).facts == 2

        told = [str(call.body["messages"]) for call in endpoint.calls[1:3]]
    assert "there is no JSON object in it" in told[0]
    assert "extracted_entities.0.name" in told[1]
    assert "I would rather not." not in told[1], "only the last attempt is shown"


@pytest.mark.parametrize(
    "text",
    ["As a large model I cannot.", '{"type": "object", "properties": {}}', "", '{"extracted_entities": ['],
)
async def test_a_model_without_an_answer_leaves_nothing_behind(
    text: str, graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(lambda _: Reply(text=text, finish_reason="length")) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            with pytest.raises(BackendGarbled, match="ExtractedEntities"):
                await reading.read(draft(group_id))

        assert len(endpoint.calls) == 3
    assert await graph_database.read(group_id, EVERYTHING) == []


async def test_a_model_that_fails_halfway_leaves_nothing_behind_and_the_next_try_completes(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(
        lambda call: facts_of(call) if call.schema != "ExtractedEdges" else Reply()
    ) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            with pytest.raises(BackendGarbled):
                await reading.read(draft(group_id))
            left = await graph_database.read(group_id, EVERYTHING)
            endpoint.script = facts_of
            added = await reading.read(draft(group_id))

    assert left == []
    assert added == Added(entities=3, facts=2)


class RefusingForms:
    """Takes no request of certain forms."""

    def __init__(self, forms: tuple[str | None, ...], status: int) -> None:
        self.forms = forms
        self.status = status

    def __call__(self, call: Call) -> Reply:
        if call.form in self.forms:
            return Reply(text="response_format is not supported", status=self.status)
        return facts_of(call)


async def test_an_endpoint_that_fails_is_no_refusal_for_good(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(lambda _: Reply(text="CUDA out of memory", status=500)) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            with pytest.raises(BackendUnavailable, match=r"refuses with 500.*; try again later"):
                await reading.read(draft(group_id))


async def test_the_model_is_not_asked_which_of_one_episode_it_read(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(facts_of) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            await reading.read(draft(group_id))

        asked = [str(call.body["response_format"]) for call in endpoint.calls]
    assert not any("episode_indices" in one for one in asked)


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize(
    ("refused", "used"),
    [
        (("json_schema",), "json_object+schema"),
        (("json_schema", "json_object+schema"), "json_object"),
        (("json_schema", "json_object+schema", "json_object"), None),
    ],
)
async def test_the_form_that_the_endpoint_understands_is_found_and_remembered(
    status: int, refused: tuple[str, ...], used: str | None, graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(RefusingForms(refused, status)) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            assert (await reading.read(draft(group_id))).facts == 2

        forms = [call.form for call in endpoint.calls]
    assert forms[: len(refused)] == list(refused)
    assert set(forms[len(refused) :]) == {used}


async def test_a_model_may_want_another_name_of_the_limit_and_no_temperature(
    graph_database: CypherDatabase, group_id: str
) -> None:
    def script(call: Call) -> Reply:
        if "max_tokens" in call.body:
            said = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            return Reply(text=said, status=400)
        if "temperature" in call.body:
            return Reply(text="'temperature' does not support 0 with this model.", status=400)
        return facts_of(call)

    with ChatEndpoint(script) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            assert (await reading.read(draft(group_id))).facts == 2

        bounds = [
            {"max_tokens", "max_completion_tokens", "temperature"} & {*call.body} for call in endpoint.calls
        ]
        forms = {call.form for call in endpoint.calls}
    assert bounds[:2] == [{"max_tokens", "temperature"}, {"max_completion_tokens", "temperature"}]
    assert all(one == {"max_completion_tokens"} for one in bounds[2:])
    assert forms == {"json_schema"}


async def test_an_endpoint_that_refuses_everything_is_told(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(lambda _: Reply(text="context is 512 tokens", status=400)) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            with pytest.raises(BackendRejected, match=r"400: .*context is 512 tokens"):
                await reading.read(draft(group_id))

        assert len(endpoint.calls) == 4


async def test_a_busy_endpoint_is_left_alone_as_long_as_it_asks(
    graph_database: CypherDatabase, group_id: str
) -> None:
    busy = [Reply(status=429, headers={"retry-after": "7"}), Reply(status=503)]
    waits: list[float] = []

    with ChatEndpoint(lambda call: busy.pop(0) if busy else facts_of(call)) as endpoint:
        async with reader(graph_database, endpoint, waits=waits) as reading:
            assert (await reading.read(draft(group_id))).facts == 2

    assert waits == [7.0, 1.0]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(status=429, headers={"retry-after": "1"}), r"429.*; try again later"),
        (Reply(status=401), r"401.*; set llm.apiKey to a key that it knows"),
        (Reply(status=404), r"404.*; check llm.base_url and llm.model"),
    ],
)
async def test_what_an_endpoint_lacks_is_told_without_the_key(
    reply: Reply, told: str, graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(lambda _: reply) as endpoint:
        async with reader(graph_database, endpoint, api_key="sk-secret") as reading:
            with pytest.raises(BackendUnavailable, match=told) as caught:
                await reading.read(draft(group_id))

    chain = [caught.value, caught.value.__cause__, caught.value.__context__]
    assert "sk-secret" not in repr([(error, vars(error)) for error in chain if error])
    assert await graph_database.read(group_id, EVERYTHING) == []


async def test_an_endpoint_that_is_not_there_is_told(graph_database: CypherDatabase, group_id: str) -> None:
    with ChatEndpoint(facts_of) as gone:
        pass
    async with reader(graph_database, gone) as reading:
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            await reading.read(draft(group_id))


async def test_an_answer_that_does_not_come_is_not_waited_for(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(lambda _: None) as endpoint:
        async with reader(graph_database, endpoint, timeout_ms=100) as reading:
            with pytest.raises(BackendTimeout):
                await reading.read(draft(group_id))

    assert await graph_database.read(group_id, EVERYTHING) == []


async def test_an_episode_that_takes_too_long_is_given_up(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(
        lambda call: facts_of(call) if call.schema == "ExtractedEntities" else None
    ) as endpoint:
        async with reader(graph_database, endpoint, timeout_s=1.0) as reading:
            with pytest.raises(BackendTimeout, match="read an episode"):
                await reading.read(draft(group_id))

    assert await graph_database.read(group_id, EVERYTHING) == []


async def test_cancelling_leaves_nothing_behind_and_the_group_free(
    graph_database: CypherDatabase, group_id: str
) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(call: Call) -> Reply | None:
        if call.schema != "ExtractedEdges" or asked.is_set():
            return facts_of(call)
        loop.call_soon_threadsafe(asked.set)
        return None

    with ChatEndpoint(script) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            task = asyncio.create_task(reading.read(draft(group_id)))
            async with asyncio.timeout(20):
                await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            left = await graph_database.read(group_id, EVERYTHING)
            added = await reading.read(draft(group_id))

    assert left == []
    assert added.facts == 2


async def test_episodes_read_at_once_do_not_repeat_an_entity(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(facts_of) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            await asyncio.gather(*(reading.read(draft(group_id, f"c{n}")) for n in range(5)))

    names = [str(row["name"]) for row in await graph_database.read(group_id, ENTITIES)]
    facts = await graph_database.read(group_id, FACTS)
    assert sorted(names) == ["Bergen", "Zelda", "the boat"]
    assert {len(episodes) for row in facts if isinstance(episodes := row["episodes"], list)} == {5}


async def test_what_is_read_for_a_group_is_in_that_group_only(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(facts_of) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            await asyncio.gather(reading.read(draft(f"{group_id}a")), reading.read(draft(f"{group_id}b")))

    for group in (f"{group_id}a", f"{group_id}b"):
        groups = await graph_database.read(group, "MATCH (n) RETURN DISTINCT n.group_id AS group")
        facts = await graph_database.read(group, FACTS)
        assert [row["group"] for row in groups] == [group]
        assert {tuple(row["episodes"]) for row in facts} == {(draft(group).id,)}  # type: ignore[arg-type]


async def test_an_episode_of_long_ago_is_read_with_what_came_before_it(
    graph_database: CypherDatabase, group_id: str
) -> None:
    days = {"oldest": -50, "old": -40, "recent": -10, "today": 0}
    with ChatEndpoint(facts_of) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            for name, offset in days.items():
                await reading.read(draft(group_id, name, observed_at=OBSERVED + timedelta(days=offset)))
            asked = len(endpoint.calls)
            await reading.read(draft(group_id, "late", observed_at=OBSERVED - timedelta(days=25)))
        context = str(endpoint.calls[asked].body["messages"])

    assert [name for name in days if f"({name})" in context] == ["oldest", "old"]


async def test_an_embedder_of_another_length_does_no_harm(
    graph_database: CypherDatabase, group_id: str
) -> None:
    with ChatEndpoint(facts_of) as endpoint:
        async with reader(graph_database, endpoint, embedder=HashEmbedder(16)) as reading:
            await reading.read(draft(group_id))
        async with reader(graph_database, endpoint, embedder=HashEmbedder(8)) as reading:
            await reading.read(draft(group_id, "c2"))

    names = [str(row["name"]) for row in await graph_database.read(group_id, ENTITIES)]
    assert sorted(names) == ["Bergen", "Zelda", "the boat"]


async def test_a_long_text_still_finds_the_entity_it_names(
    graph_database: CypherDatabase, group_id: str
) -> None:
    long = "Zelda keeps the boat " + " ".join(f"word{n}" for n in range(200))
    with ChatEndpoint(lambda call: facts_of(call, fact=long)) as endpoint:
        async with reader(graph_database, endpoint) as reading:
            await reading.read(draft(group_id))
            await reading.read(draft(group_id, "c2"))

    facts = await graph_database.read(group_id, FACTS)
    assert [len(row["episodes"]) for row in facts] == [2, 2]  # type: ignore[arg-type]


@pytest.mark.usefixtures("_kept_running")
def test_a_second_event_loop_reads_on(shared_graph_dir: Path, group_id: str) -> None:
    async def read(content_id: str) -> list[Row]:
        async with open_database(GraphitiSettings(), data_dir=shared_graph_dir) as database:
            async with reader(database, endpoint) as reading:
                await reading.read(draft(group_id, content_id))
            return await database.read(group_id, FACTS)

    with ChatEndpoint(facts_of) as endpoint:
        asyncio.run(read("c1"))
        facts = asyncio.run(read("c2"))

    assert [len(row["episodes"]) for row in facts] == [2, 2]  # type: ignore[arg-type]
