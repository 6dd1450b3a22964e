"""Forgetting lines whose facts are in a graph: they go from it, from its outbox and from its journal."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from composable_memory.content import MemoryContentObject
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.runtime.memory import Memory
from composable_memory_adapters.graphiti.database import requirements
from tests.integration.test_forgetting import Place, files_with

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")
pytestmark = [
    pytest.mark.usefixtures("neighbour"),
    pytest.mark.skipif(
        requirements.find_binaries() is None, reason="there is no graph server for this system"
    ),
]

SAID = "Mirela works at Zanzebrook Labs."
NOTE = f"# People\n\n- {SAID}\n- Anna works at Beacon Labs.\n"
WORDS = ("mirela works", "zanzebrook")
GRAPH = {"enabled": True, "ingest": {"extractor": "heuristic"}}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def written(memory: Memory, path: str, text: str) -> Sequence[MemoryContentObject]:
    return contents_of(WrittenSource(path=path, text=text, written_at=memory.context.clock()))


async def ingest(memory: Memory, path: str, text: str) -> None:
    await memory.ingest_source(path, written(memory, path, text))


async def facts(memory: Memory) -> list[str]:
    return [one.text for one in await memory.facts_of().facts(limit=100)]


async def test_facts_that_rest_on_a_line_go_and_the_others_stay(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("memory/people.md", NOTE)
    config = {"graphiti": GRAPH, "embedding": {"provider": "none"}}
    async with place.open(**config) as memory:
        await memory.sync()
        await ingest(memory, "memory/people.md", NOTE)
        before = await facts(memory)
        assert [one for one in before if "Mirela" in one]
        await memory.query("where does Mirela work?")

        plan = await memory.plan_forgetting("memory/people.md#L3")
        report = await memory.forget(plan)

        told = {(one.store, one.what): one.count for one in plan.stores}
        assert told["graphiti", "episodes"] == 1
        assert told["graphiti", "facts"] >= 1
        assert report.is_done
        assert [one for one in await facts(memory) if "Mirela" in one] == []
        assert [one for one in await facts(memory) if "Anna" in one] != []
        await ingest(memory, "memory/people.md", NOTE)  # an old copy is ingested again
        assert [one for one in await facts(memory) if "Mirela" in one] == []
    assert files_with(WORDS, place.state, place.workspace) == set()


async def test_nothing_is_left_of_a_line_but_whom_it_was_about(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.open(graphiti=GRAPH, embedding={"provider": "none"}) as memory:
        known = await memory.remember("Tom Okafor lives in Chur.", entities=["Tom Okafor"])
        await memory.forget(await memory.plan_forgetting(known.citation))
        response = await memory.query("where does Tom Okafor live?")
        assert [one for one in response.results if "Okafor" in one.text] == []
        assert [one for one in await facts(memory) if "Okafor" in one] == []


async def test_periods_are_one_again_when_what_lay_between_is_forgotten(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.open(graphiti=GRAPH, embedding={"provider": "none"}) as memory:
        for month, town in enumerate(("Chur", "Bern", "Chur", "Bern", "Chur"), 1):
            path = f"memory/2026-0{month}-01.md"
            text = f"## Retain\n- W @Ana: Ana lives in {town}.\n"
            place.write(path, text)
            at = datetime(2026, month, 1, tzinfo=UTC)
            await memory.ingest_source(path, contents_of(WrittenSource(path=path, text=text, written_at=at)))
        assert len(await memory.facts_of().facts(limit=9)) == 5
        await memory.forget(await memory.plan_forgetting("memory/2026-02-01.md#L2"))  # and its copy
        (home,) = await memory.facts_of().facts(limit=9)

    assert home.valid_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert len(home.episodes) == 3


async def test_a_graph_that_was_off_meanwhile_follows_when_it_is_opened(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("memory/people.md", NOTE)
    async with place.open(graphiti=GRAPH, embedding={"provider": "none"}) as memory:
        await memory.sync()
        await ingest(memory, "memory/people.md", NOTE)
    async with place.open(embedding={"provider": "none"}) as memory:
        report = await memory.forget(await memory.plan_forgetting("memory/people.md#L3"))
        assert report.is_done
        assert (await memory.remember("Anna likes tea.")).degraded == ()
    assert files_with(WORDS, place.state) != set()

    async with place.open(graphiti=GRAPH, embedding={"provider": "none"}) as memory:
        assert [one for one in await facts(memory) if "Mirela" in one] == []
        assert [one for one in await facts(memory) if "Anna" in one] != []
    assert files_with(WORDS, place.state, place.workspace) == set()
