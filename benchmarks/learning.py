"""What learnt weights are worth with real backends: judged on one half of the questions, tried on the other.

    python benchmarks/learning.py --data DIR locomo cranfield      these sets, 200 questions of each at most
    python benchmarks/learning.py --data DIR --logs KEPT           keeps what was asked, learns from it again
    python benchmarks/learning.py --data DIR --fusion rrf convex   under other fusions than that of the log
    python benchmarks/learning.py --data DIR --graph               a graph of facts in the place of QMD

Sets have the shape that `retrieval.py` takes. Each workspace is indexed by the builtin memory for keywords
alone, by the builtin memory for vectors alone, and by a third backend; a composite asks all three and logs
it. From there on only the log is read: what would be shown under another fusion or under other weights is
ranked from it, and judged from the known answers. The statistical advisor learns from one half of the
questions, beginning with equal weights and with 0.7 for vectors and 0.3 for the others:

    guarded      in steps as the product takes them, each checked and adopted
    judged first in such steps, before each of which what the advice would show is judged as well, as
                 `cmem feedback evaluate --advice` does
    unguarded    at once, from what was shown before

All are tried on the other half, beside the best tables of a grid: that of the judged half by the known
answers (`grid`), and that of the tried half, which nobody can know before (`grid's best`). The halves then
change places, so that every question is tried once.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from composite import ADVERSARIAL, DEPTH, Outcome, Question, covered_by, discounted, ingest, questions_of
from pydantic import TypeAdapter
from retrieval import interval

from composable_memory import Memory, open_memory
from composable_memory.interfaces import Capability
from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import Fusion
from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.replay import Replayer, is_reproduced
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory_feedback.advice.evidence import Case, cases_of
from composable_memory_feedback.advice.proposal import AdviceLimits, Proposal, check
from composable_memory_feedback.advice.statistical import advise
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit, RankingPolicy
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import OpsLog

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEED = 7
LIMITS = AdviceLimits()
ADVISE = partial(advise, now=NOW)
CHECK = partial(check, limits=LIMITS, golden=None)
MOST_STEPS = 10
START_S = 30.0
PATIENT_S = 60.0
LEVELS = [round(0.1 ** (step / 6), 4) for step in range(7)]
"""Of the grid: from a tenth of the heaviest weight to as heavy."""
GRID = [one for one in product(LEVELS, repeat=3) if max(one) == 1.0]
Way: TypeAlias = Literal["equal", "as before", "guarded", "judged first", "unguarded", "grid", "grid's best"]
Floats: TypeAlias = npt.NDArray[np.float64]
Lines: TypeAlias = set[tuple[str, int]]
Learnt: TypeAlias = tuple[WeightTable, str]
"""A table, and how it was come to."""
Tried: TypeAlias = Mapping[Way, Sequence[tuple[Learnt, Floats]]]
"""What each way made of a half, with the nDCG@10 of every question of the other."""
HEAD = "set | tried | from | way | nDCG@10 | more than equal | more than before | below the best"
QUESTIONS = TypeAdapter(dict[str, Question])
"""By trace id."""


@dataclass(frozen=True, slots=True)
class Third:
    """The backend that is asked beside the two halves of the builtin one, with its settings."""

    name: Literal["qmd", "graphiti"]
    settings: Mapping[str, object]

    @property
    def backends(self) -> tuple[str, str, str]:
        return ("keywords", "vectors", self.name)

    @property
    def starts(self) -> Mapping[str, WeightTable]:
        """Return the tables that learning begins with."""
        return {"equal": self.table((1.0, 1.0, 1.0)), "0.7 / 0.3": self.table((0.3, 0.7, 0.3))}

    def table(self, weights: Sequence[float]) -> WeightTable:
        """Return weights, in the order of the backends, as a table."""
        return WeightTable.fixed(dict(zip(self.backends, weights, strict=True)), made_at=NOW)

    def configs(self, folder: Path) -> Mapping[str, Mapping[str, object]]:
        """Return the settings of the three memories, each with one backend."""
        others = [one.name for one in folder.iterdir() if one.is_dir() and one.name != "memory"]
        sync = {"watch": False, "on_search": False, "on_session_start": False}
        builtin: dict[str, object] = {"sync": sync, "extra_paths": others}
        quiet = {"ops_log": {"enabled": False}}
        paths = {"paths": [str(folder / one) for one in others]} if self.name == "qmd" else {}
        vectors = {**builtin, "store": {"fts": {"enabled": False}}}
        third = {**self.settings, **paths, "enabled": True}
        return {
            "keywords": {**quiet, "builtin": builtin, "embedding": {"provider": "none"}},
            "vectors": {**quiet, "builtin": vectors},
            self.name: {**quiet, "builtin": {"enabled": False}, self.name: third},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question as it was asked and logged under equal weights."""

    question: Question
    query: LoggedQuery
    origins: Mapping[str, tuple[str, int, int]]
    """The lines that facts are from, by their keys."""

    @classmethod
    def of(cls, question: Question, query: LoggedQuery) -> "Asked":
        origins = {
            one.key: (one.origin.path, one.origin.start_line, one.origin.end_line)
            for each in query.lists
            for one in each.candidates
            if one.origin is not None
        }
        return cls(question=question, query=query, origins=origins)

    def answered_by(self, hit: RankedHit) -> Lines:
        """Return the lines that answer the question and that a result shows."""
        place = self.origins.get(hit.key, (hit.path, hit.start_line, hit.end_line))
        return covered_by(place, self.question.evidence)

    def under(self, fusion: Fusion, calibration: Calibration) -> "Asked":
        """Return the same candidates with another way to make one ranking of them."""
        policy = replace(self.query.policy, fusion=fusion.value)
        lists = tuple(replace(one, calibration=calibration.value) for one in self.query.lists)
        return replace(self, query=replace(self.query, policy=policy, lists=lists))


