"""Weights that change while the memory runs: what a query takes, and what it says of that."""

import asyncio

import pytest

from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import ActiveWeights, LiveWeights
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.testing.in_memory import FIXED_NOW, FakeBackend
from composable_memory.types import MemorySearchResult, SearchOptions
from composable_memory_feedback.experiments import Experiment
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs import BackendResult, MemorySink, OpsLog, QueryMerged, QueryStart

FOR_NOTES = WeightTable.fixed({"notes": 1.0, "graph": 0.5})
FOR_GRAPH = WeightTable.fixed({"notes": 0.5, "graph": 1.0})
BY_INTENT = WeightTable.fixed(
    {"notes": 1.0, "graph": 0.5},
    by_intent={IntentKind.TIME: {"graph": 2.0}, IntentKind.ENTITY: {"notes": 0.1}},
)


class Waiting(FakeBackend):
    """Finds one passage, once it may answer."""

    def __init__(self, path: str) -> None:
        super().__init__("waiting")
        self.path = path
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        self.is_asked.set()
        await self.may_answer.wait()
        return [MemorySearchResult(path=self.path, start_line=1, end_line=2, score=0.8, snippet=self.path)]


class Composite:
    """A composite of two backends, with its weights at hand."""

    def __init__(self, table: WeightTable, ops_log: OpsLog) -> None:
        self.weights = LiveWeights(table)
        self.graph = Waiting("graph.md")
        self.manager = ComposableMemoryManager(
            [
                ComposableBackendEntry(id="notes", manager=Waiting("notes.md")),
                ComposableBackendEntry(id="graph", manager=self.graph),
            ],
            weights=self.weights,
            intent_parser=parse_query_intent,
            ops_log=ops_log,
        )

    def put(self, table: WeightTable, experiment: Experiment | None = None) -> None:
        self.weights.put(ActiveWeights(table=table, experiment=experiment))

    async def first(self, query: str = "which port") -> tuple[str, str]:
        response = await self.manager.query(query)
        return response.results[0].path, response.weights_version


def experiment_of(a: WeightTable, b: WeightTable) -> Experiment:
    return Experiment(id="e1", a=a, b=b, started_at=FIXED_NOW)


def starts(events: MemorySink) -> list[QueryStart]:
    return [one.detail for one in events.events if isinstance(one.detail, QueryStart)]


def merges(events: MemorySink) -> list[QueryMerged]:
    return [one.detail for one in events.events if isinstance(one.detail, QueryMerged)]


async def test_what_is_put_counts_from_the_next_query_on(ops_log: OpsLog) -> None:
    composite = Composite(FOR_NOTES, ops_log)
    before = await composite.first()
    composite.put(FOR_GRAPH)

    assert before == ("notes.md", FOR_NOTES.version)
    assert await composite.first() == ("graph.md", FOR_GRAPH.version)


async def test_a_query_that_is_under_way_keeps_the_weights_it_began_with(
    ops_log: OpsLog, events: MemorySink
) -> None:
    composite = Composite(FOR_NOTES, ops_log)
    composite.graph.may_answer.clear()
    under_way = asyncio.create_task(composite.first())
    await composite.graph.is_asked.wait()
    composite.put(FOR_GRAPH, experiment_of(FOR_NOTES, FOR_GRAPH))
    composite.graph.may_answer.set()

    assert await under_way == ("notes.md", FOR_NOTES.version)
    [merged] = merges(events)
    assert (dict(merged.weights), merged.experiment) == ({"notes": 1.0, "graph": 0.5}, None)
    logged = {one.backend: one.detail for one in events.events if isinstance(one.detail, BackendResult)}
    assert {backend: one.weight for backend, one in logged.items()} == {"notes": 1.0, "graph": 0.5}


@pytest.mark.parametrize(
    ("query", "kind", "weights", "first"),
    [
        ("which port", "general", {"notes": 1.0, "graph": 0.5}, "notes.md"),
        ("what broke last week", "time", {"notes": 1.0, "graph": 2.0}, "graph.md"),
        ("what did Maria Lopez say", "entity", {"notes": 0.1, "graph": 0.5}, "graph.md"),
        ("what did Maria Lopez say last week", "time", {"notes": 1.0, "graph": 2.0}, "graph.md"),
    ],
)
async def test_the_weights_are_those_for_the_kind_of_the_question(
    ops_log: OpsLog, events: MemorySink, query: str, kind: str, weights: dict[str, float], first: str
) -> None:
    composite = Composite(BY_INTENT, ops_log)

    assert await composite.first(query) == (first, BY_INTENT.version)
    [merged] = merges(events)
    assert (merged.intent_kind, dict(merged.weights)) == (kind, weights)


