"""Learning in a simulated world whose truth is known: are the intervals honest, and does it pay?

Three backends, four kinds of questions. For each way of judging, many worlds are learnt from once, and the
95 % interval of the expected gain is compared with the true gain of the proposed table on fresh questions;
so are the intervals of gates over given changes.
In null worlds, whose backends are equally good, nothing can be gained over equal weights: what would be
adopted there is a false claim.
Then the whole loop runs for some rounds: serve, judge, advise, take a step, check it as the product does,
hold it against golden questions, adopt. It runs in ordinary worlds, and in worlds with a plateau, where the
first steps to better weights change no ranking at all. What is served at the end is compared with the weights
at the start, with the best tables of a grid for each kind of question, and with a plain grid: the table that
does best on the judged queries of the first round, where what nobody judged counts as irrelevant. Prints
tables in Markdown.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import mean, pstdev
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "feedback"), str(ROOT / "ops_logs")]

from composable_memory_feedback.advice.evidence import (  # noqa: E402
    Case,
    cases_of,
    score,
)
from composable_memory_feedback.advice.proposal import (  # noqa: E402
    AdviceLimits,
    Proposal,
    check,
)
from composable_memory_feedback.advice.statistical import advise, coarse  # noqa: E402
from composable_memory_feedback.logged.logged_query import LoggedQuery  # noqa: E402
from composable_memory_feedback.replay import PolicyChange, gate  # noqa: E402
from composable_memory_feedback.weights import WeightTable  # noqa: E402
from tests.unit.feedback.worlds import (  # noqa: E402
    BACKENDS,
    BEGINNING,
    DEPTH,
    EQUAL,
    QUALITIES,
    RELEVANCES,
    SHARES,
    Truth,
    World,
    key_of,
    logged,
    plain_ranker,
    true_ndcg,
)

LIMITS = AdviceLimits()
WAYS: Mapping[str, Mapping[str, float]] = {
    "model, exact": {"judged_by_model": 1.0, "noise": 0.0, "used": 0.0, "explicit": 0.0},
    "model, noisy": {"judged_by_model": 1.0, "used": 0.0, "explicit": 0.0},
    "half by model, use, 0.7 % by people": {},
    "use alone": {"judged_by_model": 0.0, "explicit": 0.0},
}
CHANGES = ((1.0, 0.8, 0.8), (1.0, 0.3, 0.6), (0.3, 1.0, 0.6))
"""Weights of the backends in the place of equal ones: a small change, a large one, and a bad one."""
LOOP_HEAD = (
    "loop | start | served while learning | last table | plain grid | best by kind | of the best | adopted "
    "| lost / golden floor broken | not adopted because of"
)
Asked = Sequence[tuple[LoggedQuery, Truth]]


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--worlds", type=int, default=100)
    options.add_argument("--queries", type=int, default=300)
    options.add_argument("--nulls", type=int, default=300)
    options.add_argument("--loops", type=int, default=10)
    options.add_argument("--plateaus", type=int, default=10)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--first-seed", type=int, default=10_000)
    options.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS), help="ways of judging")
    chosen = options.parse_args()
    print("| judged by | cases | holds the truth | low end is right | expected | true | width | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.worlds)
    for way in chosen.ways:
        print(coverage(way, WAYS[way], seeds, chosen.queries), flush=True)
    print("\n| judged by, replayed change | holds the truth | low end is right | estimated | true | width |")
    print("| --- | --- | --- | --- | --- | --- |")
    for way in chosen.ways:
        for change in CHANGES:
            print(gated(way, WAYS[way], change, seeds, chosen.queries), flush=True)
    if chosen.nulls:
        print(f"\n{false_claims(chosen.nulls, chosen.queries)}", flush=True)
    print(f"\n| {LOOP_HEAD} |\n|{' --- |' * 10}")
    for seed in range(chosen.loops):
        print(loop(f"world {seed}", World(20_000 + seed), EQUAL, seed, chosen), flush=True)
    for seed in range(chosen.plateaus):
        plateau = PlateauWorld(50_000 + seed)
        print(loop(f"plateau {seed}", plateau, plateau.start, seed, chosen), flush=True)


@dataclass(slots=True)
class PlateauWorld(World):
    """Notes hold the answers and weigh too little; decoys that answer nothing stand before them.

    Near the weights at the start every decoy outranks every note, so that one allowed step changes no
    ranking. In worlds with an odd seed a tenth of the decoys scores lower, and a graph knows some answers.
    """

    judged_by_model: float = 1.0
    start: WeightTable = field(init=False)
    edge: float = field(init=False)
    """Decoys score from here to 0.1 more, and the best note 1: below this weight the notes' does nothing."""

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self.edge = self._random.uniform(0.75, 0.9)
        low = self._random.uniform(0.25, self.edge - 0.25)
        others = ("builtin", "graphiti") if self.is_soft else ("builtin",)
        self.start = WeightTable.fixed({**dict.fromkeys(others, low), "qmd": 1.0}, made_at=BEGINNING)

    @property
    def is_soft(self) -> bool:
        return self.seed % 2 == 1

    def ask(self, table: WeightTable = EQUAL) -> tuple[LoggedQuery, Truth]:
        """A query served with the weights of a table, and how relevant each passage really is."""
        random = self._random
        self._asked += 1
        intent = random.choices(list(SHARES), weights=list(SHARES.values()))[0]
        answers = {f"n{place}.md": relevance for place, relevance in enumerate([*RELEVANCES, *[0.0] * 9])}
        decoys = {f"d{place}.md": self._decoy() for place in range(random.choice((0, 3, 5, 8, 10)))}
        lists = {"builtin": best_first({**self._answer(answers, 0.6), random.choice(list(answers)[:2]): 1.0})}
        if self.is_soft:
            lists["graphiti"] = self._answer(answers, 0.4)
        lists["qmd"] = best_first(decoys)
        weights = {backend: table.of(backend, intent) for backend in lists}
        query = logged(lists, at=self._asked, intent=intent, weights=weights)
        truth = {**answers, **dict.fromkeys(decoys, 0.0)}
        found = {path for scores in lists.values() for path in scores}
        return query, {key_of(path): worth for path, worth in truth.items() if path in found}

    def _decoy(self) -> float:
        if self.is_soft and self._random.random() < 0.1:
            return self._random.uniform(0.3, self.edge)
        return self._random.uniform(self.edge, self.edge + 0.1)


