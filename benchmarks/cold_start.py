"""What one command costs from nothing to its answer, as a process of its own.

    python benchmarks/cold_start.py                    2,000 generated notes
    python benchmarks/cold_start.py --runs 15 --notes 200

CPU time (user and system) and wall time, medians over runs in turn; a bare interpreter is the base. Beside
`cmem serve`, the CPU time of the server is told as well. With `--qmd PROGRAM`, `qmd search` over an index of
the same notes is measured, too, and how much of its wall time `cmem search` takes, pair by pair.
"""

import argparse
import json
import os
import resource
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


def server_cpu(process: int) -> float:
    """Return the CPU seconds that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def indexed_by_qmd(program: str, notes: Path, scratch: Path) -> dict[str, str]:
    """Have QMD index the notes in folders of its own; return the environment in which it finds them."""
    folders = {f"XDG_{name}_HOME": str(scratch / "qmd") for name in ("CONFIG", "CACHE")}
    environment = {**os.environ, "HOME": str(scratch), **folders}
    run([program, "collection", "add", str(notes), "--name", "notes"], environment)
    return environment


def main(runs: int, notes: int, qmd: str | None) -> None:
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
        # As the script that an installation makes, which does not import `runpy` as `-m` does.
        asking = [sys.executable, "-c", "from composable_memory_start import main; main()"]
        commands["cmem search beside cmem serve"] = ([*asking, "search", QUESTION, *place, "--json"], both)
        if qmd:
            environment = indexed_by_qmd(qmd, scratch / "notes", scratch)
            commands["qmd search"] = ([qmd, "search", QUESTION, "--json"], environment)
        # Other than the commands without a server, which do not look for one.
        run([*cmem, "serve", "--background", *place], both)
        status = subprocess.run([*cmem, "serve", "status", *place, "--json"], env=both, capture_output=True)
        server = json.loads(status.stdout)["pid"]
        taken: dict[str, list[tuple[float, float]]] = {what: [] for what in commands}
        at_first = server_cpu(server)
        for number in range(runs + 1):
            for what, (command, environment) in commands.items():
                taken[what].append(run(command, environment))
            at_first = server_cpu(server) if number == 0 else at_first
        in_server = (server_cpu(server) - at_first) / runs * 1000
        run([*cmem, "serve", "stop", *place], both)
    print(f"{notes:,} notes, medians of {runs} runs\n\n| command | CPU ms | wall ms |\n|---|---|---|")
    for what, measured in taken.items():
        cpu, wall = (median(values) * 1000 for values in zip(*measured[1:], strict=True))
        print(f"| {what} | {cpu:.0f} | {wall:.0f} |")
    print(f"\nThe server takes {in_server:.0f} ms of CPU time more for each search.")
    if qmd:
        pairs = zip(taken["cmem search beside cmem serve"][1:], taken["qmd search"][1:], strict=True)
        shares = sorted(ours / theirs for (_, ours), (_, theirs) in pairs)
        spread = f"{shares[0]:.2f} to {shares[-1]:.2f}"
        print(f"Its wall time is {median(shares):.2f} x that of `qmd search` ({spread}).")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--notes", type=int, default=2000)
    parser.add_argument("--qmd", metavar="PROGRAM", help="an installed QMD")
    arguments = parser.parse_args()
    main(arguments.runs, arguments.notes, arguments.qmd)
