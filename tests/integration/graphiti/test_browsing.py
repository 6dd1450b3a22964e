"""Looking through graphs: facts at a time, timelines, entities, episodes, and what is around an entity."""

import random
from datetime import timedelta

import pytest

from composable_memory.types import Origin
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.episodes import graph_id
from composable_memory_adapters.graphiti.fact_stores import Counts
from composable_memory_adapters.graphiti.reading.browsing import FactReader
from tests.integration.graphiti.planting import NOW, Planted, day, plant, plant_episode

BERGEN = Planted(
    text="Ann lives in Bergen",
    source="Ann",
    target="Bergen",
    relation="LIVES_IN",
    valid_at=day("2020-01-01"),
    invalid_at=day("2024-01-01"),
    expired_at=day("2024-01-02"),
)
OSLO = Planted(
    text="Ann lives in Oslo", source="Ann", target="Oslo", relation="LIVES_IN", valid_at=day("2024-01-01")
)
TEA = Planted(text="Ann likes tea", source="Ann", target="tea", valid_at=day("2023-01-01"))
COFFEE = Planted(text="Annabel likes coffee", source="Annabel", target="coffee", valid_at=day("2022-01-01"))
COMING = Planted(text="Annabel gets a cat", source="Annabel", target="cat", valid_at=day("2027-01-01"))
FORGOTTEN = Planted(
    text="Ann has a secret", source="Ann", target="secret", valid_at=day("2025-01-01"), expires_at=NOW
)
ALL = (BERGEN, OSLO, TEA, COFFEE, COMING, FORGOTTEN)


def reader(database: CypherDatabase) -> FactReader:
    return FactReader(database, lambda: NOW)


@pytest.fixture
async def group(graph_database: CypherDatabase, group_id: str) -> str:
    await plant(graph_database, group_id, *ALL)
    return group_id


# --- facts -------------------------------------------------------------------------------------------------


async def test_facts_come_newest_first_without_those_not_to_be_told(
    graph_database: CypherDatabase, group: str
) -> None:
    found = await reader(graph_database).facts([group], limit=10)
    two = await reader(graph_database).facts([group], limit=2)

    assert [one.text for one in found] == [one.text for one in (COMING, OSLO, TEA, COFFEE, BERGEN)]
    assert two == found[:2]


async def test_a_fact_comes_back_as_it_was_stored(graph_database: CypherDatabase, group_id: str) -> None:
    note = await plant_episode(graph_database, group_id, "n", description="memory/a.md#L3")
    everything = Planted(
        text="Ann lives in “Oslo”",
        source="Ann",
        target="Oslo",
        relation="LIVES_IN",
        valid_at=day("2024-01-01"),
        invalid_at=day("2025-01-01"),
        expired_at=day("2025-01-02"),
        expires_at=day("2030-01-01"),
        confidence=0.25,
        episodes=[note],
    )
    await plant(graph_database, group_id, everything)

    fact = await reader(graph_database).fact(group_id, graph_id(group_id, everything.own_id))

    assert fact is not None
    assert {name: getattr(fact, name) for name in ("source", "target", "relation", "text", "confidence")} == {
        name: getattr(everything, name) for name in ("source", "target", "relation", "text", "confidence")
    }
    times = ("valid_at", "invalid_at", "expired_at", "expires_at", "created_at")
    assert [getattr(fact, name) for name in times] == [getattr(everything, name) for name in times]
    assert fact.episodes == (note,)
    assert fact.origins == (Origin(path="memory/a.md", start_line=3, end_line=3),)
    assert await reader(graph_database).fact(group_id, "nothing") is None
    assert await reader(graph_database).fact("nowhere", fact.id) is None


async def test_facts_about_an_entity_mean_the_one_of_exactly_that_name(
    graph_database: CypherDatabase, group: str
) -> None:
    exact = await reader(graph_database).facts([group], about=" ann ", limit=10)
    partial = await reader(graph_database).facts([group], about="NNAB", limit=10)
    both = await reader(graph_database).facts([group], about="nn", limit=10)

    assert [one.text for one in exact] == [OSLO.text, TEA.text, BERGEN.text]
    assert [one.text for one in partial] == [COMING.text, COFFEE.text]
    assert len(both) == 5
    assert await reader(graph_database).facts([group], about="nobody\0", limit=10) == []


