"""How good search is, through an open memory with all that ranks in it, beside its halves and grep.

    python benchmarks/retrieval.py --data DIR                               every set, every way
    python benchmarks/retrieval.py --data DIR --sets locomo --ways default rerank --state DIR
    python benchmarks/retrieval.py --data DIR --save now.json --against before.json
    python benchmarks/retrieval.py --data DIR --weights

A set is a folder with `queries.jsonl`, one question a line (`conv`, `question`, `category_name`, `qrels`: a
list of `[path, line]`, line 0 for the whole file), and one folder of Markdown notes for each `conv`. Each way
to rank is a memory with other settings, asked at noon of the day after the last dated note. Prints a table in
Markdown; every figure is a mean over questions, with a 95 % bootstrap interval, paired where it is a
difference. With `--state` indexes, and what a reranker has read, are kept for the next run.
"""

import argparse
import asyncio
import json
import math
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias

import apsw
import numpy as np
import numpy.typing as npt

from composable_memory import open_memory
from composable_memory.query.filters import day_in_path

METRICS = ["hit@1", "R@5", "R@10", "MRR", "nDCG@10"]
NDCG = METRICS.index("nDCG@10")
DEPTH = 10
HALF_LIFE_DAYS = 30
LAMBDA = 0.7
WEIGHTS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7]

Floats: TypeAlias = npt.NDArray[np.float64]
Place: TypeAlias = tuple[str, int, int]
"""Path, first and last line of a passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    id: str
    text: str
    category: str
    evidence: tuple[tuple[str, int], ...]
    """The lines that answer, as path and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The notes of a set that are searched together, and what is asked about them."""

    folder: Path
    questions: list[Question]
    now: datetime
    is_dated: bool


def settings(
    *,
    query: Mapping[str, object] | None = None,
    store: Mapping[str, object] | None = None,
    embedding: Mapping[str, object],
) -> dict[str, object]:
    """Return what differs from the defaults; nothing is reranked unless `query` says so."""
    return {
        "ops_log": {"enabled": False},
        "embedding": dict(embedding),
        "builtin": {"query": {"rerank": "off"} | dict(query or {}), "store": dict(store or {})},
    }


def ways(embedding: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return the settings of every way to rank."""
    make = partial(settings, embedding=embedding)
    decay, mmr = {"enabled": True, "half_life_days": HALF_LIFE_DAYS}, {"enabled": True, "lambda": LAMBDA}
    return {
        "keywords": settings(embedding={"provider": "none"}),
        "vectors": make(store={"fts": {"enabled": False}}),
        "default": make(),
        "rerank": make(query={"rerank": "late-interaction"}),
        f"default, decay {HALF_LIFE_DAYS} days": make(query={"hybrid": {"temporal_decay": decay}}),
        f"default, MMR {LAMBDA:g}": make(query={"hybrid": {"mmr": mmr}}),
    }


