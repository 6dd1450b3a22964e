"""How fast facts are found in a graph, with and without an index of vectors, and by graphiti-core.

    python benchmarks/graph_search.py                  200, 2,000 and 20,000 facts, about two minutes
    python benchmarks/graph_search.py --facts 2000
    python benchmarks/graph_search.py --graphiti       graphiti-core's search over the same graphs as well

Starts a FalkorDB of its own and fills it with generated facts, the same in every run: sentences of eight
words between two names, the n-th word n times rarer than the first, and vectors of 256 numbers. Questions
ask for a name and three words. Wall times are percentiles over questions; CPU times are means for a question,
of this process and of the server; the engines take turns, so that a busy machine is busy for all of them.

graphiti-core is asked with its hybrid recipe for facts (reciprocal rank fusion) over our connections.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from redis.asyncio import Redis

from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.database.falkor import FalkorDatabase, PrivateServerHandle
from composable_memory_adapters.graphiti.database.server import PrivateServer
from composable_memory_adapters.graphiti.fact_stores import Question
from composable_memory_adapters.graphiti.library import vectors
from composable_memory_adapters.graphiti.reading.search import search
from composable_memory_adapters.graphiti.settings import PrivateServerSettings, SearchSettings
from composable_memory_adapters.graphiti.writing.graph import GraphitiGraph

DIMENSIONS = 256
LIMIT = 6
VOCABULARY = 20_000
WORDS_PER_FACT = 8
FACTS_PER_ENTITY = 5
ROWS_AT_ONCE = 500
NOW = datetime(2026, 6, 1, tzinfo=UTC)
COLUMNS = ("facts", "engine", "wall p50 ms", "wall p95 ms", "client CPU ms", "server CPU ms", "found")

PLANT_ENTITIES = "UNWIND $rows AS row CREATE (:Entity {uuid: row.id, name: row.name, group_id: $group})"
PLANT_FACTS = """
UNWIND $rows AS row MATCH (s:Entity {uuid: row.source}) MATCH (t:Entity {uuid: row.target})
CREATE (s)-[:RELATES_TO {uuid: row.id, name: 'KNOWS', fact: row.fact, group_id: $group, valid_at: row.at,
  created_at: row.at, episodes: [], fact_embedding: vecf32(row.embedding)}]->(t)
"""
UNFINISHED = "CALL db.indexes() YIELD status WHERE status <> 'OPERATIONAL' RETURN status"

Search = Callable[["Asked"], Awaitable[int]]
"""Answers a question; returns the number of facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question with its vector."""

    text: str
    vector: Sequence[float]


@dataclass(slots=True)
class Times:
    """What the questions took, in milliseconds."""

    wall: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    found: list[int] = field(default_factory=list)

    def row(self, facts: int, engine: str) -> str:
        """Return a row of the table."""
        p50, p95 = np.percentile(self.wall, [50, 95])
        values = (f"{p50:.1f}", f"{p95:.1f}", f"{np.mean(self.client):.1f}", f"{np.mean(self.server):.1f}")
        return f"| {facts:,} | {engine} | {' | '.join(values)} | {np.mean(self.found):.1f} |"


async def measure(
    database: CypherDatabase, server: Redis, facts: int, questions: int, *, with_graphiti: bool
) -> None:
    """Print the rows for a graph of so many facts."""
    group, generated = f"facts{facts}", Generated(facts)
    began = time.perf_counter()
    await generated.plant(database, group)
    seeded = time.perf_counter() - began
    asked = generated.questions(questions)
    engines = {
        "exact": ours(database, group, "off"),
        "words alone": ours(database, group, "off", vectors=False),
    }
    if with_graphiti:
        engines["graphiti-core"] = graphiti(database, group)
    times = await take_turns(server, engines, asked)
    began = time.perf_counter()
    settings = SearchSettings(vector_index="on")
    await vectors.arrange(database, group, settings, dimensions=DIMENSIONS)
    await until_indexed(database, group)
    indexed = time.perf_counter() - began
    times |= await take_turns(server, {"hnsw": ours(database, group, "on")}, asked)
    for engine, taken in times.items():
        print(taken.row(facts, engine), flush=True)
    print(
        f"| {facts:,} | (filled in {seeded:.1f} s, vector index in {indexed:.1f} s) | | | | | |", flush=True
    )


async def take_turns(
    server: Redis, engines: Mapping[str, Search], asked: Sequence[Asked]
) -> dict[str, Times]:
    """Ask every engine every question; the first one is asked twice, to warm up."""
    times = {engine: Times() for engine in engines}
    for engine in engines.values():
        await engine(asked[0])
    for question in asked:
        for engine, answer in engines.items():
            there, client, wall = await server_cpu(server), time.process_time(), time.perf_counter()
            found = await answer(question)
            taken = times[engine]
            taken.wall.append((time.perf_counter() - wall) * 1000)
            taken.client.append((time.process_time() - client) * 1000)
            taken.server.append((await server_cpu(server) - there) * 1000)
            taken.found.append(found)
    return times


def ours(database: CypherDatabase, group: str, index: str, *, vectors: bool = True) -> Search:
    """Return our search."""
    settings = SearchSettings.model_validate({"vector_index": index})
    graphs = {group: GraphitiGraph(database, group, embedder=None, clock=lambda: NOW, search=settings)}

    async def answer(asked: Asked) -> int:
        question = Question(text=asked.text, groups=(group,), limit=LIMIT, now=NOW)
        found = await search(database, graphs, question, asked.vector if vectors else None, settings)
        assert not found.degraded, found.degraded
        return len(found.facts)

    return answer


def graphiti(database: CypherDatabase, group: str) -> Search:
    """Return graphiti-core's search."""
    from graphiti_core.graphiti_types import GraphitiClients
    from graphiti_core.search.search import search as their_search
    from graphiti_core.search.search_config_recipes import EDGE_HYBRID_SEARCH_RRF
    from graphiti_core.search.search_filters import SearchFilters

    from composable_memory_adapters.graphiti.library.bridges import Drivers

    driver = Drivers(database).of(group)
    clients = GraphitiClients.model_construct(
        driver=driver, llm_client=None, embedder=None, cross_encoder=None
    )
    config = EDGE_HYBRID_SEARCH_RRF.model_copy(deep=True)  # the recipe is shared by all who use it
    config.limit = LIMIT

    async def answer(asked: Asked) -> int:
        found = await their_search(
            clients, asked.text, [group], config, SearchFilters(), query_vector=[*asked.vector], driver=driver
        )
        return len(found.edges)

    return answer