async def test_without_a_parser_every_question_is_of_the_general_kind(
    ops_log: OpsLog, events: MemorySink
) -> None:
    entries = [ComposableBackendEntry(id="notes", manager=Waiting("notes.md"))]
    manager = ComposableMemoryManager(entries, weights=BY_INTENT, ops_log=ops_log)

    await manager.query("what broke last week")

    assert merges(events)[0].intent_kind == "general"


async def test_an_experiment_draws_from_both_tables_and_logs_its_draw(
    ops_log: OpsLog, events: MemorySink
) -> None:
    composite = Composite(FOR_NOTES, ops_log)
    composite.put(FOR_NOTES, experiment_of(FOR_NOTES, FOR_GRAPH))

    firsts = {(await composite.first())[0] for _ in range(24)}

    assert firsts == {"notes.md", "graph.md"}
    for start, merged in zip(starts(events), merges(events), strict=True):
        draw = merged.experiment
        assert draw is not None
        assert (draw.id, sorted(draw.teams)) == ("e1", ["a", "b"])
        assert (dict(draw.weights_a), dict(draw.weights_b)) == (
            {"notes": 1.0, "graph": 0.5},
            {"notes": 0.5, "graph": 1.0},
        )
        assert [one.backend for one in merged.final_results] == [
            {"a": "notes", "b": "graph"}[team] for team in draw.teams
        ]
        assert (start.weights_version, dict(merged.weights)) == (FOR_NOTES.version, dict(draw.weights_a))
    assert len({merged.experiment.seed for merged in merges(events) if merged.experiment}) == 24


async def test_the_tables_of_an_experiment_differ_by_the_kind_of_the_question(
    ops_log: OpsLog, events: MemorySink
) -> None:
    composite = Composite(FOR_NOTES, ops_log)
    composite.put(FOR_NOTES, experiment_of(FOR_NOTES, BY_INTENT))

    await composite.first("what broke last week")

    draw = merges(events)[0].experiment
    assert draw is not None
    assert dict(draw.weights_b) == {"notes": 1.0, "graph": 2.0}


async def test_once_an_experiment_is_over_the_table_ranks_alone(ops_log: OpsLog, events: MemorySink) -> None:
    composite = Composite(FOR_NOTES, ops_log)
    composite.put(FOR_NOTES, experiment_of(FOR_NOTES, FOR_GRAPH))
    await composite.first()
    composite.put(FOR_GRAPH)

    assert {await composite.first() for _ in range(8)} == {("graph.md", FOR_GRAPH.version)}
    assert merges(events)[-1].experiment is None


async def test_the_version_in_force_is_told_by_answers_by_the_log_and_by_the_status(
    ops_log: OpsLog, events: MemorySink
) -> None:
    composite = Composite(FOR_NOTES, ops_log)
    composite.put(BY_INTENT)
    response = await composite.manager.query("which port")

    custom = composite.manager.status().custom
    assert {response.weights_version, custom["weightsVersion"]} == {BY_INTENT.version}
    assert starts(events)[0].weights_version == BY_INTENT.version
    assert custom["weights"] == {"notes": 1.0, "graph": 0.5}


def test_weights_by_name_are_a_table_of_their_own_version() -> None:
    assert LiveWeights({"notes": 1, "graph": 0.5}).now.version == FOR_NOTES.version
    assert LiveWeights(FOR_NOTES).now == ActiveWeights(table=FOR_NOTES)


async def test_without_weights_those_of_the_entries_are_in_force() -> None:
    entries = [
        ComposableBackendEntry(id="notes", manager=Waiting("notes.md"), weight=0.5),
        ComposableBackendEntry(id="graph", manager=Waiting("graph.md")),
    ]

    response = await ComposableMemoryManager(entries).query("which port")

    assert (response.results[0].path, response.weights_version) == ("graph.md", FOR_GRAPH.version)
