"""What indexing costs: against raw inserts of the same rows, and against looking at the files alone.

    python benchmarks/indexing.py                 2,000 notes of about 4.7 kB
    python benchmarks/indexing.py --notes 20000

CPU time of the process unless it says wall, medians of rounds in turn, with the spread of their ratios. Notes
are generated, and the same in every run.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median

from composable_memory import Memory, open_memory
from composable_memory_adapters.builtin.index_file import ensure_tables
from composable_memory_adapters.builtin.notes.fields import NoteFields, keyword_row
from composable_memory_adapters.sqlite_file import Connection, SqliteFile

WORDS = 20_000
LINES = (20, 140)
WORDS_A_LINE = (4, 12)
ROUNDS = 5
KEYWORDS = """
SELECT id, path, headings, text, title, aliases, tags, type, day FROM chunks JOIN files USING (path, source)
ORDER BY id
"""


class Spent:
    """Seconds of CPU and of wall time inside a block."""

    cpu = wall = 0.0


@contextmanager
def spent() -> Iterator[Spent]:
    taken = Spent()
    wall, cpu = time.perf_counter(), time.process_time()
    yield taken
    taken.cpu, taken.wall = time.process_time() - cpu, time.perf_counter() - wall


def write_notes(folder: Path, count: int) -> int:
    """Write `count` notes with a vocabulary in which a few words are common and most are rare."""
    rng = random.Random(7)
    words = [f"{rng.choice('bcdfgklmnprst')}{rng.choice('aeiou')}{number:x}" for number in range(WORDS)]
    size = 0
    (folder / "memory").mkdir(parents=True)
    for number in range(count):
        lines = [
            " ".join(words[int(WORDS * rng.random() ** 3)] for _ in range(rng.randint(*WORDS_A_LINE)))
            for _ in range(rng.randint(*LINES))
        ]
        text = f"# Note {number}\n\n" + "\n".join(lines) + "\n"
        (folder / "memory" / f"note-{number:05}.md").write_text(text, encoding="utf-8")
        size += len(text)
    return size


@asynccontextmanager
async def opened(notes: Path, state: Path, provider: str) -> AsyncIterator[Memory]:
    config = {"memory": {"embedding": {"provider": provider}, "ops_log": {"enabled": False}}}
    async with open_memory(notes, state, config) as memory:
        yield memory


async def insert_rows(source: Path, target: Path) -> float:
    """Insert what the index holds into an empty one of the same shape; return the CPU seconds it took."""

    def read(db: Connection) -> dict[str, list[tuple[str | int | None, ...]]]:
        rows = {name: list(db.execute(f"SELECT * FROM {name}")) for name in ("files", "chunks", "long_words")}
        # The keyword index holds no text: what it was given is made again.
        rows["chunks_fts (rowid, text, names, headings, tags)"] = [
            (row_id, *keyword_row(path, NoteFields(*fields), headings, text))
            for row_id, path, headings, text, *fields in db.execute(KEYWORDS)
        ]
        return rows

    async with SqliteFile.open(source) as file:
        rows = await file.read(read)

    def insert(db: Connection) -> None:
        for name, values in rows.items():
            if values:
                marks = ", ".join("?" * len(values[0]))
                db.executemany(f"INSERT INTO {name} VALUES ({marks})", values)

    async with SqliteFile.open(target) as file:
        await ensure_tables(file)
        with spent() as raw:
            await file.write(insert)
    return raw.cpu


def look_at_files(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder / "memory"))


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        notes = scratch / "notes"
        size = write_notes(notes, count)
        print(f"{count:,} notes, {size / 1e6:.1f} MB\n")
        print("| what | measured | compared with | ratio |\n|---|---|---|---|")

        firsts, raws = [], []
        for number in range(ROUNDS):
            async with opened(notes, scratch / f"keywords-{number}", "none") as memory:
                with spent() as first:
                    report = await memory.sync()
                database = Path(memory.status().db_path or "")
            firsts.append(first)
            raws.append(await insert_rows(database, scratch / f"raw-{number}.sqlite"))
        rates = sorted(raw / each.cpu for raw, each in zip(raws, firsts, strict=True))
        first_cpu, first_wall = (median(getattr(one, kind) for one in firsts) for kind in ("cpu", "wall"))

        async with opened(notes, scratch / "keywords-0", "none") as memory:
            await memory.sync()
            still, looks = [], []
            for _ in range(3 * ROUNDS):
                with spent() as taken:
                    await memory.sync()
                still.append(taken.cpu)
                with spent() as taken:
                    look_at_files(notes)
                looks.append(taken.cpu)
            times = sorted(one / other for one, other in zip(still, looks, strict=True))
            one = await change_one(memory, notes, whole=False)
            whole = await change_one(memory, notes, whole=True)
        print(
            f"| index without vectors | {first_cpu:.2f} s CPU, {first_wall:.2f} s wall, "
            f"{report.chunks_written:,} chunks | raw inserts of the same rows, {median(raws):.2f} s CPU "
            f"| {median(rates):.2f} x their rate ({rates[0]:.2f} to {rates[-1]:.2f}) |"
        )
        print(
            f"| sync that finds nothing | {median(still) * 1000:.1f} ms CPU | scandir and stat, "
            f"{median(looks) * 1000:.1f} ms | {median(times):.2f} x ({times[0]:.2f} to {times[-1]:.2f}) |"
        )
        print(
            f"| one changed line of a long note | {one * 1000:.1f} ms CPU beyond that | the note rewritten, "
            f"{whole * 1000:.1f} ms | {one / whole:.2f} x |"
        )

        async with opened(notes, scratch / "vectors", "auto") as memory:
            with spent() as embedded:
                report = await memory.sync()
            database = Path(memory.status().db_path or "")
        held = await contents(database)
        file_size = database.stat().st_size
        print(
            f"| index with vectors | {embedded.cpu:.2f} s CPU, {embedded.wall:.2f} s wall, "
            f"{report.embedded / embedded.cpu:.0f} chunks a CPU second | without, {first_cpu:.2f} s | "
            f"{embedded.cpu / first_cpu:.1f} x |"
        )
        print(
            f"| size of the file | {file_size / 1e6:.1f} MB | text, vectors and keyword index, "
            f"{held / 1e6:.1f} MB | {file_size / held:.2f} x |"
        )


async def change_one(memory: Memory, notes: Path, *, whole: bool) -> float:
    """Change one note and sync; return the CPU seconds beyond those of a sync that finds nothing."""
    path = max((notes / "memory").iterdir(), key=lambda each: each.stat().st_size)
    costs = []
    for number in range(ROUNDS):
        lines = path.read_text(encoding="utf-8").splitlines()
        if whole:
            lines = [f"{line} x{number}" for line in lines]
        else:
            lines[-1] = f"the last line now says {number}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with spent() as changed:
            await memory.sync()
        with spent() as still:
            await memory.sync()
        costs.append(changed.cpu - still.cpu)
    return median(costs)


async def contents(database: Path) -> int:
    """Return the bytes of text, vectors and keyword index, without anything that holds them together."""

    def measure(db: Connection) -> int:
        texts, vectors, words = (
            next(iter(db.execute(sql)))[0]
            for sql in (
                "SELECT sum(length(CAST(text AS BLOB))) FROM chunks",
                "SELECT sum(length(embedding)) FROM embedding_cache",
                "SELECT sum(length(block)) FROM chunks_fts_data",
            )
        )
        return int(texts + vectors + words)

    async with SqliteFile.open(database) as file:
        return await file.read(measure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--notes", type=int, default=2000)
    asyncio.run(main(parser.parse_args().notes))
