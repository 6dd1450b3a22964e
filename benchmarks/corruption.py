"""Damages an index in many ways, and looks whether it is seen, served as if it were sound, and mended.

    python -m benchmarks.corruption                       five rounds of each kind
    python -m benchmarks.corruption --rounds 20 --seed 3

Each round puts a sound index in place, damages the file or its log at a place that a seed chooses, and asks
for every note. No answer may hold a text that no note holds, at lines where it does not stand; nothing may be
raised but the errors of this library. What a search came upon, or `check` finds, the next sync has to mend:
the index then has to hold, row by row, what one holds that was made anew. Prints a table and exits with 1 if
anything was wrong.
"""

import argparse
import asyncio
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from benchmarks.kill_rounds import SETTINGS, services
from composable_memory.errors import ComposableMemoryError
from composable_memory.interfaces import BackendServices
from composable_memory.testing import HashEmbedder
from composable_memory.types import MemorySearchResult
from composable_memory_adapters.builtin.backend import open_builtin

WORDS = "harbour ferry pump relay hull roof stairs coffee window train garden timer shade gauge tide".split()
PAGE = 16384
ROWS = {
    "files": "SELECT path, source, hash, size, chunker, is_utf8 FROM files ORDER BY path",
    "passages": """
        SELECT path, source, start_line, end_line, start_char, chunks.hash, text, chunks.checksum, embedding
        FROM chunks LEFT JOIN embedding_cache AS cached ON cached.id = embedding_id
        ORDER BY path, start_line, start_char
    """,
    "words": """
        SELECT words.term, path, start_line, start_char, words."offset"
        FROM temp.words AS words JOIN chunks ON chunks.id = words.doc ORDER BY 1, 2, 3, 4, 5
    """,
    "words of no passage": "SELECT term FROM temp.words WHERE doc NOT IN (SELECT id FROM chunks)",
}

Damage = Callable[[Path, random.Random], None]


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the rounds of one kind came to."""

    kind: str
    rounds: int = 0
    seen_by_search: int = 0
    seen_by_check: int = 0
    faults: list[str] = field(default_factory=list)


# --- what is done to a file ---------------------------------------------------------------------------------


def _flip(path: Path, chance: random.Random, *, count: int) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(count if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _truncate(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(1, len(data))])


def _zero_page(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data) // PAGE) * PAGE
    data[at : at + PAGE] = bytes(PAGE)
    path.write_bytes(data)


def _bit_of(path: Path, chance: random.Random, query: str) -> None:
    """Flip a bit of a value where it stands in the file; remains of rows that are gone look the same."""
    before = _values(path, query)
    wanted = chance.choice([one for one in before if len(set(one)) > 4])
    data = bytearray(path.read_bytes())
    places = [found.start() for found in re.finditer(re.escape(wanted), data)]
    for at in chance.sample(places, len(places)):
        where, bit = at + chance.randrange(len(wanted)), 1 << chance.randrange(7)
        data[where] ^= bit
        path.write_bytes(data)
        if _values(path, query) != before:
            return
        data[where] ^= bit
    raise LookupError("the value does not stand in the file in one piece")


def _values(path: Path, query: str) -> list[bytes]:
    with closing(apsw.Connection(str(path))) as connection:
        return [row[0] for row in connection.execute(query)]


def _set(path: Path, statement: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("writable_schema", 1)
        connection.execute(statement)


def _null_text(path: Path, chance: random.Random) -> None:
    """Make a text NULL, as a damaged page does; what forbids it is taken away and put back."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("writable_schema", 1)
        sql = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'chunks'").get
        change = "UPDATE sqlite_schema SET sql = ? WHERE name = 'chunks'"
        connection.execute(change, (sql.replace("text TEXT NOT NULL", "text TEXT         "),))
    with closing(apsw.Connection(str(path))) as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM chunks")]
        connection.execute("UPDATE chunks SET text = NULL WHERE id = ?", (chance.choice(ids),))
        connection.pragma("writable_schema", 1)
        connection.execute(change, (sql,))


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


KINDS: Mapping[str, Damage] = {
    "a bit of the file": lambda path, chance: _flip(path, chance, count=1),
    "64 bits of the file": lambda path, chance: _flip(path, chance, count=64),
    "cut short": _truncate,
    "a page of zeros": _zero_page,
    "garbage": lambda path, chance: path.write_bytes(chance.randbytes(50_000)) and None,
    "emptied": lambda path, _: path.write_bytes(b"") and None,
    "no text": _null_text,
    "a bit of a text": lambda path, chance: _bit_of(path, chance, "SELECT CAST(text AS BLOB) FROM chunks"),
    "a bit of a hash": lambda path, chance: _bit_of(path, chance, "SELECT CAST(hash AS BLOB) FROM chunks"),
    "a bit of a vector": lambda path, chance: _bit_of(path, chance, "SELECT embedding FROM embedding_cache"),
    "a bit of the words": lambda path, chance: _bit_of(
        path, chance, "SELECT block FROM chunks_fts_data WHERE length(block) > 200"
    ),
    "other lines": lambda path, chance: _set(
        path, f"UPDATE chunks SET start_line = 7, end_line = 9 WHERE id % 5 = {chance.randrange(5)}"
    ),
    "log: a bit": lambda path, chance: _flip(_log_of(path), chance, count=1),
    "log: 64 bits": lambda path, chance: _flip(_log_of(path), chance, count=64),
    "log: cut short": lambda path, chance: _truncate(_log_of(path), chance),
    "log: garbage": lambda path, chance: _log_of(path).write_bytes(chance.randbytes(50_000)) and None,
    "log: gone": lambda path, _: _log_of(path).unlink(),
}


