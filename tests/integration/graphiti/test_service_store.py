"""The graph service as a place for facts: scores, times, origins, and what a 202 is worth."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.errors import (
    BackendError,
    BackendRejected,
    BackendUnavailable,
    UnsupportedOperation,
)
from composable_memory.facts import Forgotten
from composable_memory.interfaces import BackendServices
from composable_memory.testing import FIXED_NOW
from composable_memory.types import Origin, TimeWindow
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, drafts_of, graph_id
from composable_memory_adapters.graphiti.fact_stores import Added, Counts, FactStore, Question
from composable_memory_adapters.graphiti.service import GraphitiClient, open_service
from composable_memory_adapters.graphiti.service.store import ServiceStore
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_ops_logs import MemorySink
from tests.integration.embedders.loopback import Received, Reply
from tests.integration.graphiti.graph_service import GraphService, at, running
from tests.variants import variants

GROUP = "main"
STALLED_AFTER_S = 600.0


class Clock:
    """The time, which goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = FIXED_NOW

    def __call__(self) -> datetime:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def draft(
    own_id: str, text: str, day: str = "2026-05-01", *, cited: str = "", group: str = GROUP
) -> EpisodeDraft:
    content = MemoryContentObject(
        id=own_id,
        kind="message",
        text=text,
        provenance=MemoryProvenance(source="notes", actor_id="ada", citations=(cited,) if cited else ()),
        temporal=MemoryTemporalMetadata(observed_at=datetime.fromisoformat(day).replace(tzinfo=UTC)),
    )
    (only,) = drafts_of(content, group_id=group, now=FIXED_NOW, max_chars=4000)
    return only


def question(text: str, *, limit: int = 10, groups: tuple[str, ...] = (GROUP,), **more: Any) -> Question:
    return Question(text=text, groups=groups, limit=limit, now=FIXED_NOW, **more)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def service() -> AsyncIterator[GraphService]:
    async with running(GraphService(now=FIXED_NOW)) as service:
        yield service


@pytest.fixture
async def store(service: GraphService, clock: Clock) -> AsyncIterator[ServiceStore]:
    store = store_of(service, clock)
    yield store
    await store.close()


def store_of(service: GraphService, clock: Clock, *, timeout_ms: int = 10_000) -> ServiceStore:
    """Return another store of the same service, as another process has it; to be closed."""
    return ServiceStore(
        GraphitiClient(base_url=service.url, clock=clock, timeout_ms=timeout_ms),
        group=GROUP,
        clock=clock,
    )


async def filled(service: GraphService, store: ServiceStore, *drafts: EpisodeDraft) -> None:
    """Add drafts and wait until they are there."""
    for one in drafts:
        await store.add(one.group_id, [one])
    await service.caught_up()


def sent(service: GraphService) -> list[str]:
    """Return the names of all messages that came in."""
    return [message["name"] for body in service.bodies("/messages") for message in body["messages"]]


async def test_it_is_a_place_for_facts(store: ServiceStore) -> None:
    place: FactStore = store
    assert await place.counts([GROUP]) == Counts()
    assert await place.refresh([GROUP], force=True) == ()


# --- search -------------------------------------------------------------------------------------------------


async def test_facts_come_best_first_with_scores_and_what_they_say(
    service: GraphService, store: ServiceStore
) -> None:
    service.tell(GROUP, "Bob plays chess")
    service.tell(GROUP, "Ada lives in Oslo")

    answer = await store.search(question("Where in Oslo does Ada live?"))

    assert [one.fact.text for one in answer.facts] == ["Ada lives in Oslo", "Bob plays chess"]
    assert [one.exact for one in answer.facts] == [True, False]
    scores = [one.score for one in answer.facts]
    assert scores[0] == pytest.approx(1.0)
    assert 0 <= scores[1] < 0.4
    assert answer.degraded == ()


async def test_a_smaller_answer_is_the_beginning_of_a_larger_one(
    service: GraphService, store: ServiceStore
) -> None:
    for number in range(30):
        service.tell(GROUP, f"Ada {'drinks' if number % 3 else 'likes'} tea {number}")

    large = await store.search(question("Ada likes tea 7", limit=20))
    small = await store.search(question("Ada likes tea 7", limit=4))

    assert small.facts == large.facts[:4]
    assert list(large.facts) == sorted(large.facts, key=lambda one: -one.score)


