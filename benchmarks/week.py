"""A week in the life of a memory that stays open: whether latency, memory or files creep.

    python benchmarks/week.py                                     20,000 questions, 1,000 edits
    python benchmarks/week.py --questions 100000 --edits 5000     a busy week

A row a day. Questions and edits take turns; each edit changes a line of a note, or replaces a note by a new
one, and is synced at once. The notes stay as many and as large, so what grows is not theirs.
"""

import argparse
import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
from load import queries, vocabulary, write_notes

from composable_memory import Memory, open_memory

DAYS = 7


def own_memory() -> int:
    """Return the bytes that are this process's alone and of no file; 0 where Linux does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text("utf-8").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def size_of(folder: Path, *, logs: bool) -> int:
    """Return the bytes of the log with its closed, compressed files, or of all other files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files if ("ops-logs" in path.parts) == logs)


def edits(folder: Path, seed: int) -> Iterator[None]:
    """Make one edit for each step."""
    rng, words = random.Random(seed), vocabulary()
    number = 0
    while True:
        number += 1
        note = rng.choice(sorted((folder / "memory").iterdir()))
        lines = note.read_text("utf-8").splitlines()
        lines[rng.randrange(2, len(lines))] = " ".join([words[0], *rng.sample(words, 9)])
        if number % 5 == 0:
            note.unlink()
            note = note.with_name(f"new-{number:06}.md")
        note.write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield


async def day(memory: Memory, asked: Iterator[str], editing: Iterator[None], count: int, every: float) -> str:
    """Ask and edit for a day; return what it came to, as cells."""
    took, edited, syncs = [], 0, []
    for number in range(count):
        if number >= edited * every:
            edited += 1
            next(editing)
            began = time.process_time()
            await memory.sync()
            syncs.append((time.process_time() - began) * 1000)
        began = time.process_time()
        response = await memory.query(next(asked))
        took.append((time.process_time() - began) * 1000)
        assert response.results, "nothing is found"
    p50, p95 = np.percentile(took, [50, 95])
    return f"{p50:.2f} / {p95:.2f} | {np.median(syncs):.1f}"


async def main(questions: int, changes: int, notes: int) -> None:
    print(f"{notes:,} notes, {questions:,} questions, {changes:,} edits\n")
    print("| day | a question, p50 / p95 ms CPU | a sync, ms CPU | MB of memory | MB of files | MB of log |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder, state = Path(name, "notes"), Path(name, "state")
        write_notes(folder, notes, version=1)
        config = {"memory": {"builtin": {"sync": {"on_search": False, "watch": False}}}}
        async with open_memory(folder, state, config) as memory:
            await memory.sync()
            asked, editing = cycle(queries()), edits(folder, seed=3)
            for number in range(1, DAYS + 1):
                cells = await day(memory, asked, editing, questions // DAYS, questions / changes)
                sizes = own_memory(), size_of(state, logs=False), size_of(state, logs=True)
                megabytes = " | ".join(f"{size / 1e6:.1f}" for size in sizes)
                print(f"| {number} | {cells} | {megabytes} |", flush=True)
            descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
            print(f"\n{threading.active_count()} threads, {descriptors} descriptors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=20_000)
    parser.add_argument("--edits", type=int, default=1_000)
    parser.add_argument("--notes", type=int, default=500)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.questions, arguments.edits, arguments.notes))
