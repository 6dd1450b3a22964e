"""The file of the outbox: creates its tables, checks it, and rebuilds it if it is damaged.

`episodes` has a row for every text ever enqueued under an id: it is both the queue and the record of what is
done. `claims` has the groups that belong to one workspace although they are not named after it. `turns` has
the lease of each group, and how long a group that failed is paused. `restored` has the remaining steps of a
restore. Times are seconds since 1970.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from composable_memory.errors import BackendUnavailable, IndexDamaged, IndexProblem, IndexTooNew
from composable_memory.interfaces import KeptStore
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.outbox.entries import DUE_STATES, STATES, select
from composable_memory_adapters.sqlite_file import Connection, SqliteFile, Unreadable, set_aside
from composable_memory_ops_logs.plurals import counted

APPLICATION_ID = 0x636D6570
"""Marks the file as ours: the letters "cmep"."""

TABLES = """
CREATE TABLE episodes (
  id TEXT PRIMARY KEY,         -- the one in the graph
  sequence INTEGER NOT NULL,   -- the order in which they are stored
  group_id TEXT NOT NULL,
  draft_id TEXT NOT NULL,      -- as it was handed in; several texts may share it, one after the other
  content_id TEXT NOT NULL,
  part_of TEXT NOT NULL,       -- the content that a long text was cut from; else its own
  session_key TEXT,            -- of a message that may be merged
  source_path TEXT,            -- of what is all that a source says
  state TEXT NOT NULL,
  draft TEXT NOT NULL,         -- JSON
  hash TEXT NOT NULL,          -- SHA-256 of the text
  attempts INTEGER NOT NULL DEFAULT 0,
  next_try_at REAL NOT NULL DEFAULT 0,
  last_error TEXT,
  merged_into TEXT,
  trace_id TEXT,
  observed_at REAL NOT NULL,
  enqueued_at REAL NOT NULL,
  since REAL NOT NULL          -- when it reached its state
) WITHOUT ROWID;

CREATE INDEX episodes_by_state ON episodes (state, group_id, sequence);
CREATE INDEX episodes_by_draft ON episodes (draft_id);
CREATE INDEX episodes_by_sequence ON episodes (sequence);
CREATE INDEX episodes_by_whole ON episodes (group_id, part_of);
CREATE INDEX episodes_by_source ON episodes (source_path) WHERE source_path IS NOT NULL;
CREATE INDEX episodes_by_merged ON episodes (merged_into) WHERE merged_into IS NOT NULL;

