"""What the orchestrator itself costs: three backends that answer at once, 24 results each, everything logged.

Reports CPU time a query, beside `asyncio.gather` of three no-ops and beside the bare calls of the backends,
taken in turn within one run. Also shows how far a hanging backend moves the answer past its deadline.
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter, process_time

from composable_memory import Breaker, ComposableBackendEntry, ComposableMemoryManager, parse_query_intent
from composable_memory.testing.fakes import FakeBackend, HangingBackend
from composable_memory.types import MemorySearchResult, SearchAnswer, SearchOptions
from composable_memory_ops_logs import OpsLog

RESULTS_EACH = 24
QUESTION = "which port does the dock controller use?"
WORDS = "the dock controller answers on another port since the move and the queue drains slowly".split()


class Ready(FakeBackend):
    """Answers at once with results made beforehand; every third one stands in its neighbours' lists too."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ready{number}")
        self._results = tuple(self._result(number, rank) for rank in range(RESULTS_EACH))

    @staticmethod
    def _result(number: int, rank: int) -> MemorySearchResult:
        shared = rank % 3 == 0
        owner = 0 if shared else number
        text = " ".join(f"{word}{(rank * 7 + owner * 13 + at) % 97}" for at, word in enumerate(WORDS * 5))
        return MemorySearchResult(
            path=f"memory/{owner}-{rank:02}.md",
            start_line=1,
            end_line=20,
            score=1.0 - rank / RESULTS_EACH,
            snippet=text[:700],
        )

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        del query, options
        return SearchAnswer(results=self._results)


async def no_op() -> None:
    return None


async def gather_no_ops() -> None:
    await asyncio.gather(no_op(), no_op(), no_op())


async def cpu_us(call: Callable[[], Awaitable[object]], repeats: int) -> float:
    started = process_time()
    for _ in range(repeats):
        await call()
    return (process_time() - started) / repeats * 1e6


async def cost(rounds: int, repeats: int, folder: Path) -> list[tuple[str, float]]:
    backends = [Ready(number) for number in range(3)]
    entries = [ComposableBackendEntry(id=one.id, manager=one) for one in backends]
    silent = ComposableMemoryManager(entries, ops_log=OpsLog(None))
    async with OpsLog(folder) as log:
        logging = ComposableMemoryManager(entries, intent_parser=parse_query_intent, ops_log=log)

        async def logged_query() -> None:
            for _ in range(16):
                await logging.query(QUESTION)
            await log.flush()

        calls: dict[str, tuple[Callable[[], Awaitable[object]], int]] = {
            "gather of three no-ops": (gather_no_ops, 1),
            "orchestrator, no log file": (lambda: silent.query(QUESTION), 1),
            "orchestrator, intent parsed, every event on disk": (logged_query, 16),
        }
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, (call, inner) in calls.items():
                samples[name].append(await cpu_us(call, max(1, repeats // inner)) / inner)
    return [(name, statistics.median(values)) for name, values in samples.items()]


async def overrun_ms(deadline_s: float, rounds: int) -> list[float]:
    manager = ComposableMemoryManager(
        [
            ComposableBackendEntry(id="ready", manager=Ready(0)),
            ComposableBackendEntry(id="hanging", manager=HangingBackend(), timeout_s=deadline_s),
        ],
        make_breaker=lambda: Breaker(threshold=10**9),
    )
    overruns = []
    for _ in range(rounds):
        started = perf_counter()
        await manager.query("anything")
        overruns.append((perf_counter() - started - deadline_s) * 1000)
    return sorted(overruns)


async def main(rounds: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = await cost(rounds, repeats, Path(folder))
    base = rows[0][1]
    print(f"| {RESULTS_EACH} results from each of 3 backends | CPU µs a query | x gather |")
    print("|---|---|---|")
    for name, value in rows:
        print(f"| {name} | {value:.0f} | {value / base:.1f} |")
    late = await overrun_ms(0.05, 40)
    print(f"\nA backend that hangs, deadline 50 ms: past the deadline by {statistics.median(late):.1f} ms "
          f"(median), {late[-1]:.1f} ms (worst of {len(late)}).")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each row is measured, in turn")
    parser.add_argument("--repeats", type=int, default=320, help="queries a measurement")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.rounds, arguments.repeats))
