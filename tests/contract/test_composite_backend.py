"""A memory made of parts keeps the contract, over files and in memory, with a graph and without."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest

from composable_memory.composite_backend import CompositeBackend
from composable_memory.content import (
    GraphQuery,
    GraphQueryResult,
    MemoryContentObject,
    MemoryTemporalMetadata,
    VectorQuery,
    VectorQueryResult,
)
from composable_memory.errors import BackendError, BackendUnavailable, ConfigError, UnsupportedOperation
from composable_memory.ingest import StandardTemporalPolicy
from composable_memory.interfaces import (
    Capability,
    DeclaresCapabilities,
    EmbedderAdapter,
    EmbedderServices,
    MemorySearchManager,
    SupportsIngest,
    VectorAdapter,
)
from composable_memory.testing import (
    FIXED_NOW,
    SEED_NOTES,
    AnswerContract,
    BackendContract,
    FailingEmbedder,
    HashEmbedder,
    InMemoryGraph,
    Opener,
    ReadFileContract,
    SeedQuestion,
)
from composable_memory.types import Origin
from composable_memory_adapters.embedders.wordllama import DIMENSIONS, WordLlamaSettings
from composable_memory_adapters.embedders.wordllama import spec as wordllama
from composable_memory_adapters.extractors import HeuristicExtractor
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_adapters.vectors.in_memory import InMemoryVectors
from composable_memory_adapters.vectors.sqlite_vec import SqliteVecVectors

HOUR = timedelta(hours=1)


def note(path: str, text: str, **times: Any) -> MemoryContentObject:
    return MemoryContentObject(
        id=path,
        kind="document",
        text=text,
        title=text.split("\n")[0].lstrip("# "),
        metadata={"path": path, "start_line": 1, "end_line": text.count("\n") + 1},
        temporal=MemoryTemporalMetadata(observed_at=FIXED_NOW, **times),
    )


def message(id_: str, text: str, speaker: str = "Anna", **times: Any) -> MemoryContentObject:
    return MemoryContentObject(
        id=id_,
        kind="message",
        text=text,
        metadata={"speaker": speaker},
        temporal=MemoryTemporalMetadata(observed_at=FIXED_NOW, **times),
    )


SEEDS = [note(path, text) for path, text in SEED_NOTES.items()]


class CompositeContract(BackendContract, AnswerContract):
    """The seeded notes, each taken in as one content, with the parts of a variant."""

    has_graph: ClassVar[bool] = False
    has_vectors: ClassVar[bool] = True

    @asynccontextmanager
    async def vectors(self, folder: Path) -> AsyncIterator[VectorAdapter]:
        yield InMemoryVectors()

    @pytest.fixture
    def open_backend(
        self, embedder_services: EmbedderServices, tmp_path: Path
    ) -> Opener[MemorySearchManager]:
        @asynccontextmanager
        async def open_parts() -> AsyncIterator[MemorySearchManager]:
            async with AsyncExitStack() as stack:
                embedder: EmbedderAdapter | None = None
                vectors: VectorAdapter | None = None
                if self.has_vectors:
                    embedder = await stack.enter_async_context(
                        wordllama.open(WordLlamaSettings(), embedder_services)
                    )
                    vectors = await stack.enter_async_context(self.vectors(tmp_path))
                memory = CompositeBackend(
                    graph=InMemoryGraph() if self.has_graph else None,
                    vectors=vectors,
                    embedder=embedder,
                    extractor=HeuristicExtractor(),
                    clock=lambda: FIXED_NOW,
                )
                assert (await memory.ingest(SEEDS)).stored == len(SEEDS)
                yield memory

        return open_parts


VECTOR_CAPABILITIES = frozenset(
    {Capability.ANSWER, Capability.CALIBRATED, Capability.INGEST, Capability.READ_FILE}
)


class TestBruteForceWithoutAGraph(CompositeContract, ReadFileContract):
    capabilities = VECTOR_CAPABILITIES


class TestSqliteVecWithoutAGraph(CompositeContract, ReadFileContract):
    capabilities = VECTOR_CAPABILITIES

    @asynccontextmanager
    async def vectors(self, folder: Path) -> AsyncIterator[VectorAdapter]:
        async with SqliteFile.open(folder / "vectors.sqlite") as file:
            yield SqliteVecVectors(file, dims=DIMENSIONS)


class TestVectorsAndAGraph(CompositeContract):
    capabilities = VECTOR_CAPABILITIES
    has_graph = True


class TestAGraphAlone(CompositeContract):
    """Facts are found by the entities that they are about, so the questions name some."""

    capabilities = VECTOR_CAPABILITIES - {Capability.READ_FILE}
    has_graph = True
    has_vectors = False
    questions: ClassVar[Sequence[SeedQuestion]] = (
        SeedQuestion(query="QX-7781-B", answer="pump relay"),
        SeedQuestion(query="ferry to Lindholm", answer="06:40"),
        SeedQuestion(query="What does Ingrid drink?", answer="coffee with milk"),
    )


# --- beyond the contract ------------------------------------------------------------------------------------


class BrokenGraph(InMemoryGraph):
    async def query(self, query: GraphQuery) -> GraphQueryResult:
        raise RuntimeError("the graph is upset")


class BrokenVectors(InMemoryVectors):
    async def query(self, query: VectorQuery) -> VectorQueryResult:
        raise TimeoutError("the vectors sleep")


def composite(**parts: object) -> CompositeBackend:
    return CompositeBackend(clock=lambda: FIXED_NOW, **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("has_graph", "has_vectors", "has_embedder", "has_extractor"), list(product([False, True], repeat=4))
)
async def test_any_parts_make_a_memory_if_one_of_them_keeps_something(
    has_graph: bool, has_vectors: bool, has_embedder: bool, has_extractor: bool
) -> None:
    parts = {
        "graph": InMemoryGraph() if has_graph else None,
        "vectors": InMemoryVectors() if has_vectors else None,
        "embedder": HashEmbedder() if has_embedder else None,
        "extractor": HeuristicExtractor() if has_extractor else None,
    }
    if not has_graph and not has_vectors:
        with pytest.raises(ConfigError):
            composite(**parts)
        return
    memory = composite(**parts)
    report = await memory.ingest([message("m", "I moved to Oslo last week.")])
    answer = await memory.answer("Oslo moved")

    assert report.ok
    assert bool(answer.results) == ((has_graph and has_extractor) or (has_vectors and has_embedder))
    assert bool(answer.degraded) == (has_vectors and not has_embedder)
    assert set(answer.engines) == {
        name for name, there in (("graph", has_graph), ("vectors", has_vectors and has_embedder)) if there
    }


def test_it_says_itself_what_it_can() -> None:
    memory = composite(graph=InMemoryGraph())

    assert isinstance(memory, DeclaresCapabilities)
    assert isinstance(memory, SupportsIngest)
    assert Capability.READ_FILE not in memory.capabilities


async def test_a_part_that_fails_is_named_and_the_other_answers() -> None:
    parts = {"vectors": InMemoryVectors(), "embedder": HashEmbedder(), "extractor": HeuristicExtractor()}
    memory = composite(graph=BrokenGraph(), **parts)
    await memory.ingest([message("m", "I moved to Oslo last week.")])
    answer = await memory.answer("Oslo")

    assert [hit.snippet for hit in answer.results] == ["I moved to Oslo last week."]
    assert [(one.code, one.reason) for one in answer.degraded] == [
        ("failed", "the graph did not answer: the graph is upset")
    ]


async def test_vectors_that_fail_leave_the_facts() -> None:
    memory = composite(
        graph=InMemoryGraph(),
        vectors=BrokenVectors(),
        embedder=HashEmbedder(),
        extractor=HeuristicExtractor(),
    )
    await memory.ingest([message("m", "I moved to Oslo last week.")])
    answer = await memory.answer("Oslo")

    assert [hit.metadata["relation"] for hit in answer.results] == ["LIVES_IN"]
    assert [one.code for one in answer.degraded] == ["timeout"]


async def test_a_memory_of_which_every_part_fails_raises() -> None:
    memory = composite(graph=BrokenGraph(), vectors=InMemoryVectors(), embedder=FailingEmbedder())

    with pytest.raises(BackendError, match=r"(?s)vectors: .*graph: the graph is upset"):
        await memory.search("Oslo")


async def test_what_has_expired_is_never_told() -> None:
    now = [FIXED_NOW]
    memory = CompositeBackend(
        graph=InMemoryGraph(),
        vectors=InMemoryVectors(),
        embedder=HashEmbedder(),
        extractor=HeuristicExtractor(),
        temporal_policy=StandardTemporalPolicy(ttl_seconds=3600),
        clock=lambda: now[0],
    )
    await memory.ingest([message("m", "The code of the door is 4417, says Bob.")])
    before = await memory.search("door code")
    now[0] += HOUR

    assert before
    assert list(await memory.search("door code")) == []
    assert (await memory.read_file("composite/m")).text == ""


async def test_what_does_not_hold_now_says_so_and_comes_later() -> None:
    memory = composite(vectors=InMemoryVectors(), embedder=HashEmbedder())
    await memory.ingest(
        [
            message("old", "The office is in Bergen.", valid_to=FIXED_NOW - HOUR),
            message("new", "The office is in Bergen now."),
        ]
    )
    first, second = await memory.search("office in Bergen")

    assert (first.metadata["current"], second.metadata["current"]) == (True, False)
    assert second.snippet == "The office is in Bergen. (until 2026-06-01; no longer holds)"
    assert second.score < first.score


async def test_a_fact_leads_to_the_lines_it_was_taken_from() -> None:
    memory = composite(graph=InMemoryGraph(), extractor=HeuristicExtractor())
    await memory.ingest([note("memory/people.md", "Ingrid lives in Lindholm.")])
    (hit,) = await memory.search("Where does Ingrid live?")

    assert hit.origin == Origin(path="memory/people.md", start_line=1, end_line=1)
    assert hit.path.startswith("composite/")
    assert (hit.metadata["subject"], hit.metadata["relation"], hit.metadata["object"]) == (
        "Ingrid",
        "LIVES_IN",
        "Lindholm",
    )


async def test_the_text_behind_a_fact_and_behind_a_passage_can_be_read() -> None:
    memory = composite(
        graph=InMemoryGraph(),
        vectors=InMemoryVectors(),
        embedder=HashEmbedder(),
        extractor=HeuristicExtractor(),
    )
    await memory.ingest([message("chat/1 #a@b", "I moved to Oslo last week.")])
    hits = await memory.search("Oslo")

    assert len(hits) == 2
    assert {(await memory.read_file(hit.path)).text for hit in hits} == {"I moved to Oslo last week."}


async def test_a_graph_alone_has_no_texts_to_read() -> None:
    with pytest.raises(UnsupportedOperation):
        await composite(graph=InMemoryGraph()).read_file("composite/m")


async def test_sections_of_a_file_are_read_at_their_lines() -> None:
    memory = composite(vectors=InMemoryVectors(), embedder=HashEmbedder())
    sections = [
        MemoryContentObject(
            id=f"s{first}",
            kind="document",
            text=text,
            metadata={"path": "memory/a.md", "start_line": first, "end_line": first},
        )
        for first, text in ((4, "four"), (2, "two"))
    ]
    await memory.ingest(sections)

    assert (await memory.read_file("memory/a.md")).text == "\ntwo\n\nfour"
    assert (await memory.read_file("memory/a.md", from_line=4, lines=1)).text == "four"


async def test_what_a_source_no_longer_says_holds_no_more() -> None:
    graph = InMemoryGraph()
    memory = composite(
        graph=graph, vectors=InMemoryVectors(), embedder=HashEmbedder(), extractor=HeuristicExtractor()
    )
    kept = note("memory/a.md", "Bob lives in Oslo.")
    first = [
        kept,
        MemoryContentObject(**_fields(note("memory/a.md", "Eve works at Globex Inc.")) | {"id": "2"}),
    ]
    await memory.ingest_source("memory/a.md", first)
    report = await memory.ingest_source("memory/a.md", [kept])
    hits = {hit.snippet: hit.metadata["current"] for hit in await memory.search("Bob Eve Oslo Globex")}

    assert report.ok
    assert {snippet.split(".")[0]: current for snippet, current in hits.items()} == {
        "Bob lives in Oslo": True,
        "Eve works at Globex Inc": False,
    }


async def test_a_graph_alone_cannot_tell_what_a_source_said_before() -> None:
    memory = composite(graph=InMemoryGraph(), extractor=HeuristicExtractor())
    report = await memory.ingest_source("memory/a.md", [note("memory/a.md", "Bob lives in Oslo.")])

    assert report.ok
    assert "index.unknown_source" in [warning.code for warning in report.warnings]


async def test_a_closed_memory_takes_nothing_in() -> None:
    memory = composite(graph=InMemoryGraph())
    await memory.close()

    with pytest.raises(BackendUnavailable):
        await memory.ingest([message("m", "text")])
    with pytest.raises(BackendUnavailable):
        await memory.ingest_source("a.md", [])


async def test_the_probe_of_an_embedder_that_fails_has_a_reason() -> None:
    memory = composite(vectors=InMemoryVectors(), embedder=FailingEmbedder())
    probe = await memory.probe_embedding_availability()

    assert (probe.ok, "asked to fail" in (probe.error or "")) == (False, True)
    assert await memory.probe_vector_availability()


def _fields(content: MemoryContentObject) -> dict[str, Any]:
    return {name: getattr(content, name) for name in content.__slots__}
