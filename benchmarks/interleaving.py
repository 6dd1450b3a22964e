"""Experiments in live traffic: how soon the better of two weight tables is found, and how often wrongly.

    python benchmarks/interleaving.py SET …            sets as `retrieval.py` takes them
    python benchmarks/interleaving.py SET --eta 1      readers who seldom look far down

Each workspace is indexed twice by the builtin memory, for keywords alone and for vectors alone; every
question with an answer is asked of both, and the two lists are ranked by the code of the product under many
weights. Pairs of weights whose nDCG@10 differs by a planted part then meet: a draft for each question, a
simulated reader who uses what holds the answer, the credit, the sequential test. A reader comes to place r
with a chance of r**-eta, uses one in fifty results for no reason, and leaves a part of the answers alone. For
an A/A run the sides change at random, question by question.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from math import log2
from pathlib import Path
from statistics import fmean, median, pvariance
from time import perf_counter

from composable_memory import open_memory
from composable_memory.query.calibration import Calibration
from composable_memory.query.interleaving import seed_of, team_draft
from composable_memory.query.ranking import CalibrationRule, MergePolicy, rank
from composable_memory.types import BackendAnswer, SearchOptions
from composable_memory_feedback.experiments import Outcome, TestResult, judge

DEPTH = 10
QUERIES = 300
AT = datetime(2026, 1, 1, tzinfo=UTC)
LEGS: Mapping[str, Mapping[str, object]] = {
    "words": {"embedding": {"provider": "none"}},
    "meaning": {"builtin": {"store": {"fts": {"enabled": False}}}},
}
LEVELS = tuple(tenth / 10 for tenth in range(11))
TABLES = [(one, 1.0) for one in LEVELS] + [(1.0, one) for one in LEVELS[:-1]]
RULES = {leg: CalibrationRule(method=Calibration.AUTO, is_absolute=True) for leg in LEGS}
PLANTED = (0.02, 0.05, 0.10, 0.20)
Line = tuple[str, int]
Table = tuple[float, float]
"""The weights of keywords and of vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    keys: frozenset[str]
    answers: frozenset[Line]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The ranking of a question by each table, and its nDCG@10."""

    rankings: Mapping[Table, Sequence[Hit]]
    worth: Mapping[Table, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who uses what, at which places."""

    eta: float
    active: float

    def credit(self, shown: Sequence[tuple[str, Hit]], draw: random.Random) -> tuple[int, int]:
        """Return how many results of either side are used; a line of the answer is used once."""
        if draw.random() >= self.active:
            return 0, 0
        marks: list[str] = []
        known: set[Line] = set()
        for place, (mark, hit) in enumerate(shown, start=1):
            if draw.random() >= place**-self.eta:
                continue
            if hit.answers - known or draw.random() < 0.02:
                marks.append(mark)
            known |= hit.answers
        return marks.count("a"), marks.count("b")


async def lists_of(workspace: Path, leg: str, questions: Iterable[str]) -> list[BackendAnswer]:
    config = {"ops_log": {"enabled": False}, **LEGS[leg]}
    with tempfile.TemporaryDirectory() as state:
        async with open_memory(workspace, state, {"memory": config}, long_lived=False) as memory:
            await memory.sync()
            answers = [(await memory.query(one, max_results=24)).answers[0] for one in questions]
    return [BackendAnswer(backend_id=leg, results=one.results) for one in answers]


async def questions_of(folder: Path, conv: str) -> list[Question]:
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["conv"] == conv and row["qrels"]]
    rows = [row for row in rows if row["category_name"] != "adversarial"]
    legs = [await lists_of(folder / conv, leg, [row["question"] for row in rows]) for leg in LEGS]
    return [
        question_of(answers, frozenset((path, line) for path, line in row["qrels"]))
        for row, *answers in zip(rows, *legs, strict=True)
    ]


def question_of(answers: Sequence[BackendAnswer], answer: frozenset[Line]) -> Question:
    rankings = {table: ranking(answers, table, answer) for table in TABLES}
    return Question(
        rankings=rankings, worth={table: ndcg(hits, len(answer)) for table, hits in rankings.items()}
    )


def ranking(answers: Sequence[BackendAnswer], table: Table, answer: frozenset[Line]) -> list[Hit]:
    """Rank as a running memory does, under these weights of keywords and vectors."""
    options = SearchOptions(max_results=DEPTH)
    merged = rank(
        {one.backend_id: one.results for one in answers},
        RULES,
        weights=dict(zip(LEGS, table, strict=True)),
        policy=MergePolicy(),
        options=options,
        min_depth=24,
    ).merged
    return [
        Hit(
            keys=frozenset((hit.key, *(label.split(" ", 1)[1] for label in told.merged_with))),
            answers=frozenset(
                (path, line)
                for path, line in answer
                if path == hit.path and (line == 0 or hit.start_line <= line <= hit.end_line)
            ),
        )
        for hit, told in zip(merged.results, merged.attributions, strict=True)
    ]


