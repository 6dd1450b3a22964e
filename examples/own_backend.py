"""Make a memory of parts and ask it: `python examples/own_backend.py`. Nothing leaves this machine."""

import asyncio
from datetime import UTC, datetime

from composable_memory.composite_backend import CompositeBackend
from composable_memory.content import GraphQueryResult, MemoryContentObject, MemoryTemporalMetadata
from composable_memory.ingest import StandardTemporalPolicy
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.extractors import HeuristicExtractor
from composable_memory_adapters.vectors.in_memory import InMemoryVectors

MESSAGES = (
    ("Pip", "The Harbour Lane depot has charging racks for twelve bikes."),
    ("Nadia", "I moved from the workshop to the office in Saltmarsh last week."),
    ("Pip", "We decided to use Redis Streams for the dispatch queue."),
    ("Nadia", "The door code of the depot is on the whiteboard until Friday."),
)
SPOKEN = datetime(2026, 6, 1, 9, tzinfo=UTC)


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


def content(number: int, speaker: str, text: str) -> MemoryContentObject:
    """Return a message as something to remember."""
    return MemoryContentObject(
        id=f"message-{number}",
        kind="message",
        text=text,
        metadata={"speaker": speaker},
        temporal=MemoryTemporalMetadata(observed_at=SPOKEN),
    )


async def main() -> None:
    """Take the messages in, then ask: once for a passage, once for a fact."""
    embedder = WordLlamaEmbedder()
    memory = CompositeBackend(
        vectors=InMemoryVectors(),
        graph=DictGraph(),
        embedder=embedder,
        extractor=HeuristicExtractor(),
        temporal_policy=StandardTemporalPolicy(ttl_by_kind={"event": 86_400}),
    )
    try:
        report = await memory.ingest([content(n, *message) for n, message in enumerate(MESSAGES)])
        print(f"{report.stored} messages, {report.entities} entities, {report.facts} facts")
        for question in ("Where can I charge a bike?", "What does Nadia do now?"):
            print(f"\n{question}")
            for hit in (await memory.search(question))[:2]:
                print(f"{hit.score:.2f}  {hit.path}  {hit.snippet}")
    finally:
        await memory.close()
        await embedder.close()


if __name__ == "__main__":
    asyncio.run(main())