async def test_what_holds_no_more_or_not_yet_comes_lower(service: GraphService, store: ServiceStore) -> None:
    service.tell(GROUP, "Ada works at Initech", valid_at=at("2024-01-01"), invalid_at=at("2026-01-01"))
    service.tell(GROUP, "Ada works at Hooli", expired_at=at("2026-02-01"))
    service.tell(GROUP, "Ada works at Umbrella", valid_at=at("2027-01-01"))
    service.tell(GROUP, "Ada works at Globex", valid_at=at("2026-01-01"))

    answer = await store.search(question("Where does Ada work?"))

    assert answer.facts[0].fact.text == "Ada works at Globex"
    assert all(one.score < 0.6 for one in answer.facts[1:])


async def test_a_question_about_a_time_gets_what_held_then_first(
    service: GraphService, store: ServiceStore
) -> None:
    service.tell(GROUP, "Ada works at Hooli", valid_at=at("2023-01-01"), invalid_at=at("2024-01-01"))
    service.tell(GROUP, "Ada works at Initech", valid_at=at("2024-01-01"), invalid_at=at("2026-01-01"))
    service.tell(GROUP, "Ada works at Globex", valid_at=at("2026-01-01"))
    year = TimeWindow(start=datetime(2025, 1, 1, tzinfo=UTC), end=datetime(2025, 12, 31, tzinfo=UTC))

    answer = await store.search(question("Where does Ada work?", window=year))

    assert [one.fact.text for one in answer.facts] == ["Ada works at Initech", "Ada works at Hooli"]
    assert answer.facts[0].score > 0.9
    assert answer.facts[1].score < 0.6


async def test_facts_of_several_groups_are_told_apart(service: GraphService, store: ServiceStore) -> None:
    service.tell("a", "Ada likes tea")
    service.tell("b", "Ada likes green tea")

    answer = await store.search(question("green tea", groups=("a", "b")))

    assert [(one.fact.group_id, one.fact.text) for one in answer.facts] == [
        ("b", "Ada likes green tea"),
        ("a", "Ada likes tea"),
    ]


async def test_facts_lead_to_where_they_are_from(service: GraphService, store: ServiceStore) -> None:
    await filled(service, store, draft("n1", "Ada likes tea", cited="memory/2026-05-01.md#L3-L7"))

    (found,) = (await store.search(question("tea"))).facts

    origin = Origin(path="memory/2026-05-01.md", start_line=3, end_line=7)
    assert found.fact.origins == (origin,)
    assert found.fact.valid_at == datetime(2026, 5, 1, tzinfo=UTC)
    again = await store.fact(GROUP, found.fact.id)
    assert again == found.fact


async def test_origins_are_asked_for_once(service: GraphService, store: ServiceStore) -> None:
    await filled(service, store, draft("n1", "Ada likes tea", cited="a.md#L1"))
    service.tell(GROUP, "Bob likes tea", episodes=["nobody-knows"])
    before = service.asked("GET", "/episodes/")

    for _ in range(3):
        await store.search(question("tea"))

    assert service.asked("GET", "/episodes/") == before + 1


async def test_facts_whose_sources_are_not_told_are_facts(service: GraphService, store: ServiceStore) -> None:
    service.tell(GROUP, "Ada likes tea", episodes=["e1"])
    service.fault = lambda one: Reply(status=500) if one.path.startswith("/episodes/") else None

    answer = await store.search(question("tea"))

    assert [one.fact.text for one in answer.facts] == ["Ada likes tea"]
    assert [one.code for one in answer.degraded] == ["failed"]


async def test_of_a_long_question_the_beginning_is_asked(service: GraphService, store: ServiceStore) -> None:
    await store.search(question(" ".join(f"word{number}" for number in range(100))))

    assert len(service.bodies("/search")[0]["query"].split()) == 48


async def test_a_blank_question_is_not_asked(service: GraphService, store: ServiceStore) -> None:
    assert (await store.search(question("  "))).facts == ()
    assert service.received == []


async def test_a_group_that_fails_fails_the_answer(service: GraphService, store: ServiceStore) -> None:
    service.tell("a", "Ada likes tea")

    def fault(one: Received) -> Reply | None:
        return Reply(status=500) if b'"b"' in one.body else None

    service.fault = fault
    with pytest.raises(BackendUnavailable):
        await store.search(question("tea", groups=("a", "b")))


# --- adding -------------------------------------------------------------------------------------------------


async def test_taken_is_not_there(service: GraphService, store: ServiceStore) -> None:
    service.reading.clear()
    one = draft("n1", "Ada likes tea")

    taken = await store.add(GROUP, [one])
    service.reading.set()
    await service.caught_up()
    shown = await store.add(GROUP, [one])

    assert (taken, shown) == (Added(certain=False), Added(certain=True))
    assert sent(service) == ["n1"]


