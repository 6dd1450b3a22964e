"""Reads a few lines with a language model into a graph, and prints what came out and what it took.

Run it against any endpoint that speaks OpenAI's chat completions:

    python benchmarks/graph_llm.py --base-url http://localhost:8080/v1 --model default
"""

import argparse
import asyncio
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from composable_memory.content import MemoryContentObject
from composable_memory.errors import BackendError
from composable_memory.interfaces import EmbedderAdapter
from composable_memory.testing import HashEmbedder
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.database.open_database import open_database
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.library.loading import load
from composable_memory_adapters.graphiti.settings import GraphitiSettings, LlmSettings

GROUP = "benchmark"
LINES = (
    "Ingrid keeps the keys of the boat. The boat lies in Bergen.",
    "Ingrid works at the harbour office since 2024. Tomas is her brother.",
    "Tomas moved from Oslo to Bergen last week.",
)
FACTS = """
MATCH (s)-[e:RELATES_TO]->(t)
RETURN s.name AS source, e.name AS relation, t.name AS target, e.fact AS fact
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--base-url", required=True, help="such as http://localhost:8080/v1")
    parser.add_argument("--model", default="default")
    parser.add_argument("--api-key", help="the endpoint's key, if it wants one")
    parser.add_argument("--structured-output", default="auto", help="auto, json_schema, json_object or none")
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--timeout-s", type=float, default=600.0, help="for one answer")
    parser.add_argument("lines", nargs="*", default=LINES, help="what to read in place of the built-in lines")
    return parser.parse_args()


async def main(asked: argparse.Namespace) -> None:
    settings = LlmSettings.model_validate(
        {
            "base_url": asked.base_url,
            "model": asked.model,
            "api_key": asked.api_key,
            "structured_output": asked.structured_output,
            "max_tokens": asked.max_tokens,
            "timeout_ms": int(asked.timeout_s * 1000),
        }
    )
    await load()
    with tempfile.TemporaryDirectory() as folder:
        async with open_database(GraphitiSettings(), data_dir=Path(folder)) as database:
            await read_lines(database, settings, asked.lines, HashEmbedder(128))
            for row in await database.read(GROUP, FACTS):
                print(f"  {row['source']} -{row['relation']}-> {row['target']}: {row['fact']}")


async def read_lines(
    database: CypherDatabase, settings: LlmSettings, lines: list[str], embedder: EmbedderAdapter
) -> None:
    from composable_memory_adapters.graphiti.library.episode_reader import open_reader

    async with open_reader(
        database,
        settings,
        embedder=embedder,
        clock=lambda: datetime.now(UTC),
        locks=defaultdict(asyncio.Lock),
        timeout_s=24 * 3600.0,
    ) as reader:
        for number, line in enumerate(lines):
            before, began = reader.usage, perf_counter()
            try:
                outcome = str(await reader.read(draft(f"line-{number}", line)))
            except BackendError as error:
                outcome = f"{type(error).__name__}: {error}"
            used = reader.usage
            print(
                f"{perf_counter() - began:7.1f} s  {used.calls - before.calls:3} calls  "
                f"{used.prompt_tokens - before.prompt_tokens:6} tokens in  "
                f"{used.completion_tokens - before.completion_tokens:5} out  {outcome}"
            )


def draft(content_id: str, text: str) -> EpisodeDraft:
    now = datetime.now(UTC)
    return EpisodeDraft(
        id=graph_id(GROUP, content_id),
        group_id=GROUP,
        content=MemoryContentObject(id=content_id, kind="document", text=text),
        text=text,
        observed_at=now,
        ingested_at=now,
    )


if __name__ == "__main__":
    asyncio.run(main(arguments()))