# --- rounds -------------------------------------------------------------------------------------------------


async def run(root: Path, *, kind: str, rounds: int, notes: int = 60, seed: int = 1) -> Tally:
    """Damage an index `rounds` times in one way."""
    await asyncio.to_thread(_write_notes, root / "notes", notes)
    handed = services(root, embedder=HashEmbedder)
    path = await _build(handed, root / "notes", has_log=kind.startswith("log"))
    sound = root / "sound"
    await asyncio.to_thread(_copy, path, sound)
    expected = await asyncio.to_thread(_rows, await _fresh(root, handed))
    tally = Tally(kind=kind)
    for number in range(rounds):
        chance = random.Random(f"{seed} {kind} {number}")
        await asyncio.to_thread(_put_back, sound, path)
        await asyncio.to_thread(KINDS[kind], path, chance)
        try:
            await _round(tally, handed, path, expected)
        except ComposableMemoryError as error:
            tally.faults.append(f"round {number}: {error}")
        except Exception as error:  # noqa: BLE001 - what is not ours is a defect, whatever it is
            tally.faults.append(f"round {number}: raised {type(error).__name__}: {error}")
        tally.rounds += 1
    return tally


async def _round(tally: Tally, handed: BackendServices, path: Path, expected: Mapping[str, object]) -> None:
    async with open_builtin(SETTINGS, handed) as memory:
        is_seen = False
        for number in range(0, 60, 3):
            try:
                answer = await memory.answer(f"note{number} keepsake {WORDS[number % len(WORDS)]}")
            except ComposableMemoryError:
                is_seen = True
                continue
            is_seen |= any(one.code in ("damaged", "stale") for one in answer.degraded)
            wrong = [hit for hit in answer.results if not _stands_there(hit, handed.workspace_dir)]
            tally.faults += [f"served: {hit.key} {hit.snippet[:80]!r}" for hit in wrong]
        tally.seen_by_search += is_seen
    async with open_builtin(SETTINGS, handed) as memory:
        tally.seen_by_check += bool(await memory.check())
    async with open_builtin(SETTINGS, handed) as memory:
        await memory.sync(reason="cli")
        tally.faults += [f"not mended: {one}" for one in await memory.check()]
    found = await asyncio.to_thread(_rows, path)
    tally.faults += [f"other {name} than a new index" for name in ROWS if found[name] != expected[name]]


def _stands_there(hit: MemorySearchResult, workspace: Path) -> bool:
    """Say whether a result holds only what its note says at its lines."""
    try:
        lines = (workspace / hit.path).read_text(encoding="utf-8").split("\n")
    except OSError:
        return False
    text = "\n".join(lines[hit.start_line - 1 : hit.end_line])
    return all(part.strip() in text for part in hit.snippet.replace("…", "\n").split("\n"))


async def _build(handed: BackendServices, workspace: Path, *, has_log: bool) -> Path:
    """Make an index; with `has_log`, half of it stands in the log when this returns."""
    async with open_builtin(SETTINGS, handed) as memory:
        await memory.sync()
        path = Path(memory.status().db_path or "")
        if not has_log:
            return path
        keeper = apsw.Connection(str(path))  # as long as it is open, the log is not brought into the file
        keeper.execute("BEGIN").execute("SELECT count(*) FROM chunks").fetchall()
        await asyncio.to_thread(_change_notes, workspace)
        await memory.sync()
        await asyncio.to_thread(_copy, path, path.with_name("kept"))
    keeper.close()
    await asyncio.to_thread(_put_back, path.with_name("kept"), path)
    return path


async def _fresh(root: Path, handed: BackendServices) -> Path:
    other = services(root, embedder=HashEmbedder, state="fresh")
    assert other.workspace_dir == handed.workspace_dir
    async with open_builtin(SETTINGS, other) as memory:
        await memory.sync()
        return Path(memory.status().db_path or "")


def _write_notes(workspace: Path, count: int) -> None:
    (workspace / "memory").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        lines = (
            f"{WORDS[(number + at) % len(WORDS)]} of note{number} keepsake, line {at}" for at in range(40)
        )
        body = "\n".join(lines)
        (workspace / "memory" / f"{number:03}.md").write_text(
            f"# Note {number}\n\n{body}\n", encoding="utf-8"
        )


def _change_notes(workspace: Path) -> None:
    for path in sorted(workspace.glob("memory/*5.md")):
        path.write_text(f"{path.read_text(encoding='utf-8')}\nlater on: gauge\n", encoding="utf-8")


def _copy(path: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for suffix in ("", "-wal"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            shutil.copyfile(part, folder / f"index{suffix}")


def _put_back(folder: Path, path: Path) -> None:
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    for part in folder.iterdir():
        shutil.copyfile(part, path.with_name(path.name + part.name.removeprefix("index")))


def _rows(path: Path) -> dict[str, object]:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, chunks_fts, instance)")
        return {name: connection.execute(query).fetchall() for name, query in ROWS.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--notes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=list(KINDS))
    args = parser.parse_args()
    faults = 0
    print(f"{'damage':22} {'rounds':>6} {'seen by search':>15} {'by check':>9} {'faults':>7}")
    for kind in [args.kind] if args.kind else KINDS:
        with tempfile.TemporaryDirectory() as root:
            work = run(Path(root), kind=kind, rounds=args.rounds, notes=args.notes, seed=args.seed)
            tally = asyncio.run(work)
        faults += len(tally.faults)
        counts = f"{tally.rounds:6} {tally.seen_by_search:15} {tally.seen_by_check:9} {len(tally.faults):7}"
        print(f"{kind:22} {counts}")
        for fault in tally.faults[:5]:
            print(f"    {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
