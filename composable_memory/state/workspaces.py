"""The workspaces of a state folder: recognises a folder even after it was moved, copied or replaced.

A folder is recognised by its device, inode and birth time. One that was moved or renamed keeps these and is
the same workspace; a copy has others and is a different one. A disk may get another device number after a
restart, so at the same path inode and birth time suffice. The inode alone proves little: it is soon reused
for another folder, and on network drives and mounts of virtual machines it may change every time. So if the
file system does not report birth times, the path decides; a folder that is moved there counts as new, and can
be adopted.

Reads the disk: call it in a thread when an event loop is running. An unusable registry raises a
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
from composable_memory.state.folders import workspace_hash
from composable_memory_ops_logs.quick_dataclass import dataclass

REGISTRY_FILE = "workspaces.sqlite"
BUSY_TIMEOUT_S = 30.0
USED_EVERY_S = 3600.0
"""Resolution of the time of last use, so that a command that only reads seldom has to write."""
ID_CHARS = 12
WITHOUT_WORKSPACES = frozenset({"connect", "hooks", "log-shipping", "models", "serve", "trusted"})
"""Subfolders of a state folder that commands create before any workspace is known."""
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
    workspace whose folder was previously at this path; `begins_anew` says that the state folder has memories
    of workspaces that are not in the registry. Both are set only when a workspace is first registered.
    """

    id: str
    inherits: bool = False
    instead_of: str | None = None
    begins_anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorkspace:
    """A workspace in the registry; `is_there` says whether the folder at its path is still that workspace."""

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
    """Return which workspace `folder` is, registering it if it is new; `name` is `memory.id`.

    A known name decides, wherever the folder is. A new name is given to the folder's workspace.
    """
    here = FolderIdentity.at(folder)
    with _registry(state_dir) as registry:
        found = _up_to_date(registry, here, name, now)
        if found is None:
            with _transaction(registry):
                found = _register(registry, here, name, now, state_dir=state_dir)
    return found


def known_workspaces(state_dir: Path) -> tuple[KnownWorkspace, ...]:
    """Return all workspaces, the most recently used first."""
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


def find_workspace(state_dir: Path, name: str) -> str:
    """Look up a workspace by its id, its name, or its last known folder, and return its id.

    Raises:
        ConfigError: there is none, or the registry is unusable.
    """
    known, path = known_workspaces(state_dir), Path(name).expanduser()
    for one in known:
        if name in (one.id, one.name) or one.path in (path, path.resolve()):
            return one.id
    listed = ", ".join(f"{one.id} ({one.path})" for one in known) or "none"
    raise ConfigError("workspace", f"unknown workspace {name!r} in {state_dir}; known: {listed}")


def adopt(state_dir: Path, folder: Path, workspace_id: str, *, now: datetime) -> None:
    """Make `folder` a known workspace from now on; its folders that no longer exist are forgotten."""
    here = FolderIdentity.at(folder)
    with _registry(state_dir) as registry, _transaction(registry):
        for row in _folders(registry, "workspace = ?", workspace_id):
            if not row.is_there():
                registry.execute("DELETE FROM folders WHERE rowid = ?", (row.row_id,))
        mine = _find_folder(registry, here)
        if mine is not None:
            registry.execute("DELETE FROM folders WHERE rowid = ?", (mine.row_id,))
        _add_folder(registry, here, workspace_id)
        registry.execute(
            "INSERT INTO workspaces VALUES (?, NULL, ?, ?, 0)"
            " ON CONFLICT (id) DO UPDATE SET path = excluded.path, used_at = excluded.used_at",
            (workspace_id, os.fsencode(here.path), now.timestamp()),
        )


def forget(state_dir: Path, workspaces: Iterable[KnownWorkspace]) -> None:
    """Remove workspaces that have no data; one that was used in the meantime stays."""
    with _registry(state_dir) as registry, _transaction(registry):
        for one in workspaces:
            unused = registry.execute(
                "DELETE FROM workspaces WHERE id = ? AND ABS(used_at - ?) < 1",
                (one.id, one.used_at.timestamp()),
            )
            if unused.rowcount:
                registry.execute("DELETE FROM folders WHERE workspace = ?", (one.id,))


def kept_note_scope(state_dir: Path, workspace_id: str) -> str | None:
    """Return the recorded choice of a workspace's note files; None if there is none yet."""
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
    """Record which files of a workspace are its notes; an earlier choice stays unless `replaces`."""
    with _registry(state_dir) as registry, _transaction(registry):
        registry.execute(NOTE_SCOPES)
        if replaces:
            registry.execute("DELETE FROM note_scopes WHERE workspace = ?", (workspace_id,))
        registry.execute("INSERT OR IGNORE INTO note_scopes VALUES (?, ?)", (workspace_id, scope))


# --- folders on the disk ------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A folder in the registry, and its workspace."""

    row_id: int
    folder: FolderIdentity
    workspace: str

    def is_there(self) -> bool:
        """Return whether this folder is still at its path."""
        try:
            return self.folder.is_same(FolderIdentity.at(self.folder.path))
        except OSError:
            return False