async def test_episodes_are_sent_in_their_order_and_each_once(
    service: GraphService, store: ServiceStore
) -> None:
    drafts = [draft(f"n{number}", f"Ada likes tea {number}") for number in range(4)]

    await store.add(GROUP, [*drafts, drafts[1]])

    assert sent(service) == ["n0", "n1", "n2", "n3"]


async def test_what_is_there_is_not_sent_by_another_process_either(
    service: GraphService, store: ServiceStore, clock: Clock
) -> None:
    await filled(service, store, draft("n1", "Ada likes tea"))
    other = store_of(service, clock)

    added = await other.add(GROUP, [draft("n1", "Ada likes tea"), draft("n2", "Bob likes tea")])
    await other.close()

    assert added == Added(certain=False)
    assert sent(service) == ["n1", "n2"]


async def test_a_content_that_was_changed_is_sent_again(service: GraphService, store: ServiceStore) -> None:
    await filled(service, store, draft("n1", "Ada likes tea"))
    changed = draft("n1", "Ada likes coffee")

    first = await store.add(GROUP, [changed])
    await service.caught_up()
    second = await store.add(GROUP, [changed])

    assert (first.certain, second.certain) == (False, True)
    assert sent(service) == ["n1", "n1"]


async def test_white_space_makes_no_other_content(service: GraphService, store: ServiceStore) -> None:
    await filled(service, store, draft("n1", "Ada likes tea"))

    assert (await store.add(GROUP, [draft("n1", "Ada  likes\ntea ")])).certain


async def test_an_old_episode_is_found_behind_many_later_ones(
    service: GraphService, store: ServiceStore, clock: Clock
) -> None:
    await filled(service, store, draft("old", "Ada likes tea", "2020-01-01"))
    for number in range(150):
        message = {"name": f"later{number}", "content": "x y", "role": None, "role_type": "user"}
        service.read(GROUP, {**message, "timestamp": at("2026-05-02")})

    other = store_of(service, clock)
    added = await other.add(GROUP, [draft("old", "Ada likes tea", "2020-01-01")])
    await other.close()

    assert added.certain
    assert sent(service) == ["old"]


async def test_an_episode_that_claims_to_be_from_the_future_is_known_again(
    service: GraphService, store: ServiceStore, clock: Clock
) -> None:
    await filled(service, store, draft("n1", "Ada flies to Mars", "2030-01-01"))
    clock.wait(3600)

    assert (await store.add(GROUP, [draft("n1", "Ada flies to Mars", "2030-01-01")])).certain
    assert sent(service) == ["n1"]


async def test_what_was_refused_is_sent_with_the_next_call(
    service: GraphService, store: ServiceStore
) -> None:
    one = draft("n1", "Ada likes tea")
    service.fault = lambda received: Reply(status=503) if received.path == "/messages" else None
    with pytest.raises(BackendUnavailable):
        await store.add(GROUP, [one])
    service.fault = lambda _: None

    await filled(service, store, one)

    assert (await store.add(GROUP, [one])).certain


async def test_what_may_have_been_taken_is_not_sent_at_once_again(
    service: GraphService, clock: Clock
) -> None:
    taken, usual = asyncio.Event(), service.answer
    assert service._loopback is not None

    async def silent(received: Received) -> Reply:
        reply = await usual(received)
        if received.path == "/messages":
            taken.set()
            await asyncio.Event().wait()
        return reply

    service._loopback.answer = silent
    store = store_of(service, clock, timeout_ms=300)
    one = draft("n1", "Ada likes tea")
    assert not (await store.add(GROUP, [one])).certain
    await service.caught_up()

    assert (await store.add(GROUP, [one])).certain
    assert sent(service) == ["n1"]
    await store.close()


async def test_what_was_cut_off_counts_as_sent_once(service: GraphService, store: ServiceStore) -> None:
    taken, usual = asyncio.Event(), service.answer
    assert service._loopback is not None

    async def silent(received: Received) -> Reply:
        reply = await usual(received)
        if received.path == "/messages":
            taken.set()
            await asyncio.Event().wait()
        return reply

    service._loopback.answer = silent
    service.reading.clear()
    one = draft("n1", "Ada likes tea")
    adding = asyncio.ensure_future(store.add(GROUP, [one]))
    async with asyncio.timeout(10):
        await taken.wait()
    adding.cancel()
    await asyncio.wait([adding])
    service._loopback.answer = usual

    assert not (await store.add(GROUP, [one])).certain
    assert sent(service) == ["n1"]
    assert not (await store.add(GROUP, [one])).certain
    assert sent(service) == ["n1", "n1"]


