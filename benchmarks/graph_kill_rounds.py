"""Kills a process that ingests, or its graph server, again and again, and looks at what is left.

    python -m benchmarks.graph_kill_rounds                          100 rounds of each kind
    python -m benchmarks.graph_kill_rounds --kind server --rounds 20

In each round a child process hands episodes to the graph memory; it, or the server that it has started, is
killed with SIGKILL at a random moment. No process and no socket may be left. Then everything that was
accepted has to be stored, after one sync, exactly once: each episode, each fact, each entity. Prints a table
and exits with 1 if anything was wrong.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from benchmarks.kill_rounds import Nursery, nurse, tell_all
from composable_memory.content import MemoryContentObject
from composable_memory.registry import discover_backends, load_extractor
from composable_memory.runtime.opening import Memory, open_memory
from composable_memory_adapters.graphiti.library import load

KINDS = ("process", "server")
CONFIG = {"graphiti": {"enabled": True}, "embedding": {"provider": "none"}, "builtin": {"enabled": False}}
FIRMS = 5
BATCH = 4
BATCHES = 4
EVERYTHING = 1_000_000
ENDING_S = 20.0
MOST_ROUNDS = 5


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the rounds of one kind came to."""

    kind: str
    rounds: int = 0
    killed: int = 0
    accepted: int = 0
    left_pending: int = 0
    took_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a row of the table."""
        per_round_ms = 1000 * self.took_s / max(1, self.rounds)
        counts = (self.rounds, self.killed, self.accepted, self.left_pending, len(self.wrong))
        return f"| {self.kind} | {' | '.join(map(str, counts))} | {per_round_ms:.0f} |"


def episode(number: int) -> MemoryContentObject:
    """Return an episode with one fact that no other states, about an entity that others are about too."""
    return MemoryContentObject(id=f"e{number}", kind="document", text=f"{_fact(number)}.")


def _fact(number: int) -> str:
    return f"Person{number} works at Firm{number % FIRMS}"


def opened(root: Path) -> AbstractAsyncContextManager[Memory]:
    """Open the memory in a folder, without anything that works by itself."""
    return open_memory(root / "notes", root / "state", CONFIG, environ={}, long_lived=False)


async def work(root: Path, first: int) -> None:
    """Ingest some batches, and write down which episodes were accepted: what a child does."""
    async with opened(root) as memory:
        os.write(sys.stdout.fileno(), f"{os.getpid()}\n".encode())
        for start in range(first, first + BATCH * BATCHES, BATCH):
            batch = [episode(number) for number in range(start, start + BATCH)]
            await memory.ingest(batch, wait=False)
            _note(root, batch)
            await memory.ingest(batch)


def _note(root: Path, accepted: Iterable[MemoryContentObject]) -> None:
    with (root / "accepted").open("a", encoding="utf-8") as file:
        file.write("".join(f"{one.id}\n" for one in accepted))


def warm_up() -> None:
    """Import what takes seconds, before the first child is there."""
    discover_backends()
    load_extractor()
    import_module("composable_memory_adapters.graphiti.database.connections")
    asyncio.run(load())


async def disturb(
    nursery: Nursery, kind: str, root: Path, first: int, after_s: float, randomness: random.Random
) -> tuple[int, bool]:
    """Let a child ingest, and kill it or its server after some seconds.

    Returns how the child ended, and whether anything was killed.
    """
    child, ending = await nursery.let_work(str(first), after_s)
    killed = False
    if not ending.done():
        servers = await asyncio.to_thread(servers_of, root)
        # The server, its guard, or both.
        some = randomness.sample(servers, min(len(servers), randomness.randint(1, 2)))
        for pid in [child] if kind == "process" else some:
            with suppress(ProcessLookupError):  # it ended in this moment
                os.kill(pid, signal.SIGKILL)
                killed = True
    return await ending, killed


async def run(root: Path, *, kind: str, rounds: int, seed: int) -> Tally:
    """Kill `rounds` times, at moments drawn from the time that ingesting takes, and count what was wrong.

    Where each moment came too late, because the machine has become faster since, there are further ones.
    """
    randomness, tally = random.Random(seed), Tally(kind=kind)
    for name in ("notes", "t"):
        await asyncio.to_thread((root / name).mkdir)
    async with Nursery.open(__file__, str(root), TMPDIR=str(root / "t")) as nursery:
        await disturb(nursery, kind, root, 0, ENDING_S, randomness)
        began = time.monotonic()
        await disturb(nursery, kind, root, BATCH * BATCHES, ENDING_S, randomness)
        whole_s = time.monotonic() - began
        began = time.monotonic()
        while tally.rounds < rounds or (not tally.killed and tally.rounds < MOST_ROUNDS * rounds):
            number = tally.rounds + 2
            after_s = randomness.uniform(0, whole_s)
            code, killed = await disturb(nursery, kind, root, number * BATCH * BATCHES, after_s, randomness)
            tally.killed += killed
            expected = (0, -signal.SIGKILL) if kind == "process" else (0,)
            found = [] if code in expected else [f"the child ended with {code}"]
            found += [*await _left_behind(root), *await _check(root, tally)]
            tally.wrong += [f"{kind}, round {number}: {fault}" for fault in found]
            tally.rounds += 1
        tally.took_s = time.monotonic() - began
    return tally


async def _left_behind(root: Path) -> list[str]:
    """Wait for what ends by itself, and return what does not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDING_S):
            while await asyncio.to_thread(_litter, root):
                await asyncio.sleep(0.01)
    return await asyncio.to_thread(_litter, root)


