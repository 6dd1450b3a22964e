"""The tables of the outbox, and the one place that creates and migrates them.

`episodes` has a row for every text that was ever handed in under an id: it is the queue as well as the
record of what is done. `claims` has the groups that belong to one workspace though they are not named after
it. `turns` has the lease of each group, and until when a group that failed is left alone. `restored` has what
is still to be done of a restore. Times are seconds since 1970.
"""

from pathlib import Path

from composable_memory.errors import IndexProblem, IndexTooNew
from composable_memory_adapters.sqlite_file import Connection

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
"""Whether the graph marks the episode when all of it is stored; earlier versions did not."""
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
"""The statements that bring a file from each version to the next."""

SCHEMA_VERSION = len(MIGRATIONS)


def ensure(connection: Connection, path: Path) -> None:
    """Bring the tables to this version; run within a write.

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
