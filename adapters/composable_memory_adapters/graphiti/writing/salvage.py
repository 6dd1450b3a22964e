"""Saves what can be read of a damaged ledger into a new one, and sets the damaged one aside."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from composable_memory.errors import IndexProblem
from composable_memory_adapters.graphiti.writing import entries, schema
from composable_memory_adapters.sqlite_file import Connection, SqliteFile, Unreadable

__all__ = ["ASIDE", "check", "salvage"]

ASIDE = ".damaged-"
"""What stands in the name of a ledger that was set aside, before the time."""

PARTS = [f"{part:02x}" for part in range(256)]
"""Beginnings of ids. Reading ends at a damaged page: so it is done in parts, and each from both sides."""

ALL_IDS = "SELECT id FROM episodes"
"""Read from an index, which may be whole where the table is not."""

IDS = (
    "SELECT id FROM episodes WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id",
    "SELECT id FROM episodes WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id DESC",
)

COLUMNS = "SELECT name FROM pragma_table_info('episodes')"
FIND = "SELECT {columns} FROM episodes WHERE id = ?"
KEEP = "INSERT OR IGNORE INTO episodes ({columns}) VALUES ({places})"
STATE = "SELECT state FROM episodes WHERE id = ?"
CLAIMS = "SELECT group_id, workspace FROM claims"
CLAIM = "INSERT OR IGNORE INTO claims (group_id, workspace) VALUES (?, ?)"


def check(connection: Connection) -> None:
    """Read the file once, and what is to be worked on.

    Raises:
        Unreadable: something in it is damaged.
    """
    if (found := connection.execute("PRAGMA quick_check(1)").get) != "ok":
        raise Unreadable(str(found))
    entries.select(connection, f"state IN ({', '.join(map(repr, entries.DUE))})")


async def salvage(path: Path) -> tuple[Path, int]:
    """Put a new ledger in the place of a damaged one; return where that is, and how many episodes were saved.

    Raises:
        IndexProblem, OSError: there is no room for a new one.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    kept = 0
    async with (
        SqliteFile.open(path, readers=1, on_connect=_read_what_is_there) as damaged,
        SqliteFile.open(fresh, readers=1) as new,
    ):
        await new.write(lambda connection: schema.ensure(connection, fresh))
        columns = await new.read(_columns)
        with suppress(IndexProblem):  # an earlier version wrote fewer
            there = await damaged.read(_columns)
            columns = [name for name in columns if name in there]
        find = FIND.format(columns=", ".join(columns))
        keep = KEEP.format(columns=", ".join(columns), places=", ".join("?" for _ in columns))
        for own_id in await _ids(damaged):
            with suppress(IndexProblem):
                row = await damaged.read(partial(_sound, find=find, own_id=own_id))
                await new.write(partial(_keep, statement=keep, row=row))
                kept += 1
        with suppress(IndexProblem):
            for claim in await damaged.read(lambda connection: connection.execute(CLAIMS).fetchall()):
                await new.write(partial(_keep, statement=CLAIM, row=claim))
    return await asyncio.to_thread(_swap, path, fresh), kept


def _read_what_is_there(connection: Connection) -> None:
    """Let SQLite read a file that is shorter than its head says."""
    connection.execute("PRAGMA writable_schema = ON")


def _swap(path: Path, fresh: Path) -> Path:
    aside = path.with_name(f"{path.name}{ASIDE}{datetime.now(UTC):%Y%m%dT%H%M%S}")
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    fresh.replace(path)
    return aside


async def _ids(file: SqliteFile) -> list[str]:
    found: dict[str, None] = {}

    def collect(connection: Connection, statement: str, part: Sequence[str]) -> None:
        for row in connection.execute(statement, part):
            found[str(row[0])] = None  # at once: the next row may be the one that cannot be read

    ways = [(ALL_IDS, ()), *product(IDS, [(part,) for part in PARTS])]
    for statement, part in ways:
        with suppress(IndexProblem):
            await file.read(partial(collect, statement=statement, part=part))
    return [*found]


def _columns(connection: Connection) -> list[str]:
    return [str(row[0]) for row in connection.execute(COLUMNS)]


def _sound(connection: Connection, *, find: str, own_id: str) -> tuple[Any, ...]:
    """Return the row of an episode, if all of it can be read."""
    row = connection.execute(find, (own_id,)).fetchone()
    if row is None or connection.execute(STATE, (own_id,)).get not in entries.STATES:
        raise Unreadable(f"episode {own_id}")
    entries.select(connection, "id = ?", own_id)
    return tuple(row)


def _keep(connection: Connection, *, statement: str, row: tuple[Any, ...]) -> None:
    connection.execute(statement, row)
