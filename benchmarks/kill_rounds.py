"""Kills a process at work on an index, again and again, and looks at what it leaves behind.

    python benchmarks/kill_rounds.py                          200 rounds of each kind
    python benchmarks/kill_rounds.py --kind rebuild --rounds 50

Each round changes some notes, lets a child process sync, rebuild, or embed with a slow embedder, and kills
it with SIGKILL at a random moment. What it left has to be sound, to hold all notes that were there before,
and to answer; the next sync has to complete it and to leave nothing lying about; after the last round it has
to hold what an index holds that was never disturbed. Prints a table and exits with 1 if anything was wrong.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import apsw

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import BackendServices, EmbedderAdapter
from composable_memory.testing import HashEmbedder
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_ops_logs import OpsLog

SETTINGS = BuiltinSettings.model_validate({"sync": {"onSearch": False, "watch": False}})
WORDS = "harbour ferry pump relay hull roof stairs coffee window train garden timer shade gauge tide".split()
IN_EVERY_NOTE = "keepsake"
BATCH_S = 0.03
KINDS = ("sync", "rebuild", "embed")

FAULTS = {
    "chunks of no file": "SELECT count(*) FROM chunks LEFT JOIN files USING (path, source)"
    " WHERE files.hash IS NULL",
    "chunks without keywords": "SELECT count(*) FROM chunks WHERE id NOT IN (SELECT rowid FROM chunks_fts)",
    "keywords of no chunk": "SELECT count(*) FROM chunks_fts WHERE rowid NOT IN (SELECT id FROM chunks)",
    "pointers to no vector": "SELECT count(*) FROM chunks WHERE embedding_id IS NOT NULL"
    " AND embedding_id NOT IN (SELECT id FROM embedding_cache)",
    "vectors kept twice": "SELECT count(*) - count(DISTINCT hash || provider_key) FROM embedding_cache",
}
FOUND = f"""
SELECT DISTINCT path FROM chunks
WHERE id IN (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH '{IN_EVERY_NOTE}')
"""
CONTENT = "SELECT path, start_line, end_line, hash, text, embedding_id IS NOT NULL FROM chunks"


class SlowEmbedder(HashEmbedder):
    """Takes its time for every batch, as a provider far away does."""

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        """Wait, then embed."""
        await asyncio.sleep(BATCH_S)
        return await super().embed_batch(inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What an index file holds: the notes that keyword search finds, and how many vectors."""

    notes: frozenset[str]
    vectors: int


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the rounds of one kind came to."""

    kind: str
    rounds: int = 0
    killed: int = 0
    lost_notes: int = 0
    unusable: int = 0
    took_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a row of the table."""
        per_round_ms = 1000 * self.took_s / max(1, self.rounds)
        counts = (self.rounds, self.killed, self.lost_notes, self.unusable, len(self.wrong))
        return f"| {self.kind} | {' | '.join(map(str, counts))} | {per_round_ms:.0f} |"


def services(
    root: Path, state: str = "state", embedder: Callable[[], EmbedderAdapter] = HashEmbedder
) -> BackendServices:
    """Return what the memory of the notes in `root/notes` opens with."""
    return BackendServices(
        workspace_dir=root / "notes",
        state_dir=root / state,
        agent_id="main",
        workspace_id="notes",
        ops_log=OpsLog(None),
        clock=lambda: datetime.now(UTC),
        embedder=embedder(),
    )


def write_notes(root: Path, numbers: range, randomness: random.Random) -> None:
    """Write notes of about two chunks each; the word of `IN_EVERY_NOTE` is in the first line."""
    folder = root / "notes" / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        lines = (" ".join(randomness.choices(WORDS, k=12)) for _ in range(30))
        text = f"# Note {number}, a {IN_EVERY_NOTE}\n" + "\n".join(lines)
        (folder / f"{number:04}.md").write_text(text, encoding="utf-8")


def faults_in(path: Path) -> list[str]:
    """Return what is wrong with an index file; looks at the disk."""
    if not path.exists():
        return []
    with closing(apsw.Connection(str(path))) as connection:
        if not connection.table_exists(None, "chunks"):
            return []
        found = [name for name, query in FAULTS.items() if connection.execute(query).get]
        if connection.execute("PRAGMA integrity_check").get != "ok":
            found.append("not sound")
        return found