def weights(embedding: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return the settings of every weight of the vectors."""
    return {
        f"vectors {weight:g}": settings(embedding=embedding, query={"hybrid": {"vector_weight": weight}})
        for weight in WEIGHTS
    }


def load(folder: Path) -> Iterator[Workspace]:
    """Yield the workspaces of a set."""
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    for name in sorted({row["conv"] for row in rows}):
        days = [day for path in (folder / name).rglob("*.md") if (day := day_in_path(path.name))]
        last = datetime.combine(max(days), datetime.min.time(), UTC) if days else datetime.now(UTC)
        yield Workspace(
            folder=folder / name,
            questions=[
                Question(
                    id=str(row.get("qid", number)),
                    text=row["question"],
                    category=row["category_name"],
                    evidence=tuple((path, line) for path, line in row["qrels"]),
                )
                for number, row in enumerate(rows)
                if row["conv"] == name
            ],
            now=last + timedelta(days=1, hours=12),
            is_dated=bool(days),
        )


async def asked(
    workspace: Workspace, state: Path, config: Mapping[str, object]
) -> tuple[dict[str, list[float]], int]:
    """Return the metrics of each question by its id, and how many were answered with less than all of it."""
    measured: dict[str, list[float]] = {}
    degraded = 0
    async with open_memory(workspace.folder, state, config, environ={}, long_lived=False) as memory:
        await memory.sync()
        passages, _ = await asyncio.to_thread(_indexed, state)
        for question in workspace.questions:
            ideal = _best_gains(passages, question.evidence)
            if ideal:
                response = await memory.query(question.text, max_results=DEPTH, now=workspace.now)
                found = [(one.path, one.start_line, one.end_line) for one in response.results]
                measured[question.id] = measures(found, question.evidence, ideal)
                degraded += any(one.code in ("not-reranked", "unavailable") for one in response.degraded)
    return measured, degraded


def by_grep(workspace: Workspace, state: Path) -> dict[str, list[float]]:
    """Rank by how many words of the question a passage contains, in the order of the files where equal."""
    passages, texts = _indexed(state)
    lowered = [text.lower() for text in texts]
    measured = {}
    for question in workspace.questions:
        words = {word.lower() for word in re.findall(r"\w+", question.text)}
        counts = [sum(word in text for word in words) for text in lowered]
        best = [at for at in sorted(range(len(counts)), key=lambda at: -counts[at])[:DEPTH] if counts[at]]
        if ideal := _best_gains(passages, question.evidence):
            measured[question.id] = measures([passages[at] for at in best], question.evidence, ideal)
    return measured


def _indexed(state: Path) -> tuple[list[Place], list[str]]:
    """Return the passages of the one index in a state folder, in the order of the files."""
    (path,) = (state / "memory").glob("*.sqlite")
    with closing(apsw.Connection(str(path))) as connection:
        rows = [*connection.execute("SELECT path, start_line, end_line, text FROM chunks")]
    rows.sort(key=lambda row: row[:3])
    return [(path, first, last) for path, first, last, _ in rows], [row[3] for row in rows]


def _holds(place: Place, line: tuple[str, int]) -> bool:
    path, first, last = place
    return path == line[0] and (line[1] == 0 or first <= line[1] <= last)


def measures(
    ranked: Sequence[Place], evidence: Sequence[tuple[str, int]], ideal: Sequence[int]
) -> list[float]:
    """Return the metrics of one answer. A line of evidence counts once, at the first passage with it."""
    open_lines = list(evidence)
    gains: list[int] = []
    for place in ranked[:DEPTH]:
        gains.append(sum(_holds(place, line) for line in open_lines))
        open_lines = [line for line in open_lines if not _holds(place, line)]
    first = next((rank for rank, gain in enumerate(gains, start=1) if gain), None)
    return [
        float(first == 1),
        sum(gains[:5]) / len(evidence),
        sum(gains) / len(evidence),
        1 / first if first else 0.0,
        _discounted(gains) / _discounted(ideal),
    ]


def _best_gains(passages: Sequence[Place], evidence: Sequence[tuple[str, int]]) -> list[int]:
    """Return the gains of a ranking that always takes the passage with most of the evidence that is left."""
    holding = [frozenset(place for place in passages if _holds(place, line)) for line in evidence]
    open_lines = [places for places in holding if places]
    gains: list[int] = []
    while open_lines and len(gains) < DEPTH:
        ((best, gain),) = Counter(place for line in open_lines for place in sorted(line)).most_common(1)
        gains.append(gain)
        open_lines = [line for line in open_lines if best not in line]
    return gains


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def interval(values: Floats, *, resamples: int, seed: int) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean."""
    picks = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


Results: TypeAlias = dict[str, dict[str, list[float]]]
"""The metrics by way and question."""


async def measure(
    folder: Path, state: Path, chosen: Mapping[str, Mapping[str, object]], *, with_grep: bool
) -> tuple[Results, dict[str, frozenset[str]]]:
    """Return the results of a set, and the ids of its questions by their kind."""
    results: Results = {}
    workspaces = await asyncio.to_thread(lambda: [*load(folder)])
    for name, config in chosen.items():
        if "decay" in name and not any(one.is_dated for one in workspaces):
            continue
        rows: dict[str, list[float]] = {}
        degraded = 0
        for workspace in workspaces:
            where = state / folder.name / workspace.folder.name / re.sub(r"\W+", "-", name)
            found, lacking = await asked(workspace, where, config)
            rows |= found
            degraded += lacking
            if with_grep:
                results.setdefault("grep", {}).update(await asyncio.to_thread(by_grep, workspace, where))
        with_grep = False
        results[name] = rows
        if degraded:
            sys.stderr.write(f"{folder.name}, {name}: {degraded} answers lack something\n")
    kinds = {folder.name: frozenset(next(iter(results.values()), {}))}
    every = [question for workspace in workspaces for question in workspace.questions]
    if adversarial := frozenset(one.id for one in every if one.category == "adversarial"):
        kinds[f"{folder.name}, adversarial"] = adversarial & kinds[folder.name]
        kinds[f"{folder.name}, others"] = kinds[folder.name] - adversarial
    return results, kinds


def table(
    name: str,
    ids: frozenset[str],
    results: Results,
    before: Results,
    ask: Callable[[Floats], tuple[float, float]],
) -> Iterable[str]:
    """Yield a row for each way, with the differences from what it builds on and from the run before."""
    chosen = {way: {id_: row for id_, row in rows.items() if id_ in ids} for way, rows in results.items()}
    for way, rows in chosen.items():
        values = np.array([*rows.values()])
        low, high = ask(values[:, NDCG])
        cells = [
            *(f"{mean:.3f}" for mean in values.mean(axis=0)),
            f"{low:.3f} to {high:.3f}",
            _difference(rows, chosen.get(_base_of(way), {}), ask),
        ]
        if before:
            cells.append(_difference(rows, before.get(way, {}), ask))
        yield f"| {name} | {len(ids):,} | {way} | {' | '.join(cells)} |"


def _base_of(way: str) -> str:
    return "keywords" if way == "default" else "default" if way not in ("keywords", "vectors", "grep") else ""


def _difference(
    rows: Mapping[str, Sequence[float]],
    base: Mapping[str, Sequence[float]],
    ask: Callable[[Floats], tuple[float, float]],
) -> str:
    both = [id_ for id_ in rows if id_ in base]
    if not both:
        return ""
    less = np.array([rows[id_][NDCG] - base[id_][NDCG] for id_ in both])
    return "{:+.3f} ({:+.3f} to {:+.3f})".format(less.mean(), *ask(less))


async def run(arguments: argparse.Namespace, state: Path) -> Iterable[str]:
    """Measure all that was chosen and return the lines of the table."""
    folders = sorted(path.parent for path in arguments.data.glob("*/queries.jsonl"))
    folders = [one for one in folders if not arguments.sets or one.name in arguments.sets]
    embedding: dict[str, object] = {"provider": "wordllama"}
    if arguments.gguf:
        embedding = {"provider": "local", "local": {"model_path": str(arguments.gguf.resolve())}}
    chosen = weights(embedding) if arguments.weights else ways(embedding)
    if arguments.ways:
        chosen = {name: config for name, config in chosen.items() if name in arguments.ways}
    with_grep = "grep" in arguments.ways if arguments.ways else not arguments.weights
    former: dict[str, Results] = {}
    if arguments.against:
        former = json.loads(await asyncio.to_thread(arguments.against.read_text, encoding="utf-8"))
    ask = partial(interval, resamples=arguments.resamples, seed=arguments.seed)
    header = ["set", "questions", "ranked by", *METRICS, "95 % of nDCG@10", "against its base (95 %)"]
    header += ["against the run before (95 %)"] if former else []
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    every: dict[str, Results] = {}
    for folder in folders:
        every[folder.name], kinds = await measure(folder, state, chosen, with_grep=with_grep)
        for kind, ids in kinds.items():
            lines += table(kind, ids, every[folder.name], former.get(folder.name, {}), ask)
        if arguments.save:
            await asyncio.to_thread(arguments.save.write_text, json.dumps(every), encoding="utf-8")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder for each set")
    parser.add_argument("--sets", nargs="*", default=[], help="names of the sets to use; all if not given")
    parser.add_argument("--ways", nargs="*", default=[], help="ways to rank; all if not given")
    parser.add_argument("--gguf", type=Path, help="embed with this model in place of the packaged one")
    parser.add_argument("--weights", action="store_true", help="compare weights of the vectors instead")
    parser.add_argument("--state", type=Path, help="keep the indexes in this folder")
    parser.add_argument("--save", type=Path, help="write the metrics of every question to this file")
    parser.add_argument("--against", type=Path, help="compare with the metrics that another run saved")
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = asyncio.run(run(arguments, arguments.state or Path(folder)))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
