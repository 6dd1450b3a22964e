"""What becomes of facts between a language model and the graph, beside what rules read of the same.

    python benchmarks/facts_by_model.py              the half that is reported, by language
    python benchmarks/facts_by_model.py --errors     and what was lost on the way

The model is scripted: a server on loopback that speaks OpenAI's protocol and answers each question of
graphiti-core with what `gold_facts/` says of the sentence. So nothing here tells how well a model reads; what
is missing in the second row was lost by graphiti-core or by us. Sentences that end what another one said
are read after it.
"""

import argparse
import ast
import asyncio
import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from facts import (  # noqa: E402
    LATER,
    Gold,
    Item,
    Tally,
    count_entities,
    count_relations,
    print_table,
    read_items,
    tally_of,
)

from composable_memory.content import ExtractedRelation, MemoryContentObject  # noqa: E402
from composable_memory.registry import load_extractor  # noqa: E402
from composable_memory.testing import HashEmbedder  # noqa: E402
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase  # noqa: E402
from composable_memory_adapters.graphiti.database_store import open_database  # noqa: E402
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id  # noqa: E402
from composable_memory_adapters.graphiti.library import load  # noqa: E402
from composable_memory_adapters.graphiti.settings import GraphitiSettings, LlmSettings  # noqa: E402
from tests.integration.graphiti.chat_endpoint import Call, ChatEndpoint, Reply  # noqa: E402

FACTS = """
MATCH (s)-[e:RELATES_TO]->(t) RETURN s.name AS source, e.name AS relation, t.name AS target, e.fact AS fact,
e.valid_at AS valid_at, e.invalid_at AS invalid_at, e.episodes AS episodes
"""
ENTITIES = "MATCH (:Episodic {uuid: $uuid})-[:MENTIONS]->(n:Entity) RETURN n.name AS name"
_LISTED = re.compile(r"<(?:EXISTING FACTS|FACT INVALIDATION CANDIDATES)>\n(.*?)\n</", re.DOTALL)


@dataclass
class Model:
    """A model that says of the sentence in turn what stands beside it."""

    item: Item | None = None

    def __call__(self, call: Call) -> Reply:
        """Answer a question of graphiti-core."""
        assert self.item is not None
        messages = call.body["messages"]
        assert isinstance(messages, Sequence)
        answers: Mapping[str, object] = {
            "ExtractedEntities": {
                "extracted_entities": [{"name": one, "entity_type_id": 0} for one in names(self.item)]
            },
            "ExtractedEdges": {"edges": [edge(one, self.item) for one in stated(self.item)]},
            "NodeResolutions": {"entity_resolutions": []},
            "EdgeDuplicate": _judged(str(messages[-1]["content"]), self.item),
            "EdgeTimestamps": {"valid_at": None, "invalid_at": None},
            "SummarizedEntities": {"summaries": []},
        }
        return Reply(text=json.dumps(answers[call.schema or ""]))


def stated(item: Item) -> list[Gold]:
    """Return the relations that a sentence states, and the ends that follow from it."""
    return [one for one in item.gold if not one.optional or any(one.ways == end.ways for end in item.ended)]


def names(item: Item) -> list[str]:
    """Return the entities of a sentence, each by one of its spellings."""
    ends = [labels for gold in stated(item) for labels in (gold.ways[0][0], gold.ways[0][2])]
    return list(dict.fromkeys(max(labels, key=len) for labels in (*item.entities, *ends)))


def edge(gold: Gold, item: Item) -> dict[str, object]:
    """Return a relation as graphiti-core's model states it."""
    source, types, target = gold.ways[0]
    end = gold.end or (item.said if gold.ends else None)
    start = gold.start or (
        None if end else item.said
    )  # what is so at the time of writing, as it is told to do
    return {
        "source_entity_name": max(source, key=len),
        "target_entity_name": max(target, key=len),
        "relation_type": min(types),
        "fact": fact(gold, item),
        "valid_at": start and start.isoformat(),
        "invalid_at": end and end.isoformat(),
    }


def fact(gold: Gold, item: Item) -> str:
    """Return the words of a relation, which no other one of the sentence has."""
    source, types, target = gold.ways[0]
    return f"{item.text} ({max(source, key=len)} {min(types)} {max(target, key=len)})"


