"""QMD beside the builtin memory: each alone, both at once, and plain `qmd search`, over one workspace.

    python benchmarks/qmd.py --data DIR                                     all sets, 60 questions of each
    python benchmarks/qmd.py --data DIR --sets cranfield xquad-en --questions 225 --command "node qmd.js"

The notes of the chosen sets, which have the shape that `retrieval.py` takes, lie in one workspace, filled up
with generated notes. Prints how good the answers are, with 95 % bootstrap intervals, paired where it is a
difference; then how long they take, in a memory that stays open and as a command of its own, and what it
costs to index and to stay. The base is `qmd search` over the same index, given the question as it is.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from composite import ADVERSARIAL, DEPTH, NDCG, RECALL, Question, measures, questions_of
from load import write_notes
from retrieval import interval

from composable_memory import Memory, open_memory
from composable_memory.types import MemorySearchResult
from composable_memory_adapters.qmd.home import prepare_home
from composable_memory_adapters.qmd.installation import find_command
from composable_memory_adapters.qmd.settings import QmdSettings

PLAIN = "qmd search"
WAYS: Mapping[str, tuple[str, ...]] = {
    "builtin": ("builtin",),
    "QMD": ("qmd",),
    "both": ("builtin", "qmd"),
}
HEADER = re.compile(r"@@ -(\d+),(\d+) @@")
START_S = 30.0


@dataclass(slots=True)
class Measured:
    """Everything that was measured: metrics by set and way, times in milliseconds by way, costs by way."""

    rows: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    warm_ms: dict[str, list[float]] = field(default_factory=dict)
    cold_ms: dict[str, list[float]] = field(default_factory=dict)
    cold_beside_daemon_ms: dict[str, list[float]] = field(default_factory=dict)
    index_s: dict[str, float] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    daemon_mb: float = 0.0
    by_daemon: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the notes and the indexes are, and which QMD is asked."""

    notes: Path
    state: Path
    command: str

    def config(self, way: str) -> dict[str, object]:
        """Return the settings under which only the backends of a way are open."""
        used = WAYS[way]
        follows = {"watch": False, "on_search": False, "on_session_start": False}
        quiet = {"interval": 0, "on_boot": False}
        return {
            "ops_log": {"enabled": False},
            "builtin": {"enabled": "builtin" in used, "sync": follows},
            "qmd": {"enabled": "qmd" in used, "command": self.command, "update": quiet},
        }

    def environ(self, way: str) -> dict[str, str]:
        """Return the same for a command."""
        return {**os.environ, **dict(_variables("COMPOSABLE_MEMORY", self.config(way)))}

    @asynccontextmanager
    async def opened(self, way: str, *, long_lived: bool = True) -> AsyncIterator[Memory]:
        """Open the memory."""
        config = {"memory": self.config(way)}
        async with open_memory(self.notes, self.state, config, long_lived=long_lived) as memory:
            assert not memory.unavailable(), memory.unavailable()
            yield memory


class Plain:
    """`qmd search` over the index that the QMD memory keeps, as somebody would type it."""

    def __init__(self, place: Place) -> None:
        settings = QmdSettings(command=place.command)
        home = prepare_home(settings, state_dir=place.state, agent_id="main", workspace_id="notes")
        self._command = [*find_command(settings.command, home.environ), "--index", "index"]
        self._environ = dict(home.environ)
        self._folder = home.root

    def ask(self, question: str) -> list[MemorySearchResult]:
        """Return what it prints, as results."""
        asked = [*self._command, "search", "--json", "-n", str(DEPTH), "--", question]
        done = subprocess.run(
            asked, env=self._environ, cwd=self._folder, check=True, capture_output=True, text=True
        )
        return [_result(item) for item in json.loads(done.stdout or "[]")]


def _result(item: Mapping[str, object]) -> MemorySearchResult:
    collection, path = str(item["file"]).removeprefix("qmd://").split("/", 1)
    header = HEADER.search(str(item["snippet"]))
    start, count = (int(number) for number in header.groups()) if header else (1, 1)
    return MemorySearchResult(
        path=f"memory/{path}" if collection == "memory-dir" else path,
        start_line=start,
        end_line=start + count - 1,
        score=0.0,
        snippet="",
    )


