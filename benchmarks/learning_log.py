"""What commands take over a large log: processor time and the most memory of each, as a process.

    python benchmarks/learning_log.py
    python benchmarks/learning_log.py --queries 20000 --judged 500 --command "advise" --command "replay"

Some hundred queries are asked of two backends that answer at once, with everything logged. Their lines are
then repeated under new traces and times, a second apart, until the log is large enough; of the queries spread
over all of it some are judged. Each command runs as a process of its own.
"""

import argparse
import asyncio
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from time import perf_counter
from uuid import uuid4

import orjson
from orchestrator import QUESTION, Ready

from composable_memory import open_memory
from composable_memory.config.settings import SettingsModel
from composable_memory.interfaces import BackendServices, BackendSpec, Capability
from composable_memory.learning import open_learning
from composable_memory.learning.logged import queries_of
from composable_memory.types import MemorySearchResult, SearchOptions
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_ops_logs.file_sink import FileSink
from composable_memory_ops_logs.line_format import sealed
from composable_memory_ops_logs.segments import day_of

SETTINGS = """
memory:
  backend: ready0
  builtin: {enabled: false}
  embedding: {provider: none}
  backends: {ready0: {enabled: true, weight: 0.7}, ready1: {enabled: true, weight: 1.0}}
"""
ASKED = 300
COMMANDS = (
    "feedback stats",
    "advise",
    "replay",
    "replay --weights equal",
    "gate --candidate equal",
    "experiment status",
    "logs query --action sync.failed --since 30m",
    "logs show {old}",
    "feedback add {old} 1 -r 1",
)
"""`{old}` stands for the trace of an early query."""
BACKENDS = ("ready0", "ready1")
_UNSEALED = re.compile(rb'(?:,"at":\d+)?,"crc32":\d+\}$')


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folders of one memory."""

    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "notes"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def environ(self) -> dict[str, str]:
        return {"COMPOSABLE_MEMORY_CONFIG": str(self.folder / "config.yaml")}


class Answering(Ready):
    """Answers at once, and can be searched alone."""

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return its results."""
        return (await self.answer(query, options)).results


def spec(number: int) -> BackendSpec:
    @asynccontextmanager
    async def opened(_settings: SettingsModel, _services: BackendServices) -> AsyncIterator[Answering]:
        yield Answering(number)

    return BackendSpec(
        id=f"ready{number}",
        summary="Answers at once.",
        settings=SettingsModel,
        open=opened,
        capabilities=frozenset({Capability.ANSWER, Capability.CALIBRATED}),
    )


async def ask(place: Place, count: int) -> None:
    specs = [spec(number) for number in range(len(BACKENDS))]
    async with open_memory(place.workspace, place.state, backends=specs, environ=place.environ) as memory:
        for number in range(count):
            await memory.query(f"{QUESTION} {number}")
            if number % 16 == 15:
                await memory.ops_log.flush()


def repeat(place: Place, queries: int) -> list[tuple[str, datetime]]:
    """Repeat the logged queries until there are so many; return the traces with their times."""
    log, now = place.state / "ops-logs", datetime.now(UTC)
    files = sorted(log.glob("*.jsonl"))
    lines = [line for path in files for line in path.read_bytes().splitlines()]
    of_trace = [(orjson.loads(line)["traceId"], line) for line in lines]
    originals = [
        (trace, [line for _, line in several])
        for trace, several in groupby(sorted(of_trace, key=lambda one: one[0]), key=lambda one: one[0])
    ]
    originals = [one for one in originals if any(b'"query.merged"' in line for line in one[1])]
    for path in files:
        path.unlink()
    sink, made = FileSink(log, retention_days=365, max_bytes=10**12), []
    for number in range(queries):
        trace, own = originals[number % len(originals)]
        fresh, when = str(uuid4()), now - timedelta(seconds=queries - number)
        time = when.isoformat(timespec="milliseconds")[:-6].encode() + b"Z"
        dated = (re.sub(rb'"ts":"[^"]*"', b'"ts":"' + time + b'"', line) for line in own)
        renamed = (line.replace(trace.encode(), fresh.encode()) for line in dated)
        sink.append(day_of(when), [sealed(_UNSEALED.sub(b"}", one) + b"\n") for one in renamed])
        made.append((fresh, when))
    for _ in sink.retention.apply(now):
        pass
    return made


async def judge(place: Place, traces: Sequence[tuple[str, datetime]], count: int) -> None:
    chosen = dict(traces[:: max(1, len(traces) // count)][:count])
    async with open_learning(place.workspace, state_dir=place.state, environ=place.environ) as learning:
        logged = await queries_of(learning.context, since=min(chosen.values()), traces=chosen)
        judgements = [
            Judgement(
                trace_id=query.trace_id,
                query_id=query.query_id,
                at=query.at,
                path=hit.path,
                start_line=hit.start_line,
                end_line=hit.end_line,
                rank=rank,
                backend=hit.backend,
                intent=query.intent,
                kind=JudgementKind.EXPLICIT,
                relevance=float(hit.path.startswith("memory/1-") == (number % 3 > 0)),
            )
            for number, query in enumerate(logged.queries)
            for rank, hit in enumerate(query.shown, 1)
        ]
        await learning.context.stored(lambda store: store.add(judgements))


RUN = """
import sys
from composable_memory.cli import main
try:
    main()
finally:
    with open("/proc/self/status") as status:
        print(next(line for line in status if line.startswith("VmHWM")), file=sys.stderr)
"""


def taken(place: Place, command: str, timeout_s: float) -> str:
    """Run a command, and return what it took."""
    where = ["--workspace", str(place.workspace), "--state-dir", str(place.state), "--json"]
    began, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        run = subprocess.run(
            [sys.executable, "-c", RUN, *command.split(), *where],
            env={**os.environ, **place.environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return f"not ended after {timeout_s:.0f} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    *said, peak = run.stderr.strip().splitlines()
    told = f"{cpu:7.1f} s cpu {perf_counter() - began:7.1f} s {int(peak.split()[1]) // 1024:6} MB"
    return f"{told}  exit {run.returncode} {said[0][:60] if said else ''}"


def main() -> None:
    """Make the log and run the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--judged", type=int, default=200)
    parser.add_argument("--command", action="append")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--folder", type=Path, help="leave the log here, and take the one that is here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(folder=given.folder or Path(scratch))
        if not place.state.exists():
            place.workspace.mkdir(parents=True)
            (place.folder / "config.yaml").write_text(SETTINGS, encoding="utf-8")
            asyncio.run(ask(place, ASKED))
            traces = repeat(place, given.queries)
            (place.folder / "old").write_text(traces[len(traces) // 7][0], encoding="utf-8")
            asyncio.run(judge(place, traces, given.judged))
        size = sum(one.stat().st_size for one in (place.state / "ops-logs").iterdir())
        print(
            f"{given.queries} queries, {size / 1e6:.0f} MB of log, {size / given.queries:.0f} bytes a query"
        )
        old = (place.folder / "old").read_text(encoding="utf-8")
        for command in given.command or COMMANDS:
            print(f"{command:44}{taken(place, command.format(old=old), given.timeout)}", flush=True)


if __name__ == "__main__":
    main()