async def test_cancelling_leaves_the_store_usable(service: GraphService, store: ServiceStore) -> None:
    arrived, usual = asyncio.Event(), service.answer
    assert service._loopback is not None

    async def hang(received: Received) -> Reply:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    service._loopback.answer = hang
    for ask in (
        store.add(GROUP, [draft("n1", "Ada likes tea")]),
        store.search(question("tea", groups=("a", "b"))),
    ):
        arrived.clear()
        asking = asyncio.ensure_future(ask)
        async with asyncio.timeout(10):
            await arrived.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    service._loopback.answer = usual

    await filled(service, store, draft("n1", "Ada likes tea"))
    assert len((await store.search(question("tea"))).facts) == 1


# --- looking through ----------------------------------------------------------------------------------------


async def test_episodes_are_told_as_they_were_said(service: GraphService, store: ServiceStore) -> None:
    await filled(
        service,
        store,
        draft("n1", "Ada (the first) likes tea", cited="a.md#L3"),
        draft("n2", "Bob likes tea", "2026-05-02"),
    )

    last, first = await store.episodes([GROUP], limit=5)

    assert (last.content_id, first.content_id) == ("n2", "n1")
    assert first.text == "Ada (the first) likes tea"
    assert first.metadata == {"role": "ada", "role_type": "user"}
    assert first.origin == Origin(path="a.md", start_line=3, end_line=3)
    assert (first.fact_count, first.ingested_at) == (1, FIXED_NOW)
    for own_id in (first.id, "n1", graph_id(GROUP, "n1")):
        assert await store.episode(GROUP, own_id) == first
    assert await store.episode(GROUP, "n3") is None
    assert [one.content_id for one in await store.episodes([GROUP], limit=1)] == ["n2"]


async def test_facts_are_listed_newest_first(service: GraphService, store: ServiceStore) -> None:
    await filled(
        service,
        store,
        draft("n1", "Ada lives in Rome", "2026-01-01"),
        draft("n2", "Ada lives in Oslo", "2026-03-01"),
        draft("n3", "Bob plays chess", "2026-02-01"),
    )

    async def texts(**asked: object) -> list[str]:
        wanted = {"about": None, "as_of": None, "current_at": None, "limit": 10, **asked}
        return [fact.text for fact in await store.facts([GROUP], **wanted)]  # type: ignore[arg-type]

    assert await texts() == ["Ada lives in Oslo", "Bob plays chess", "Ada lives in Rome"]
    assert await texts(limit=1) == ["Ada lives in Oslo"]
    assert await texts(about="ada") == ["Ada lives in Oslo", "Ada lives in Rome"]
    assert await texts(as_of=datetime(2026, 1, 15, tzinfo=UTC)) == ["Ada lives in Rome"]
    service.facts[GROUP][0]["invalid_at"] = at("2026-03-01")
    assert await texts(about="ada", current_at=FIXED_NOW) == ["Ada lives in Oslo"]


async def test_facts_about_an_entity_and_a_history_are_in_the_order_of_time(
    service: GraphService, store: ServiceStore
) -> None:
    service.tell(GROUP, "Ada lives in Oslo", name="LIVES_IN", valid_at=at("2026-03-01"))
    service.tell(GROUP, "Ada lives in Rome", name="LIVES_IN", valid_at=at("2026-01-01"))
    service.tell(GROUP, "Ada likes tea", name="LIKES", valid_at=at("2026-02-01"))

    about = await store.facts([GROUP], about="Ada", as_of=None, current_at=None, limit=10)
    history = await store.history(about[0])

    assert [one.text for one in about] == ["Ada lives in Oslo", "Ada likes tea", "Ada lives in Rome"]
    assert [one.text for one in history] == ["Ada lives in Rome", "Ada lives in Oslo"]


async def test_facts_that_cannot_be_read_one_by_one_are_no_empty_list(clock: Clock) -> None:
    service = GraphService(now=FIXED_NOW, database="default_db")
    async with running(service):
        store = store_of(service, clock)
        await filled(service, store, draft("n1", "Ada likes tea"))

        with pytest.raises(UnsupportedOperation, match="FALKORDB_DATABASE has to be 'main'"):
            await store.facts([GROUP], about=None, as_of=None, current_at=None, limit=5)
        await store.close()


# --- forgetting ---------------------------------------------------------------------------------------------


