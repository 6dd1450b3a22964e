"""What it takes to find something in a large ops log: CPU of the commands, each in a process of its own.

    python benchmarks/ops_log_reading.py --queries 100000

The log is made of copies of one query of three backends, 24 results each, spread over four weeks up to now,
each of a trace of its own. `--months` writes it as earlier versions did: every event in full, a file a month.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from orchestrator import QUESTION, Ready

from composable_memory import ComposableBackendEntry, ComposableMemoryManager, open_memory, parse_query_intent
from composable_memory_ops_logs import OpsLog, OpsLogReader
from composable_memory_ops_logs.segments import day_of
from composable_memory_ops_logs.sinks import FileSink
from composable_memory_ops_logs.wire import event_to_wire, to_line

DAYS = 29


async def memory_and_trace(state: Path, notes: Path, at: datetime) -> str:
    """Make a memory, and return the trace of a question that was asked long ago."""
    notes.mkdir()
    (notes / "MEMORY.md").write_text("The dock controller answers on port 4711.\n", encoding="utf-8")
    async with open_memory(notes, state_dir=state, environ={}, clock=lambda: at) as memory:
        await memory.sync()
        return (await memory.query(QUESTION)).trace_id


async def template(folder: Path) -> list[bytes]:
    """Return the lines of one query."""
    backends = [Ready(number) for number in range(3)]
    async with OpsLog(folder) as log:
        entries = [ComposableBackendEntry(id=one.id, manager=one) for one in backends]
        await ComposableMemoryManager(entries, intent_parser=parse_query_intent, ops_log=log).query(QUESTION)
    return [line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()]


def in_full(folder: Path) -> list[bytes]:
    return [to_line(event_to_wire(one)).rstrip() for one in OpsLogReader(folder).tail(500)]


def as_months(log: Path, at: datetime) -> None:
    """Write what is in a log as earlier versions did."""
    lines = in_full(log)
    for path in log.glob("ops-*"):
        path.unlink()
    (log / f"ops-{at:%Y-%m}.jsonl").write_bytes(b"\n".join(lines) + b"\n")


def write(log: Path, lines: Sequence[bytes], queries: int, *, is_monthly: bool) -> None:
    """Write copies of a query, oldest first."""
    events = OpsLogReader(log / "one").tail(10)
    trace_id = events[0].trace_id.encode()
    times = {one.ts.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode() for one in events}
    sink, now = FileSink(log, retention_days=365, max_bytes=10**12), datetime.now(UTC)
    for number in range(queries):
        at = now - timedelta(days=DAYS - 1) * (1 - number / queries) - timedelta(seconds=1)
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
        text = b"\n".join(lines).replace(trace_id, str(UUID(int=number << 64 | number)).encode())
        for one in times:
            text = text.replace(one, stamp)
        if is_monthly:
            with (log / f"ops-{at:%Y-%m}.jsonl").open("ab") as file:
                file.write(text + b"\n")
        else:
            sink.append(day_of(at), [text + b"\n"])
            if number % 1000 == 0:
                for _ in sink.chores(at, is_patient=True):
                    pass
    if not is_monthly:
        for _ in sink.chores(now, is_patient=True):
            pass


def cpu_s(arguments: Sequence[str]) -> float:
    """Return the CPU time of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "composable_memory.cli", *arguments], capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--months", action="store_true", help="as earlier versions wrote it")
    parser.add_argument("--keep", type=Path, help="make the log in this new folder and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = options.keep or Path(scratch)
        log, state, notes = place / "ops-logs", place, place / "notes"
        (log / "one").mkdir(parents=True)
        began = datetime.now(UTC) - timedelta(days=DAYS - 1)
        judged = asyncio.run(memory_and_trace(state, notes, began))
        if options.months:
            as_months(log, began)
        lines = asyncio.run(template(log / "one"))
        write(
            log, in_full(log / "one") if options.months else lines, options.queries, is_monthly=options.months
        )
        size = sum(one.stat().st_size for one in log.glob("ops-*"))
        old = str(UUID(int=(options.queries // 7) << 64 | options.queries // 7))
        where = ["--state-dir", str(state)]
        print(f"{options.queries} queries, {size / 1e6:.0f} MB\n\n| | CPU s |\n|---|---|")
        for name, arguments in {
            "nothing (`cmem --version`)": ["--version"],
            "logs query --since 30m": ["logs", "query", "--action", "sync.failed", "--since", "30m", *where],
            "logs show TRACE, an old one": ["logs", "show", old, *where],
            "feedback add TRACE, an old one": [
                "feedback", "add", judged, "1", "-r", "1", "--workspace", str(notes), *where
            ],
        }.items():  # fmt: skip
            print(f"| {name} | {min(cpu_s(arguments) for _ in range(3)):.2f} |")


if __name__ == "__main__":
    main()
