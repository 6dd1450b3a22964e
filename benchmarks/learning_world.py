"""Learning in a simulated world whose truth is known: are the intervals honest, and does it pay?

Three backends, four kinds of questions. For each way of judging, many worlds are learnt from once, and the
95 % interval of the expected gain is compared with the true gain of the proposed table on fresh questions;
so are the intervals of gates over given changes.
Then the whole loop runs for some rounds: serve, judge, advise, clamp, check against golden questions, adopt;
what was truly served is compared with fixed equal weights and with the best fixed table of a grid. Prints
tables in Markdown.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, pstdev
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "feedback"), str(ROOT / "ops_logs")]

from composable_memory_feedback.advice.candidates import coarse  # noqa: E402
from composable_memory_feedback.advice.evidence import cases_of  # noqa: E402
from composable_memory_feedback.advice.statistical import advise  # noqa: E402
from composable_memory_feedback.advice.values import AdviceLimits, Proposal  # noqa: E402
from composable_memory_feedback.guardrails import clamp_steps  # noqa: E402
from composable_memory_feedback.logged import LoggedQuery  # noqa: E402
from composable_memory_feedback.replay import PolicyChange, gate  # noqa: E402
from composable_memory_feedback.weights import WeightTable  # noqa: E402
from tests.unit.feedback.worlds import (  # noqa: E402
    BACKENDS,
    BEGINNING,
    EQUAL,
    Truth,
    World,
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
Asked = Sequence[tuple[LoggedQuery, Truth]]


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--worlds", type=int, default=100)
    options.add_argument("--queries", type=int, default=300)
    options.add_argument("--loops", type=int, default=10)
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
    print(
        "\n| loop | equal | served while learning | last table | best fixed | adopted | golden floor broken |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for seed in range(chosen.loops):
        print(loop(seed, chosen.rounds, chosen.queries), flush=True)


def proposal_of(world: World, count: int, current: WeightTable) -> Proposal:
    """Serve questions, judge, and advise."""
    cases = cases_of(*world.serve(count, current))
    return advise(
        cases,
        current=current,
        backends=BACKENDS,
        ranker=plain_ranker,
        limits=LIMITS,
        clamp_steps=lambda table: clamp_steps(table, current=current, limits=LIMITS, backends=BACKENDS).table,
        now=BEGINNING,
    )


def coverage(way: str, options: Mapping[str, float], seeds: Sequence[int], count: int) -> str:
    """Return a line: in how many worlds the interval held the true gain of the proposed table."""
    held, low_held, started = 0, 0, perf_counter()
    expected, true, widths, cases = [], [], [], []
    worlds = len(seeds)
    for seed in seeds:
        world = World(seed, **options)  # type: ignore[arg-type]
        proposal = proposal_of(world, count, EQUAL)
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
        verdict = gate(cases, PolicyChange(), PolicyChange(weights=weights), ranker=plain_ranker)
        found.append(verdict.difference)
    return (
        f"| {way}, {change} | {mean(one.low <= true <= one.high for one in found):.0%} "
        f"| {mean(one.low <= true for one in found):.0%} | {mean(one.mean for one in found):+.4f} "
        f"| {true:+.4f} | {mean(one.high - one.low for one in found):.4f} |"
    )


def loop(seed: int, rounds: int, count: int) -> str:
    """Return a line: what was served over rounds in which only sure gains above the floor were adopted."""
    world, current = World(20_000 + seed), EQUAL
    golden, fresh = questions(30_000 + seed, 100), questions(40_000 + seed, 1000)
    served, adopted, broken = [], 0, 0
    for _ in range(rounds):
        served.append(mean_ndcg(fresh, current))
        proposal = proposal_of(world, count, current)
        if proposal.gain is None or proposal.gain.low <= 0.0:
            continue
        if mean_ndcg(golden, proposal.table) < mean_ndcg(golden, current):
            continue
        broken += mean_ndcg(golden, proposal.table) < mean_ndcg(golden, EQUAL)
        current, adopted = proposal.table, adopted + 1
    equal, last = mean_ndcg(fresh, EQUAL), mean_ndcg(fresh, current)
    best = max(mean_ndcg(fresh, one) for one in fixed_tables())
    return f"| {seed} | {equal:.4f} | {mean(served):.4f} | {last:.4f} | {best:.4f} | {adopted} | {broken} |"


def questions(seed: int, count: int) -> Asked:
    """Questions with known answers."""
    world = World(seed)
    return [world.ask() for _ in range(count)]


def mean_ndcg(asked: Asked, table: WeightTable) -> float:
    """The mean true nDCG@10 of questions under a table."""
    return mean(true_ndcg(ranked_again(query, table), truth) for query, truth in asked)


def ranked_again(query: LoggedQuery, table: WeightTable) -> LoggedQuery:
    """The query as it would have been answered under a table."""
    weights = {backend: table.of(backend, query.intent) for backend in BACKENDS}
    return replace(query, shown=tuple(plain_ranker(query, replace(query.policy, weights=weights))))


def fixed_tables() -> list[WeightTable]:
    """The same weights for all kinds of questions: every table of the advisor's coarse grid."""
    vectors = coarse((1.0,) * len(BACKENDS), floor=LIMITS.min_weight, seed=0)
    return [WeightTable.fixed(dict(zip(BACKENDS, one, strict=True)), made_at=BEGINNING) for one in vectors]


if __name__ == "__main__":
    main()