async def asked_of(folder: Path, third: Third, logs: Path, count: int) -> list[Asked]:
    """Return the questions of a set with what was logged; asks them if that was not done before."""
    kept = logs / f"{folder.name}.{third.name}"
    if not (kept / "questions.json").exists():
        began = perf_counter()
        await ask_all(folder, third, kept, count)
        print(f"{folder.name}: asked in {perf_counter() - began:.0f} s", file=sys.stderr)
    questions = QUESTIONS.validate_json((kept / "questions.json").read_bytes())
    read = read_queries(kept / "log")
    assert not read.incomplete, read.incomplete
    return [Asked.of(questions[one.trace_id], one) for one in read.queries if one.trace_id in questions]


async def ask_all(folder: Path, third: Third, kept: Path, count: int) -> None:
    """Index every workspace of a set, ask, and keep the log beside what was asked."""
    questions = dict[str, Question]()
    with tempfile.TemporaryDirectory() as state:
        async with OpsLog(kept / "log") as ops_log:
            for conv, chosen in drawn(folder, count).items():
                async with composed(folder / conv, third, Path(state) / conv, ops_log) as manager:
                    for question in chosen:
                        response = await manager.query(question.text, max_results=DEPTH)
                        assert not any(one.error for one in response.answers), response.degraded
                        questions[response.trace_id] = question
    (kept / "questions.json").write_bytes(QUESTIONS.dump_json(questions))


def drawn(folder: Path, count: int) -> Mapping[str, Sequence[Question]]:
    """Draw questions that have an answer, by workspace."""
    convs = sorted(path.name for path in folder.iterdir() if path.is_dir())
    found = [(conv, one) for conv in convs for one in questions_of(folder, conv, limit=None)]
    found = [(conv, one) for conv, one in found if one.category != ADVERSARIAL]
    chosen = random.Random(SEED).sample(found, min(count, len(found)))
    return {conv: [one for where, one in chosen if where == conv] for conv in sorted(dict(chosen))}


