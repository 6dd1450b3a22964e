"""How long searches take while notes are indexed: many readers at once, in one process and in another.

    python benchmarks/load.py                          5,000 notes, 16 readers, keywords alone
    python benchmarks/load.py --provider auto          with vectors, where there is a local embedder

Every reader asks again as soon as it has its answer. They are timed while nothing else happens, and while one
writer indexes all notes anew after every one of them was changed; then it does so again without readers. The
ratios are what to read: 16 readers that never rest use the machine up in either case.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from composable_memory import Memory, open_memory
from composable_memory.errors import ComposableMemoryError

WORDS = 5_000
LINES = 30
WORDS_A_LINE = 10
QUERIES = 200
PERCENTILES = (50, 95, 99)
TARGET = 3.0
Take = Callable[[], Coroutine[None, None, "Timings"]]


@dataclass(slots=True)
class Timings:
    """How long searches took, in milliseconds, within `span_s` seconds, and how many went wrong."""

    took_ms: list[float] = field(default_factory=list)
    errors: int = 0
    span_s: float = 0.0

    def percentile(self, percent: int) -> float:
        """Return the time that `percent` of the searches stayed within."""
        ordered = sorted(self.took_ms) or [0.0]
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    def __str__(self) -> str:
        """Return percentiles and rate."""
        rate = len(self.took_ms) / self.span_s if self.span_s else 0.0
        times = " / ".join(f"{self.percentile(percent):.1f}" for percent in PERCENTILES)
        return f"{times} ms, {rate:.0f} a second"


class Readers:
    """Tasks that search without a rest; what they timed can be taken away at any moment."""

    def __init__(self, memory: Memory, count: int) -> None:
        self._memory = memory
        self._timings, self._since = Timings(), time.perf_counter()
        self._tasks = [asyncio.create_task(self._read(number)) for number in range(count)]

    async def take(self) -> Timings:
        """Return what was timed since the last call."""
        taken, now = self._timings, time.perf_counter()
        taken.span_s = now - self._since
        self._timings, self._since = Timings(), now
        return taken

    async def close(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, number: int) -> None:
        for query in itertools.islice(itertools.cycle(queries()), number * 7, None):
            began = time.perf_counter()
            try:
                response = await self._memory.query(query)
            except ComposableMemoryError as error:
                self._count(f"{type(error).__name__}: {error}")
                continue
            self._timings.took_ms.append((time.perf_counter() - began) * 1000)
            errors = [answer.error for answer in response.answers if answer.error]
            if errors or not response.results:
                self._count(f"{query!r}: {errors or 'nothing found'}")

    def _count(self, error: str) -> None:
        self._timings.errors += 1
        print(error, file=sys.stderr)


def vocabulary() -> list[str]:
    """Return words that look like words."""
    rng = random.Random(7)
    return ["".join(rng.choices("aeiounrtlskmdpbg", k=4)) + f"{number:x}" for number in range(WORDS)]


def queries() -> list[str]:
    """Return questions of two to four words; a common one is in every note."""
    rng, words = random.Random(11), vocabulary()
    return [" ".join([words[0], *rng.sample(words, rng.randint(1, 3))]) for _ in range(QUERIES)]


def write_notes(folder: Path, count: int, version: int) -> None:
    """Write `count` notes of about 2 kB; every version has other lines."""
    rng, words = random.Random(version), vocabulary()
    (folder / "memory").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        lines = (
            " ".join(words[int(WORDS * rng.random() ** 3)] for _ in range(WORDS_A_LINE)) for _ in range(LINES)
        )
        text = f"# Note {number} about {words[0]}\n\n" + "\n".join(lines) + "\n"
        (folder / "memory" / f"{number:05}.md").write_text(text, encoding="utf-8")


@asynccontextmanager
async def opened(root: Path, provider: str) -> AsyncIterator[Memory]:
    """Open the memory of the notes in `root/notes`, which follows them only when told to."""
    config = {
        "memory": {
            "embedding": {"provider": provider},
            "ops_log": {"enabled": False},
            "builtin": {"sync": {"on_search": False, "watch": False, "on_session_start": False}},
        }
    }
    async with open_memory(root / "notes", root / "state", config, long_lived=False) as memory:
        yield memory


@asynccontextmanager
async def readers_here(memory: Memory, count: int) -> AsyncIterator[Take]:
    """Read in this process."""
    readers = Readers(memory, count)
    try:
        yield readers.take
    finally:
        await readers.close()


@asynccontextmanager
async def readers_elsewhere(root: Path, provider: str, count: int) -> AsyncIterator[Take]:
    """Read in a process of their own, which tells its timings when it is sent a line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        *("--read", str(root), "--provider", provider, "--readers", str(count)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**26,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )

    async def take() -> Timings:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        took_ms, errors, span_s = json.loads(await process.stdout.readline())
        return Timings(took_ms, errors, span_s)

    try:
        yield take
    finally:
        process.kill()
        await process.communicate()