async def work(kind: str, root: Path) -> None:
    """Do what shall be killed, and tell the process id when it begins: what a child does."""
    embedder = SlowEmbedder if kind == "embed" else HashEmbedder
    async with open_builtin(SETTINGS, services(root, embedder=embedder)) as memory:
        os.write(sys.stdout.fileno(), f"{os.getpid()}\n".encode())
        await memory.sync(force=kind == "rebuild")


def nurse(child_work: Callable[[str], Coroutine[None, None, None]]) -> None:
    """Fork a child for each line that comes in, and say how it ended; forking is quick."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(child_work(line.rstrip("\n")))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Nursery:
    """The process that has children which are killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def open(cls, script: str, *arguments: str, **environ: str) -> AsyncIterator["Nursery"]:
        """Start the process, which runs a script with `--nurse`, and end it."""
        path = os.pathsep.join(path for path in [str(Path(__file__).parents[1]), *sys.path] if path)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, script, "--nurse", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, **environ},
        )
        try:
            yield cls(process)
        finally:
            process.kill()
            await process.communicate()

    async def let_work(self, line: str, after_s: float) -> tuple[int, asyncio.Future[int]]:
        """Give a child its line and at most `after_s`; return its number, and how it will have ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        child = await self._number()
        ending = asyncio.ensure_future(self._number())
        await asyncio.wait([ending], timeout=after_s)
        return child, ending

    async def kill(self, kind: str, root: Path, after_s: float) -> int:
        """Let a child begin, and kill it after `after_s` seconds if it still runs; return how it ended."""
        child, ending = await self.let_work(f"{kind} {root}", after_s)
        if not ending.done():
            with suppress(ProcessLookupError):  # it ended in this moment
                os.kill(child, signal.SIGKILL)
        return await ending

    async def _number(self) -> int:
        assert self._process.stdout is not None
        return int(await self._process.stdout.readline())


async def run(root: Path, *, rounds: int, notes: int, seed: int, kind: str = "sync") -> Tally:
    """Kill `rounds` times, at moments drawn from the time that the work takes, and count what was wrong."""
    randomness, tally = random.Random(seed), Tally(kind=kind, rounds=rounds)
    await asyncio.to_thread(write_notes, root, range(notes), randomness)
    async with Nursery.open(__file__) as nursery:
        await nursery.kill("sync", root, 60)
        whole_s = await _time_whole(nursery, kind, root, notes, randomness)
        began = time.monotonic()
        for number in range(rounds):
            found = await _round(nursery, kind, root, randomness, whole_s, tally)
            tally.wrong += [f"{kind}, round {number}: {fault}" for fault in found]
        tally.took_s = time.monotonic() - began
    if await _content(root, "state") != await _content(root, "undisturbed"):
        tally.wrong.append(f"{kind}: the index is not what one is that was never disturbed")
    return tally


async def _time_whole(
    nursery: Nursery, kind: str, root: Path, notes: int, randomness: random.Random
) -> float:
    await asyncio.to_thread(write_notes, root, range(0, notes, 3), randomness)
    began = time.monotonic()
    await nursery.kill(kind, root, 60)
    return time.monotonic() - began


async def _round(
    nursery: Nursery, kind: str, root: Path, randomness: random.Random, whole_s: float, tally: Tally
) -> list[str]:
    notes = len(await asyncio.to_thread(os.listdir, root / "notes" / "memory"))
    changed = range(randomness.randrange(3), notes, 3)
    await asyncio.to_thread(write_notes, root, changed, randomness)
    before = await asyncio.to_thread(holdings, _index_in(root, "state"))
    code = await nursery.kill(kind, root, randomness.uniform(0, whole_s))
    tally.killed += code == -signal.SIGKILL
    found = [] if code in (0, -signal.SIGKILL) else [f"the child ended with {code}"]
    try:
        return found + await check(root, before, tally)
    except Exception as error:  # noqa: BLE001 - counted, whatever it is
        tally.unusable += 1
        return [*found, f"unusable: {error!r}"]


async def check(root: Path, before: Holdings, tally: Tally) -> list[str]:
    """Return what is wrong with the index now, while it answers, and after the next sync."""
    path = _index_in(root, "state")
    async with open_builtin(SETTINGS, services(root)) as memory:
        found = [f"after the kill: {fault}" for fault in await asyncio.to_thread(faults_in, path)]
        held = await asyncio.to_thread(holdings, path)
        lost = before.notes - held.notes
        tally.lost_notes += len(lost)
        if lost or held.vectors < before.vectors:
            found.append(f"lost {len(lost)} notes and {before.vectors - held.vectors} vectors")
        if not await memory.search(f"{IN_EVERY_NOTE} {WORDS[0]}"):
            found.append("no answer")
        found += await _completed(memory, root, path)
    return found + [f"left lying: {name}" for name in await asyncio.to_thread(_litter, path)]


async def _completed(memory: BuiltinMemory, root: Path, path: Path) -> list[str]:
    """Sync, and return in what the index differs from the notes after that."""
    report = await memory.sync()
    found = [f"after the sync: {fault}" for fault in await asyncio.to_thread(faults_in, path)]
    if report.problems or report.embeddings_pending:
        found.append(f"the sync did not complete: {report}")
    if await asyncio.to_thread(_hashes_in_index, path) != await asyncio.to_thread(_hashes_of_notes, root):
        found.append("the index is not what the notes are")
    return found


def holdings(path: Path) -> Holdings:
    """Return what an index file holds; looks at the disk."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        notes = frozenset(row[0] for row in connection.execute(FOUND))
        return Holdings(notes=notes, vectors=connection.execute("SELECT count(*) FROM embedding_cache").get)


