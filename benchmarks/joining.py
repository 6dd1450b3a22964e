"""What joining costs: notes split over three memories and asked at once, against one index of all of them.

    python benchmarks/joining.py --data DIR [--sets xquad-en …] [--server PATH]
        [--basic-memory PROGRAM] [--questions 150]

Sets have the shape that `retrieval.py` takes; at most 500 notes of each are split at random over the builtin
memory, the reference server of MCP (`--server`, its index.js, for node; else a second function), and a vault
of `--basic-memory`, else a plain search function that scores by the words in common. Prints nDCG@10 by note
for one index, for what the three have returned in the order of the one index (what is missing there nobody
can win back), for the composite, and for each of its parts alone; then the CPU time of a question that goes
through the adapter with an answer that is there already, which is what the adapter adds to a source; and of
one that the reference server answers: what the server, the mcp library and the adapter take.
"""

import argparse
import asyncio
import json
import math
import os
import random
import resource
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from composable_memory import open_memory
from composable_memory.interfaces import BackendSpec
from composable_memory.paths import FOREIGN
from composable_memory.types import SearchOptions
from composable_memory_adapters.external.backend import ExternalMemory
from composable_memory_adapters.external.mcp_source import McpSource
from composable_memory_adapters.external.retrievers import retriever_backend
from composable_memory_adapters.external.settings import AnswerSettings, McpSettings
from composable_memory_adapters.text.query_terms import analyse
from composable_memory_feedback.metrics import ndcg

DEPTH = 10
RANKED = 200
"""Results of the one index by which what the three return is put in order."""
NOTES = 500
SEED = 7
Notes = Mapping[str, str]
Question = tuple[str, frozenset[str]]
"""Its text, and the notes that answer it."""


def word_search(notes: Notes, backend_id: str) -> BackendSpec:
    """Return a backend that scores notes by the share of a question's words that they have."""
    texts = {path: text.lower() for path, text in notes.items()}

    async def search(query: str, limit: int) -> list[dict[str, Any]]:
        words = analyse(query).terms
        shares = {
            path: sum(word in text for word in words) / max(1, len(words)) for path, text in texts.items()
        }
        best = sorted((path for path in shares if shares[path]), key=lambda path: -shares[path])[:limit]
        return [{"path": path, "text": notes[path], "score": shares[path]} for path in best]

    return retriever_backend(backend_id, search)


def measured(ranking: Sequence[str], relevant: frozenset[str]) -> float:
    """Return nDCG by note: a note counts where it comes first."""
    places = list(dict.fromkeys(ranking))[:DEPTH]
    return ndcg([float(path in relevant) for path in places], [1.0] * len(relevant), DEPTH)