async def test_an_episode_is_forgotten_with_what_it_alone_supports(
    service: GraphService, store: ServiceStore
) -> None:
    await filled(service, store, draft("n1", "Ada likes tea"), draft("n2", "Bob likes tea"))
    (ada, bob) = service.stored[GROUP]
    shared = service.tell(GROUP, "Tea is hot", episodes=[ada["uuid"], bob["uuid"]])
    ada["entity_edges"].append(shared["uuid"])

    forgotten = await store.forget(GROUP, "n1")

    assert forgotten == Forgotten(episode_id=ada["uuid"], facts=1, entities=0)
    assert [fact["fact"] for fact in service.facts[GROUP]] == ["Bob likes tea", "Tea is hot"]
    assert await store.forget(GROUP, "n1") is None
    assert not (await store.add(GROUP, [draft("n1", "Ada likes tea")])).certain


async def test_a_content_that_was_changed_is_forgotten_with_all_it_said(
    service: GraphService, store: ServiceStore
) -> None:
    await filled(service, store, draft("n1", "Ada likes tea"), draft("n1", "Ada likes coffee"))
    both = [one["uuid"] for one in service.stored[GROUP]]
    shared = service.tell(GROUP, "Ada drinks", episodes=both)
    service.stored[GROUP][0]["entity_edges"].append(shared["uuid"])

    assert await store.forget(GROUP, "n1") == Forgotten(episode_id=both[1], facts=3, entities=0)
    assert (service.stored[GROUP], service.facts[GROUP]) == ([], [])


async def test_an_episode_that_the_service_cannot_remove_is_an_error(clock: Clock) -> None:
    service = GraphService(now=FIXED_NOW, database="default_db")
    async with running(service):
        store = store_of(service, clock)
        await filled(service, store, draft("n1", "Ada likes tea"))

        with pytest.raises(BackendRejected, match="FALKORDB_DATABASE has to be 'main'"):
            await store.forget(GROUP, "n1")
        await store.close()


BEYOND: dict[str, Callable[[ServiceStore], Awaitable[object]]] = {
    "entities": lambda store: store.entities([GROUP], named=None, limit=5),
    "neighbourhood": lambda store: store.neighbourhood([GROUP], "Ada", depth=1, limit=5),
    "merge": lambda store: store.merge(GROUP, draft("n1", "x"), ["e1"]),
}


@pytest.mark.parametrize("ask", BEYOND.values(), ids=BEYOND)
async def test_what_a_service_has_no_way_for_is_refused_with_the_reason(
    service: GraphService, store: ServiceStore, ask: Callable[[ServiceStore], Awaitable[object]]
) -> None:
    with pytest.raises(UnsupportedOperation, match="Graphiti service"):
        await ask(store)

    assert service.received == []


# --- being there --------------------------------------------------------------------------------------------


async def test_a_store_is_opened_from_the_settings(services: BackendServices, events: MemorySink) -> None:
    async with running(GraphService(now=FIXED_NOW, key="k")) as service:
        service.tell("team", "Ada likes tea")
        port = int(service.url.rpartition(":")[2])
        settings = GraphitiSettings(
            server_host="127.0.0.1", service_port=port, api_key=SecretStr("k"), group="team"
        )
        async with open_service(settings, services) as store:
            assert (await store.health()).ok
            assert len((await store.search(question("tea", groups=("team",)))).facts) == 1
        with pytest.raises(BackendUnavailable, match="closed"):
            await store.search(question("tea"))

    assert service.bodies("/search")[0]["group_ids"] == ["team"]
    assert events.events == [], "whoever asks the store tells it"


async def test_a_service_whose_database_is_away_is_not_well(
    service: GraphService, store: ServiceStore
) -> None:
    assert (await store.health()).ok
    service.fault = lambda one: Reply(status=500) if one.path == "/search" else None

    health = await store.health()

    assert not health.ok
    assert "answered 500" in str(health.message)


ASKS: dict[str, Callable[[ServiceStore], Awaitable[object]]] = {
    "search": lambda store: store.search(question("tea")),
    "add": lambda store: store.add(GROUP, [draft("n1", "Ada likes tea")]),
    "fact": lambda store: store.fact(GROUP, "f1"),
    "facts": lambda store: store.facts([GROUP], about=None, as_of=None, current_at=None, limit=5),
    "episodes": lambda store: store.episodes([GROUP], limit=5),
    "episode": lambda store: store.episode(GROUP, "n1"),
    "forget": lambda store: store.forget(GROUP, "n1"),
}


@pytest.mark.parametrize("call", variants(ASKS, "search", "add"))
async def test_a_service_that_is_away_is_never_an_empty_answer(clock: Clock, call: str) -> None:
    ask = ASKS[call]
    async with running(GraphService()) as gone:
        store = store_of(gone, clock)
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        await ask(store)

    assert not (await store.health()).ok
    await store.close()
    await store.close()
    with pytest.raises(BackendError, match="closed"):
        await ask(store)