async def test_facts_as_of_a_time_are_those_that_held_then(
    graph_database: CypherDatabase, group_id: str
) -> None:
    chance = random.Random(5)
    planted = [_chance_fact(chance, number) for number in range(30)]
    await plant(graph_database, group_id, *planted)

    for _ in range(60):
        moment = day("2026-01-01") + timedelta(hours=chance.randint(0, 24 * 90))
        found = await reader(graph_database).facts([group_id], as_of=moment, limit=50)
        assert {one.text for one in found} == {
            one.text
            for one in planted
            if (one.valid_at is None or one.valid_at <= moment)
            and (one.invalid_at is None or moment < one.invalid_at)
        }


async def test_current_facts_are_not_over_not_to_come_and_not_withdrawn(
    graph_database: CypherDatabase, group: str
) -> None:
    withdrawn = Planted(text="Ann likes rain", source="Ann", target="rain", expired_at=day("2025-01-01"))
    await plant(graph_database, group, withdrawn)

    found = await reader(graph_database).facts([group], current_at=NOW, limit=10)

    assert [one.text for one in found] == [OSLO.text, TEA.text, COFFEE.text]


async def test_facts_of_several_groups_are_one_list(graph_database: CypherDatabase, group: str) -> None:
    other = f"{group}-other"
    await plant(graph_database, other, Planted(text="Ann sails", source="ANN", valid_at=day("2023-06-01")))

    found = await reader(graph_database).facts([group, other, "nowhere"], about="ann", limit=2)

    assert [(one.group_id, one.text) for one in found] == [(group, OSLO.text), (other, "Ann sails")]


async def test_what_is_known_of_an_entity_is_in_order_and_keeps_the_latest(
    graph_database: CypherDatabase, group: str
) -> None:
    whole = await reader(graph_database).facts([group], about="Ann", limit=10)
    last = await reader(graph_database).facts([group], about="Ann", limit=2)

    assert [one.text for one in whole] == [OSLO.text, TEA.text, BERGEN.text]
    assert last == whole[:2]


async def test_the_history_of_a_fact_is_of_its_entity_and_relation(
    graph_database: CypherDatabase, group: str
) -> None:
    (oslo,) = await reader(graph_database).facts([group], about="Oslo", limit=1)

    found = await reader(graph_database).history(oslo)

    assert [one.text for one in found] == [BERGEN.text, OSLO.text]


# --- entities ----------------------------------------------------------------------------------------------


async def test_entities_come_with_the_number_of_their_facts(
    graph_database: CypherDatabase, group: str
) -> None:
    found = await reader(graph_database).entities([group], limit=3)

    assert [(one.name, one.fact_count) for one in found] == [("Ann", 4), ("Annabel", 2), ("Bergen", 1)]


async def test_an_entity_of_exactly_that_name_comes_first(graph_database: CypherDatabase, group: str) -> None:
    await plant(
        graph_database, group, *(Planted(text=f"b{n}", source="Ann B", target=f"b{n}") for n in range(9))
    )

    found = await reader(graph_database).entities([group], named="ANN", limit=10)

    assert [one.name for one in found] == ["Ann", "Ann B", "Annabel"]
    assert await reader(graph_database).entities([group], named="zzz", limit=10) == []


async def test_what_an_entity_is_may_stand_in_a_property_or_a_label(
    graph_database: CypherDatabase, group_id: str
) -> None:
    await graph_database.write(
        group_id,
        "CREATE (:Entity {uuid: '1', name: 'Ann', group_id: $group, kind: 'person', summary: 'tall'}), "
        "(:Entity:Place {uuid: '2', name: 'Oslo', group_id: $group}), "
        "(:Entity {uuid: '3', name: 'Pi', group_id: $group, kind: ''})",
        group=group_id,
    )

    found = await reader(graph_database).entities([group_id], limit=9)

    assert [(one.name, one.kind, one.summary) for one in found] == [
        ("Ann", "person", "tall"),
        ("Oslo", "Place", ""),
        ("Pi", None, ""),
    ]


# --- around an entity --------------------------------------------------------------------------------------


@pytest.fixture
async def chain(graph_database: CypherDatabase, group_id: str) -> str:
    """Return a group in which a is next to b, b to c, c to d, and x to y."""
    pairs = ("ab", "bc", "cd", "xy")
    await plant(
        graph_database,
        group_id,
        *(
            Planted(text=pair, source=pair[0], target=pair[1], valid_at=day(f"2026-01-0{number}"))
            for number, pair in enumerate(pairs, start=1)
        ),
    )
    return group_id