CREATE TABLE turns (
  group_id TEXT PRIMARY KEY,
  holder TEXT,                 -- JSON
  failures INTEGER NOT NULL DEFAULT 0, -- without a success between them
  next_try_at REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""
MARKS = "ALTER TABLE episodes ADD COLUMN is_marked INTEGER NOT NULL DEFAULT 0"
"""Whether the graph marks the episode once it is completely stored; earlier versions did not."""
WORKSPACES = """
ALTER TABLE episodes ADD COLUMN workspace TEXT; -- NULL where it was handed in before workspaces were recorded
CREATE INDEX episodes_of_nobody ON episodes (group_id) WHERE workspace IS NULL;
CREATE TABLE claims (group_id TEXT PRIMARY KEY, workspace TEXT NOT NULL) WITHOUT ROWID;
"""
RESTORED = """
CREATE TABLE restored (
  group_id TEXT PRIMARY KEY,
  staged TEXT                  -- the graph that replaces the group's; NULL if none does
) WITHOUT ROWID;
"""
MIGRATIONS = (TABLES, MARKS, WORKSPACES, RESTORED)
"""The statements that migrate a file from each version to the next."""

SCHEMA_VERSION = len(MIGRATIONS)


def ensure(connection: Connection, path: Path) -> None:
    """Migrate the tables to this version; call it within a write.

    Raises:
        IndexTooNew: a later version wrote the file.
        IndexProblem: it belongs to another program.
    """
    version = connection.execute("PRAGMA user_version").get
    if version > SCHEMA_VERSION:
        raise IndexTooNew(path, found=version, supported=SCHEMA_VERSION)
    is_ours = connection.execute("PRAGMA application_id").get == APPLICATION_ID
    if not is_ours and connection.execute("SELECT count(*) FROM sqlite_schema").get:
        raise IndexProblem(path, "it belongs to another program; choose another folder")
    for migration in MIGRATIONS[version:]:
        connection.execute(migration)
    if version < SCHEMA_VERSION:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


T = TypeVar("T")

FILE_NAME = "episodes.sqlite"

INGEST_AGAIN = "ingest again so that nothing is missing (what is in the graph is kept)"

ID_PREFIXES = [f"{part:02x}" for part in range(256)]
"""Reading stops at a damaged page, so ids are read by their first two digits, each range from both ends."""
ALL_IDS = "SELECT id FROM episodes"
"""Read from an index, which may be intact even if the table is not."""
IDS_WITH_PREFIX = (
    "SELECT id FROM episodes WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id",
    "SELECT id FROM episodes WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id DESC",
)
COLUMNS = "SELECT name FROM pragma_table_info('episodes')"
CLAIMS = "SELECT group_id, workspace FROM claims"
SAVE_CLAIM = "INSERT OR IGNORE INTO claims (group_id, workspace) VALUES (?, ?)"
SIZES = """
SELECT workspace, sum(length(draft)) FROM episodes
WHERE workspace IS NOT NULL AND state NOT IN ('moved', 'forgotten') GROUP BY workspace
"""


class OutboxFile:
    """The SQLite file of an outbox, shared with other processes and other workspaces.

    Every call raises `BackendUnavailable` if the file cannot be used; the call then has had no effect.
    `problem` says what was done to the file in order to open it.
    """

    def __init__(self, file: SqliteFile, *, problem: str | None = None) -> None:
        self.file = file
        self.problem = problem

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path) -> AsyncIterator["OutboxFile"]:
        """Yield the outbox file of a folder; creates both if missing.

        A damaged file is set aside, and whatever can be read of it is copied to a new one.
        """
        path = folder / FILE_NAME
        async with AsyncExitStack() as stack:
            opened = cls(await stack.enter_async_context(_connect(path)))
            try:
                await opened._prepare()
            except BackendUnavailable as error:
                if not isinstance(error.__cause__, IndexDamaged):
                    raise
                problem = await opened._rebuild(error.__cause__)
                opened = cls(await stack.enter_async_context(_connect(path)), problem=problem)
                await opened._prepare()
            yield opened

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a consistent snapshot of the file."""
        try:
            return await self.file.read(work)
        except IndexProblem as cause:
            raise self._unusable(cause, "be read") from cause

    async def write(self, work: Callable[[Connection], T], *, doing: str = "be written") -> T:
        """Run `work` in a transaction; `doing` completes the sentence "the outbox could not …"."""
        try:
            return await self.file.write(work)
        except IndexProblem as cause:
            raise self._unusable(cause, doing) from cause

    async def scrub(self) -> None:
        """Erase all remains of removed content from the file and from copies that were set aside."""
        try:
            await self.file.scrub()
        except IndexProblem as cause:
            raise self._unusable(cause, "be cleaned") from cause

    async def _prepare(self) -> None:
        """Create or migrate the tables, and read the file once to detect damage."""

        def work(connection: Connection) -> None:
            ensure(connection, self.file.path)
            _check(connection)

        await self.write(work, doing="be opened")

    async def _rebuild(self, damage: IndexDamaged) -> str:
        try:
            await self.file.close()
            aside, saved = await _salvage(self.file.path)
        except (IndexProblem, OSError) as cause:
            raise self._unusable(damage, "be opened") from cause
        return (
            f"the outbox of the graph was damaged; {counted(saved, 'episode')} could be saved, and the "
            f"damaged file was set aside as {aside}; {INGEST_AGAIN}"
        )

    def _unusable(self, cause: IndexProblem, doing: str) -> BackendUnavailable:
        problem = f"the outbox {self.file.path} could not {doing} ({cause.__cause__ or cause})"
        return BackendUnavailable(BACKEND_ID, problem, fix=_advice(cause), operation="keep episodes")


def stored_sizes(state_dir: Path) -> tuple[KeptStore, ...]:
    """Return how much each workspace wrote to each graph; reads the outboxes in a state folder."""
    return tuple(
        KeptStore(workspace_id=workspace, kind="facts", path=path.parent, bytes=size)
        for path in sorted(state_dir.glob(f"graphiti*/{FILE_NAME}"))
        for workspace, size in _sizes(path)
    )


def _sizes(path: Path) -> list[tuple[str, int]]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            return [(str(workspace), int(size or 0)) for workspace, size in file.execute(SIZES)]
    except sqlite3.Error:  # damaged, or from an earlier version without workspaces
        return []


def _connect(path: Path) -> AbstractAsyncContextManager[SqliteFile]:
    return SqliteFile.open(path, readers=1, on_connect=_overwrite_freed)


def _overwrite_freed(connection: Connection) -> None:
    """Overwrite freed pages, so that nothing forgotten remains in the file."""
    connection.execute("PRAGMA secure_delete = ON")


def _advice(cause: IndexProblem) -> str:
    if isinstance(cause, IndexTooNew):
        return "upgrade composable-memory"
    if isinstance(cause, IndexDamaged):
        return "move the file away and ingest again; what is in the graph is kept"
    return "free some space, check the permissions of the file and its folder, or end what else uses it"


# --- damage -------------------------------------------------------------------------------------------------


def _check(connection: Connection) -> None:
    """Read the file once, and every entry that still needs work.

    Raises:
        Unreadable: something in it is damaged.
    """
    if (found := connection.execute("PRAGMA quick_check(1)").get) != "ok":
        raise Unreadable(str(found))
    select(connection, f"state IN ({', '.join(map(repr, DUE_STATES))})")


async def _salvage(path: Path) -> tuple[Path, int]:
    """Replace a damaged file by a new one; return where the old one is, and how many episodes were saved.

    Raises:
        IndexProblem, OSError: there is no room for a new one.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    saved = 0
    async with (
        SqliteFile.open(path, readers=1, on_connect=_read_truncated_files) as damaged,
        SqliteFile.open(fresh, readers=1) as new,
    ):
        await new.write(lambda connection: ensure(connection, fresh))
        columns = await new.read(_columns)
        with suppress(IndexProblem):  # an earlier version had fewer columns
            present = await damaged.read(_columns)
            columns = [name for name in columns if name in present]
        names, places = ", ".join(columns), ", ".join("?" for _ in columns)
        find = f"SELECT {names} FROM episodes WHERE id = ?"  # noqa: S608 - names of our own columns
        save = f"INSERT OR IGNORE INTO episodes ({names}) VALUES ({places})"  # noqa: S608
        for own_id in await _readable_ids(damaged):
            with suppress(IndexProblem):
                row = await damaged.read(partial(_sound_row, find=find, own_id=own_id))
                await new.write(partial(_insert, statement=save, row=row))
                saved += 1
        with suppress(IndexProblem):
            for claim in await damaged.read(lambda connection: connection.execute(CLAIMS).fetchall()):
                await new.write(partial(_insert, statement=SAVE_CLAIM, row=claim))
    return await asyncio.to_thread(_swap, path, fresh), saved


