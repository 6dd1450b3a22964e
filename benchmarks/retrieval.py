"""How good search is: keywords, vectors, the two together with what may reorder them, and grep.

A set is a folder with `queries.jsonl`, one question a line (`conv`, `question`, `category_name`, `qrels`: a
list of `[path, line]`, line 0 for the whole file), and one folder of Markdown notes for each `conv`. Prints a
table in Markdown; every figure is a mean over questions, with a 95 % bootstrap interval, paired where it is a
difference. Ages are counted from the day after the last dated note.
"""

import argparse
import asyncio
import json
import math
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import apsw
import numpy as np
import numpy.typing as npt

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderAdapter, EmbedderServices
from composable_memory_adapters.builtin.search import hybrid, index_vectors, keyword_leg, ranking
from composable_memory_adapters.builtin.search.decay import age_in_days, decay_factor, written_on
from composable_memory_adapters.builtin.search.diversity import Saying, diverse_order
from composable_memory_adapters.builtin.search.hybrid import FusedHit, KeywordHit, VectorHit
from composable_memory_adapters.builtin.settings import FusionMethod
from composable_memory_adapters.chunking import chunk_markdown
from composable_memory_adapters.embedders import local, wordllama
from composable_memory_adapters.text.forms import word_set
from composable_memory_adapters.text.query_terms import analyse, index_text
from composable_memory_ops_logs import OpsLog, utc_now

Kind: TypeAlias = Literal["query", "document"]

METRICS = ["hit@1", "R@5", "R@10", "MRR", "nDCG@10"]
NDCG = METRICS.index("nDCG@10")
DEPTH = 10
HALF_LIFE_DAYS = 30
LAMBDA = 0.7
WEIGHTS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7]
CREATE = """
CREATE VIRTUAL TABLE chunks_fts USING fts5(
  text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
)
"""