def _judged(question: str, item: Item) -> dict[str, list[int]]:
    """Say which of the listed facts the sentence repeats, and which it ends."""
    listed = [one for block in _LISTED.findall(question) for one in ast.literal_eval(block)]
    before = item.before
    known = {fact(one, before) for one in before.gold if _is_ended(one, item)} if before else set()
    return {
        "duplicate_facts": [],
        "contradicted_facts": [one["idx"] for one in listed if one["fact"] in known],
    }


def _is_ended(gold: Gold, item: Item) -> bool:
    return any(one.ways == gold.ways for one in item.ended)


class Graph:
    """Reads sentences into groups of their own, and tells what the graph then holds."""

    def __init__(self, database: CypherDatabase, endpoint: ChatEndpoint, model: Model, stack: AsyncExitStack):
        self._database, self._endpoint, self._model, self._stack = database, endpoint, model, stack

    async def open(self) -> None:
        """Open the reader."""
        from composable_memory_adapters.graphiti.library.episode_reader import open_reader

        self._reader = await self._stack.enter_async_context(
            open_reader(
                self._database,
                LlmSettings.model_validate({"base_url": self._endpoint.url}),
                embedder=HashEmbedder(64),
                clock=lambda: LATER,
                locks=defaultdict(asyncio.Lock),
                timeout_s=60.0,
            )
        )

    async def tally(self, number: int, item: Item) -> Tally:
        """Return what the graph holds of a sentence, and what it ended of the one before."""
        group, tally = f"g{number}", Tally()
        if item.before is not None:
            await self._read(group, item.before, "before")
        uuid = await self._read(group, item, "said")
        rows = list(await self._database.read(group, FACTS))
        found = [_relation(row) for row in rows if uuid in row["episodes"]]  # type: ignore[operator]
        named = await self._database.read(group, ENTITIES, uuid=uuid)
        count_relations(tally, item, found)
        count_entities(tally, item, [str(row["name"]) for row in named])
        if item.before is not None:
            tally.counts["to_end"] += len(item.ended)
            held = {str(row["fact"]): _relation(row) for row in rows}
            for gold in stated(item.before):
                kept = held.get(fact(gold, item.before))
                is_over = kept is not None and kept.valid_to is not None and kept.valid_to <= LATER
                tally.counts["ended" if _is_ended(gold, item) else "ended_wrongly"] += is_over
                tally.counts["to_keep"] += not _is_ended(gold, item)
        return tally

    async def _read(self, group: str, item: Item, name: str) -> str:
        self._model.item = item
        draft = EpisodeDraft(
            id=graph_id(group, name),
            group_id=group,
            content=MemoryContentObject(id=name, kind="message", text=item.text),
            text=item.text,
            observed_at=item.said,
            ingested_at=item.said,
            source="message",
            description="a sentence",
        )
        await self._reader.read(draft)
        return draft.id


def _relation(row: Mapping[str, object]) -> ExtractedRelation:
    def moment(name: str) -> datetime | None:
        return datetime.fromisoformat(str(row[name])) if row[name] else None

    return ExtractedRelation(
        source=str(row["source"]),
        target=str(row["target"]),
        type=str(row["relation"]),
        fact=str(row["fact"]),
        valid_from=moment("valid_at"),
        valid_to=moment("invalid_at"),
    )


async def measure(items: Sequence[Item]) -> dict[str, Tally]:
    """Return the tallies of each door."""
    found: dict[str, Tally] = defaultdict(Tally)
    rules, model = load_extractor("heuristic"), Model()
    with ChatEndpoint(model) as endpoint, tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            await load()
            database = await stack.enter_async_context(
                open_database(GraphitiSettings(), data_dir=Path(folder))
            )
            graph = Graph(database, endpoint, model, stack)
            await graph.open()
            for number, item in enumerate(items):
                found["rules"].add(await tally_of(item, rules))
                found["graphiti-core"].add(await graph.tally(number, item))
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--half", choices=("work", "report"), default="report")
    parser.add_argument("--most", type=int, default=10_000, help="so many sentences of each language")
    parser.add_argument("--errors", action="store_true", help="what was lost of what the model said")
    asked = parser.parse_args()
    by_language: dict[str, list[Item]] = defaultdict(list)
    for item in read_items():
        if item.half == asked.half:
            by_language[item.language].append(item)
    total: dict[str, Tally] = defaultdict(Tally)
    for language, items in by_language.items():
        found = asyncio.run(measure(items[: asked.most]))
        print_table(language, found)
        for door, tally in found.items():
            total[door].add(tally)
    print_table("all", total)
    if asked.errors:
        print(*total["graphiti-core"].errors, sep="\n")


if __name__ == "__main__":
    main()
