"""The workspaces of a state folder: which one a folder is, though it was moved, copied or replaced.

A folder is known again by its device, inode and birth time. One that was moved or renamed keeps these and is
the same workspace; a copy has others and is another one. After a restart a disk may have another device
number, so at the same path inode and birth time suffice. An inode alone says little: it is soon given to
another folder, and on network drives and mounts of virtual machines it may differ each time. So where the
file system tells no birth times, the path decides; a folder that is moved there is taken for a new one, and
can be adopted.

Looks at the disk, so call it in a thread where an event loop runs. A registry that cannot be used is a
`ConfigError`.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from composable_memory.errors import ConfigError
from composable_memory.folder_identity import FolderIdentity
from composable_memory.state.folders import workspace_mark
from composable_memory_ops_logs.quick_dataclass import dataclass

REGISTRY_FILE = "workspaces.sqlite"
BUSY_TIMEOUT_S = 30.0
USED_EVERY_S = 3600.0
"""How exactly the time of the last use is kept: a command that only asks seldom has to write."""
ID_CHARS = 12
WITHOUT_WORKSPACES = frozenset({"connect", "hooks", "log-shipping", "models", "serve", "trusted"})
"""Folders of a state folder that commands make before any workspace is known."""
INDEXES_BEFORE = "memory/*-????????.sqlite"
INDEXES_SINCE = f"memory/*-{'?' * ID_CHARS}.sqlite"

TABLES = (
    """
CREATE TABLE workspaces (
  id TEXT PRIMARY KEY,
  name TEXT UNIQUE,         -- memory.id
  path BLOB NOT NULL,       -- where it was seen last
  used_at REAL NOT NULL,
  inherits INTEGER NOT NULL -- whether it alone used the state folder before there was this file
) WITHOUT ROWID
""",
    """
CREATE TABLE folders (
  path BLOB NOT NULL,
  device TEXT NOT NULL,
  inode TEXT NOT NULL,
  birth TEXT,
  workspace TEXT NOT NULL
)
""",
    "CREATE TABLE origin (was_used INTEGER NOT NULL)",
)
NOTE_SCOPES = "CREATE TABLE IF NOT EXISTS note_scopes (workspace TEXT PRIMARY KEY, scope TEXT NOT NULL)"
FOLDERS = "SELECT rowid, path, device, inode, birth, workspace FROM folders WHERE {} ORDER BY rowid"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceIdentity:
    """Which workspace a folder is.

    `inherits` says that it alone used the state folder before workspaces were told apart. `instead_of` is the
    workspace whose folder was at this path before, and `begins_anew` says that memories are kept here of
    workspaces that the registry does not know; both are set only when this one is met for the first time.
    """

    id: str
    inherits: bool = False
    instead_of: str | None = None
    begins_anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorkspace:
    """A workspace in the registry; `is_there` says that the folder at its path is still that one."""

    id: str
    name: str | None
    path: Path
    used_at: datetime
    is_there: bool


def identify(
    state_dir: Path,
    folder: Path,
    *,
    now: datetime,
    name: str | None = None,
) -> WorkspaceIdentity:
    """Return which workspace `folder` is, and register it if it is new; `name` is `memory.id`.

    Who is called by a name is that workspace wherever its folder is. A name that nobody has yet is given to
    the folder's workspace.
    """
    here = FolderIdentity.at(folder)
    with _registry(state_dir) as registry:
        found = _known(registry, here, name, now)
        if found is None:
            with _transaction(registry):
                found = _registered(registry, here, name, now, state_dir=state_dir)
    return found


def known_workspaces(state_dir: Path) -> tuple[KnownWorkspace, ...]:
    """Return all workspaces, the one used last first."""
    with _registry(state_dir) as registry:
        rows = registry.execute(
            "SELECT id, name, path, used_at FROM workspaces ORDER BY used_at DESC, id"
        ).fetchall()
        return tuple(
            KnownWorkspace(
                id=id_,
                name=name,
                path=Path(os.fsdecode(path)),
                used_at=datetime.fromtimestamp(used_at, UTC),
                is_there=_is_there(registry, id_, name, Path(os.fsdecode(path))),
            )
            for id_, name, path, used_at in rows
        )


def workspace_named(state_dir: Path, name: str) -> str:
    """Return the id of a known workspace by its id, its name, or the folder where it was seen last.

    Raises:
        ConfigError: there is none, or the registry cannot be used.
    """
    known, path = known_workspaces(state_dir), Path(name).expanduser()
    for one in known:
        if name in (one.id, one.name) or one.path in (path, path.resolve()):
            return one.id
    listed = ", ".join(f"{one.id} ({one.path})" for one in known) or "none"
    raise ConfigError("workspace", f"no workspace {name!r} is known in {state_dir}; known is {listed}")


def adopt(state_dir: Path, folder: Path, workspace_id: str, *, now: datetime) -> None:
    """Let `folder` be a known workspace from now on; folders of it that are gone are forgotten."""
    here = FolderIdentity.at(folder)
    with _registry(state_dir) as registry, _transaction(registry):
        for row in _folders(registry, "workspace = ?", workspace_id):
            if not row.is_there():
                registry.execute("DELETE FROM folders WHERE rowid = ?", (row.row_id,))
        mine = _match(registry, here)
        if mine is not None:
            registry.execute("DELETE FROM folders WHERE rowid = ?", (mine.row_id,))
        _add_folder(registry, here, workspace_id)
        registry.execute(
            "INSERT INTO workspaces VALUES (?, NULL, ?, ?, 0)"
            " ON CONFLICT (id) DO UPDATE SET path = excluded.path, used_at = excluded.used_at",
            (workspace_id, os.fsencode(here.path), now.timestamp()),
        )


def forget(state_dir: Path, workspaces: Iterable[KnownWorkspace]) -> None:
    """Remove workspaces of which nothing is kept; one that was used meanwhile stays."""
    with _registry(state_dir) as registry, _transaction(registry):
        for one in workspaces:
            unused = registry.execute(
                "DELETE FROM workspaces WHERE id = ? AND ABS(used_at - ?) < 1",
                (one.id, one.used_at.timestamp()),
            )
            if unused.rowcount:
                registry.execute("DELETE FROM folders WHERE workspace = ?", (one.id,))


def kept_note_scope(state_dir: Path, workspace_id: str) -> str | None:
    """Return which files of a workspace were chosen as its notes; None if nothing was chosen yet."""
    if not (state_dir / REGISTRY_FILE).exists():
        return None
    with _registry(state_dir) as registry:
        if registry.execute("SELECT 1 FROM sqlite_schema WHERE name = 'note_scopes'").fetchone() is None:
            return None
        found = registry.execute(
            "SELECT scope FROM note_scopes WHERE workspace = ?", (workspace_id,)
        ).fetchone()
        return str(found[0]) if found else None


def keep_note_scope(state_dir: Path, workspace_id: str, scope: str, *, replaces: bool = False) -> None:
    """Record which files of a workspace are its notes; unless it `replaces` it, what was recorded stays."""
    with _registry(state_dir) as registry, _transaction(registry):
        registry.execute(NOTE_SCOPES)
        if replaces:
            registry.execute("DELETE FROM note_scopes WHERE workspace = ?", (workspace_id,))
        registry.execute("INSERT OR IGNORE INTO note_scopes VALUES (?, ?)", (workspace_id, scope))


# --- a folder on the disk -----------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A folder in the registry, and the workspace that it is."""

    row_id: int
    folder: FolderIdentity
    workspace: str

    def is_there(self) -> bool:
        """Return whether this folder is still at its path."""
        try:
            return self.folder.is_same(FolderIdentity.at(self.folder.path))
        except OSError:
            return False


