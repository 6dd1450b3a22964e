"""What replaying costs beside what it repeats: three backends that answer at once, 24 results each.

    python benchmarks/replay.py
    python benchmarks/replay.py --queries 2000 --rounds 3

Ratios of CPU time, medians of rounds in turn: ranking a logged query again under other weights against
ranking it live; checking that it is reproduced to the byte against ranking it again; the pairs of nearly
equal texts, all found before, against the rest of what logging a query costs, in all threads; reading the log
back as queries against `json.loads` of its lines.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from time import process_time

from orchestrator import QUESTION, Ready

from composable_memory import ComposableBackendEntry, ComposableMemoryManager, parse_query_intent
from composable_memory.query.calibration import Calibration
from composable_memory.query.near_duplicates import near_pairs_shown
from composable_memory.query.ranking import CalibrationRule, MergePolicy, rank
from composable_memory.query.replay import Replayer, is_reproduced
from composable_memory.types import SearchOptions
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_ops_logs import OpsLog

ONCE_MORE = 100
"""How often what is quick is done in one measurement."""
SHIFTS = (0.3, 0.55, 0.8)

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Three backends, the folder of a log, and the queries and lines that are in it."""

    backends: Sequence[Ready]
    folder: Path
    queries: Sequence[LoggedQuery]
    lines: Sequence[bytes]


def cpu_us(work: Work, times: int) -> float:
    started = process_time()
    for _ in range(times):
        work()
    return (process_time() - started) / times * 1e6


async def ask(backends: Sequence[Ready], log: OpsLog, times: int) -> None:
    entries = [ComposableBackendEntry(id=one.id, manager=one) for one in backends]
    manager = ComposableMemoryManager(entries, intent_parser=parse_query_intent, ops_log=log)
    for number in range(times):
        await manager.query(f"{QUESTION} {number}")
        if number % 16 == 15:
            await log.flush()
    await log.flush(30)


async def world_of(queries: int, folder: Path) -> World:
    backends = [Ready(number) for number in range(3)]
    async with OpsLog(folder) as log:
        await ask(backends, log, queries)
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    return World(backends=backends, folder=folder, queries=read_queries(folder).queries, lines=lines)


def live(world: World) -> Work:
    """Return the ranking of answers that are just in."""
    answers = {one.id: asyncio.run(one.answer("")).results for one in world.backends}
    rules = {one.id: CalibrationRule(method=Calibration.AUTO, is_absolute=True) for one in world.backends}
    weights, policy, options = {one.id: 1.0 for one in world.backends}, MergePolicy(), SearchOptions()
    return lambda: rank(
        answers, rules, weights=weights, policy=policy, options=options, min_depth=policy.depth
    )


def again(world: World) -> Work:
    """Return the ranking of logged queries, one after another, each under weights of its own."""
    ranker, first = Replayer(), world.backends[0].id
    changed = [
        (query, replace(query.policy, weights={**query.policy.weights, first: shift}))
        for query in world.queries[:ONCE_MORE]
        for shift in SHIFTS
    ]
    for query, policy in changed:
        ranker(query, policy)
    turns = cycle(changed)
    return lambda: ranker(*next(turns))


def pairs(world: World) -> Work:
    """Return the search for nearly equal texts among what can reach an answer."""
    found = [asyncio.run(one.answer("")).results for one in world.backends]
    return lambda: list(near_pairs_shown(found, SearchOptions().max_results))


def asking(world: World, *, is_logged: bool) -> Work:
    async def queries() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with OpsLog(Path(folder) if is_logged else None) as log:
                await ask(world.backends, log, ONCE_MORE)

    return lambda: asyncio.run(queries())


def measured(world: World, rounds: int) -> Mapping[str, float]:
    """Return microseconds of CPU, each for one query."""
    count, turns = len(world.queries), cycle(world.queries)
    works: dict[str, tuple[Work, int, int]] = {
        "live": (live(world), ONCE_MORE, 1),
        "again": (again(world), ONCE_MORE * len(SHIFTS), 1),
        "reproduced": (lambda: is_reproduced(next(turns)), ONCE_MORE, 1),
        "near": (pairs(world), ONCE_MORE, 1),
        "logged": (asking(world, is_logged=True), 1, ONCE_MORE),
        "silent": (asking(world, is_logged=False), 1, ONCE_MORE),
        "read": (lambda: read_queries(world.folder), 1, count),
        "loads": (lambda: [json.loads(line) for line in world.lines], 1, count),
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, (work, times, queries) in works.items():
            taken[name].append(cpu_us(work, times) / queries)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--queries", type=int, default=400, help="queries in the log")
    options.add_argument("--rounds", type=int, default=7)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = asyncio.run(world_of(chosen.queries, Path(folder)))
        took = measured(world, chosen.rounds)
    rest = took["logged"] - took["silent"] - took["near"]
    size = sum(map(len, world.lines)) / len(world.queries)
    print(f"{len(world.queries):,} logged queries, {size:,.0f} bytes each\n")
    print("| CPU µs a query | | beside | | ratio |\n|---|---|---|---|---|")
    for name, value, beside, base in (
        ("ranking again", took["again"], "ranking live", took["live"]),
        ("is it reproduced", took["reproduced"], "ranking again", took["again"]),
        ("pairs of nearly equal texts", took["near"], "the rest of logging", rest),
        ("reading the log back", took["read"], "json.loads of its lines", took["loads"]),
    ):
        print(f"| {name} | {value:.0f} | {beside} | {base:.0f} | {value / base:.2f} |")


if __name__ == "__main__":
    main()
