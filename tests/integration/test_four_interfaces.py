"""What a memory finds comes through four interfaces: what is behind each of them decides on the answer."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import BaseModel

from composable_memory import open_memory
from composable_memory.content import ExtractedEntity, GraphQuery, GraphQueryResult, MemoryContentObject
from composable_memory.errors import ConfigError
from composable_memory.interfaces import (
    BackendServices,
    BackendSpec,
    EmbedderAdapter,
    EmbedderServices,
    EmbedderSpec,
    EntityExtractor,
    GraphAdapter,
    MemorySearchManager,
)
from composable_memory.testing import HashEmbedder, InMemoryGraph
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.extractors import HeuristicExtractor
from composable_memory_adapters.graphiti.backend import open_graphiti
from composable_memory_adapters.graphiti.plugin import spec as graphiti
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.graphiti.writing.graph import GraphitiGraph
from composable_memory_adapters.vectors.in_memory import InMemoryVectors
from tests.calls import watching_calls
from tests.installed_packages import install
from tests.integration.graphiti.neighbour import WORD

MoveIn = Callable[[Path, Path], None]

NO_VECTORS = """
from contextlib import asynccontextmanager
from composable_memory.content import VectorQueryResult
from composable_memory.interfaces import VectorSpec

class NoVectors:
    async def upsert(self, records):
        pass

    async def query(self, query):
        return VectorQueryResult()

@asynccontextmanager
async def open_store(services):
    yield NoVectors()

spec = VectorSpec(id="no-vectors", summary="keeps nothing", open=open_store)
"""
NOTES = {
    "boat": "The boat leaks and has to be caulked before it sails again.",
    "lunch": "The canteen serves noodles and soup on Tuesdays.",
    "garden": "Tomatoes want water every evening in July.",
}
BY_MEANING = "yacht maintenance"
"""Shares no word with a note, so that only vectors can find the one about the boat."""
FACT = "Ingrid lives in Lindholm."
SAID = MemoryContentObject(id="m1", kind="message", text=FACT)
BY_FACT = "Where does Ingrid live?"


class NoEntities:
    """Finds no entity in any text."""

    async def extract(self, content: MemoryContentObject) -> Sequence[ExtractedEntity]:
        return ()


class ForgetfulGraph:
    """Hands on what it is given, and finds nothing."""

    def __init__(self, graph: GraphAdapter) -> None:
        self.upsert_nodes = graph.upsert_nodes
        self.upsert_edges = graph.upsert_edges

    async def query(self, query: GraphQuery) -> GraphQueryResult:
        return GraphQueryResult()


class HashSettings(BaseModel):
    """Nothing to set but what every provider has."""

    model: str = "hash-64"


@asynccontextmanager
async def open_hashes(settings: HashSettings, services: EmbedderServices) -> AsyncIterator[EmbedderAdapter]:
    yield HashEmbedder()


HASHES = EmbedderSpec(
    id="hashes", summary="knows words alone", settings=HashSettings, open=open_hashes, local=True
)


@dataclass(frozen=True)
class Parts:
    """What is behind the four interfaces."""

    engine: str = "auto"
    embedder: str = "wordllama"
    make_extractor: Callable[[], EntityExtractor] = HeuristicExtractor
    replace_graph: Callable[[GraphAdapter], GraphAdapter] = field(default=lambda graph: graph)

    @asynccontextmanager
    async def open_facts(
        self, settings: GraphitiSettings, services: BackendServices
    ) -> AsyncIterator[MemorySearchManager]:
        services = replace(services, load_extractor=lambda _name: self.make_extractor())
        async with open_graphiti(settings, services, replace_graph=self.replace_graph) as memory:
            yield memory


@pytest.fixture
def folders(tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    site = tmp_path / "site"
    entry = "[composable_memory.vectors]\nno-vectors = no_vectors:spec\n"
    install(site, "no-vectors", entry, no_vectors=NO_VECTORS)
    monkeypatch.syspath_prepend(site)
    notes = tmp_path / "notes" / "memory"
    notes.mkdir(parents=True)
    for name, text in NOTES.items():
        (notes / f"{name}.md").write_text(text, "utf-8")
    yield tmp_path / "notes", state_dir
    sys.modules.pop("no_vectors", None)


async def found(folders: tuple[Path, Path], parts: Parts) -> tuple[bool, bool]:
    """Take in a note and a fact; return whether the note is found by meaning, and the fact as such."""
    spec: BackendSpec = replace(graphiti, id="facts", open=parts.open_facts)
    config = {
        "embedding": {"provider": parts.embedder},
        "builtin": {"store": {"vector": {"engine": parts.engine}}},
        "facts": {"enabled": True},
    }
    async with open_memory(*folders, config, backends=[spec], embedders=[HASHES], long_lived=False) as memory:
        await memory.sync()
        report = (await memory.ingest([SAID]))["facts"]
        assert (report.stored, report.problems) == (1, ())
        notes = await memory.query(BY_MEANING, backends=["builtin"])
        facts = await memory.query(BY_FACT, backends=["facts"])
    paths = [one.path for one in notes.results]
    return paths[:1] == ["memory/boat.md"], any(
        FACT in one.snippet and "fact" in one.metadata for one in facts.results
    )


async def test_taking_in_and_asking_enter_all_four_interfaces(
    folders: tuple[Path, Path], move_neighbour_in: MoveIn
) -> None:
    move_neighbour_in(*folders)
    with watching_calls() as called:
        assert await found(folders, Parts()) == (True, True)

    for interface in (
        GraphitiGraph.upsert_nodes,
        GraphitiGraph.upsert_edges,
        GraphitiGraph.query,
        InMemoryVectors.query,
        WordLlamaEmbedder.embed,
        HeuristicExtractor.read,  # entities and relations in one go
    ):
        assert interface.__code__ in called, interface.__qualname__


async def test_what_is_behind_each_of_them_decides_what_is_found(
    folders: tuple[Path, Path], move_neighbour_in: MoveIn
) -> None:
    workspace, state = folders
    others = {
        "graph": (Parts(replace_graph=ForgetfulGraph), (True, False)),
        "vectors": (Parts(engine="no-vectors"), (False, True)),
        "embedder": (Parts(embedder="hashes"), (False, True)),
        "extractor": (Parts(make_extractor=NoEntities), (True, False)),
    }
    for name, (parts, expected) in others.items():
        move_neighbour_in(workspace, state / name)
        assert await found((workspace, state / name), parts) == expected, name


TAGGER = """
class Tagger:
    async def extract(self, content):
        return ()