def best_first(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores of paths in falling order, as backends answer."""
    return dict(sorted(scores.items(), key=lambda one: -one[1]))


def proposal_of(cases: Sequence[Case], current: WeightTable) -> Proposal:
    """Advise as the product does."""
    backends = list(current.weights)
    return advise(
        cases,
        current=current,
        backends=backends,
        ranker=plain_ranker,
        limits=LIMITS,
        now=BEGINNING,
    )


def coverage(way: str, options: Mapping[str, float], seeds: Sequence[int], count: int) -> str:
    """Return a line: in how many worlds the interval held the true gain of the proposed table."""
    held, low_held, started = 0, 0, perf_counter()
    expected, true, widths, cases = [], [], [], []
    worlds = len(seeds)
    for seed in seeds:
        world = World(seed, **options)  # type: ignore[arg-type]
        proposal = proposal_of(cases_of(*world.serve(count)), EQUAL)
        gain = world.gain(proposal.table, EQUAL, count=2000)
        assert proposal.gain is not None
        held += proposal.gain.low <= gain <= proposal.gain.high
        low_held += proposal.gain.low <= gain
        expected.append(proposal.gain.mean)
        true.append(gain)
        widths.append(proposal.gain.high - proposal.gain.low)
        cases.append(proposal.sample_size)
    took = (perf_counter() - started) / worlds
    return (
        f"| {way} | {mean(cases):.0f} | {held / worlds:.0%} | {low_held / worlds:.0%} "
        f"| {mean(expected):+.4f} | {mean(true):+.4f} ± {pstdev(true):.4f} "
        f"| {mean(widths):.4f} | {took:.1f} |"
    )


def false_claims(worlds: int, count: int) -> str:
    """Say in how many null worlds a proposal would be adopted; each way of judging has its share of them."""
    ways, claims = list(WAYS.values()), []
    for seed in range(worlds):
        quality = Random(seed).uniform(0.3, 0.7)
        options = ways[seed % len(ways)]
        world = World(60_000 + seed, dict.fromkeys(QUALITIES, (quality,) * 3), **options)  # type: ignore[arg-type]
        proposal = proposal_of(cases_of(*world.serve(count)), EQUAL)
        if not objections_to(proposal):
            claims.append(world.gain(proposal.table, EQUAL, count=1000))
    true = ", ".join(f"{one:+.4f}" for one in claims)
    return f"null worlds: {len(claims)} of {worlds} would adopt a proposal{f', truly {true}' if true else ''}"


def gated(
    way: str, options: Mapping[str, float], change: Sequence[float], seeds: Sequence[int], count: int
) -> str:
    """Return a line: in how many worlds the interval of a gate held what a change truly does."""
    weights = dict(zip(BACKENDS, change, strict=True))
    candidate = WeightTable.fixed(weights, made_at=BEGINNING)
    true = World(seeds[0] + 500_000).gain(candidate, EQUAL, count=8000)
    found = []
    for seed in seeds:
        world = World(seed, **options)  # type: ignore[arg-type]
        cases = cases_of(*world.serve(count))
        verdict = gate(cases, PolicyChange(), PolicyChange(table=candidate), ranker=plain_ranker)
        found.append(verdict.judged.difference)
    return (
        f"| {way}, {change} | {mean(one.low <= true <= one.high for one in found):.0%} "
        f"| {mean(one.low <= true for one in found):.0%} | {mean(one.mean for one in found):+.4f} "
        f"| {true:+.4f} | {mean(one.high - one.low for one in found):.4f} |"
    )


def loop(name: str, world: World, start: WeightTable, seed: int, chosen: argparse.Namespace) -> str:
    """Return a line: what rounds of serving, judging and advising lead to, and what went wrong on the way."""
    golden, fresh = asked_of(world, 30_000 + seed, 100), asked_of(world, 40_000 + seed, 1000)
    current, served, adopted, lost, broken, objections = start, [], 0, 0, 0, Counter[str]()
    plain = start
    for turn in range(chosen.rounds):
        served.append(mean_ndcg(fresh, current))
        cases = cases_of(*world.serve(chosen.queries, current))
        plain = plain_grid(cases, start) if turn == 0 else plain
        proposal = proposal_of(cases, current)
        if codes := objections_to(proposal) or floor_under(golden, proposal.table, current):
            objections.update(codes[:1])
            continue
        lost += mean_ndcg(fresh, proposal.table) < mean_ndcg(fresh, current)
        broken += mean_ndcg(golden, proposal.table) < mean_ndcg(golden, start)
        current, adopted = proposal.table, adopted + 1
    last = mean_ndcg(fresh, current)
    best = best_of_grid(fresh, start)
    stopped = ", ".join(f"{code} {times}" for code, times in objections.items())
    return (
        f"| {name} | {served[0]:.4f} | {mean(served):.4f} | {last:.4f} | {mean_ndcg(fresh, plain):.4f} "
        f"| {best:.4f} | {last / best:.1%} | {adopted} | {lost} / {broken} | {stopped} |"
    )


def objections_to(proposal: Proposal) -> list[str]:
    """What speaks against adopting a proposal, as codes, by the rules for a person who applies it."""
    objections = check(proposal, limits=LIMITS, golden=None, backends=list(proposal.current.weights))
    return [one.code for one in objections]


def floor_under(golden: Asked, table: WeightTable, current: WeightTable) -> list[str]:
    """The objection to a table under which golden questions are answered worse."""
    return ["golden-floor"] if mean_ndcg(golden, table) < mean_ndcg(golden, current) - 1e-9 else []


def plain_grid(cases: Sequence[Case], start: WeightTable) -> WeightTable:
    """The table of the grid that does best on judged queries, where what nobody judged counts 0."""

    def judged(table: WeightTable) -> float:
        shown = [(ranked_again(case.query, table).shown, case.evidence) for case in cases]
        return mean(score(hits, evidence, k=DEPTH) for hits, evidence in shown)

    return max(fixed_tables(start), key=judged)


def best_of_grid(asked: Asked, start: WeightTable) -> float:
    """The mean true nDCG@10 if every kind of question had the table of the grid that does best on it."""
    tables, total = fixed_tables(start), 0.0
    for kind in SHARES:
        own = [one for one in asked if one[0].intent is kind]
        total += len(own) * max(mean_ndcg(own, one) for one in tables)
    return total / len(asked)


def asked_of(world: World, seed: int, count: int) -> Asked:
    """Fresh questions of a world with known answers."""
    other = PlateauWorld(world.seed) if isinstance(world, PlateauWorld) else World(seed)
    other._random = Random(seed)  # noqa: SLF001
    return [other.ask() for _ in range(count)]


def mean_ndcg(asked: Asked, table: WeightTable) -> float:
    """The mean true nDCG@10 of questions under a table."""
    return mean(true_ndcg(ranked_again(query, table), truth) for query, truth in asked)


def ranked_again(query: LoggedQuery, table: WeightTable) -> LoggedQuery:
    """The query as it would have been answered under a table."""
    weights = {backend: table.of(backend, query.intent) for backend in query.backends}
    return replace(query, shown=tuple(plain_ranker(query, replace(query.policy, weights=weights))))


def fixed_tables(start: WeightTable) -> list[WeightTable]:
    """The same weights for all kinds of questions: every table of the advisor's coarse grid."""
    vectors = coarse((1.0,) * len(start.weights), floor=LIMITS.min_weight, seed=0)
    return [
        WeightTable.fixed(dict(zip(start.weights, one, strict=True)), made_at=BEGINNING) for one in vectors
    ]


if __name__ == "__main__":
    main()