def _litter(path: Path) -> list[str]:
    """Return files beside a closed index, and tables in it that no search reads."""
    with closing(apsw.Connection(str(path))) as connection:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'next%'"
        left = [f"table {row[0]}" for row in connection.execute(tables)]
    return left + [other.name for other in path.parent.iterdir() if other.name != path.name]


def _hashes_in_index(path: Path) -> dict[str, str]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return dict(connection.execute("SELECT path, hash FROM files"))


def _hashes_of_notes(root: Path) -> dict[str, str]:
    notes = (root / "notes" / "memory").iterdir()
    return {f"memory/{note.name}": sha256(note.read_bytes()).hexdigest() for note in notes}


async def _content(root: Path, state: str) -> set[tuple[object, ...]]:
    """Sync, and return all chunks."""
    async with open_builtin(SETTINGS, services(root, state)) as memory:
        await memory.sync()

    def read() -> set[tuple[object, ...]]:
        with closing(apsw.Connection(str(_index_in(root, state)))) as connection:
            return set(connection.execute(CONTENT))

    return await asyncio.to_thread(read)


def _index_in(root: Path, state: str) -> Path:
    (path,) = (root / state / "memory").glob("*.sqlite")
    return path


class Told(Protocol):
    """What rounds came to: a row of a table, and all that was wrong."""

    wrong: list[str]


async def tell_all(
    columns: str, kinds: Sequence[str], run_kind: Callable[[Path, str], Awaitable[Told]]
) -> int:
    """Run each kind in a folder of its own, print its row and what was wrong; return 1 if anything was."""
    wrong: list[str] = []
    print(f"| {columns} | all faults | ms a round |\n{'|---' * (columns.count('|') + 3)}|")
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            tally = await run_kind(Path(folder), kind)
        print(tally, flush=True)
        wrong += tally.wrong
    print("", *wrong, sep="\n")
    return 1 if wrong else 0


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--notes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nurse", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.nurse:
        nurse(lambda line: work(line.partition(" ")[0], Path(line.partition(" ")[2])))
        return 0
    if options.child is not None:
        asyncio.run(work("sync", options.child))
        return 0
    rounds = partial(run, rounds=options.rounds, notes=options.notes, seed=options.seed)
    told = tell_all(
        "killed while | rounds | killed | lost notes | unusable",
        options.kind or KINDS,
        lambda folder, kind: rounds(folder, kind=kind),
    )
    return asyncio.run(told)


if __name__ == "__main__":
    sys.exit(main())
