"""The tables of the index file, and the one place that creates and checks them.

`chunks` holds text and line ranges, `chunks_fts` the keyword index over the same row ids, `embedding_cache`
one vector per provider, model and text. A chunk points at its vector by `embedding_id`; NULL means that the
vector is still to come. Every transaction that changes chunks or vectors adds one to `meta.revision`, which
is how readers, in this process and others, know that what they keep in memory is out of date.
"""

from pathlib import Path

from composable_memory.errors import IndexDamaged, IndexProblem, IndexTooNew
from composable_memory_adapters.sqlite_file import Connection, SqliteFile

__all__ = ["SCHEMA_VERSION", "check", "ensure"]

SCHEMA_VERSION = 1

APPLICATION_ID = 0x636D656D
"""Marks the file as ours: the letters "cmem"."""

TABLES = """
CREATE TABLE IF NOT EXISTS meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS files (
  path TEXT NOT NULL,
  source TEXT NOT NULL DEFAULT 'memory',
  hash TEXT NOT NULL,          -- SHA-256 of the bytes
  mtime INTEGER NOT NULL,      -- nanoseconds
  size INTEGER NOT NULL,
  chunker TEXT NOT NULL,       -- identity of the chunker that cut the file
  PRIMARY KEY (path, source)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS chunks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  path TEXT NOT NULL,
  source TEXT NOT NULL DEFAULT 'memory',
  start_line INTEGER NOT NULL,
  end_line INTEGER NOT NULL,
  hash TEXT NOT NULL,          -- SHA-256 of the text
  text TEXT NOT NULL,
  embedding_id INTEGER,
  updated_at INTEGER NOT NULL  -- milliseconds
);
CREATE INDEX IF NOT EXISTS idx_chunks_path ON chunks(path, source);
CREATE INDEX IF NOT EXISTS idx_chunks_embedding ON chunks(embedding_id);

CREATE TABLE IF NOT EXISTS embedding_cache (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused: resident vectors go by it
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  provider_key TEXT NOT NULL,
  hash TEXT NOT NULL,
  embedding BLOB NOT NULL,     -- float32, little-endian, unit length
  dims INTEGER NOT NULL,
  updated_at INTEGER NOT NULL, -- milliseconds
  UNIQUE (hash, provider_key, model, provider)
);

CREATE VIRTUAL TABLE IF NOT EXISTS chunks_fts USING fts5(
  text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
);
"""


async def ensure(file: SqliteFile) -> None:
    """Make the tables in `file` if they are not there.

    Raises:
        IndexTooNew: a later version wrote the file.
        IndexDamaged: it is not a sound database.
        IndexProblem: it belongs to another program, or can be neither read nor written.
    """
    try:
        is_ready = await file.read(lambda connection: check(connection, file.path))
    except (IndexTooNew, IndexDamaged):
        raise
    except IndexProblem:  # usually a file that does not exist yet; writing tells why otherwise
        is_ready = False
    if not is_ready:
        await file.write(lambda connection: _create(connection, file.path))


def check(connection: Connection, path: Path) -> bool:
    """Say whether the tables are there and of this version; raise `IndexTooNew` for those of a later one."""
    found = connection.execute("PRAGMA user_version").get
    application = connection.execute("PRAGMA application_id").get
    if application not in (0, APPLICATION_ID):
        raise IndexProblem(path, "it belongs to another program; choose another store.path")
    if found > SCHEMA_VERSION:
        raise IndexTooNew(path, found=found, supported=SCHEMA_VERSION)
    return bool(found == SCHEMA_VERSION and application == APPLICATION_ID)


def _create(connection: Connection, path: Path) -> None:
    if check(connection, path):  # another process was faster
        return
    if connection.execute("SELECT count(*) FROM sqlite_schema").get:
        raise IndexProblem(path, "it holds the tables of another program; choose another store.path")
    connection.execute(TABLES)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