Floats: TypeAlias = npt.NDArray[np.float64]
Vector: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    workspace: str
    category: str
    vector: Vector
    evidence: tuple[frozenset[int], ...]
    """For each line that answers the question, the passages that hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    texts: list[str]
    places: list[tuple[str, int, int]]
    vectors: Vector
    connection: apsw.Connection
    lowered: list[str]
    words: list[frozenset[str]]
    days: list[date | None]
    """The day that each passage is from, where it ages."""

    @property
    def today(self) -> date | None:
        last = max(filter(None, self.days), default=None)
        return last and last + timedelta(days=1)

    def holding(self, path: str, line: int) -> frozenset[int]:
        return frozenset(
            at
            for at, (where, start, end) in enumerate(self.places)
            if where == path and (line == 0 or start <= line <= end)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    name: str
    workspaces: dict[str, Workspace]
    questions: list[Question]


Leg: TypeAlias = Callable[[Workspace, Question, "Candidates"], list[int]]
"""Ranks the passages of a workspace for a question, best first, given what both halves found."""


def by_grep(workspace: Workspace, question: Question, _found: "Candidates") -> list[int]:
    """By how many words of the question a passage contains, in the order of the files where equal."""
    words = {word.lower() for word in re.findall(r"\w+", question.text)}
    counts = [sum(word in text for word in words) for text in workspace.lowered]
    return [at for at in sorted(range(len(counts)), key=lambda at: -counts[at]) if counts[at]]


def by_keywords(_workspace: Workspace, _question: Question, found: "Candidates") -> list[int]:
    return [hit.id for hit in found.keyword]


def by_vectors(workspace: Workspace, question: Question, _found: "Candidates") -> list[int]:
    nearest: list[int] = np.argsort(-(workspace.vectors @ question.vector), kind="stable").tolist()
    return nearest[:DEPTH]


def by_both(_workspace: Workspace, _question: Question, found: "Candidates") -> list[int]:
    return [hit.id for hit in found.ranked()]


def by_both_with_decay(workspace: Workspace, _question: Question, found: "Candidates") -> list[int]:
    scores = {hit.id: hit.score for hit in found.ranked()}
    if workspace.today:
        for at in scores:
            age = age_in_days(workspace.days[at], workspace.today)
            scores[at] *= decay_factor(age, HALF_LIFE_DAYS)
    return sorted(scores, key=lambda at: -scores[at])


def by_both_with_mmr(workspace: Workspace, _question: Question, found: "Candidates") -> list[int]:
    best = found.ranked()[: ranking.DIVERSE_AMONG]
    says = [Saying(score=hit.score, words=workspace.words[hit.id]) for hit in best]
    return [best[at].id for at in diverse_order(says, lambda_=LAMBDA)]


LEGS: dict[str, Leg] = {
    "grep": by_grep,
    "keywords": by_keywords,
    "vectors": by_vectors,
    "hybrid": by_both,
    f"hybrid, decay {HALF_LIFE_DAYS} days": by_both_with_decay,
    f"hybrid, MMR {LAMBDA:g}": by_both_with_mmr,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What both halves of the search found for one question."""

    keyword: Sequence[KeywordHit]
    scale: float
    vector: Sequence[VectorHit]
    vector_weight: float

    @classmethod
    def of(cls, workspace: Workspace, question: Question) -> "Candidates":
        answer = keyword_leg.search(workspace.connection, analyse(question.text))
        cosines = workspace.vectors @ question.vector
        nearest = np.argsort(-cosines, kind="stable")[: hybrid.CANDIDATES].tolist()
        named = dict.fromkeys([*nearest, *(hit.id for hit in answer.hits)])
        vector = [VectorHit(id=at, cosine=float(cosines[at])) for at in named]
        some = cosines[:: max(1, len(cosines) // index_vectors.SAMPLE_SIZE)].tolist()
        weight = hybrid.vector_weight_for(float(cosines.max()), some)
        return cls(keyword=answer.hits, scale=answer.scale, vector=vector, vector_weight=weight)

    def ranked(self) -> list[FusedHit]:
        """Return what the product ranks by default."""
        return self.fused("absolute", self.vector_weight)

    def fused(self, method: FusionMethod, vector_weight: float) -> list[FusedHit]:
        return hybrid.fuse(
            self.keyword,
            self.vector,
            scale=self.scale,
            method=method,
            vector_weight=vector_weight,
            text_weight=1 - vector_weight,
        )


def measures(ranked: Sequence[int], evidence: Sequence[frozenset[int]]) -> list[float]:
    """Return the metrics of one answer. A line of evidence counts once, at the first passage with it."""
    open_lines = list(evidence)
    gains: list[int] = []
    for at in ranked[:DEPTH]:
        gains.append(sum(at in line for line in open_lines))
        open_lines = [line for line in open_lines if at not in line]
    first = next((rank for rank, gain in enumerate(gains, start=1) if gain), None)
    return [
        float(first == 1),
        sum(gains[:5]) / len(evidence),
        sum(gains) / len(evidence),
        1 / first if first else 0.0,
        _discounted(gains) / _discounted(_best_gains(evidence)),
    ]


def _best_gains(evidence: Sequence[frozenset[int]]) -> list[int]:
    """Return the gains of a ranking that always takes the passage with most of the evidence that is left."""
    open_lines = [line for line in evidence if line]
    gains: list[int] = []
    while open_lines and len(gains) < DEPTH:
        ((at, gain),) = Counter(at for line in open_lines for at in sorted(line)).most_common(1)
        gains.append(gain)
        open_lines = [line for line in open_lines if at not in line]
    return gains


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def evaluate(evaluation: Evaluation, found: Sequence[Candidates], leg: Leg) -> Floats:
    """Return one row of metrics for each question."""
    return np.array(
        [
            measures(leg(evaluation.workspaces[question.workspace], question, one), question.evidence)
            for question, one in zip(evaluation.questions, found, strict=True)
        ]
    )


def candidates(evaluation: Evaluation) -> list[Candidates]:
    """Return what both halves found for each question."""
    return [Candidates.of(evaluation.workspaces[one.workspace], one) for one in evaluation.questions]


def interval(values: Floats, *, resamples: int, seed: int) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean."""
    picks = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


async def load(folder: Path, embedder: EmbedderAdapter) -> list[Evaluation]:
    """Read a set; questions whose category is `adversarial` become a set of their own."""
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    names = sorted({row["conv"] for row in rows})
    workspaces = {name: await _workspace(folder / name, embedder) for name in names}
    vectors = await embed(embedder, [row["question"] for row in rows], kind="query")
    questions = [
        Question(
            text=row["question"],
            workspace=row["conv"],
            category=row["category_name"],
            vector=vector,
            evidence=tuple(workspaces[row["conv"]].holding(path, line) for path, line in row["qrels"]),
        )
        for row, vector in zip(rows, vectors, strict=True)
    ]
    kinds = {
        folder.name: [one for one in questions if one.category != "adversarial"],
        f"{folder.name}, adversarial": [one for one in questions if one.category == "adversarial"],
    }
    return [
        Evaluation(name=name, workspaces=workspaces, questions=[one for one in kind if any(one.evidence)])
        for name, kind in kinds.items()
        if kind
    ]


async def embed(
    embedder: EmbedderAdapter, texts: Sequence[str], *, kind: Literal["query", "document"]
) -> Floats:
    """Return the vectors of `texts`, of length 1, as rows."""
    inputs = [EmbedderInput(text=text, kind=kind) for text in texts]
    rows = np.array(await embedder.embed_batch(inputs), dtype=np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


async def _workspace(folder: Path, embedder: EmbedderAdapter) -> Workspace:
    texts: list[str] = []
    places: list[tuple[str, int, int]] = []
    for path in sorted(folder.rglob("*.md")):
        for chunk in chunk_markdown(path.read_text(encoding="utf-8")):
            texts.append(chunk.text)
            places.append((path.relative_to(folder).as_posix(), chunk.start_line, chunk.end_line))
    connection = apsw.Connection(":memory:")
    keyword_leg.prepare(connection)
    connection.execute(CREATE)
    rows = [(at, index_text(text)) for at, text in enumerate(texts)]
    connection.executemany("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", rows)
    return Workspace(
        texts=texts,
        places=places,
        vectors=await embed(embedder, texts, kind="document"),
        connection=connection,
        lowered=[text.lower() for text in texts],
        words=[word_set(text) for text in texts],
        days=[written_on(path, source="memory", mtime_ns=None) for path, _, _ in places],
    )


def leg_table(evaluation: Evaluation, ask: Callable[[Floats], tuple[float, float]]) -> Iterable[str]:
    """Yield a row for each leg; those with both halves say how far they are from the better half."""
    is_dated = any(workspace.today for workspace in evaluation.workspaces.values())
    found = candidates(evaluation)
    results = {
        name: evaluate(evaluation, found, leg)
        for name, leg in LEGS.items()
        if is_dated or leg is not by_both_with_decay
    }
    best = max(("keywords", "vectors"), key=lambda name: results[name][:, NDCG].mean())
    for name, values in results.items():
        cells = " | ".join(f"{mean:.3f}" for mean in values.mean(axis=0))
        low, high = ask(values[:, NDCG])
        count = len(evaluation.questions)
        gain = ""
        if name.startswith("hybrid"):
            less = values[:, NDCG] - results[best][:, NDCG]
            gain = "{:+.3f} ({:+.3f} to {:+.3f})".format(less.mean(), *ask(less))
        yield f"| {evaluation.name} | {count:,} | {name} | {cells} | {low:.3f} to {high:.3f} | {gain} |"


def fusion_table(evaluation: Evaluation) -> Iterable[str]:
    """Yield a row for each way to fuse: nDCG@10 of the even and of the odd questions, by vector weight."""
    questions = evaluation.questions
    found = candidates(evaluation)
    methods: list[FusionMethod] = ["absolute", "min-max", "rrf"]
    for method in methods:
        cells = []
        for weight in WEIGHTS:
            ranked = ([hit.id for hit in one.fused(method, weight)] for one in found)
            values = [measures(ids, one.evidence)[NDCG] for ids, one in zip(ranked, questions, strict=True)]
            cells.append(f"{np.mean(values[::2]):.3f} / {np.mean(values[1::2]):.3f}")
        yield f"| {evaluation.name} | {method} | {' | '.join(cells)} |"


@asynccontextmanager
async def opened(gguf: Path | None) -> AsyncIterator[EmbedderAdapter]:
    """Yield the packaged embedder, or the model in a GGUF file."""
    with tempfile.TemporaryDirectory() as state:
        services = EmbedderServices(state_dir=Path(state), environ={}, ops_log=OpsLog(None), clock=utc_now)
        opening = wordllama.spec.open(wordllama.WordLlamaSettings(), services)
        if gguf is not None:
            opening = local.spec.open(local.LocalSettings(model_path=str(gguf.resolve())), services)
        async with opening as embedder:
            yield embedder


async def run(arguments: argparse.Namespace) -> Iterable[str]:
    folders = sorted(path.parent for path in arguments.data.glob("*/queries.jsonl"))
    chosen = [folder for folder in folders if not arguments.sets or folder.name in arguments.sets]
    ask = partial(interval, resamples=arguments.resamples, seed=arguments.seed)
    async with opened(arguments.gguf) as embedder:
        evaluations = [one for folder in chosen for one in await load(folder, embedder)]
    if arguments.fusions:
        header = ["set", "fusion", *(f"vectors {weight:g}" for weight in WEIGHTS)]
        rows = [row for one in evaluations for row in fusion_table(one)]
    else:
        header = ["set", "questions", "ranked by", *METRICS, "95 % of nDCG@10", "less the better half (95 %)"]
        rows = [row for one in evaluations for row in leg_table(one, ask)]
    return [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder for each set")
    parser.add_argument("--sets", nargs="*", default=[], help="names of the sets to use; all if not given")
    parser.add_argument("--gguf", type=Path, help="embed with this model in place of the packaged one")
    parser.add_argument("--fusions", action="store_true", help="compare ways to fuse instead of legs")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    table = "\n".join(asyncio.run(run(arguments))) + "\n"
    sys.stdout.write(table)
    if arguments.out:
        arguments.out.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