@asynccontextmanager
async def composed(
    folder: Path, third: Third, state: Path, ops_log: OpsLog
) -> AsyncIterator[ComposableMemoryManager]:
    """Open the three backends over a workspace, bring them up to date, and yield a composite of them."""
    async with AsyncExitStack() as stack:
        entries = []
        for name, config in third.configs(folder).items():
            memory = await stack.enter_async_context(open_memory(folder, state / name, config))
            assert not memory.unavailable(), memory.unavailable()
            await fill(memory, folder, name)
            entries.append(entry_of(memory, name))
        yield ComposableMemoryManager(
            entries, weights=third.starts["equal"], ops_log=ops_log, intent_parser=parse_query_intent
        )


async def fill(memory: Memory, folder: Path, name: str) -> None:
    """Index the notes, or make facts of them; wait for the daemon of QMD."""
    if name == "graphiti":
        await ingest(memory, folder, Outcome())
        return
    report = await memory.sync()
    assert not report.problems, report.problems
    if name == "qmd":
        async with asyncio.timeout(START_S):
            while memory.backend_statuses()["qmd"].custom["qmd"]["daemon"]["state"] != "running":
                await asyncio.sleep(0.02)


def entry_of(memory: Memory, name: str) -> ComposableBackendEntry:
    """Return the only backend of a memory under a name of its own."""
    ((backend_id, manager),) = memory.manager.backends_with(Capability.ANSWER).items()
    found = memory.registry.backend(backend_id)
    able = found.spec.capabilities if found and found.spec else None
    return ComposableBackendEntry(id=name, manager=manager, capabilities=able, timeout_s=PATIENT_S)


class Ranks:
    """A `Ranker` that keeps what the replayer makes of a query under the same proportions.

    Scores of the hits may be those of another table; nobody here looks at them.
    """

    def __init__(self) -> None:
        self._replay = Replayer()
        self._rankings: dict[tuple[object, ...], tuple[RankedHit, ...]] = {}
        self._hits: dict[tuple[object, ...], RankedHit] = {}

    def __call__(self, query: LoggedQuery, policy: RankingPolicy) -> Sequence[RankedHit]:
        heaviest = max(policy.weights.values())
        proportions = tuple(round(weight / heaviest, 6) for _, weight in sorted(policy.weights.items()))
        key = (query.trace_id, query.query_id, proportions, policy.dropped)
        if key not in self._rankings:
            self._rankings[key] = tuple(map(self._kept, self._replay(query, policy)))
        return self._rankings[key]

    def _kept(self, hit: RankedHit) -> RankedHit:
        key = (hit.path, hit.start_line, hit.end_line, hit.backend, hit.calibrated, hit.others)
        return self._hits.setdefault(key, hit)


class Bench:
    """Questions that were asked: ranks them anew, judges them, and knows the truth."""

    def __init__(self, asked: Sequence[Asked], third: Third) -> None:
        self.asked, self.third, self.ranks = asked, third, Ranks()
        self._tables = [third.table(one) for one in GRID]
        self._grid = np.array([self.worths(range(len(asked)), one) for one in self._tables])

    def worths(self, chosen: Sequence[int], table: WeightTable) -> Floats:
        """Return nDCG@10 of questions under a table, by the known answers."""
        return np.array([self._worth(at, table) for at in chosen])

    def best_of_grid(self, chosen: Sequence[int]) -> WeightTable:
        """Return the table of the grid that is best for these questions."""
        return self._tables[int(self._grid[:, chosen].mean(axis=1).argmax())]

    def cases(self, chosen: Sequence[int], tables: Sequence[WeightTable]) -> list[Case]:
        """Return these questions as cases, judged from the known answers under each of the tables."""
        cases = []
        for at in chosen:
            served = [self._served(at, table) for table in tables]
            known = [one for each in served for one in judgements_of(self.asked[at], each)]
            cases += cases_of(served[-1:], known)
        return cases

    def _worth(self, at: int, table: WeightTable) -> float:
        """Return nDCG@10 of a question; a line counts once, at the first result that shows it."""
        one, seen, gains = self.asked[at], Lines(), list[int]()
        for hit in self._served(at, table).shown:
            shown = one.answered_by(hit) - seen
            seen |= shown
            gains.append(len(shown))
        return float(discounted(gains) / one.question.ideal)

    def _served(self, at: int, table: WeightTable) -> LoggedQuery:
        """Return a question as it would be answered under a table, with the weights of its kind."""
        query = self.asked[at].query
        weights = {one: table.of(one, query.intent) for one in query.backends}
        policy = replace(query.policy, weights=weights)
        return replace(query, policy=policy, shown=tuple(self.ranks(query, policy)))