async def read_until_killed(root: Path, provider: str, count: int) -> None:
    """Search, and print what was timed whenever a line comes in: what the other process does."""
    async with opened(root, provider) as memory, readers_here(memory, count) as take:
        while await asyncio.to_thread(sys.stdin.readline):
            timings = await take()
            print(json.dumps([timings.took_ms, timings.errors, timings.span_s]), flush=True)


async def measure(where: str, memory: Memory, root: Path, take: Take, options: argparse.Namespace) -> bool:
    """Time readers without and with a writer, print a row, and say whether the target is met."""
    await asyncio.sleep(options.seconds / 2)
    await take()
    await asyncio.sleep(options.seconds)
    idle = await take()
    await asyncio.to_thread(write_notes, root / "notes", options.notes, version=2)
    await take()
    wall_s = await index_all(memory)
    busy = await take()
    ratios = [busy.percentile(percent) / (idle.percentile(percent) or 1) for percent in PERCENTILES]
    errors = idle.errors + busy.errors
    ratio = " / ".join(f"{value:.1f}" for value in ratios)
    print(f"| {where} | {idle} | {busy} | {ratio} | {errors} | {wall_s:.1f} s |", flush=True)
    return not errors and ratios[-1] <= TARGET and bool(idle.took_ms and busy.took_ms)


async def index_all(memory: Memory) -> float:
    """Index what has changed, and return the seconds it took."""
    began = time.perf_counter()
    report = await memory.sync()
    assert not report.problems, report.problems
    return time.perf_counter() - began


async def main(options: argparse.Namespace) -> int:
    """Run all, and return 1 if a target was missed."""
    print("| readers | idle: p50 / p95 / p99 | while all is indexed | ratio | errors | the writer took |")
    print("|---|---|---|---|---|---|")
    met = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for where in ("one process", "another process"):
            write_notes(root / "notes", options.notes, version=1)
            async with opened(root, options.provider) as memory:
                await index_all(memory)
                count = options.readers
                readers = (
                    readers_here(memory, count)
                    if where == "one process"
                    else readers_elsewhere(root, options.provider, count)
                )
                async with readers as take:
                    met.append(await measure(f"{count} in {where}", memory, root, take, options))
                write_notes(root / "notes", options.notes, version=3)
                print(f"| none | | | | | {await index_all(memory):.1f} s |", flush=True)
    verdict = "met" if all(met) else "missed"
    print(f"\ntarget, no error and a p99 of at most {TARGET:g} times the idle one: {verdict}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--notes", type=int, default=5000)
    parser.add_argument("--readers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0, help="for how long idle searches are timed")
    parser.add_argument("--provider", default="none")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.read is not None:
        asyncio.run(read_until_killed(chosen.read, chosen.provider, chosen.readers))
    else:
        sys.exit(asyncio.run(main(chosen)))