"""


async def test_a_package_brings_an_extractor_that_the_settings_choose(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, move_neighbour_in: MoveIn
) -> None:
    site = tmp_path / "more"
    install(site, "taggers", "[composable_memory.extractors]\nmy-tagger = taggers:Tagger\n", taggers=TAGGER)
    monkeypatch.syspath_prepend(site)

    async def stored(extractor: str) -> tuple[bool, str]:
        move_neighbour_in(folders[0], folders[1] / extractor)
        config = {
            "builtin": {"enabled": True},
            "graphiti": {"enabled": True, "ingest": {"extractor": extractor}},
        }
        async with open_memory(folders[0], folders[1] / extractor, config, long_lived=False) as memory:
            report = (await memory.ingest([SAID]))["graphiti"]
            assert (report.stored, report.problems) == (1, ())
            answer = await memory.query(BY_FACT, backends=["graphiti"])
            about = memory.backend_statuses()["graphiti"].custom
        assert not [one for one in answer.results if WORD in one.snippet]
        return any("fact" in one.metadata for one in answer.results), str(about)

    by_rules, _ = await stored("heuristic")
    by_tagger, about = await stored("my-tagger")
    sys.modules.pop("taggers", None)

    assert (by_rules, by_tagger) == (True, False)
    assert "my-tagger" in about
    with pytest.raises(ConfigError, match="heuristic, my-tagger"):
        await stored("your-tagger")


async def test_another_graph_serves_the_memory_of_facts(
    folders: tuple[Path, Path], move_neighbour_in: MoveIn
) -> None:
    move_neighbour_in(*folders)
    own = InMemoryGraph()

    assert await found(folders, Parts(replace_graph=lambda _: own)) == (True, True)
    assert len((await own.query(GraphQuery(entity_ids=("entity:ingrid",)))).edges) == 1