def judgements_of(asked: Asked, served: LoggedQuery) -> Iterator[Judgement]:
    """Judge what was shown for a question: relevant is what shows a line that answers it."""
    for rank, hit in enumerate(served.shown, 1):
        yield Judgement(
            trace_id=served.trace_id,
            query_id=served.query_id,
            at=served.at,
            path=hit.path,
            start_line=hit.start_line,
            end_line=hit.end_line,
            rank=rank,
            backend=hit.backend,
            intent=served.intent,
            kind=JudgementKind.EXPLICIT,
            relevance=float(bool(asked.answered_by(hit))),
        )


class Learner:
    """Learns from one half of the questions as the product does, but without the wait between changes."""

    def __init__(self, bench: Bench, chosen: Sequence[int], start: WeightTable) -> None:
        self._bench, self._chosen, self._start = bench, chosen, start
        self._cases = bench.cases(chosen, [start])
        self._free = self._proposal(self._cases, start, is_clamped=False)

    def unguarded(self) -> Learnt:
        """Adopt the proposal as it is."""
        return self._free.table, expected(self._free)

    def guarded(self) -> Learnt:
        """Adopt one clamped proposal after the other until something speaks against it."""
        current = self._start
        for step in range(MOST_STEPS):
            proposal = self._proposal(self._cases, current, is_clamped=True)
            if objections := CHECK(proposal, backends=self._bench.third.backends):
                return current, f"{step} steps, {objections[0].code}: {expected(proposal)}"
            current = proposal.table
        return current, f"{MOST_STEPS} steps"

    def judged_first(self) -> Learnt:
        """Judge what the advice would show before each step; stop when something speaks against one."""
        current, seen = self._start, list[WeightTable]()
        cases = self._cases
        for step in range(MOST_STEPS):
            first = self._proposal(cases, current, is_clamped=True)
            seen.append(first.destination or first.table)
            cases = self._bench.cases(self._chosen, [*seen, self._start])
            proposal = self._proposal(cases, current, is_clamped=True)
            if objections := CHECK(proposal, backends=self._bench.third.backends):
                return current, f"{step} steps, {objections[0].code}: {expected(proposal)}"
            current = proposal.table
        return current, f"{MOST_STEPS} steps"

    def _proposal(self, cases: Sequence[Case], current: WeightTable, *, is_clamped: bool) -> Proposal:
        backends, ranks = self._bench.third.backends, self._bench.ranks
        limits = LIMITS if is_clamped else replace(LIMITS, max_step=1.0)
        return ADVISE(cases, current=current, backends=backends, ranker=ranks, limits=limits)


def expected(proposal: Proposal) -> str:
    """Return the gain that a proposal expects, from the judged half alone."""
    gain = proposal.gain
    return said(gain.mean, gain.low, gain.high) if gain else ""


def tried(bench: Bench, chosen: Sequence[int], start: WeightTable) -> Tried:
    """Learn from one half of the questions and try it on the other, then the other way round."""
    order = random.Random(SEED).sample(chosen, len(chosen))
    halves = order[::2], order[1::2]
    found = defaultdict[Way, list[tuple[Learnt, Floats]]](list)
    for judged, other in (halves, halves[::-1]):
        learner = Learner(bench, judged, start)
        learnt: dict[Way, Learnt] = {
            "equal": (bench.third.starts["equal"], ""),
            "as before": (start, ""),
            "guarded": learner.guarded(),
            "judged first": learner.judged_first(),
            "unguarded": learner.unguarded(),
            "grid": (bench.best_of_grid(judged), ""),
            "grid's best": (bench.best_of_grid(other), ""),
        }
        for way, one in learnt.items():
            found[way].append((one, bench.worths(other, one[0])))
    return found


