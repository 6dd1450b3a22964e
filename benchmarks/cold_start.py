"""What one command costs from nothing to its answer, as a process of its own.

    python benchmarks/cold_start.py                    2,000 generated notes
    python benchmarks/cold_start.py --runs 15 --notes 200

CPU time (user and system) and wall time, medians over runs in turn; a bare interpreter is the base. With
`--qmd-index NAME`, `qmd search` over an index that was made of the same notes is measured as well.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from indexing import write_notes

QUESTION = "bo1a2 words that stand in some note"


def run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Run a command; return its CPU and wall seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main(runs: int, notes: int, qmd_index: str | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        write_notes(scratch / "notes", notes)
        cmem = [sys.executable, "-m", "composable_memory.cli"]
        place = ["--workspace", str(scratch / "notes"), "--state-dir", str(scratch / "state")]
        both = {**os.environ, "HOME": name}
        keywords = {**both, "COMPOSABLE_MEMORY__EMBEDDING__PROVIDER": "none"}
        run([*cmem, "index", *place, "--json"], both)
        commands = {
            "python -c pass": ([sys.executable, "-c", "pass"], both),
            "import composable_memory": ([sys.executable, "-c", "import composable_memory"], both),
            "cmem --version": ([*cmem, "--version"], both),
            "cmem search, keywords": ([*cmem, "search", QUESTION, *place, "--json"], keywords),
            "cmem search, keywords and vectors": ([*cmem, "search", QUESTION, *place, "--json"], both),
        }
        if qmd_index and (qmd := shutil.which("qmd")):
            search = [qmd, "search", QUESTION, "--index", qmd_index, "--json"]
            commands["qmd search"] = (search, dict(os.environ))
        taken: dict[str, list[tuple[float, float]]] = {what: [] for what in commands}
        for _ in range(runs + 1):
            for what, (command, environment) in commands.items():
                taken[what].append(run(command, environment))
    print(f"{notes:,} notes, medians of {runs} runs\n\n| command | CPU ms | wall ms |\n|---|---|---|")
    for what, measured in taken.items():
        cpu, wall = (median(values) * 1000 for values in zip(*measured[1:], strict=True))
        print(f"| {what} | {cpu:.0f} | {wall:.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--notes", type=int, default=2000)
    parser.add_argument("--qmd-index", help="the index that `qmd` made of the same notes")
    arguments = parser.parse_args()
    main(arguments.runs, arguments.notes, arguments.qmd_index)
