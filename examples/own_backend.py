"""A backend made of parts: `python examples/own_backend.py`. Nothing leaves this machine.

`PartsMemory` knows its parts by their interfaces alone, so any `GraphAdapter`, `VectorAdapter`,
`EmbedderAdapter` and `EntityExtractor` will do, of yours or of an installed package.
"""

import asyncio
import tempfile
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from pydantic import BaseModel

from composable_memory import open_memory
from composable_memory.content import (
    EmbedderInput,
    GraphQuery,
    GraphQueryResult,
    MemoryContentObject,
    MemoryTemporalMetadata,
    VectorQuery,
)
from composable_memory.errors import BackendUnavailable, UnsupportedOperation
from composable_memory.ingest.pipeline import IngestPipeline
from composable_memory.ingest.records import node_id
from composable_memory.ingest.requests import IngestRequest
from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.types import (
    MemoryEmbeddingProbeResult,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchOptions,
)
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.extractors import HeuristicExtractor
from composable_memory_adapters.vectors.in_memory import InMemoryVectors

DEPTH = 64  # asked of each part whatever is wanted, so that a short answer is the beginning of a long one
ROOM = 700  # characters of a result


class DictGraph:
    """The smallest graph that keeps the promise of `GraphAdapter`: it knows entities by name."""

    def __init__(self):
        self.nodes, self.edges = {}, {}

    async def upsert_nodes(self, nodes):
        self.nodes.update((node.id, node) for node in nodes)

    async def upsert_edges(self, edges):
        self.edges.update((edge.id, edge) for edge in edges)

    async def query(self, query):
        named = [self.nodes[id_] for id_ in query.entity_ids if id_ in self.nodes]
        ids = {node.id for node in named}
        edges = [edge for edge in self.edges.values() if ids & {edge.source_id, edge.target_id}]
        return GraphQueryResult(nodes=tuple(named[: query.limit]), edges=tuple(edges[: query.limit]))


class PartsMemory:
    """A memory over vectors and a graph; contents come in through the ingest pipeline."""

    def __init__(self, *, graph, vectors, embedder, extractor, clock):
        self.graph, self.vectors, self.embedder, self.extractor = graph, vectors, embedder, extractor
        self.pipeline = IngestPipeline(
            graph=graph, vectors=vectors, embedder=embedder, extractor=extractor, clock=clock
        )
        self.is_closed = False

    async def search(self, query, options=None):
        """Ask both parts at once."""
        self.require_open()
        options, asked = options or SearchOptions(), query.encode("utf-8", "replace").decode().strip()[:2000]
        if not asked:
            return ()
        passages, facts = await asyncio.gather(self.by_meaning(asked), self.by_entities(asked))
        best = sorted([*passages, *facts], key=lambda hit: (-hit.score, hit.path))
        return tuple(hit for hit in best if hit.exact or hit.score >= options.min_score)[
            : options.max_results
        ]

    async def by_meaning(self, query):
        """Return the contents whose vectors are near to that of the question."""
        vector = await self.embedder.embed(EmbedderInput(text=query, kind="query"))
        found = await self.vectors.query(VectorQuery(vector=vector, top_k=DEPTH))
        return [
            result(match.id, str(match.metadata["text"]), query, likeness=match.score)
            for match in found.matches
        ]

    async def by_entities(self, query):
        """Return the facts about the entities that the question names."""
        asked = MemoryContentObject(id="query", kind="message", text=query)
        names = [node_id(entity.label) for entity in await self.extractor.extract(asked)]
        found = await self.graph.query(GraphQuery(text=query, entity_ids=tuple(names), limit=DEPTH))
        return [result(f"fact-{edge.id}", str(edge.properties["fact"]), query) for edge in found.edges]

    async def ingest(self, contents, *, wait=True):
        """Store contents in the vectors, and what they state in the graph."""
        self.require_open()
        return (await self.pipeline.run(IngestRequest(items=contents, source="parts"))).report()

    async def ingest_source(self, path, contents, *, wait=True):
        """Store contents; what the source said before stays."""
        return await self.ingest(contents)

    async def read_file(self, rel_path, *, from_line=None, lines=None):
        raise UnsupportedOperation("parts", "read_file")

    def status(self):
        return MemoryProviderStatus(backend="parts", provider=self.embedder.id, sources=("memory",))

    async def probe_embedding_availability(self):
        self.require_open()
        return MemoryEmbeddingProbeResult(ok=True)

    async def probe_vector_availability(self):
        self.require_open()
        return True

    async def close(self):
        self.is_closed = True

    def require_open(self):
        if self.is_closed:
            raise BackendUnavailable("parts", "it is closed", fix="open it again")


def result(name, text, query, likeness=0.5):
    """Return a text as a result: half of its score is the likeness, half the share of the words it holds."""
    words = {word for word in query.casefold().split() if word.strip("?!.,")}
    held = sum(word.strip("?!.,") in text.casefold() for word in words) / len(words) if words else 0.0
    score = min(1.0, 0.5 * max(0.0, likeness) + 0.5 * held)
    path, snippet = f"parts/{name}".replace("#", "-"), text.strip()[:ROOM]
    return MemorySearchResult(
        path=path, start_line=0, end_line=0, score=score, snippet=snippet, exact=held == 1.0
    )


@asynccontextmanager
async def open_parts(settings, services):
    """Open the memory; here its parts could open files or connections, which end with the block."""
    embedder = WordLlamaEmbedder()
    parts = {"graph": DictGraph(), "vectors": InMemoryVectors(), "extractor": HeuristicExtractor()}
    memory = PartsMemory(**parts, embedder=embedder, clock=services.clock)
    try:
        yield memory
    finally:
        await memory.close()
        await embedder.close()


class PartsSettings(BaseModel):
    """What stands under `memory.parts` beside `enabled` and `weight`: nothing yet."""


spec = BackendSpec(
    id="parts",
    summary="Vectors and a graph of your own",
    settings=PartsSettings,
    open=open_parts,
    capabilities=frozenset({Capability.CALIBRATED, Capability.INGEST}),
)

MESSAGES = (
    ("Pip", "The Harbour Lane depot has charging racks for twelve bikes."),
    ("Nadia", "I moved from Millrace to Saltmarsh last week."),
    ("Pip", "We decided to use Redis Streams for the dispatch queue."),
)
SPOKEN = MemoryTemporalMetadata(observed_at=datetime(2026, 6, 1, 9, tzinfo=UTC))


async def main():
    """Take the messages in, then ask: once for a passage, once for a fact."""
    contents = [
        MemoryContentObject(
            id=f"m{number}", kind="message", text=text, metadata={"speaker": speaker}, temporal=SPOKEN
        )
        for number, (speaker, text) in enumerate(MESSAGES)
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with open_memory(
            folder, f"{folder}/.state", {"parts": {"enabled": True}}, backends=[spec]
        ) as memory:
            report = (await memory.ingest(contents))["parts"]
            print(f"{report.stored} messages, {report.entities} entities, {report.facts} facts")
            for question in ("Where can I charge a bike?", "Where does Nadia live now?"):
                print(f"\n{question}")
                for hit in (await memory.query(question)).results[:2]:
                    print(f"{hit.score:.2f}  {hit.path}  {hit.snippet}")


if __name__ == "__main__":
    asyncio.run(main())