def _litter(root: Path) -> list[str]:
    left = [f"process {pid} runs on" for pid in servers_of(root)]
    return left + [f"{folder.name} is left" for folder in (root / "t").iterdir()]


def servers_of(root: Path) -> list[int]:
    """Return the process numbers of the graph servers with a folder below `root`, and of their guards."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_server(path, root)]


def _is_server(process: Path, root: Path) -> bool:
    with suppress(OSError):
        # A server that runs has another title than it was started with, but then it works in its folder.
        words = (process / "cmdline").read_bytes() + bytes((process / "cwd").readlink())
        return b"redis-server" in words and bytes(root) in words
    return False


async def _check(root: Path, tally: Tally) -> list[str]:
    """Sync, and return in what the graph is not what was accepted."""
    accepted = await asyncio.to_thread(_accepted, root)
    tally.accepted = len(accepted)
    async with opened(root) as memory:
        tally.left_pending += bool(memory.backend_statuses()["graphiti"].dirty)
        report = await memory.sync()
        found = [f"the sync did not complete: {problem}" for problem in report.problems]
        graph = memory.facts_of()
        episodes = Counter(one.content_id for one in await graph.episodes(limit=EVERYTHING))
        facts = Counter(one.text for one in await graph.facts(limit=EVERYTHING))
        entities = Counter(one.name for one in await graph.entities(limit=EVERYTHING))
        held = memory.backend_statuses()["graphiti"].custom["episodes"]
    found += [f"lost {one}" for one in accepted if one not in episodes]
    found += [
        f"{name} is there {count} times" for name, count in (episodes + facts + entities).items() if count > 1
    ]
    texts = {_fact(int(one[1:])) for one in episodes}
    if {text.rstrip(".") for text in facts} != texts:
        found.append(f"{len(facts)} facts of {len(episodes)} episodes")
    if len(entities) != len(episodes) + FIRMS:
        found.append(f"{len(entities)} entities of {len(episodes)} episodes")
    if held != {"done": len(episodes)}:
        found.append(f"the ledger holds {held} of {len(episodes)} episodes")
    return found


def _accepted(root: Path) -> list[str]:
    path = root / "accepted"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nurse", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.nurse is not None:
        warm_up()
        nurse(lambda line: work(options.nurse, int(line)))
        return 0
    told = tell_all(
        "killed | rounds | killed | accepted | rounds with a rest",
        options.kind or KINDS,
        lambda folder, kind: run(folder, kind=kind, rounds=options.rounds, seed=options.seed),
    )
    return asyncio.run(told)


if __name__ == "__main__":
    sys.exit(main())