@pytest.mark.parametrize(
    ("depth", "facts", "entities"),
    [
        (0, [], "b"),
        (1, ["bc", "ab"], "abc"),
        (2, ["bc", "ab", "cd"], "abcd"),
        (99, ["bc", "ab", "cd"], "abcd"),
    ],
)
async def test_a_neighbourhood_reaches_as_far_as_its_depth(
    graph_database: CypherDatabase, chain: str, depth: int, facts: list[str], entities: str
) -> None:
    found = await reader(graph_database).neighbourhood([chain], "B", depth=depth, limit=50)

    assert [one.text for one in found.facts] == facts
    assert {one.name for one in found.entities} == {*entities}


async def test_a_neighbourhood_is_cut_to_its_nearest_facts(
    graph_database: CypherDatabase, chain: str
) -> None:
    found = await reader(graph_database).neighbourhood([chain], "a", depth=3, limit=2)

    assert [one.text for one in found.facts] == ["ab", "bc"]
    assert [one.name for one in found.entities] == ["b", "c", "a"]


async def test_without_an_entity_the_newest_facts_are_shown(
    graph_database: CypherDatabase, chain: str
) -> None:
    found = await reader(graph_database).neighbourhood([chain, "nowhere"], None, depth=1, limit=2)

    assert [one.text for one in found.facts] == ["xy", "cd"]
    assert {one.name for one in found.entities} == {*"xycd"}


async def test_nothing_is_around_what_is_not_there(graph_database: CypherDatabase, chain: str) -> None:
    found = await reader(graph_database).neighbourhood([chain], "nobody", depth=2, limit=5)

    assert (found.facts, found.entities) == ((), ())


# --- episodes and counts -----------------------------------------------------------------------------------


async def test_episodes_come_latest_first_with_their_facts(
    graph_database: CypherDatabase, group_id: str
) -> None:
    old = await plant_episode(graph_database, group_id, "old", description="a.md#L1-L2", at=day("2026-01-01"))
    new = await plant_episode(graph_database, group_id, "new", description="chat", at=day("2026-02-01"))
    await plant(graph_database, group_id, Planted(text="one", episodes=[old, new]))
    await plant(graph_database, group_id, Planted(text="two", episodes=[old]))
    await plant(graph_database, group_id, Planted(text="over", episodes=[old], expires_at=NOW))

    found = await reader(graph_database).episodes([group_id], limit=9)

    assert [(one.content_id, one.fact_count) for one in found] == [("new", 1), ("old", 2)]
    assert (found[0].origin, found[1].origin) == (None, Origin(path="a.md", start_line=1, end_line=2))
    assert found[1].observed_at == day("2026-01-01")
    assert await reader(graph_database).episodes([group_id], limit=1) == found[:1]


async def test_an_episode_is_found_by_either_id(graph_database: CypherDatabase, group_id: str) -> None:
    id_ = await plant_episode(graph_database, group_id, "message:1")

    by_graph = await reader(graph_database).episode(group_id, id_)
    by_content = await reader(graph_database).episode(group_id, "message:1")

    assert by_graph == by_content
    assert by_graph is not None
    assert (by_graph.id, by_graph.content_id, by_graph.text) == (id_, "message:1", "The text of message:1")
    assert await reader(graph_database).episode(group_id, "message:2") is None


async def test_counts_are_over_all_groups(graph_database: CypherDatabase, group: str) -> None:
    other = f"{group}-other"
    await plant(graph_database, other, "one")
    await plant_episode(graph_database, other, "e")

    assert await reader(graph_database).counts([group, other, "nowhere", group]) == Counts(
        facts=7, entities=10, episodes=1
    )


def _chance_fact(chance: random.Random, number: int) -> Planted:
    begun = day("2026-01-01") + timedelta(hours=chance.randint(0, 24 * 60))
    ended = begun + timedelta(hours=chance.randint(1, 24 * 30), microseconds=chance.choice([0, 500]))
    return Planted(
        text=f"probe {number}",
        valid_at=chance.choice([begun, begun, None]),
        invalid_at=chance.choice([ended, ended, None]),
    )