def _match(registry: sqlite3.Connection, here: FolderIdentity) -> _Row | None:
    """Return what the registry knows of a folder; None if it is new."""
    rows = _folders(registry, "inode = ? OR path = ?", here.inode, os.fsencode(here.path))
    same = [row for row in rows if row.folder.is_same(here)]
    return max(same, key=lambda row: (row.folder.path == here.path, row.row_id), default=None)


def _better_known(here: FolderIdentity, row: _Row) -> FolderIdentity:
    """Return a folder as it is known best: one whose birth time is not told this time keeps what it has."""
    return row.folder if here.birth is None and row.folder.birth else here


# --- the registry -------------------------------------------------------------------------------------------


@contextmanager
def _registry(state_dir: Path) -> Iterator[sqlite3.Connection]:
    """Open the file; it is made, readable by its owner alone, where there is none."""
    path = state_dir / REGISTRY_FILE
    try:
        there = {entry.name for entry in state_dir.iterdir() if entry.is_dir()}
        was_used = not there <= WITHOUT_WORKSPACES  # before it had a registry
        is_new = not path.exists()
        with suppress(FileExistsError):  # closing one that exists would drop SQLite's locks on it
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            if not _has_tables(connection):
                with _transaction(connection):
                    if not _has_tables(connection):
                        if not is_new and any(state_dir.glob(INDEXES_SINCE)):
                            raise sqlite3.DatabaseError("it is empty, and workspaces were known")
                        for statement in TABLES:
                            connection.execute(statement)
                        connection.execute("INSERT INTO origin VALUES (?)", (was_used,))
            yield connection
    except (sqlite3.Error, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        fix = "make it writable, or choose another state folder"
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            fix = "move it away; `cmem workspace list` shows what is kept, and `adopt` gives it back"
        raise ConfigError("state_dir", f"the registry {path} cannot be used ({reason}); {fix}") from error


def _has_tables(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'origin'").fetchone()
    return found is not None


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def _folders(registry: sqlite3.Connection, where: str, *values: str | bytes) -> list[_Row]:
    return [
        _Row(row_id, FolderIdentity(Path(os.fsdecode(path)), device, inode, birth), workspace)
        for row_id, path, device, inode, birth, workspace in registry.execute(FOLDERS.format(where), values)
    ]


def _add_folder(registry: sqlite3.Connection, here: FolderIdentity, workspace_id: str) -> None:
    registry.execute(
        "INSERT INTO folders VALUES (?, ?, ?, ?, ?)",
        (os.fsencode(here.path), here.device, here.inode, here.birth, workspace_id),
    )


def _named(registry: sqlite3.Connection, name: str) -> str | None:
    found = registry.execute(
        "SELECT id FROM workspaces WHERE ? IN (name, id) ORDER BY name IS NULL", (name,)
    ).fetchone()
    return str(found[0]) if found else None


def _is_there(registry: sqlite3.Connection, workspace_id: str, name: str | None, path: Path) -> bool:
    rows = _folders(registry, "workspace = ?", workspace_id)
    return any(row.is_there() for row in rows) or (name is not None and not rows and path.is_dir())


def _known(
    registry: sqlite3.Connection, here: FolderIdentity, name: str | None, now: datetime
) -> WorkspaceIdentity | None:
    """Return a workspace of which nothing has to be written down."""
    row = _match(registry, here)
    workspace_id = _named(registry, name) if name else row.workspace if row else None
    if row is None or row.folder != _better_known(here, row) or workspace_id is None:
        return None
    path, used_at, inherits = registry.execute(
        "SELECT path, used_at, inherits FROM workspaces WHERE id = ?", (workspace_id,)
    ).fetchone()
    is_recent = abs(now.timestamp() - used_at) < USED_EVERY_S
    if os.fsdecode(path) != str(here.path) or not is_recent:
        return None
    return WorkspaceIdentity(id=workspace_id, inherits=bool(inherits))


def _registered(
    registry: sqlite3.Connection,
    here: FolderIdentity,
    name: str | None,
    now: datetime,
    *,
    state_dir: Path,
) -> WorkspaceIdentity:
    """Return the workspace of a folder, as it is written down after this."""
    row = _match(registry, here)
    if row is not None and row.folder != _better_known(here, row):
        registry.execute("DELETE FROM folders WHERE rowid = ?", (row.row_id,))
        _add_folder(registry, _better_known(here, row), row.workspace)
    workspace_id = _named(registry, name) if name else row.workspace if row else None
    if workspace_id is None and row is not None:
        # A name that nobody has: the folder's own workspace takes it, unless it has another one.
        registry.execute(
            "UPDATE workspaces SET name = ? WHERE id = ? AND name IS NULL", (name, row.workspace)
        )
        workspace_id = _named(registry, name or "")
    values = {"path": os.fsencode(here.path), "now": now.timestamp(), "name": name}
    if workspace_id is None:
        made = _new(registry, here, name, state_dir=state_dir)
        registry.execute(
            "INSERT INTO workspaces VALUES (:id, :name, :path, :now, :inherits)",
            {**values, "id": made.id, "inherits": made.inherits},
        )
        if row is None:
            _add_folder(registry, here, made.id)
        return made if row is None and name is None else replace(made, instead_of=None, begins_anew=False)
    if row is None:
        _add_folder(registry, here, workspace_id)
    registry.execute(
        "UPDATE workspaces SET path = :path, used_at = :now WHERE id = :id", {**values, "id": workspace_id}
    )
    (inherits,) = registry.execute("SELECT inherits FROM workspaces WHERE id = ?", (workspace_id,)).fetchone()
    return WorkspaceIdentity(id=workspace_id, inherits=bool(inherits))


def _new(
    registry: sqlite3.Connection,
    here: FolderIdentity,
    name: str | None,
    *,
    state_dir: Path,
) -> WorkspaceIdentity:
    """Return a new workspace.

    In a state folder that was used before there was a registry it is called what its files are called there,
    by a hash of the path, unless somebody is called that already.
    """
    before = _folders(registry, "path = ?", os.fsencode(here.path))
    instead_of = before[-1].workspace if before else None
    (was_used,) = registry.execute("SELECT was_used FROM origin").fetchone()
    by_path = workspace_mark(here.path)
    others = {file.stem[-len(by_path) :] for file in state_dir.glob(INDEXES_BEFORE)}
    is_first = registry.execute("SELECT 1 FROM workspaces").fetchone() is None
    inherits, workspace_id = False, name or uuid4().hex[:ID_CHARS]
    if (was_used or by_path in others) and _named(registry, by_path) is None:
        inherits, workspace_id = is_first and others == {by_path}, by_path
    return WorkspaceIdentity(
        id=workspace_id,
        inherits=inherits,
        instead_of=instead_of,
        begins_anew=is_first and any(state_dir.glob(INDEXES_SINCE)),
    )
