"""What following the notes costs: from a write to a searchable note, a sync of one change, and at rest.

    python benchmarks/watching.py                  20,000 small notes in 200 folders
    python benchmarks/watching.py --notes 2000 --debounce-ms 100

Latency is wall time, the cost of a sync CPU time of the process. Keywords only: what an embedder adds is its
own affair.
"""

import argparse
import asyncio
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles

from watchdog.utils import BaseThread

from composable_memory import Memory, open_memory
from composable_memory_ops_logs import OpsEvent

FOLDERS = 200
WRITES = 40
SETTLE_S = 0.05
"""How long after a sync the log's thread may still be writing of it."""
ROUNDS = 7


def write_notes(folder: Path, count: int) -> None:
    for number in range(FOLDERS):
        (folder / "memory" / f"d{number:03}").mkdir(parents=True)
    for number in range(count):
        note_of(folder, number).write_text(f"# Note {number}\n\nBuoy {number} is green.\n", encoding="utf-8")


def note_of(folder: Path, number: int) -> Path:
    return folder / "memory" / f"d{number % FOLDERS:03}" / f"n{number:05}.md"


@asynccontextmanager
async def opened(workspace: Path, state_dir: Path, **sync: object) -> AsyncIterator[Memory]:
    config = {"memory": {"embedding": {"provider": "none"}, "builtin": {"sync": {"onSearch": False, **sync}}}}
    async with open_memory(workspace, state_dir, config) as memory:
        await memory.sync()
        yield memory


async def follow_writes(memory: Memory, workspace: Path) -> tuple[list[float], list[float]]:
    """Write notes; return the milliseconds from each write to the end of the sync that made it searchable,
    and those of CPU that the process took for it: the watch, the sync, and its events in the log.
    """
    done = asyncio.Event()

    def hear(event: OpsEvent) -> None:
        if event.action == "sync.complete":
            done.set()

    memory.ops_log.subscribe(hear)
    taken, cpu = [], []
    for number in range(WRITES):
        done.clear()
        started, cpu_started = time.perf_counter(), time.process_time()
        own = time.thread_time()
        note_of(workspace, number).write_text(f"Buoy {number} is red since {started}.\n", encoding="utf-8")
        cpu_started += time.thread_time() - own  # to write the note is not what following it costs
        async with asyncio.timeout(60):
            await done.wait()
        taken.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(SETTLE_S)
        cpu.append((time.process_time() - cpu_started) * 1000)
    return taken, cpu


async def sync_cost(memory: Memory, before_each: Callable[[int], object]) -> float:
    """Return the median CPU milliseconds of a sync."""
    taken = []
    for number in range(ROUNDS):
        before_each(number)
        started = time.process_time()
        await memory.sync()
        taken.append((time.process_time() - started) * 1000)
    return median(taken)


def scan_cost(folder: Path) -> float:
    """Return the median CPU milliseconds it takes to list the tree and look at each file from outside."""
    taken = []
    for _ in range(ROUNDS):
        started = time.process_time()
        folders = [os.fspath(folder)]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        entry.stat(follow_symlinks=False)
        taken.append((time.process_time() - started) * 1000)
    return median(taken)


def watching_descriptors() -> int:
    """Count what is open for inotify, and the pipes, of which it takes one; 0 on other systems."""
    folder = Path("/proc/self/fd")
    links = [link.readlink() for link in folder.iterdir() if link.is_symlink()] if folder.is_dir() else []
    return sum(str(link).startswith(("anon_inode:inotify", "pipe:")) for link in links)


def watching_threads() -> int:
    return sum(isinstance(thread, BaseThread) for thread in threading.enumerate())


async def idle_cost(seconds: float) -> float:
    """Return the CPU milliseconds a second that the process takes while nothing happens."""
    started = time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - started) * 1000 / seconds


async def main(notes: int, debounce_ms: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace, state_dir = Path(folder, "notes"), Path(folder, "state")
        write_notes(workspace, notes)
        async with opened(workspace, state_dir, watch=False) as memory:
            descriptors = watching_descriptors()
            scanned = scan_cost(workspace)
            none = await sync_cost(memory, lambda _: None)
            one = await sync_cost(
                memory, lambda number: note_of(workspace, number).write_text(f"Round {number}.\n")
            )
        print(f"{notes} notes in {FOLDERS} folders; CPU of a sync, beside scandir and stat of the same tree")
        print(f"  scandir and stat   {scanned:8.1f} ms   1.00")
        print(f"  nothing changed    {none:8.1f} ms   {none / scanned:.2f}")
        print(f"  one note changed   {one:8.1f} ms   {one / scanned:.2f}")
        started = time.perf_counter()
        async with opened(workspace, state_dir, watchDebounceMs=debounce_ms) as memory:
            opening = (time.perf_counter() - started) * 1000
            print(f"open, watch and first sync: {opening:.0f} ms")
            more = watching_descriptors() - descriptors
            print(f"watching takes {watching_threads()} threads and {more} descriptors")
            walls, cpu = await follow_writes(memory, workspace)
            taken = [ms - debounce_ms for ms in walls]
            print(f"from a write to searchable, beyond the debounce of {debounce_ms} ms, {WRITES} writes")
            print(f"  p50 {median(taken):.1f} ms   p95 {quantiles(taken, n=20)[-1]:.1f} ms")
            print(f"  CPU of the process for each: p50 {median(cpu):.2f} ms   least {min(cpu):.2f} ms")
            print(f"at rest: {await idle_cost(12):.2f} ms of CPU a second")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--notes", type=int, default=20_000)
    parser.add_argument("--debounce-ms", type=int, default=100)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.notes, arguments.debounce_ms))
