"""What a graph of facts adds to the notes: the notes alone, the facts alone, and both asked at once.

Takes sets as `retrieval.py` does. Each workspace is indexed by the builtin memory, and its notes are
ingested into a private graph, without a language model. A passage counts for the lines it shows, a fact for
the lines it was taken from. Prints a table in Markdown: means over questions, and the paired difference to
the notes alone with 95 % bootstrap intervals, for all questions, for every second one, and for each category;
then how fast the notes became facts.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt

from composable_memory import open_memory
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.runtime.opening import Memory
from composable_memory.types import MemorySearchResult
from composable_memory_adapters.chunking import chunk_markdown

DEPTH = 10
METRICS = ["hit@1", "R@5", "R@10", "MRR", "nDCG@10"]
NDCG, RECALL = METRICS.index("nDCG@10"), METRICS.index("R@10")
WAYS: Mapping[str, tuple[str, ...]] = {
    "notes": ("builtin",),
    "facts": ("graphiti",),
    "both": ("builtin", "graphiti"),
}
ADVERSARIAL = "adversarial"
"""The category of questions that have no answer."""
Line = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    category: str
    evidence: frozenset[Line]
    ideal: float


@dataclass(slots=True)
class Outcome:
    rows: dict[str, list[list[float]]] = field(default_factory=lambda: {way: [] for way in WAYS})
    categories: list[str] = field(default_factory=list)
    facts_among: int = 0
    episodes: int = 0
    facts: int = 0
    timed: int = 0
    seconds: float = 0.0
    starts: list[float] = field(default_factory=list)
    search_ms: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})


def lines_of(result: MemorySearchResult) -> tuple[str, int, int]:
    """Return the lines that a result stands for."""
    if result.origin is not None:
        return result.origin.path, result.origin.start_line, result.origin.end_line
    return result.path, result.start_line, result.end_line


def measures(results: Sequence[MemorySearchResult], question: Question) -> list[float]:
    """Return the metrics of one answer; a line of evidence counts once, at the first result with it."""
    left = set(question.evidence)
    gains: list[int] = []
    for result in results[:DEPTH]:
        path, start, end = lines_of(result)
        covered = covered_by((path, start, end), left)
        left -= covered
        gains.append(len(covered))
    first = next((rank for rank, gain in enumerate(gains, 1) if gain), None)
    return [
        float(first == 1),
        sum(gains[:5]) / len(question.evidence),
        sum(gains) / len(question.evidence),
        1 / first if first else 0.0,
        discounted(gains) / question.ideal,
    ]


def covered_by(place: tuple[str, int, int], evidence: Iterable[Line]) -> set[Line]:
    path, start, end = place
    return {
        (where, line) for where, line in evidence if where == path and (line == 0 or start <= line <= end)
    }


def discounted(gains: Iterable[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def ideal_of(evidence: frozenset[Line], passages: Sequence[tuple[str, int, int]]) -> float:
    """Return the best that passages of the notes could gain; the same yardstick for every way of asking."""
    left = set(evidence)
    gains: list[int] = []
    while left and len(gains) < DEPTH:
        covers = [covered_by(passage, left) for passage in passages]
        best = max(covers, key=len, default=set())
        if not best:
            break
        gains.append(len(best))
        left -= best
    return discounted(gains)


def questions_of(folder: Path, conv: str, *, limit: int | None) -> list[Question]:
    passages = [
        (path.relative_to(folder / conv).as_posix(), chunk.start_line, chunk.end_line)
        for path in sorted((folder / conv).rglob("*.md"))
        for chunk in chunk_markdown(path.read_text(encoding="utf-8"))
    ]
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    found = []
    for row in [row for row in rows if row["conv"] == conv][:limit]:
        evidence = frozenset((path, line) for path, line in row["qrels"])
        if ideal := ideal_of(evidence, passages):
            found.append(
                Question(text=row["question"], category=row["category_name"], evidence=evidence, ideal=ideal)
            )
    return found


def parts_of(outcome: Outcome) -> Iterable[tuple[str, npt.NDArray[np.intp]]]:
    """Yield names and the questions that belong to them; those without an answer are in one part only."""
    categories = np.array(outcome.categories)
    answered = np.flatnonzero(categories != ADVERSARIAL)
    yield "all", answered
    yield "odd", answered[answered % 2 == 1]
    yield "even", answered[answered % 2 == 0]
    names = sorted(set(outcome.categories))
    yield from ((name, np.flatnonzero(categories == name)) for name in names if len(names) > 1)


async def ingest(memory: Memory, workspace: Path, outcome: Outcome) -> None:
    """Take the notes in; the first of them starts the server, and its time is counted apart."""
    for number, path in enumerate(sorted(workspace.rglob("*.md"))):
        began = perf_counter()
        name = path.relative_to(workspace).as_posix()
        written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        source = WrittenSource(path=name, text=path.read_text(encoding="utf-8"), written_at=written_at)
        contents = contents_of(source)
        (report,) = (await memory.ingest_source(name, contents, backend="graphiti")).values()
        assert report.ok, report
        outcome.episodes += report.stored
        outcome.facts += report.facts
        if number:
            outcome.seconds += perf_counter() - began
            outcome.timed += report.stored
        else:
            outcome.starts.append(perf_counter() - began)


async def try_out(
    folder: Path, conv: str, outcome: Outcome, settings: Mapping[str, object], limit: int | None
) -> None:
    with tempfile.TemporaryDirectory() as state:
        others = [one.name for one in (folder / conv).iterdir() if one.is_dir() and one.name != "memory"]
        builtin = {"sync": {"watch": False}, "extra_paths": others}
        config = {"graphiti": {"enabled": True, **settings}, "builtin": builtin}
        async with open_memory(folder / conv, state, config, long_lived=False) as memory:
            await memory.sync()
            await ingest(memory, folder / conv, outcome)
            for question in questions_of(folder, conv, limit=limit):
                await ask(memory, question, outcome)


async def ask(memory: Memory, question: Question, outcome: Outcome) -> None:
    outcome.categories.append(question.category)
    for way, backends in WAYS.items():
        began = perf_counter()
        response = await memory.query(question.text, max_results=DEPTH, backends=backends)
        outcome.search_ms[way].append((perf_counter() - began) * 1000)
        assert not any(answer.error for answer in response.answers), response.degraded
        outcome.rows[way].append(measures(response.results, question))
        if way == "both":
            outcome.facts_among += sum(one.source_backend == "graphiti" for one in response.results)


def interval(values: npt.NDArray[np.float64], seed: int = 1) -> str:
    picks = np.random.default_rng(seed).integers(0, len(values), (2000, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return f"{low:+.3f} to {high:+.3f}"


def table(name: str, outcome: Outcome) -> Iterable[str]:
    arrays = {way: np.array(values) for way, values in outcome.rows.items()}
    for part, chosen in parts_of(outcome):
        for way, values in arrays.items():
            if not len(chosen) or (way == "facts" and part != "all"):
                continue
            cells = " | ".join(f"{mean:.3f}" for mean in values[chosen].mean(axis=0))
            more = (values - arrays["notes"])[chosen]
            told = [f"{more[:, at].mean():+.3f} ({interval(more[:, at])})" for at in (NDCG, RECALL)]
            told = ["", ""] if way == "notes" else told
            yield f"| {name}, {part} | {len(chosen):,} | {way} | {cells} | {' | '.join(told)} |"


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET", help="a folder with queries.jsonl")
    parser.add_argument("--conv", action="append", help="only these workspaces")
    parser.add_argument("--limit", type=int, help="only so many questions of each workspace")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON, laid over memory.graphiti")
    args = parser.parse_args()
    print(f"| Set | Questions | Asked | {' | '.join(METRICS)} | nDCG@10 against notes | R@10 against notes |")
    print(f"|---|---|---|{'---|' * len(METRICS)}---|---|")
    for folder in args.sets:
        outcome = Outcome()
        for conv in args.conv or sorted(path.name for path in folder.iterdir() if path.is_dir()):
            await try_out(folder, conv, outcome, args.settings, args.limit)
            print(f"{folder.name}/{conv} done", file=sys.stderr)
        print("\n".join(table(folder.name, outcome)))
        asked = len(outcome.search_ms["both"])
        rate = outcome.timed / (outcome.seconds or 1.0)
        start = np.median(outcome.starts)
        spent = ", ".join(f"{way} {np.median(ms):.1f} ms" for way, ms in outcome.search_ms.items())
        print(
            f"\n{outcome.episodes:,} episodes became {outcome.facts:,} facts, {rate:.0f} episodes a second "
            f"after {start:.1f} s for the first note and the start;"
        )
        print(f"{outcome.facts_among / asked:.1f} of {DEPTH} results are facts; a question takes {spent}.\n")


if __name__ == "__main__":
    asyncio.run(main())
