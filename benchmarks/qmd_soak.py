"""Asks a memory over QMD a thousand times, and kills QMD every fiftieth time while it is being asked.

    python benchmarks/qmd_soak.py                                  1,000 questions, 20 kills
    python benchmarks/qmd_soak.py --queries 200 --every 20 --command "node qmd.js" --no-daemon

What is killed, with SIGKILL, is every process of QMD that runs at that moment: the daemon, and the command
that answers one question; every other time, all that start until the question is answered are killed as well.
Every question has to be answered, by QMD or by the builtin index that stands in for it, within its deadline
and 20 ms; before the next kill QMD has to be back; in the end no process and no descriptor may be left.
Prints the counts and exits with 1 if anything was wrong.
"""

import argparse
import asyncio
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from load import queries, write_notes

from composable_memory import Memory, open_memory
from composable_memory.types import QueryResponse

DEADLINE_MS = 3000
QMD_SHARE = 0.5
"""Of the deadline, what QMD gets before the builtin index is asked."""
GRACE_MS = 20.0
KILL_WITHIN_S = 0.01
KILL_AGAIN_S = 0.005
BACK_WITHIN_S = 90.0
PAUSE_S = 0.2
STAND_IN = "fallback"
NOBODY = "nobody"


@dataclass(slots=True)
class Tally:
    """What the run came to."""

    by: Counter[str] = field(default_factory=Counter)
    took_ms: list[float] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    back_after_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def rows(self) -> Iterator[str]:
        """Yield the table."""
        ordered = sorted(self.took_ms)
        p50, p95 = (ordered[len(ordered) * percent // 100] for percent in (50, 95))
        late_ms = ordered[-1] - DEADLINE_MS
        back = sorted(self.back_after_s) or [0.0]
        yield "| what | count |\n|---|---|"
        yield f"| questions | {len(ordered):,} |"
        yield from (f"| answered by {name} | {count:,} |" for name, count in self.by.most_common())
        yield f"| kills, processes killed | {len(self.killed)}, {sum(self.killed)} |"
        yield f"| QMD back after: median, longest | {back[len(back) // 2]:.2f} s, {back[-1]:.2f} s |"
        yield f"| p50, p95, longest | {p50:.0f}, {p95:.0f}, {ordered[-1]:.0f} ms |"
        yield f"| the longest against its deadline | {late_ms:+.0f} ms |"
        yield f"| wrong | {len(self.wrong)} |"


class Soak:
    """Asks, kills and counts."""

    def __init__(self, memory: Memory, tally: Tally, *, seed: int) -> None:
        self._memory = memory
        self._tally = tally
        self._randomness = random.Random(seed)

    async def run(self, count: int, every: int) -> None:
        """Ask `count` questions, and kill in the middle of every `every`th."""
        await self.wait_until_back()
        for number, text in enumerate(itertools.islice(itertools.cycle(queries()), count), start=1):
            asking = asyncio.ensure_future(self.ask(text))
            if number % every == 0:
                await asyncio.sleep(self._randomness.uniform(0, KILL_WITHIN_S))
                self._tally.killed.append(kill_qmd())
                while number % (2 * every) == 0 and not asking.done():
                    await asyncio.sleep(KILL_AGAIN_S)
                    self._tally.killed[-1] += kill_qmd()
            await asking
            if number % every == every - 1:
                await self.wait_until_back()
                print(f"{number} asked, {dict(self._tally.by)}", file=sys.stderr, flush=True)

    async def ask(self, text: str) -> None:
        """Ask one question, and count who answered it, and whether in time."""
        began = time.perf_counter()
        response = await self._memory.query(text)
        took_ms = (time.perf_counter() - began) * 1000
        self._tally.took_ms.append(took_ms)
        self._tally.by[answered_by(response)] += 1
        if not response.results:
            self._tally.wrong.append(f"not answered: {text!r}: {[one.reason for one in response.degraded]}")
        if took_ms > DEADLINE_MS + GRACE_MS:
            self._tally.wrong.append(f"late: {text!r} took {took_ms:.0f} ms")

    async def wait_until_back(self) -> None:
        """Ask now and then, without counting, until QMD answers, by whatever way."""
        began = time.perf_counter()
        with suppress(TimeoutError):
            async with asyncio.timeout(BACK_WITHIN_S):
                while not await self._is_back():
                    await asyncio.sleep(PAUSE_S)
                self._tally.back_after_s.append(time.perf_counter() - began)
                return
        self._tally.wrong.append(f"QMD was not back {BACK_WITHIN_S:g} s after kill {len(self._tally.killed)}")

    async def _is_back(self) -> bool:
        return answered_by(await self._memory.query(queries()[0])) not in (STAND_IN, NOBODY)


def answered_by(response: QueryResponse) -> str:
    """Return by which way QMD answered, or that another one did."""
    if not response.results:
        return NOBODY
    if any(one.code == "fallback" for one in response.degraded):
        return STAND_IN
    return response.answers[0].engines.get("qmd", STAND_IN)


def kill_qmd() -> int:
    """Kill what runs of QMD below this process, and return how many there were."""
    found = [pid for pid in descendants(os.getpid()) if is_qmd(pid)]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below a process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def is_qmd(pid: int) -> bool:
    """Say whether a process is QMD itself, and not the shell that guards it."""
    with suppress(FileNotFoundError, ProcessLookupError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return not words[0].endswith(b"sh") and any(b"qmd" in word for word in words)
    return False


def started_in(folder: Path) -> list[int]:
    """Return the processes, of whatever parent, that were handed a path in `folder`."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if os.fsencode(folder) in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found


def descriptors() -> int:
    """Return how many files and sockets this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def config(options: argparse.Namespace) -> dict[str, object]:
    """Return the settings: QMD first, the builtin index as its fallback, no clock of QMD's."""
    qmd = {
        "command": options.command,
        "timeout_ms": DEADLINE_MS,
        "limits": {"timeout_ms": int(DEADLINE_MS * QMD_SHARE)},
        "update": {"interval": 0},
        "daemon": {"enabled": options.daemon},
    }
    memory = {
        "backend": "qmd",
        "qmd": qmd,
        "embedding": {"provider": "none"},
        "ops_log": {"enabled": False},
    }
    return {"memory": memory}


async def soak(root: Path, options: argparse.Namespace, *, count: int, every: int) -> Tally:
    """Open a memory, ask and kill, close it, and look at what is left."""
    tally, before = Tally(), descriptors()
    async with open_memory(root / "notes", root / "state", config(options)) as memory:
        await memory.sync()
        await Soak(memory, tally, seed=options.seed).run(count, every)
    if left := descriptors() - before:
        tally.wrong.append(f"{left} descriptors left open")
    tally.wrong += [f"left running: {pid}" for pid in started_in(root)]
    tally.wrong += [f"left as a child: {pid}" for pid in descendants(os.getpid())]
    return tally


async def main(options: argparse.Namespace) -> int:
    """Run all, print the table, and return 1 if anything was wrong."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_notes(root / "notes", options.notes, version=1)
        await soak(root, options, count=2, every=2)  # opens what is loaded once, and stays open
        tally = await soak(root, options, count=options.queries, every=options.every)
    print(*tally.rows(), "", *tally.wrong[:20], sep="\n")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--every", type=int, default=50, help="kill while every so many-th is asked")
    parser.add_argument("--notes", type=int, default=200)
    parser.add_argument("--command", default="qmd", help="the command of QMD")
    parser.add_argument(
        "--no-daemon", dest="daemon", action="store_false", help="a process for each question"
    )
    parser.add_argument("--seed", type=int, default=7)
    sys.exit(asyncio.run(main(parser.parse_args())))