async def server_cpu(server: Redis) -> float:
    """Return the seconds of CPU that the server has used."""
    told = await server.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


async def until_indexed(database: CypherDatabase, group: str) -> None:
    """Wait until all indexes hold all facts."""
    async with asyncio.timeout(300):
        while await database.read(group, UNFINISHED):
            await asyncio.sleep(0.05)


# --- generated facts ---


class Generated:
    """Facts that are the same in every run."""

    def __init__(self, facts: int) -> None:
        random = np.random.default_rng(0)
        syllables = [
            onset + vowel for onset in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "ar", "en")
        ]
        lengths = random.integers(2, 5, size=VOCABULARY)
        self._words = [*dict.fromkeys("".join(random.choice(syllables, size=length)) for length in lengths)]
        self._names = [
            " ".join(self._drawn(random, 2)).title() for _ in range(max(2, facts // FACTS_PER_ENTITY))
        ]
        self._ends = random.integers(len(self._names), size=(facts, 2)).tolist()
        frequency = np.cumsum(1 / (np.arange(len(self._words)) + 2.7))
        places = np.searchsorted(frequency, random.random((facts, WORDS_PER_FACT)) * frequency[-1]).tolist()
        self._facts = [
            " ".join([self._names[source], *(self._words[place] for place in row), self._names[target]])
            for row, (source, target) in zip(places, self._ends, strict=True)
        ]
        self._vectors = random.standard_normal((facts, DIMENSIONS)).round(4)

    def _drawn(self, random: np.random.Generator, count: int) -> list[str]:
        return [self._words[place] for place in random.integers(len(self._words), size=count)]

    async def plant(self, database: CypherDatabase, group: str) -> None:
        """Write them to a group."""
        await database.write(group, "RETURN 1 AS one")
        await until_indexed(database, group)
        names = [{"id": f"entity{at}", "name": name} for at, name in enumerate(self._names)]
        for at in range(0, len(names), ROWS_AT_ONCE):
            await database.write(group, PLANT_ENTITIES, rows=names[at : at + ROWS_AT_ONCE], group=group)
        for at in range(0, len(self._facts), ROWS_AT_ONCE):
            numbers = range(at, min(at + ROWS_AT_ONCE, len(self._facts)))
            await database.write(group, PLANT_FACTS, rows=[self._row(one) for one in numbers], group=group)

    def _row(self, number: int) -> dict[str, object]:
        source, target = self._ends[number]
        return {
            "id": f"fact{number}",
            "source": f"entity{source}",
            "target": f"entity{target}",
            "fact": self._facts[number],
            "at": NOW - timedelta(hours=number % 5000),
            "embedding": self._vectors[number].tolist(),
        }

    def questions(self, count: int) -> list[Asked]:
        """Return questions about facts: the first name and every third word, and a vector near to theirs."""
        random = np.random.default_rng(1)
        asked = []
        for number in random.integers(len(self._facts), size=count).tolist():
            words = self._facts[number].split()
            noise = random.standard_normal(DIMENSIONS)
            asked.append(
                Asked(
                    text=f"what did {' '.join(words[:2])} do with {' '.join(words[2:-2:3])}?",
                    vector=(self._vectors[number] + noise).tolist(),
                )
            )
        return asked


# --- the command ---


@asynccontextmanager
async def private_server() -> AsyncIterator[tuple[CypherDatabase, Redis]]:
    """Yield a server that ends with the block, and a plain connection to it."""
    with tempfile.TemporaryDirectory(prefix="composable-memory-graph-") as folder:
        server = PrivateServer(PrivateServerSettings(), Path(folder))
        database = FalkorDatabase(PrivateServerHandle(server))
        try:
            async with Redis(unix_socket_path=str(server.address())) as connection:
                yield database, connection
        finally:
            await database.close()


async def run(sizes: Sequence[int], questions: int, *, with_graphiti: bool) -> None:
    """Print the table."""
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    async with private_server() as (database, server):
        for facts in sizes:
            await measure(database, server, facts, questions, with_graphiti=with_graphiti)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description="Measure how fast facts are found in a graph.")
    parser.add_argument("--facts", type=int, nargs="+", default=[200, 2_000, 20_000], help="sizes of graphs")
    parser.add_argument("--questions", type=int, default=30, help="questions for each figure")
    parser.add_argument("--graphiti", action="store_true", help="measure graphiti-core's search as well")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.facts, arguments.questions, with_graphiti=arguments.graphiti))


if __name__ == "__main__":
    main()