async def rankings(
    notes: Notes,
    questions: Sequence[Question],
    others: Mapping[str, Any],
    specs: Sequence[BackendSpec],
    most: int = 3 * DEPTH,
) -> Mapping[str, list[list[str]]]:
    """Return which notes all backends together, and each, find for each question in a folder with these."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "notes"
        for path, text in notes.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        config = {"backends": {"builtin": {}, **others}, "query": {"max_results": most}}
        ways: dict[str, list[str] | None] = {"composite": None, "builtin": ["builtin"]}
        ways |= {id_: [id_] for id_ in others}
        found: dict[str, list[list[str]]] = {way: [] for way in ways}
        async with open_memory(
            folder, Path(scratch) / "state", config, backends=specs, long_lived=False
        ) as memory:
            await memory.sync()
            for text, _ in questions:
                for way, ids in ways.items():
                    response = await memory.query(text, backends=ids, min_score=0.0)
                    paths = [one.path.rpartition(FOREIGN)[2] for one in response.results]
                    found[way].append(list(dict.fromkeys(paths)))
    return found


def ordered(one_index: Sequence[str], parts: Sequence[Sequence[str]]) -> list[str]:
    """Return what several memories found in the order of one index; what that lacks comes last."""
    returned = dict.fromkeys(path for part in parts for path in part)
    return [*(path for path in one_index if path in returned), *(returned.keys() - set(one_index))]


def read_set(folder: Path, limit: int) -> tuple[Notes, list[Question]]:
    """Return at most 500 notes and questions about them, each with the notes that answer it."""
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    chance = random.Random(SEED)
    paths = sorted(path for path in folder.rglob("*.md") if path.parent != folder)
    kept = sorted(chance.sample(paths, min(NOTES, len(paths))))
    notes = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in kept}
    found = []
    for row in rows:
        relevant = frozenset(f"{row['conv']}/{path}" for path, _ in row["qrels"]) & notes.keys()
        if relevant:
            found.append((row["question"], relevant))
    return notes, chance.sample(found, min(limit, len(found)))


async def vault(notes: Notes, program: Path, scratch: Path) -> dict[str, Any]:
    """Return the settings of a basic-memory that has these notes and has indexed them; without embeddings."""
    for path, text in notes.items():
        (scratch / "vault" / path).parent.mkdir(parents=True, exist_ok=True)
        (scratch / "vault" / path).write_text(text, encoding="utf-8")
    environ = {
        "HOME": str(scratch),
        "BASIC_MEMORY_HOME": str(scratch / "vault"),
        "BASIC_MEMORY_CONFIG_DIR": str(scratch / "basic"),
        "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false",
    }
    indexing = await asyncio.create_subprocess_exec(
        program, "reindex", "--search", env={**os.environ, **environ}, stdout=asyncio.subprocess.DEVNULL
    )
    if await indexing.wait():
        raise SystemExit(f"{program} cannot index")
    command = ["env", *(f"{name}={value}" for name, value in environ.items()), str(program), "mcp"]
    return {"kind": "mcp", "preset": "basic-memory", "command": command, "timeout_ms": 60_000}


async def quality(folder: Path, server: Path | None, program: Path | None, limit: int) -> None:
    """Print the table of one set."""
    notes, questions = read_set(folder, limit)
    chance = random.Random(SEED)
    parts: list[dict[str, str]] = [{}, {}, {}]
    for path, text in notes.items():
        parts[chance.randrange(3)][path] = text
    with tempfile.TemporaryDirectory() as scratch:
        others: dict[str, Any] = {"plain": {}}
        specs = []
        if program is None:
            specs.append(word_search(parts[1], "plain"))
        else:
            others["plain"] = await vault(parts[1], program, Path(scratch))
        if server is None:
            others["second"] = {}
            specs.append(word_search(parts[2], "second"))
        else:
            graph = Path(scratch) / "graph.jsonl"
            rows = [
                {"type": "entity", "name": path, "entityType": "note", "observations": text.splitlines()}
                for path, text in parts[2].items()
            ]
            graph.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
            command = ["env", f"MEMORY_FILE_PATH={graph}", "node", str(server)]
            others["graph"] = {
                "kind": "mcp",
                "preset": "server-memory",
                "command": command,
                "timeout_ms": 60_000,
            }
        found = dict(await rankings(parts[0], questions, others, specs))
        whole = (await rankings(notes, questions, {}, [], RANKED))["builtin"]
    parted = zip(*(found[way] for way in found if way != "composite"), strict=True)
    bound = [ordered(one, part) for one, part in zip(whole, parted, strict=True)]
    print(f"\n{folder.name}: {len(notes)} notes, {len(questions)} questions, nDCG@{DEPTH} in points")
    for way, lists in {"one index": whole, "its order": bound, **found}.items():
        values = [measured(one, relevant) for one, (_, relevant) in zip(lists, questions, strict=True)]
        print(f"  {way:<10} {100 * statistics.fmean(values):5.1f}", flush=True)


class Ready:
    """Keeps `Source` over an answer that is there."""

    provider = "ready"
    found: Mapping[str, Any] = {}

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def ask(self, query: str, limit: int) -> Any:  # noqa: ARG002 - the interface's
        """Return the answer."""
        return self.answer

    async def close(self) -> None:
        """Do nothing."""


async def overhead() -> None:
    """Print the CPU time that the adapter takes for a question."""
    print("\nCPU time of the adapter, ms a question (median of 5 rounds of 200)")
    for results, characters in ((10, 300), (24, 300), (24, 2_000)):
        texts = random_texts(results, characters)
        rows = [{"id": str(at), "content": text, "score": 1 / (1 + at)} for at, text in enumerate(texts)]
        memory = ExternalMemory(Ready({"results": rows}), AnswerSettings(), backend_id="away")
        options = SearchOptions(max_results=results)  # at least as many as the composite asks for
        rounds = []
        for _ in range(5):
            started = process_time()
            for number in range(200):
                await memory.search(f"where is word{number} and word{number // 2}?", options)
            rounds.append((process_time() - started) * 1000 / 200)
        print(f"  {results} results of {characters} characters: {statistics.median(rounds):.2f}")
        await memory.close()


def random_texts(results: int, characters: int) -> list[str]:
    """Return texts of words that do not repeat, as far as there are enough."""
    chance = random.Random(SEED)
    words = [f"word{number}" for number in range(200)]
    return [" ".join(chance.choices(words, k=math.ceil(characters / 7))) for _ in range(results)]


async def shares(server: Path, results: int = 24, characters: int = 300, rounds: int = 200) -> None:
    """Print how the CPU time of a question is spent that the reference server answers with all it has."""
    with tempfile.TemporaryDirectory() as scratch:
        graph = Path(scratch) / "graph.jsonl"
        rows = (
            {"type": "entity", "name": f"{at}", "entityType": "note", "observations": [f"pump {text}"]}
            for at, text in enumerate(random_texts(results, characters))
        )
        graph.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        command = ["env", f"MEMORY_FILE_PATH={graph}", "node", str(server)]

        settings = McpSettings.model_validate(
            {"preset": "server-memory", "ask_by": "question", "command": command}
        )
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))

        async def asked(questions: int) -> tuple[list[float], list[float]]:
            source = McpSource(settings, backend_id="away", environ=os.environ, folder=Path(scratch))
            memory = ExternalMemory(source, settings, backend_id="away")
            await memory.search("pump")
            library, whole = [], []
            async with Client(stdio_client(parameters)) as client:
                await client.list_tools()
                for _ in range(questions):
                    started = process_time()
                    await client.call_tool("search_nodes", {"query": "pump"})
                    between = process_time()
                    await memory.search("pump")
                    library.append(between - started)
                    whole.append(process_time() - between)
            await memory.close()
            return library, whole

        def of_servers() -> float:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            return used.ru_utime + used.ru_stime

        at_first = of_servers()
        await asked(0)
        started = of_servers()
        library, whole = await asked(rounds)
        served = of_servers() - started - (started - at_first)  # without what starting takes
    print(f"\nCPU time, ms a question; a server answers with {results} results of {characters} characters")
    adapter = statistics.median(whole) - statistics.median(library)
    spent = {
        "the server": served / 2 / rounds,
        "the mcp library": statistics.median(library),
        "the adapter": adapter,
    }
    for name, seconds in spent.items():
        print(f"  {name:<16} {seconds * 1000:.2f}")


async def main() -> None:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["xquad-en"])
    parser.add_argument("--server", type=Path)
    parser.add_argument("--basic-memory", type=Path)
    parser.add_argument("--questions", type=int, default=150)
    arguments = parser.parse_args()
    await overhead()
    if arguments.server:
        await shares(arguments.server.resolve())
    for name in arguments.sets if arguments.data else ():
        await quality(
            arguments.data / name,
            arguments.server and arguments.server.resolve(),
            arguments.basic_memory and arguments.basic_memory.absolute(),
            arguments.questions,
        )


if __name__ == "__main__":
    asyncio.run(main())