def rows(found: Tried, backends: Sequence[str]) -> Iterable[Sequence[str]]:
    """Yield a row for each way."""
    worths = {way: np.concatenate([one for _, one in halves]) for way, halves in found.items()}
    best = worths["grid's best"]
    for way, halves in found.items():
        own = worths[way]
        more = [own - worths["equal"], own - worths["as before"]]
        told = [said(*with_interval(one)) if one.any() else "" for one in more]
        mean, low, high = 100 * with_interval(best - own) / best.mean()
        tables = " and ".join(weights_of(table, backends) for (table, _), _ in halves)
        how = " and ".join(how for (_, how), _ in halves if how)
        yield way, f"{own.mean():.4f}", *told, f"{mean:.1f} % ({low:.1f} to {high:.1f})", tables, how


def with_interval(values: Floats) -> Floats:
    """Return a mean and the ends of its interval."""
    return np.array([values.mean(), *interval(values, resamples=2000, seed=SEED)])


def said(mean: float, low: float, high: float) -> str:
    """Return a difference in words."""
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


def weights_of(table: WeightTable, backends: Sequence[str]) -> str:
    """Return proportions as 1/0.4/0.4, kinds of questions apart."""
    told = []
    for kind in (None, *sorted(table.by_intent)):
        heaviest = max(table.of(one, kind) for one in backends)
        row = "/".join(f"{table.of(one, kind) / heaviest:.2g}" for one in backends)
        told.append(f"{kind} {row}" if kind else row)
    return ", ".join(told)


def report(sets: Mapping[str, Sequence[Asked]], third: Third, arguments: argparse.Namespace) -> None:
    """Print how exact the logs are, and what learning brings under each fusion."""
    print("| set | logged queries | reproduced to the byte |", "|---|---|---|", sep="\n")
    for name, asked in sets.items():
        print(f"| {name} | {len(asked)} | {sum(is_reproduced(one.query) for one in asked)} |")
    asked = [one for each in sets.values() for one in each]
    names = [name for name, each in sets.items() for _ in each]
    for fusion in arguments.fusion:
        began = perf_counter()
        bench = Bench([one.under(fusion, arguments.calibration) for one in asked], third)
        print(f"\n{fusion}, calibration {arguments.calibration}\n")
        print(f"| {HEAD} | {'/'.join(third.backends)} | expected gain |\n|{'---|' * 10}")
        for name in [*sets, *["all"] * (len(sets) > 1)]:
            chosen = [at for at, one in enumerate(names) if name in (one, "all")]
            for start, table in third.starts.items():
                for cells in rows(tried(bench, chosen, table), third.backends):
                    print(f"| {' | '.join([name, str(len(chosen)), start, *cells])} |", flush=True)
                print(f"{fusion}, {name}, {start}: {perf_counter() - began:.0f} s", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", metavar="SET", help="names of the sets to use; all if not given")
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder for each set")
    parser.add_argument("--logs", type=Path, help="folder to keep the logs in, or with logs that were kept")
    parser.add_argument("--graph", action="store_true", help="a graph of facts in the place of QMD")
    parser.add_argument("--command", default="qmd", help="the command of QMD")
    parser.add_argument("--questions", type=int, default=200, help="how many of each set are asked")
    parser.add_argument("--fusion", nargs="*", type=Fusion, choices=[*Fusion], default=[Fusion.WEIGHTED])
    parser.add_argument("--calibration", type=Calibration, choices=[*Calibration], default=Calibration.AUTO)
    arguments = parser.parse_args()
    settings = {"command": arguments.command, "update": {"interval": 0, "on_boot": False}}
    third = Third("graphiti", {}) if arguments.graph else Third("qmd", settings)
    found = sorted(path.parent for path in arguments.data.glob("*/queries.jsonl"))
    folders = [one for one in found if not arguments.sets or one.name in arguments.sets]
    with tempfile.TemporaryDirectory() as own:
        kept, count = arguments.logs or Path(own), arguments.questions
        sets = {one.name: asyncio.run(asked_of(one, third, kept, count)) for one in folders}
    report(sets, third, arguments)


if __name__ == "__main__":
    main()
