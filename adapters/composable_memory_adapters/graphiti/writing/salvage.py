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

COLUMNS = (
    "id, sequence, group_id, draft_id, content_id, part_of, session_key, source_path, state, draft, hash, "
    "attempts, next_try_at, last_error, merged_into, trace_id, observed_at, enqueued_at, since"
)
PARTS = [f"{part:02x}" for part in range(256)]
"""Beginnings of ids. Reading ends at a damaged page: so it is done in parts, and each from both sides."""

ALL_IDS = "SELECT id FROM episodes"
"""Read from an index, which may be whole where the table is not."""

IDS = (
    "SELECT id FROM episodes WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id",
    "SELECT id FROM episodes WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id DESC",
)

FIND = f"SELECT {COLUMNS} FROM episodes WHERE id = ?"  # noqa: S608 - our own columns
PLACES = ", ".join("?" for _ in COLUMNS.split(","))
KEEP = f"INSERT OR IGNORE INTO episodes ({COLUMNS}) VALUES ({PLACES})"  # noqa: S608 - as above


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
        for own_id in await _ids(damaged):
            with suppress(IndexProblem):
                row = await damaged.read(partial(_sound, own_id=own_id))
                await new.write(partial(_keep, row=row))
                kept += 1
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


def _sound(connection: Connection, *, own_id: str) -> tuple[Any, ...]:
    """Return the row of an episode, if all of it can be read."""
    row = connection.execute(FIND, (own_id,)).fetchone()
    if row is None or row[8] not in entries.STATES:
        raise Unreadable(f"episode {own_id}")
    entries.select(connection, "id = ?", own_id)
    return tuple(row)


def _keep(connection: Connection, *, row: tuple[Any, ...]) -> None:
    connection.execute(KEEP, row)
