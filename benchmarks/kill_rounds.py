"""Kills a process in the middle of indexing, again and again, and looks at what it leaves behind.

Each round changes some notes, lets a child process index them, kills it with SIGKILL at a random moment,
and checks that the index is sound, answers, and that the next sync completes it. Prints one line a round and
exits with 1 if anything was wrong.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import apsw

from composable_memory.interfaces import BackendServices
from composable_memory.testing import HashEmbedder
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_ops_logs import OpsLog

SETTINGS = BuiltinSettings.model_validate({"sync": {"onSearch": False}})
WORDS = "harbour ferry pump relay hull roof stairs coffee window train garden timer shade gauge tide".split()
READY = b"indexing\n"

FAULTS = {
    "chunks of no file": "SELECT count(*) FROM chunks LEFT JOIN files USING (path, source)"
    " WHERE files.hash IS NULL",
    "chunks without keywords": "SELECT count(*) FROM chunks WHERE id NOT IN (SELECT rowid FROM chunks_fts)",
    "keywords of no chunk": "SELECT count(*) FROM chunks_fts WHERE rowid NOT IN (SELECT id FROM chunks)",
    "pointers to no vector": "SELECT count(*) FROM chunks WHERE embedding_id IS NOT NULL"
    " AND embedding_id NOT IN (SELECT id FROM embedding_cache)",
    "vectors kept twice": "SELECT count(*) - count(DISTINCT hash || provider_key) FROM embedding_cache",
}


def services(root: Path) -> BackendServices:
    """Return what the memory of the notes in `root/notes` opens with."""
    return BackendServices(
        workspace_dir=root / "notes",
        state_dir=root / "state",
        agent_id="main",
        ops_log=OpsLog(None),
        clock=lambda: datetime.now(UTC),
        embedder=HashEmbedder(),
    )


def write_notes(root: Path, numbers: range, randomness: random.Random) -> None:
    """Write notes of about three chunks each."""
    folder = root / "notes" / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        lines = (" ".join(randomness.choices(WORDS, k=12)) for _ in range(60))
        (folder / f"{number:04}.md").write_text(f"# Note {number}\n" + "\n".join(lines), encoding="utf-8")


def faults_in(path: Path) -> list[str]:
    """Return what is wrong with an index file; looks at the disk."""
    if not path.exists():
        return []
    connection = apsw.Connection(str(path))
    try:
        if not connection.table_exists(None, "chunks"):
            return []
        found = [name for name, query in FAULTS.items() if connection.execute(query).get]
        if connection.execute("PRAGMA integrity_check").get != "ok":
            found.append("not sound")
        return found
    finally:
        connection.close()


async def index_until_killed(root: Path) -> None:
    """Index, and say when it begins: what the child process does."""
    async with open_builtin(SETTINGS, services(root)) as memory:
        os.write(sys.stdout.fileno(), READY)
        await memory.sync()


async def kill_while_indexing(root: Path, after_s: float) -> bool:
    """Let a child process index and kill it `after_s` seconds after it began; False if it was faster."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        "--child",
        str(root),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert child.stdout is not None
    await child.stdout.readexactly(len(READY))
    try:
        await asyncio.wait_for(child.wait(), after_s)
    except TimeoutError:
        child.send_signal(signal.SIGKILL)
        await child.wait()
    return child.returncode == -signal.SIGKILL


async def check(root: Path) -> list[str]:
    """Return what is wrong with the index now, while it answers, and after the next sync."""
    async with open_builtin(SETTINGS, services(root)) as memory:
        path = Path(memory.status().db_path or "")
        found = [f"after the kill: {fault}" for fault in await asyncio.to_thread(faults_in, path)]
        await memory.search("harbour ferry")
        report = await memory.sync()
        found += [f"after the sync: {fault}" for fault in await asyncio.to_thread(faults_in, path)]
        if report.problems or report.embeddings_pending:
            found.append(f"the sync did not complete: {report}")
        found += await _lost(memory, root)
    return found


async def _lost(memory: BuiltinMemory, root: Path) -> list[str]:
    """Return what a forced sync, which trusts nothing, finds otherwise than the index had it."""
    path = Path(memory.status().db_path or "")
    before = await asyncio.to_thread(_content, path)
    await memory.sync(force=True)
    lost = [] if before == await asyncio.to_thread(_content, path) else ["content was lost or old"]
    notes = len(list((root / "notes" / "memory").iterdir()))
    return lost if len(before) >= notes else [*lost, "notes were lost"]


def _content(path: Path) -> set[tuple[object, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = set(connection.execute("SELECT path, start_line, end_line, hash, text FROM chunks"))
    connection.close()
    return rows


async def run(root: Path, *, rounds: int, notes: int, seed: int) -> list[str]:
    """Kill `rounds` times and return all that was wrong."""
    randomness = random.Random(seed)
    await asyncio.to_thread(write_notes, root, range(notes), randomness)
    began = time.monotonic()
    async with open_builtin(SETTINGS, services(root)) as memory:
        await memory.sync()
    whole_s = time.monotonic() - began
    wrong: list[str] = []
    for number in range(rounds):
        changed = range(notes) if number % 2 else range(0, notes, 3)
        await asyncio.to_thread(write_notes, root, changed, randomness)
        after_s = randomness.uniform(0, whole_s)
        killed = await kill_while_indexing(root, after_s)
        found = await check(root)
        wrong += [f"round {number}: {fault}" for fault in found]
        how = "killed" if killed else "had finished"
        print(f"round {number:3}: {how} after {after_s * 1000:5.0f} ms: {', '.join(found) or 'nothing lost'}")
    return wrong


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--notes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        asyncio.run(index_until_killed(options.child))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        wrong = asyncio.run(run(Path(folder), rounds=options.rounds, notes=options.notes, seed=options.seed))
    print(f"{options.rounds} rounds, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
