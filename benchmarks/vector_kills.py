"""Kill a process again and again while it writes the mapped file of vectors, and look at what is left.

    python benchmarks/vector_kills.py --rounds 200

The process changes a store without end, and says which change it has made. Each file that is found must be
whole: of a position that the process had reached, with the vectors of that position and no others.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from composable_memory_adapters.vectors import int8_file
from composable_memory_adapters.vectors.in_memory import Matrix, unit_rows
from composable_memory_adapters.vectors.int8_file import Codes
from composable_memory_adapters.vectors.mapped import MappedVectors

DIMS = 128
KEPT = 3000
"""The store holds the vectors of so many last changes."""

KEY = "kills"


@dataclass(kw_only=True)
class Tally:
    """How many files were found after kills, and what was wrong with them."""

    kills: int = 0
    files: int = 0
    unfinished: int = 0
    faults: list[str] = field(default_factory=list)


class Index:
    """Stands for the index that the vectors are of: the n-th is a function of n."""

    def new_key(self) -> str:
        return KEY

    async def publish(self, made: Path, place: Path, key: str) -> None:  # noqa: ARG002 - all files have one key
        await asyncio.to_thread(self._move, made, place)

    def _move(self, made: Path, place: Path) -> None:
        made.replace(place)
        int8_file.remove_unfinished(place)


def vectors(ids: Sequence[int]) -> Matrix:
    return unit_rows(np.array([np.random.default_rng(id_).standard_normal(DIMS) for id_ in ids], np.float32))


async def change(place: Path) -> None:
    """Go on from the file there is, and change the store until the process is killed."""
    store = MappedVectors(place, key=KEY, dims=DIMS, stored=Index(), recent_bytes=16 * 4 * DIMS)
    await store.open()
    if store.position is None:
        await store.fill(_first, KEPT)
    position = store.position or 0
    while True:
        position += 1
        await store.upsert_packed([str(position)], vectors([position]).tobytes())
        await store.delete([str(position - KEPT)])
        await store.settle(position)
        print(position, flush=True)


async def _first() -> AsyncIterator[tuple[Sequence[int], bytes]]:
    for start in range(1, KEPT + 1, 500):
        ids = range(start, start + 500)
        yield ids, vectors(ids).tobytes()


def run(folder: Path, rounds: int, seed: int) -> Tally:
    """Kill so many processes, and return what was found."""
    tally, chance, place = Tally(), random.Random(seed), folder / "vectors"
    for _ in range(rounds):
        reached = _kill_one(place, changes=chance.randint(0, 60))
        tally.kills += 1
        tally.unfinished += len([*folder.glob("vectors.*")])
        if place.exists():
            tally.files += 1
            tally.faults += _faults(place, reached)
        elif reached:
            tally.faults.append("there is no file, though the process had begun to change it")
    return tally


def _kill_one(place: Path, changes: int) -> int:
    """Start a process, kill it after so many changes, and return the last one that it has told."""
    command = [sys.executable, __file__, "--change", str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reached = 0
        for _ in range(changes):
            reached = int(process.stdout.readline())
        process.kill()
        told = process.stdout.read().split("\n")[:-1]
    return int(told[-1]) if told else reached


def _faults(place: Path, reached: int) -> list[str]:
    found = int8_file.read(place, KEY, DIMS)
    if found is None:
        return ["the file in its place is not whole"]
    codes, position = found
    wanted = range(position - KEPT + 1, position + 1)
    right = Codes.of(wanted, vectors(wanted))
    faults = []
    if reached and position > reached + 1:
        faults.append(f"the file is of position {position}, the process had reached {reached}")
    if codes.ids.tolist() != [*wanted]:
        faults.append(f"the file of position {position} has other vectors than it should")
    elif not np.array_equal(codes.vectors(), right.vectors()):
        faults.append(f"the file of position {position} has other codes than it should")
    return faults


def main() -> None:
    """Read the command line, and kill or be killed."""
    parser = argparse.ArgumentParser(description="Kill processes that write the mapped file of vectors.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--change", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.change:
        asyncio.run(change(arguments.change))
        return
    with tempfile.TemporaryDirectory(prefix="composable-memory-kills-") as folder:
        tally = run(Path(folder), arguments.rounds, arguments.seed)
    print(f"{tally.kills} kills, {tally.files} files found, {tally.unfinished} left unfinished")
    print("\n".join(tally.faults) or "no fault")
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
