"""What becomes of an ops log whose writers are killed at random moments, at whatever they do for its files.

    python benchmarks/ops_log_kills.py --kills 200
    python benchmarks/ops_log_kills.py --kills 200 --max-bytes 1000000 --judged

Several processes log into one folder, with files so small that they are closed and compressed all the time.
Each says of every flush that it was told of. One after the other is killed by SIGKILL, and another takes its
place. In the end every line that was acknowledged must be in the log once; with `--judged` also those whose
file had to go, because their traces were judged.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from composable_memory_ops_logs import OpsLog, OpsLogReader, SyncFileSkipped, trace

WRITERS = 3
MOST_WRITERS = 10_000


async def write(folder: Path, name: str, max_bytes: int, judged: Sequence[str]) -> None:
    """Log for ever; say after each flush how far it got."""
    async with OpsLog(folder, max_bytes=max_bytes, judged=lambda: judged) as log:
        number = 0
        while True:
            for _ in range(20):
                number += 1
                with trace(name):
                    log.emit(SyncFileSkipped(path=name, reason=f"{number} " + "x" * (number * 37 % 1500)))
            if await log.flush() and log.stats.dropped == 0:
                os.write(1, f"{number}\n".encode())


def writer(folder: Path, name: str, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    arguments = ["--write", name, "--folder", str(folder), "--max-bytes", str(options.max_bytes)]
    arguments += ["--judged"] if options.judged else []
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE)


def killed(process: subprocess.Popen[bytes]) -> int:
    """Kill a writer and return the number of the last line that it was told is written."""
    process.send_signal(signal.SIGKILL)
    told, _ = process.communicate()
    whole = told.split(b"\n")[:-1]
    return int(whole[-1]) if whole else 0


def run(folder: Path, options: argparse.Namespace) -> tuple[dict[str, int], int]:
    """Return how many lines each writer was told of, and how often chores were caught in the middle."""
    chance, names = random.Random(options.seed), iter(range(MOST_WRITERS))
    told, in_the_middle = dict[str, int](), 0
    running = {}
    for _ in range(WRITERS):
        name = f"w{next(names)}"
        running[name] = writer(folder, name, options)
    for _ in range(options.kills):
        time.sleep(chance.uniform(0.2, 0.9))
        name = chance.choice(list(running))
        told[name] = killed(running.pop(name))
        in_the_middle += any(folder.glob("*.tmp"))
        name = f"w{next(names)}"
        running[name] = writer(folder, name, options)
    for name, process in running.items():
        told[name] = killed(process)
    return told, in_the_middle


def numbers_in(folder: Path) -> tuple[Counter[tuple[str, int]], int]:
    """Return how often each line is in the log, and how many lines are no events."""
    bad: list[None] = []
    found: Counter[tuple[str, int]] = Counter()
    for event in OpsLogReader(folder).events(on_bad_line=lambda: bad.append(None)):
        if isinstance(event.detail, dict):
            found[event.detail["path"], int(event.detail["reason"].split()[0])] += 1
    return found, len(bad)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-bytes", type=int, default=40_000_000, help="an open file takes a sixteenth")
    parser.add_argument("--judged", action="store_true", help="all traces were judged")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        judged = [f"w{number}" for number in range(MOST_WRITERS)] if options.judged else []
        asyncio.run(write(options.folder, options.write, options.max_bytes, judged))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        told, in_the_middle = run(folder, options)
        found, bad = numbers_in(folder)
        closed, kept = (len(list(folder.glob(f"*[0-9]{suffix}.gz"))) for suffix in (".jsonl", ".kept.jsonl"))
    acknowledged = [(name, number) for name, last in told.items() for number in range(1, last + 1)]
    lost = [line for line in acknowledged if line not in found]
    print(f"{options.kills} kills, {in_the_middle} while a file was made; {closed} closed files, "
          f"{kept} dropped ones with lines that are kept")  # fmt: skip
    twice = sum(times > 1 for times in found.values())
    print(f"{len(acknowledged)} lines acknowledged: {len(lost)} lost, {twice} twice, {bad} cut")


if __name__ == "__main__":
    main()