def _variables(prefix: str, tree: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    for key, value in tree.items():
        name = f"{prefix}__{key.upper()}"
        if isinstance(value, Mapping):
            yield from _variables(name, value)
        else:
            yield name, json.dumps(value) if isinstance(value, bool) else str(value)


def lay_out(sets: Sequence[Path], folder: Path, count: int) -> int:
    """Copy the notes of the sets into one workspace and fill it up; return how many are of the sets."""
    copied = 0
    for one in sets:
        for path in one.rglob("*.md"):
            target = folder / "memory" / one.name / path.relative_to(one)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            copied += 1
    write_notes(folder, max(0, count - copied), version=1)
    return copied


def questions_in(folder: Path, count: int, seed: int) -> list[Question]:
    """Draw questions of a set, their evidence being where `lay_out` puts it."""
    found = []
    for conv in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        prefix = f"memory/{folder.name}/{conv}/"
        for question in questions_of(folder, conv, limit=None):
            evidence = frozenset((prefix + path, line) for path, line in question.evidence)
            if question.category != ADVERSARIAL:
                found.append(replace(question, evidence=evidence))
    return random.Random(seed).sample(found, min(count, len(found)))


async def index(place: Place, measured: Measured) -> None:
    """Let each memory index all notes, from nothing."""
    for way in ("builtin", "QMD"):
        async with place.opened(way, long_lived=False) as memory:
            began = time.perf_counter()
            report = await memory.sync()
            measured.index_s[way] = time.perf_counter() - began
            measured.troubles += [f"{way}, indexing: {one}" for one in report.problems]
    measured.index_s["both"] = sum(measured.index_s.values())


async def ask_warm(place: Place, questions: Mapping[str, Sequence[Question]], measured: Measured) -> None:
    """Ask every question in every way, each in a memory that stays open."""
    for way in WAYS:
        async with place.opened(way) as memory:
            daemon = await _daemon(memory) if "qmd" in WAYS[way] else None
            await memory.query("warm")
            for name, asked in questions.items():
                rows = measured.rows.setdefault(name, {}).setdefault(way, [])
                rows += [await _ask(memory, question, way, measured) for question in asked]
            if daemon is not None:
                measured.daemon_mb = _resident_with_children(daemon)


async def _ask(memory: Memory, question: Question, way: str, measured: Measured) -> list[float]:
    began = time.perf_counter()
    response = await memory.query(question.text, max_results=DEPTH)
    measured.warm_ms.setdefault(way, []).append((time.perf_counter() - began) * 1000)
    measured.troubles += [f"{way}: {answer.error}" for answer in response.answers if answer.error]
    measured.by_daemon[way] += any(one.engines.get("qmd") == "daemon" for one in response.answers)
    return measures(response.results, question)


async def _daemon(memory: Memory) -> int:
    """Wait for QMD's daemon, and return the id of its process."""
    async with asyncio.timeout(START_S):
        while (told := memory.backend_statuses()["qmd"].custom["qmd"]["daemon"])["state"] != "running":
            await asyncio.sleep(0.02)
    return int(told["pid"])


def ask_plain(plain: Plain, questions: Mapping[str, Sequence[Question]], measured: Measured) -> None:
    """Ask the plain command, which is a process for every question."""
    for name, asked in questions.items():
        rows = measured.rows.setdefault(name, {}).setdefault(PLAIN, [])
        for question in asked:
            began = time.perf_counter()
            results = plain.ask(question.text)
            measured.cold_ms.setdefault(PLAIN, []).append((time.perf_counter() - began) * 1000)
            rows.append(measures(results, question))


def ask_cold(place: Place, questions: Sequence[str]) -> dict[str, list[float]]:
    """Ask through the command line, a new process each time, all ways in turn."""
    taken: dict[str, list[float]] = {}
    for question in questions:
        for way in WAYS:
            began = time.perf_counter()
            with _asking(place, way, question) as process:
                assert process.wait() == 0
            taken.setdefault(way, []).append((time.perf_counter() - began) * 1000)
    return taken


def peaks(place: Place, question: str) -> dict[str, float]:
    """Return the most that a process which asks a question had in memory, for every way, in megabytes."""
    most = dict.fromkeys(WAYS, 0.0)
    for way in WAYS:
        with _asking(place, way, question) as process:
            while process.poll() is None:
                most[way] = max(most[way], _resident(process.pid))
                time.sleep(0.005)
    return most


def _asking(place: Place, way: str, question: str) -> "subprocess.Popen[bytes]":
    folders = ["--workspace", str(place.notes), "--state-dir", str(place.state)]
    command = [sys.executable, "-m", "composable_memory.cli", "search", *folders, "--json", "--", question]
    return subprocess.Popen(command, env=place.environ(way), stdout=subprocess.DEVNULL)


def _resident(pid: int) -> float:
    """Return what a process has in memory; 0 where it has just ended."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1]) / 1024 if found else 0.0


def _resident_with_children(pid: int) -> float:
    return _resident(pid) + sum(map(_resident_with_children, _children(pid)))


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def quality(measured: Measured) -> Iterable[str]:
    """Yield the table of how good the answers are."""
    yield "| set | questions | asked | R@10 (95 %) | nDCG@10 (95 %) | nDCG@10 against the builtin memory |"
    yield "|---|---|---|---|---|---|"
    rows = dict(measured.rows)
    rows["all"] = {way: [row for one in measured.rows.values() for row in one[way]] for way in (PLAIN, *WAYS)}
    for name, ways in rows.items():
        base = np.array(ways["builtin"])[:, NDCG]
        for way in (PLAIN, *WAYS):
            values = np.array(ways[way])
            told = [_mean(values[:, at]) for at in (RECALL, NDCG)]
            told.append("" if way == "builtin" else _mean(values[:, NDCG] - base, sign="+"))
            yield f"| {name} | {len(values)} | {way} | {' | '.join(told)} |"


def _mean(values: "np.typing.NDArray[np.float64]", sign: str = "") -> str:
    low, high = interval(values, resamples=2000, seed=1)
    return f"{values.mean():{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def costs(measured: Measured) -> Iterable[str]:
    """Yield the table of what answers take, each beside the plain command."""
    yield f"| | {PLAIN} | {' | '.join(WAYS)} |"
    yield "|---|---|---|---|---|"
    base = np.median(measured.cold_ms[PLAIN])
    lines = {
        "a process for each, p50 / p95 ms": measured.cold_ms,
        "the same with a daemon up": measured.cold_beside_daemon_ms,
        "in an open memory": measured.warm_ms,
    }
    for what, taken in lines.items():
        yield f"| {what} | {' | '.join(_times(taken.get(way), base) for way in (PLAIN, *WAYS))} |"
    shares = (f"{measured.by_daemon[way] / len(measured.warm_ms[way]):.0%}" for way in WAYS)
    yield f"| share that the daemon answered | | {' | '.join(shares)} |"
    seconds = " | ".join(f"{measured.index_s[way]:.1f} s" for way in WAYS)
    yield f"| indexing from nothing | | {seconds} |"
    peaks = " | ".join(f"{measured.peak_mb[way]:.0f} MB" for way in WAYS)
    yield f"| memory of a process that asks, beside QMD's | | {peaks} |"
    yield f"| memory of the daemon | | | {measured.daemon_mb:.0f} MB | {measured.daemon_mb:.0f} MB |"


def _times(taken: Sequence[float] | None, base: float) -> str:
    if not taken:
        return ""
    p50, p95 = np.percentile(taken, [50, 95])
    return f"{p50:.0f} / {p95:.0f} ({p50 / base:.2f} x)"


async def run(arguments: argparse.Namespace) -> Measured:
    """Measure everything."""
    sets = [path.parent for path in sorted(arguments.data.glob("*/queries.jsonl"))]
    sets = [one for one in sets if not arguments.sets or one.name in arguments.sets]
    measured = Measured()
    with tempfile.TemporaryDirectory() as name:
        place = Place(notes=Path(name, "notes"), state=Path(name, "state"), command=arguments.command)
        of_sets = lay_out(sets, place.notes, arguments.notes)
        questions = {one.name: questions_in(one, arguments.questions, arguments.seed) for one in sets}
        total = sum(1 for _ in place.notes.rglob("*.md"))
        print(f"{total:,} notes, {of_sets:,} of them of {len(sets)} sets\n", flush=True)
        await index(place, measured)
        ask_plain(Plain(place), questions, measured)
        texts = [one.text for asked in questions.values() for one in asked]
        some = random.Random(arguments.seed).sample(texts, min(arguments.runs, len(texts)))
        measured.cold_ms |= ask_cold(place, some)
        measured.peak_mb = peaks(place, some[0])
        await ask_warm(place, questions, measured)
        async with place.opened("QMD") as memory:
            await _daemon(memory)
            measured.cold_beside_daemon_ms = await asyncio.to_thread(ask_cold, place, some)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder for each set")
    parser.add_argument("--sets", nargs="*", default=[], help="names of the sets to use; all if not given")
    parser.add_argument("--command", default="qmd", help="the command of QMD")
    parser.add_argument("--notes", type=int, default=2000, help="how many notes there are at least")
    parser.add_argument("--questions", type=int, default=60, help="how many of each set are asked")
    parser.add_argument("--runs", type=int, default=20, help="how many questions the command line is asked")
    parser.add_argument("--seed", type=int, default=7)
    measured = asyncio.run(run(parser.parse_args()))
    print(*quality(measured), "", *costs(measured), sep="\n")
    for trouble in measured.troubles:
        print(trouble, file=sys.stderr)


if __name__ == "__main__":
    main()
