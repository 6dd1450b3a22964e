"""What is written to a graph is there once, in its time, and goes when it is to be forgotten."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any, cast

import pytest

from composable_memory.content import (
    GraphEdge,
    GraphNode,
    GraphQuery,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
)
from composable_memory.errors import BackendRejected
from composable_memory.facts import Forgotten
from composable_memory.interfaces import EmbedderAdapter
from composable_memory.testing import FIXED_NOW, HashEmbedder
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.library.vectors import stored_space
from composable_memory_adapters.graphiti.writing.graph import GraphitiGraph

pytest.importorskip("graphiti_core")

ALL_FACTS = """
MATCH (s)-[e:RELATES_TO]->(t) RETURN e.fact AS fact, t.name AS target, e.valid_at AS valid_at,
  e.invalid_at AS invalid_at, e.expired_at AS expired_at, e.episodes AS episodes ORDER BY fact, valid_at
"""
EVERYTHING = """
MATCH (n) OPTIONAL MATCH (n)-[e]->(m) WITH n, e, m ORDER BY n.uuid, e.uuid
RETURN labels(n) AS labels, properties(n) AS node, type(e) AS type, properties(e) AS edge, m.uuid AS target
"""
VECTORS = """
MATCH (n:Entity) RETURN n.name AS name, n.name_embedding AS vector
UNION MATCH ()-[e:RELATES_TO]->() RETURN e.fact AS name, e.fact_embedding AS vector
"""


def day(number: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)


def graph_of(
    database: CypherDatabase, group_id: str, embedder: EmbedderAdapter | None = None
) -> GraphitiGraph:
    return GraphitiGraph(database, group_id, embedder=embedder, clock=lambda: FIXED_NOW)


def entity(name: str) -> GraphNode:
    return GraphNode(id=f"entity:{name.casefold()}", label=name, properties={"kind": "Person", "text": ""})


def fact(
    source: str, relation: str, target: str, *episodes: str, at: int = 1, exclusive: bool = False
) -> GraphEdge:
    said = f"{source} {relation.replace('_', ' ').lower()} {target}"
    return GraphEdge(
        id=said,
        source_id=f"entity:{source.casefold()}",
        target_id=f"entity:{target.casefold()}",
        type=relation,
        properties={"fact": said, "episodes": list(episodes), "exclusive": exclusive},
        temporal=MemoryTemporalMetadata(observed_at=day(at)),
    )


def draft(group_id: str, content_id: str, *, at: int = 1, text: str = "") -> EpisodeDraft:
    return EpisodeDraft(
        id=graph_id(group_id, content_id),
        group_id=group_id,
        content=MemoryContentObject(id=content_id, kind="message", text=text or content_id),
        text=text or content_id,
        observed_at=day(at),
        ingested_at=FIXED_NOW,
        source="message",
        description="memory/2026-01-01.md#L1",
    )


async def ingest(
    graph: GraphitiGraph, group_id: str, content_id: str, *edges: GraphEdge, at: int = 1
) -> None:
    """Write a content as ingesting does: its episode, its entities, its facts."""
    names = dict.fromkeys(end for edge in edges for end in (edge.source_id, edge.target_id))
    await graph.save_episodes([draft(group_id, content_id, at=at)])
    await graph.upsert_nodes([entity(name.removeprefix("entity:").title()) for name in names])
    await graph.upsert_edges(edges)


async def ingest_jobs(graph: GraphitiGraph, group_id: str, *jobs: tuple[str, str, int]) -> None:
    """Write of each job an episode that says on a day at which firm alone Zelda works."""
    for episode, firm, at in jobs:
        edge = fact("Zelda", "WORKS_AT", firm, episode, at=at, exclusive=True)
        await ingest(graph, group_id, episode, edge)


async def facts(database: CypherDatabase, group_id: str) -> Sequence[Row]:
    return await database.read(group_id, ALL_FACTS)


async def test_nodes_and_edges_come_back_as_they_were(graph_database: CypherDatabase, group_id: str) -> None:
    graph = graph_of(graph_database, group_id)
    times = MemoryTemporalMetadata(
        created_at=day(1), observed_at=day(2), valid_from=day(3), valid_to=day(4), timezone="Europe/Oslo"
    )
    provenance = MemoryProvenance(source="memory", actor_id="ü", citations=("a.md#L1",), temporal=times)
    nodes = [
        GraphNode(
            id="entity:zelda '\"%\\",
            label="Zelda 王",
            properties={"text": "two\nlines", "deep": {"list": [1, None, 2.5]}, "kind": "Person"},
            provenance=provenance,
            temporal=times,
        ),
        entity("Boat"),
    ]
    edge = GraphEdge(
        id="e1",
        source_id=nodes[0].id,
        target_id=nodes[1].id,
        type="KEEPS",
        properties={"fact": "Zelda keeps it", "confidence": 0.5, "own": [True]},
        provenance=provenance,
        temporal=times,
    )

    await graph.upsert_nodes(nodes)
    await graph.upsert_edges([edge])
    result = await graph.query(GraphQuery(entity_ids=(nodes[0].id,)))

    assert (result.nodes, result.edges) == ((nodes[0],), (edge,))


@pytest.mark.parametrize("embedder", [None, HashEmbedder(8)], ids=["without-vectors", "with-vectors"])
async def test_writing_twice_is_writing_once(
    embedder: EmbedderAdapter | None, graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id, embedder)
    edges = [
        fact("Zelda", "WORKS_AT", "Acme", "c1", exclusive=True),
        fact("Zelda", "WORKS_AT", "Globex", "c1", at=5, exclusive=True),
        fact("Zelda", "KEEPS", "Boat", "c1"),
    ]

    await ingest(graph, group_id, "c1", *edges)
    once = await graph_database.read(group_id, EVERYTHING)
    await ingest(graph_of(graph_database, group_id, embedder), group_id, "c1", *edges)

    assert await graph_database.read(group_id, EVERYTHING) == once
    assert len([row for row in once if row["type"] == "RELATES_TO"]) == 3
    assert len([row for row in once if row["type"] == "MENTIONS"]) == 4


async def test_what_is_stored_is_a_graph_of_graphiti_core(
    graph_database: CypherDatabase, group_id: str
) -> None:
    """Its own models read it back, with the vectors it looks for."""
    embedder = HashEmbedder(8)
    await ingest(
        graph_of(graph_database, group_id, embedder), group_id, "c1", fact("Zelda", "KEEPS", "Boat", "c1")
    )

    from composable_memory_adapters.graphiti.library.bridges import GroupDriver
    from composable_memory_adapters.graphiti.library.core import EntityEdge, EntityNode, EpisodicNode

    driver = GroupDriver(graph_database, group_id)
    episode = await EpisodicNode.get_by_uuid(driver, graph_id(group_id, "c1"))
    (edge,) = await EntityEdge.get_by_uuids(driver, episode.entity_edges)
    node = await EntityNode.get_by_uuid(driver, edge.source_node_uuid)
    await node.load_name_embedding(driver)

    assert (episode.name, episode.valid_at, episode.group_id) == ("c1", day(1), group_id)
    assert (edge.name, edge.fact, edge.episodes) == ("KEEPS", "Zelda keeps Boat", [episode.uuid])
    assert (edge.valid_at, edge.reference_time, edge.created_at) == (day(1), day(1), FIXED_NOW)
    assert (node.name, node.labels, len(node.name_embedding)) == ("Zelda", ["Entity"], 8)


async def test_a_fact_between_unknown_entities_is_refused(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await graph.upsert_nodes([entity("Zelda")])

    with pytest.raises(BackendRejected, match="entity:boat"):
        await graph.upsert_edges([fact("Zelda", "KEEPS", "Boat")])


async def test_a_fact_without_words_gets_some(graph_database: CypherDatabase, group_id: str) -> None:
    edge = replace(fact("Zelda", "LOOKS_AFTER", "Boat"), properties={})

    await ingest(graph_of(graph_database, group_id), group_id, "c1", edge)

    assert [row["fact"] for row in await facts(graph_database, group_id)] == ["Zelda looks after Boat"]


async def test_episodes_that_state_the_same_support_one_fact(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)

    for number, content_id in ((5, "c5"), (2, "c2"), (9, "c9")):
        edge = fact("Zelda", "KEEPS", "Boat", content_id, at=number)
        await ingest(graph, group_id, content_id, edge, at=number)

    (row,) = await facts(graph_database, group_id)
    assert row["valid_at"] == day(2).isoformat()
    assert row["episodes"] == [graph_id(group_id, one) for one in ("c5", "c2", "c9")]


@pytest.mark.parametrize("order", [("Acme", "Globex"), ("Globex", "Acme")])
async def test_an_exclusive_fact_ends_the_earlier_one_in_either_order(
    order: Sequence[str], graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    starts = {"Acme": 1, "Globex": 5}

    for name in order:
        edge = fact("Zelda", "WORKS_AT", name, name, at=starts[name], exclusive=True)
        await ingest(graph, group_id, name, edge, at=starts[name])

    acme, globex = await facts(graph_database, group_id)
    assert (acme["target"], acme["invalid_at"]) == ("Acme", day(5).isoformat())
    assert acme["expired_at"] == FIXED_NOW.isoformat()
    assert (globex["target"], globex["invalid_at"], globex["expired_at"]) == ("Globex", None, None)


async def test_a_statement_without_the_mark_does_not_revive_what_an_exclusive_one_ended(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await ingest(graph, group_id, "c1", fact("Zelda", "WORKS_AT", "Acme", "c1", exclusive=True))
    await ingest(graph, group_id, "c2", fact("Zelda", "WORKS_AT", "Globex", "c2", at=5, exclusive=True))

    await ingest(graph, group_id, "c3", fact("Zelda", "WORKS_AT", "Acme", "c3", at=2))

    acme, _ = await facts(graph_database, group_id)
    assert (len(list(acme["episodes"])), acme["invalid_at"]) == (2, day(5).isoformat())  # type: ignore[call-overload]


async def test_what_is_written_at_once_is_all_there_once(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)

    await asyncio.gather(
        *(ingest(graph, group_id, f"c{n}", fact("Zelda", "KEEPS", "Boat", f"c{n}"), at=1) for n in range(8))
    )

    (row,) = await facts(graph_database, group_id)
    assert set(row["episodes"]) == {graph_id(group_id, f"c{n}") for n in range(8)}  # type: ignore[call-overload]


async def test_more_than_one_statement_holds_is_stored(graph_database: CypherDatabase, group_id: str) -> None:
    graph = graph_of(graph_database, group_id)

    await ingest(graph, group_id, "c1", *(fact("Zelda", "KNOWS", f"Person {n}", "c1") for n in range(1200)))

    assert len(await facts(graph_database, group_id)) == 1200
    found = await graph.query(GraphQuery(entity_ids=("entity:zelda",), limit=2000))
    assert len(found.edges) == 1200


async def test_facts_end_when_all_that_supported_them_is_retired(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    first, second = graph_id(group_id, "c1"), graph_id(group_id, "c2")
    shared = fact("Zelda", "KEEPS", "Boat", "c1")
    await ingest(graph, group_id, "c1", shared, fact("Zelda", "KNOWS", "Ada", "c1"))
    await ingest(graph, group_id, "c2", replace(shared, properties={**shared.properties, "episodes": ["c2"]}))

    ended = await graph.retire([first], at=day(7))
    after_first = {row["fact"]: row["invalid_at"] for row in await facts(graph_database, group_id)}
    ended_again = await graph.retire([first], at=day(8))
    ended_then = await graph.retire([second], at=day(9))
    after_both = {row["fact"]: row["invalid_at"] for row in await facts(graph_database, group_id)}

    assert (ended, ended_again, ended_then) == (1, 0, 1)
    assert after_first == {"Zelda keeps Boat": None, "Zelda knows Ada": day(7).isoformat()}
    assert after_both == {"Zelda keeps Boat": day(9).isoformat(), "Zelda knows Ada": day(7).isoformat()}


async def test_what_a_source_says_again_holds_again(graph_database: CypherDatabase, group_id: str) -> None:
    graph = graph_of(graph_database, group_id)
    edge = fact("Zelda", "KEEPS", "Boat", "c1")
    await ingest(graph, group_id, "c1", edge)
    before = await facts(graph_database, group_id)

    await graph.retire([graph_id(group_id, "c1")], at=day(7))
    await ingest(graph, group_id, "c1", edge)

    assert await facts(graph_database, group_id) == before


async def test_merged_episodes_give_way_to_one_and_their_facts_stay(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await ingest(graph, group_id, "c1", fact("Zelda", "KEEPS", "Boat", "c1"))
    await ingest(graph, group_id, "c2", fact("Zelda", "KNOWS", "Ada", "c2"))
    await ingest(graph, group_id, "c3", fact("Ada", "KEEPS", "Dog", "c3"))
    merged, old = draft(group_id, "c1+c2"), [graph_id(group_id, one) for one in ("c1", "c2")]

    await graph.merge_episodes(merged, old)
    once = await graph_database.read(group_id, EVERYTHING)
    await graph.merge_episodes(merged, old)

    assert await graph_database.read(group_id, EVERYTHING) == once
    supports = {row["fact"]: row["episodes"] for row in await facts(graph_database, group_id)}
    assert supports == {
        "Ada keeps Dog": [graph_id(group_id, "c3")],
        "Zelda keeps Boat": [merged.id],
        "Zelda knows Ada": [merged.id],
    }
    assert await graph.forget("c1+c2") == Forgotten(episode_id=merged.id, facts=2, entities=2)


async def test_forgetting_takes_what_nothing_else_supports(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    shared = fact("Zelda", "KEEPS", "Boat", "c1")
    await ingest(graph, group_id, "c1", shared, fact("Zelda", "KNOWS", "Ada", "c1"))
    await ingest(graph, group_id, "c2", replace(shared, properties={**shared.properties, "episodes": ["c2"]}))
    uuid = graph_id(group_id, "c1")

    forgotten = await graph.forget("c1")

    assert forgotten == Forgotten(episode_id=uuid, facts=1, entities=1)
    left = await facts(graph_database, group_id)
    assert [(row["fact"], row["episodes"]) for row in left] == [
        ("Zelda keeps Boat", [graph_id(group_id, "c2")])
    ]
    everything = await graph_database.read(group_id, EVERYTHING)
    assert uuid not in str(everything)
    assert "Ada" not in str(everything)
    assert await graph.forget(uuid) is None


async def test_what_was_taken_back_stays_so_when_what_parted_it_is_forgotten(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await ingest_jobs(graph, group_id, ("c1", "Acme", 1), ("c2", "Globex", 5), ("c3", "Acme", 8))
    await graph.retire([graph_id(group_id, "c1")], at=day(20))
    await graph.retire([graph_id(group_id, "c3")], at=day(21))

    await graph.forget("c2")

    assert [row["invalid_at"] for row in await facts(graph_database, group_id)] == [day(21).isoformat()]


async def test_forgetting_what_superseded_a_fact_lets_it_hold_again(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await ingest(graph, group_id, "c1", fact("Zelda", "WORKS_AT", "Acme", "c1", exclusive=True))
    await ingest(graph, group_id, "c2", fact("Zelda", "WORKS_AT", "Globex", "c2", at=5, exclusive=True))

    await graph.forget(graph_id(group_id, "c2"))

    (row,) = await facts(graph_database, group_id)
    assert (row["target"], row["invalid_at"], row["expired_at"]) == ("Acme", None, None)


async def test_forgetting_that_something_was_said_again_lets_hold_what_that_had_ended(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await ingest_jobs(graph, group_id, ("c1", "Acme", 1), ("c2", "Globex", 1), ("c3", "Globex", 5))
    assert [row["invalid_at"] for row in await facts(graph_database, group_id)] == [day(5).isoformat(), None]

    await graph.forget("c3")

    assert [row["invalid_at"] for row in await facts(graph_database, group_id)] == [None, None]


class Killed(Exception):
    """Raised where a process would have been killed."""


class KilledAfter:
    """A database whose user is killed after some writes."""

    def __init__(self, database: CypherDatabase, writes: int) -> None:
        self._database = database
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        if not self._left:
            raise Killed
        self._left -= 1
        return await self._database.write(group_id, cypher, **parameters)


async def test_who_forgets_again_after_a_kill_at_any_moment_settles_everything(
    graph_database: CypherDatabase, group_id: str
) -> None:
    jobs = [("c1", "Acme", 1), ("c2", "Globex", 5), ("c3", "Acme", 8), ("c4", "Initech", 12)]
    for writes in range(100):
        group = f"{group_id}n{writes}"
        graph = graph_of(graph_database, group)
        await ingest_jobs(graph, group, *jobs)
        killed = cast("CypherDatabase", KilledAfter(graph_database, writes))
        try:
            for episode in ("c4", "c2"):
                await graph_of(killed, group).forget(episode)
            was_killed = False
        except Killed:
            was_killed = True
        for episode in ("c4", "c2"):
            await graph.forget(episode)

        left = await facts(graph_database, group)
        held = [(row["target"], row["valid_at"], row["invalid_at"], row["expired_at"]) for row in left]
        assert held == [("Acme", day(1).isoformat(), None, None)], writes
        if not was_killed:
            return
    raise AssertionError("forgetting never came to its end")


Job = tuple[str, str, int]


async def jobs(database: CypherDatabase, group_id: str) -> set[tuple[object, ...]]:
    """Return who works where, since which day and until when."""
    rows = await facts(database, group_id)
    return {
        (row["fact"], row["valid_at"], row["invalid_at"]) for row in rows if " works at " in str(row["fact"])
    }


async def write_jobs(graph: GraphitiGraph, group_id: str, *said: Job) -> None:
    for who, firm, at in said:
        edge = fact(who, "WORKS_AT", firm, f"{who}-{at}", at=at, exclusive=True)
        await ingest(graph, group_id, f"{who}-{at}", edge, at=at)


TOM_AT_ACME, TOM_OKAFOR_AT_GLOBEX, TOM_REED_AT_SHELL = (
    ("Tom", "Acme", 1),
    ("Tom Okafor", "Globex", 5),
    ("Tom Reed", "Shell", 9),
)


@pytest.mark.parametrize("said", list(permutations([TOM_AT_ACME, TOM_OKAFOR_AT_GLOBEX])))
async def test_what_is_said_of_a_full_name_ends_what_was_said_of_the_only_one_with_that_first_name(
    said: Sequence[Job], graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await write_jobs(graph, group_id, *said)

    assert await jobs(graph_database, group_id) == {
        ("Tom works at Acme", day(1).isoformat(), day(5).isoformat()),
        ("Tom Okafor works at Globex", day(5).isoformat(), None),
    }


@pytest.mark.parametrize("said", list(permutations([TOM_AT_ACME, TOM_OKAFOR_AT_GLOBEX, TOM_REED_AT_SHELL])))
async def test_who_of_two_is_meant_by_a_first_name_is_not_guessed(
    said: Sequence[Job], graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await write_jobs(graph, group_id, *said)

    assert {end for _, _, end in await jobs(graph_database, group_id)} == {None}

    await graph.forget("Tom Reed-9")

    assert ("Tom works at Acme", day(1).isoformat(), day(5).isoformat()) in await jobs(
        graph_database, group_id
    )


async def test_a_first_name_is_again_of_one_who_was_meant_before_and_after(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await write_jobs(graph, group_id, TOM_AT_ACME, TOM_OKAFOR_AT_GLOBEX, ("Tom", "Acme", 8))

    assert await jobs(graph_database, group_id) == {
        ("Tom works at Acme", day(1).isoformat(), day(5).isoformat()),
        ("Tom Okafor works at Globex", day(5).isoformat(), day(8).isoformat()),
        ("Tom works at Acme", day(8).isoformat(), None),
    }

    await write_jobs(graph, group_id, TOM_REED_AT_SHELL)

    assert await jobs(graph_database, group_id) == {
        ("Tom works at Acme", day(1).isoformat(), None),
        ("Tom Okafor works at Globex", day(5).isoformat(), None),
        ("Tom Reed works at Shell", day(9).isoformat(), None),
    }


async def test_two_of_whom_one_is_the_brother_of_the_other_are_two(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    await write_jobs(graph, group_id, TOM_AT_ACME, TOM_OKAFOR_AT_GLOBEX)
    await ingest(graph, group_id, "e3", fact("Tom", "BROTHER_OF", "Tom Okafor", "e3"))

    assert {end for _, _, end in await jobs(graph_database, group_id)} == {None}


async def test_filters_keep_nodes_with_these_properties(
    graph_database: CypherDatabase, group_id: str
) -> None:
    graph = graph_of(graph_database, group_id)
    boat = replace(entity("Zelda Boat"), properties={"kind": "Thing"})
    await graph.upsert_nodes([entity("Zelda"), boat])

    found = await graph.query(GraphQuery(text="zelda", filters={"kind": "Thing"}))

    assert found.nodes == (boat,)


@pytest.mark.parametrize("text", ["", "   ", "the a is", "(@group_id:x) | -% \"'\\", "🦉", "a" * 5000, "_"])
async def test_any_text_can_be_asked(text: str, graph_database: CypherDatabase, group_id: str) -> None:
    graph = graph_of(graph_database, group_id)
    await graph.upsert_nodes([entity("Zelda")])

    assert (await graph.query(GraphQuery(text=text))).nodes == ()


async def test_groups_do_not_see_each_other(graph_database: CypherDatabase, group_id: str) -> None:
    first, second = f"{group_id}a", f"{group_id}b"
    for group in (first, second):
        await ingest(graph_of(graph_database, group), group, "c1", fact("Zelda", "KEEPS", "Boat", "c1"))

    await graph_of(graph_database, first).forget("c1")

    assert await facts(graph_database, first) == []
    assert len(await facts(graph_database, second)) == 1


async def test_vectors_of_another_embedder_are_not_mixed_in_and_can_be_made_anew(
    graph_database: CypherDatabase, group_id: str
) -> None:
    old, new = HashEmbedder(8), HashEmbedder(16)
    await ingest(
        graph_of(graph_database, group_id, old), group_id, "c1", fact("Zelda", "KEEPS", "Boat", "c1")
    )
    graph = graph_of(graph_database, group_id, new)

    await ingest(graph, group_id, "c2", fact("Zelda", "KNOWS", "Ada", "c2"))
    mixed = await lengths(graph_database, group_id)
    space = await stored_space(graph_database, group_id)
    await graph.reembed()

    assert mixed == {"Zelda": 8, "Boat": 8, "Zelda keeps Boat": 8, "Ada": None, "Zelda knows Ada": None}
    assert space == "hash/hash-8/8"
    assert await stored_space(graph_database, group_id) == "hash/hash-16/16"
    assert set((await lengths(graph_database, group_id)).values()) == {16}


async def test_what_was_written_without_an_embedder_gets_vectors_later(
    graph_database: CypherDatabase, group_id: str
) -> None:
    await ingest(graph_of(graph_database, group_id), group_id, "c1", fact("Zelda", "KEEPS", "Boat", "c1"))
    without = await lengths(graph_database, group_id)

    await graph_of(graph_database, group_id, HashEmbedder(8)).reembed()

    assert set(without.values()) == {None}
    assert set((await lengths(graph_database, group_id)).values()) == {8}


async def lengths(database: CypherDatabase, group_id: str) -> dict[object, int | None]:
    rows = await database.read(group_id, VECTORS)
    return {row["name"]: len(vector) if isinstance(vector := row["vector"], list) else None for row in rows}