def _read_truncated_files(connection: Connection) -> None:
    """Let SQLite read a file that is shorter than its header claims."""
    connection.execute("PRAGMA writable_schema = ON")


def _swap(path: Path, fresh: Path) -> Path:
    aside = set_aside(path)
    fresh.replace(path)
    return aside


async def _readable_ids(file: SqliteFile) -> list[str]:
    found: dict[str, None] = {}

    def collect(connection: Connection, statement: str, parameters: Sequence[str]) -> None:
        for row in connection.execute(statement, parameters):
            found[str(row[0])] = None  # at once, as the next row may be the unreadable one

    by_prefix = product(IDS_WITH_PREFIX, [(prefix,) for prefix in ID_PREFIXES])
    for statement, parameters in [(ALL_IDS, ()), *by_prefix]:
        with suppress(IndexProblem):
            await file.read(partial(collect, statement=statement, parameters=parameters))
    return [*found]


def _columns(connection: Connection) -> list[str]:
    return [str(row[0]) for row in connection.execute(COLUMNS)]


def _sound_row(connection: Connection, *, find: str, own_id: str) -> tuple[Any, ...]:
    """Return the row of an episode if all of it is readable."""
    row = connection.execute(find, (own_id,)).fetchone()
    state = connection.execute("SELECT state FROM episodes WHERE id = ?", (own_id,)).get
    if row is None or state not in STATES:
        raise Unreadable(f"episode {own_id}")
    select(connection, "id = ?", own_id)
    return tuple(row)


def _insert(connection: Connection, *, statement: str, row: tuple[Any, ...]) -> None:
    connection.execute(statement, row)