def ndcg(hits: Sequence[Hit], lines: int) -> float:
    """Return the nDCG@10 where `lines` hold the answer; each of them counts once."""
    known: set[Line] = set()
    gained = 0.0
    for place, hit in enumerate(hits, start=1):
        gained += len(hit.answers - known) / log2(place + 1)
        known |= hit.answers
    return gained / sum(1 / log2(place + 1) for place in range(1, min(lines, DEPTH) + 1))


def outcome(a: Sequence[Hit], b: Sequence[Hit], reader: Reader, draw: random.Random) -> Outcome:
    seed = seed_of(f"{draw.getrandbits(128):032x}", "q1", "exp-1")
    picks = team_draft([hit.keys for hit in a], [hit.keys for hit in b], k=DEPTH, seed=seed)
    shown = [(pick.mark, (a if pick.team == "a" else b)[pick.index]) for pick in picks]
    credit_a, credit_b = reader.credit(shown, draw)
    return Outcome(experiment_id="exp-1", trace_id="", query_id="", at=AT, a=credit_a, b=credit_b)


def found(
    questions: Sequence[Question],
    pair: Sequence[Table],
    reader: Reader,
    *,
    runs: int,
    is_a_a: bool = False,
) -> list[TestResult]:
    """Run an experiment so often, each until it is decided or its queries are over."""
    draw = random.Random(20)

    def traffic() -> Iterable[Outcome]:
        for question in draw.choices(questions, k=QUERIES):
            a, b = draw.sample(pair, 2) if is_a_a else pair
            yield outcome(question.rankings[a], question.rankings[b], reader, draw)

    return [judge(traffic()) for _ in range(runs)]


def needed_by_halves(questions: Sequence[Question], worse: Table, better: Table) -> float:
    """Return the queries that a test of two halves needs on nDCG itself, at 5 % error and 80 % power."""
    one, other = ([question.worth[table] for question in questions] for table in (worse, better))
    return 2 * (1.96 + 0.84) ** 2 * (pvariance(one) + pvariance(other)) / (fmean(other) - fmean(one)) ** 2


def report(name: str, questions: Sequence[Question], reader: Reader, runs: int) -> None:
    worth = {table: fmean(question.worth[table] for question in questions) for table in TABLES}
    pairs = [sorted(pair, key=worth.__getitem__) for pair in combinations(TABLES, 2)]
    print(f"\n{name}, {len(questions):,} questions, {runs:,} runs of {QUERIES} queries\n")
    print("| a: words, meaning | b | better by | found | wrongly | after | ties | b wins | two halves need |")
    print("|---|---|---|---|---|---|---|---|---|")
    for part in PLANTED:
        worse, better = min(pairs, key=lambda pair: abs(worth[pair[1]] / worth[pair[0]] - 1 - part))
        cells = figures(found(questions, (worse, better), reader, runs=runs))
        halves = needed_by_halves(questions, worse, better)
        print(f"| {worse} | {better} | {worth[better] / worth[worse] - 1:.1%} | {cells} | {halves:,.0f} |")
    widest = max(pairs, key=lambda pair: worth[pair[1]] - worth[pair[0]])
    verdicts = found(questions, widest, reader, runs=1000, is_a_a=True)
    stopped = sum(one.decision is not None for one in verdicts)
    print(
        f"\nA/A, {widest[0]} and {widest[1]}, sides changed at random: {stopped} of 1,000 runs stop falsely."
    )


def figures(verdicts: Sequence[TestResult]) -> str:
    right, wrong = ([one for one in verdicts if one.decision == side] for side in ("b", "a"))
    decisive = sum(one.wins_a + one.wins_b for one in verdicts)
    return " | ".join(
        (
            f"{len(right) / len(verdicts):.1%}",
            f"{len(wrong) / len(verdicts):.1%}",
            f"{median(one.queries for one in right):.0f}" if right else "",
            f"{sum(one.ties for one in verdicts) / sum(one.queries for one in verdicts):.0%}",
            f"{sum(one.wins_b for one in verdicts) / decisive:.0%}" if decisive else "",
        )
    )


def draft_time(questions: Sequence[Question]) -> float:
    """Return the microseconds of one draft of two times ten results."""
    pairs = [
        [[hit.keys for hit in question.rankings[table]] for table in (TABLES[0], TABLES[-1])]
        for question in questions
    ]
    began = perf_counter()
    for seed, (a, b) in enumerate(pairs):
        team_draft(a, b, k=DEPTH, seed=seed)
    return (perf_counter() - began) / len(pairs) * 1e6


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET", help="a folder with queries.jsonl")
    parser.add_argument("--runs", type=int, default=200, help="experiments for each pair of tables")
    parser.add_argument("--eta", type=float, default=0.5, help="how fast attention falls with the place")
    parser.add_argument("--active", type=float, default=0.7, help="the part of answers that is used at all")
    args = parser.parse_args()
    for folder in args.sets:
        questions: list[Question] = []
        for conv in sorted(path.name for path in folder.iterdir() if path.is_dir()):
            questions += await questions_of(folder, conv)
            print(f"{folder.name}/{conv} done", file=sys.stderr)
        report(folder.name, questions, Reader(eta=args.eta, active=args.active), args.runs)
        print(f"A draft takes {draft_time(questions):.0f} µs.")


if __name__ == "__main__":
    asyncio.run(main())