def _find_folder(registry: sqlite3.Connection, here: FolderIdentity) -> _Row | None:
    """Look up a folder in the registry; None if it is new."""
    rows = _folders(registry, "inode = ? OR path = ?", here.inode, os.fsencode(here.path))
    same = [row for row in rows if row.folder.is_same(here)]
    return max(same, key=lambda row: (row.folder.path == here.path, row.row_id), default=None)


def _most_complete(here: FolderIdentity, row: _Row) -> FolderIdentity:
    """Return the more complete identity: a birth time known before is kept if it is not reported now."""
    return row.folder if here.birth is None and row.folder.birth else here


# --- the registry -------------------------------------------------------------------------------------------


@contextmanager
def _registry(state_dir: Path) -> Iterator[sqlite3.Connection]:
    """Open the registry, creating it, readable by its owner only, if it is missing."""
    path = state_dir / REGISTRY_FILE
    try:
        there = {entry.name for entry in state_dir.iterdir() if entry.is_dir()}
        was_used = not there <= WITHOUT_WORKSPACES  # before it had a registry
        is_new = not path.exists()
        with suppress(
            FileExistsError
        ):  # opening and closing an existing file would drop SQLite's locks on it
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            if not _has_tables(connection):
                with _transaction(connection):
                    if not _has_tables(connection):
                        if not is_new and any(state_dir.glob(INDEXES_SINCE)):
                            raise sqlite3.DatabaseError("it is empty, but workspaces were known")
                        for statement in TABLES:
                            connection.execute(statement)
                        connection.execute("INSERT INTO origin VALUES (?)", (was_used,))
            yield connection
    except (sqlite3.Error, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        fix = "make it writable, or choose another state folder"
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            fix = "move it away; `cmem workspace list` shows what is stored, and `adopt` reconnects it"
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


def _id_of_name(registry: sqlite3.Connection, name: str) -> str | None:
    found = registry.execute(
        "SELECT id FROM workspaces WHERE ? IN (name, id) ORDER BY name IS NULL", (name,)
    ).fetchone()
    return str(found[0]) if found else None


def _is_there(registry: sqlite3.Connection, workspace_id: str, name: str | None, path: Path) -> bool:
    rows = _folders(registry, "workspace = ?", workspace_id)
    return any(row.is_there() for row in rows) or (name is not None and not rows and path.is_dir())


def _up_to_date(
    registry: sqlite3.Connection, here: FolderIdentity, name: str | None, now: datetime
) -> WorkspaceIdentity | None:
    """Return the workspace if nothing about it has to be updated, else None."""
    row = _find_folder(registry, here)
    workspace_id = _id_of_name(registry, name) if name else row.workspace if row else None
    if row is None or row.folder != _most_complete(here, row) or workspace_id is None:
        return None
    path, used_at, inherits = registry.execute(
        "SELECT path, used_at, inherits FROM workspaces WHERE id = ?", (workspace_id,)
    ).fetchone()
    is_recent = abs(now.timestamp() - used_at) < USED_EVERY_S
    if os.fsdecode(path) != str(here.path) or not is_recent:
        return None
    return WorkspaceIdentity(id=workspace_id, inherits=bool(inherits))


def _register(
    registry: sqlite3.Connection,
    here: FolderIdentity,
    name: str | None,
    now: datetime,
    *,
    state_dir: Path,
) -> WorkspaceIdentity:
    """Register or update the workspace of a folder, and return it."""
    row = _find_folder(registry, here)
    if row is not None and row.folder != _most_complete(here, row):
        registry.execute("DELETE FROM folders WHERE rowid = ?", (row.row_id,))
        _add_folder(registry, _most_complete(here, row), row.workspace)
    workspace_id = _id_of_name(registry, name) if name else row.workspace if row else None
    if workspace_id is None and row is not None:
        # A new name goes to the folder's own workspace, unless that already has one.
        registry.execute(
            "UPDATE workspaces SET name = ? WHERE id = ? AND name IS NULL", (name, row.workspace)
        )
        workspace_id = _id_of_name(registry, name or "")
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

    If the state folder was used before it had a registry, its files there are named by a hash of the path, so
    that becomes the id, unless it is taken.
    """
    before = _folders(registry, "path = ?", os.fsencode(here.path))
    instead_of = before[-1].workspace if before else None
    (was_used,) = registry.execute("SELECT was_used FROM origin").fetchone()
    by_path = workspace_hash(here.path)
    others = {file.stem[-len(by_path) :] for file in state_dir.glob(INDEXES_BEFORE)}
    is_first = registry.execute("SELECT 1 FROM workspaces").fetchone() is None
    inherits, workspace_id = False, name or uuid4().hex[:ID_CHARS]
    if (was_used or by_path in others) and _id_of_name(registry, by_path) is None:
        inherits, workspace_id = is_first and others == {by_path}, by_path
    return WorkspaceIdentity(
        id=workspace_id,
        inherits=inherits,
        instead_of=instead_of,
        begins_anew=is_first and any(state_dir.glob(INDEXES_SINCE)),
    )
