"""The tables of the index file, both the live ones and those that a rebuild fills: creates and checks them.

`chunks` holds texts and line ranges, `chunks_fts` the keyword index with the same row ids, `embedding_cache`
one vector per provider, model and text. A chunk refers to its vector by `embedding_id`, NULL until it has
one. Every transaction that changes chunks or vectors raises `meta.revision`, which tells the readers of all
processes that what they hold in memory is out of date.

Checksums are CRC-32. `long_words` may keep words of deleted notes until a rebuild. `vector_changes` is the
log by which vector searches follow the index.
"""

import zlib
from collections.abc import Iterable
from contextlib import closing
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from composable_memory.errors import IndexDamaged, IndexProblem, IndexTooNew
from composable_memory_adapters.builtin.store import index_meta
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs.quick_dataclass import dataclass

GENERATION_BITS = 32
"""Each generation of passages has its own range of ids: a search begun before a swap finds no wrong ones."""


@dataclass(frozen=True, slots=True)
class Tables:
    """A set of tables that belong together.

    `owner` is the token of the rebuild that may write them; the live tables have none.
    """

    files: str
    chunks: str
    keywords: str
    words: str
    owner: str | None = None

    def sql(self, template: str) -> str:
        """Return an SQL template with `{files}`, `{chunks}`, `{keywords}` and `{words}` filled in."""
        return _filled(self.files, self.chunks, self.keywords, self.words, template)

    def check_owner(self, connection: Connection) -> None:
        """Check, within a write transaction, that the tables still belong to their owner.

        Raises:
            IndexProblem: another rebuild has begun.
        """
        if self.owner is not None and index_meta.value(connection, index_meta.REBUILD) != self.owner:
            path = Path(connection.filename)
            raise IndexProblem(path, "another process took over the rebuild; the old index is still used")


LIVE = Tables("files", "chunks", "chunks_fts", "long_words")
"""The tables that searches read."""

NEXT = Tables("next_files", "next_chunks", "next_chunks_fts", "next_long_words")
"""The tables that a rebuild fills, until they are complete and replace the live ones."""


@lru_cache(maxsize=128)
def _filled(files: str, chunks: str, keywords: str, words: str, template: str) -> str:
    return template.format(files=files, chunks=chunks, keywords=keywords, words=words)


SCHEMA_VERSION = 6

WITH_CHECKSUMS = 2
"""The first version whose vectors can be verified.

Change this number if the columns of `embedding_cache` change: older vectors are then recomputed.
"""

APPLICATION_ID = 0x636D656D
"""Marks the file as ours: "cmem" in ASCII."""

HEADER_BYTES = 72
"""The length of a database header up to and including the application id, its last four bytes."""

MAX_VERSION = 1000
"""A higher version number means that the file's header is damaged."""

SHARED = """
CREATE TABLE IF NOT EXISTS meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS embedding_cache (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused: resident vectors go by it
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  provider_key TEXT NOT NULL,
  hash TEXT NOT NULL,
  embedding BLOB NOT NULL,     -- float32, little-endian, unit length
  dims INTEGER NOT NULL,
  updated_at INTEGER NOT NULL, -- milliseconds; when a chunk last pointed here
  checksum INTEGER,            -- of the embedding
  UNIQUE (hash, provider_key, model, provider)
);
"""
PASSAGES = """
CREATE TABLE IF NOT EXISTS {files} (
  path TEXT NOT NULL,
  source TEXT NOT NULL DEFAULT 'memory',
  hash TEXT NOT NULL,          -- SHA-256 of the bytes
  mtime INTEGER NOT NULL,      -- nanoseconds
  size INTEGER NOT NULL,
  ctime INTEGER NOT NULL DEFAULT 0, -- nanoseconds; 0 where it is not known
  chunker TEXT NOT NULL,       -- identity of the chunker that cut the file
  is_utf8 INTEGER NOT NULL DEFAULT 1,
  title TEXT NOT NULL DEFAULT '',   -- of its front matter, or its first heading of the first level
  aliases TEXT NOT NULL DEFAULT '', -- one a line, as are tags
  tags TEXT NOT NULL DEFAULT '',
  type TEXT NOT NULL DEFAULT '',
  day TEXT NOT NULL DEFAULT '',     -- of its front matter, YYYY-MM-DD
  PRIMARY KEY (path, source)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS {chunks} (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  path TEXT NOT NULL,
  source TEXT NOT NULL DEFAULT 'memory',
  start_line INTEGER NOT NULL,
  end_line INTEGER NOT NULL,
  hash TEXT NOT NULL,          -- SHA-256 of the text
  text TEXT NOT NULL,
  embedding_id INTEGER,
  updated_at INTEGER NOT NULL, -- milliseconds
  start_char INTEGER NOT NULL DEFAULT 0, -- of the first line, where a chunk begins within it
  checksum INTEGER,            -- of place, hash, title and headings
  headings TEXT NOT NULL DEFAULT '' -- above the passage, outermost first, one a line
);
"""
KEYWORDS = """
CREATE VIRTUAL TABLE IF NOT EXISTS {keywords} USING fts5(
  text, names, headings, tags,
  content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
);
INSERT INTO {keywords} ({keywords}, rank) VALUES ('hashsize', 8388608); -- words of a transaction, in memory
"""
LONG_WORDS = """
CREATE TABLE IF NOT EXISTS {words} (
  backwards TEXT PRIMARY KEY   -- so that those with the same end are neighbours
) WITHOUT ROWID;
"""
VECTOR_CHANGES = """
CREATE TABLE IF NOT EXISTS vector_changes (
  position INTEGER PRIMARY KEY, -- grows; the oldest rows are dropped, never the newest
  embedding_id INTEGER          -- that passages began or ceased to use; NULL: any may be another
);
INSERT INTO vector_changes (embedding_id) VALUES (NULL);
"""
WATCH_VECTORS = """
CREATE TRIGGER passage_came AFTER INSERT ON chunks WHEN new.embedding_id IS NOT NULL
BEGIN
  INSERT INTO vector_changes (embedding_id) VALUES (new.embedding_id);
END;
CREATE TRIGGER passage_went AFTER DELETE ON chunks WHEN old.embedding_id IS NOT NULL
BEGIN
  INSERT INTO vector_changes (embedding_id) VALUES (old.embedding_id);
END;
CREATE TRIGGER passage_changed AFTER UPDATE OF embedding_id ON chunks
BEGIN
  INSERT INTO vector_changes (embedding_id)
  SELECT value FROM json_each(json_array(old.embedding_id, new.embedding_id)) WHERE value IS NOT NULL;
END;
"""
INSERT_LONG_WORD = "INSERT OR IGNORE INTO {words} (backwards) VALUES (?)"
INSERT_KEYWORDS = "INSERT INTO {keywords} (rowid, text, names, headings, tags) VALUES (?, ?, ?, ?, ?)"
INDEXES = """
CREATE INDEX IF NOT EXISTS idx_{chunks}_path{suffix} ON {chunks}(path, source);
CREATE INDEX IF NOT EXISTS idx_{chunks}_embedding{suffix} ON {chunks}(embedding_id);
"""
DROP_PASSAGES = """
DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS chunks; DROP TABLE IF EXISTS chunks_fts;
DROP TABLE IF EXISTS long_words; DROP TABLE IF EXISTS vector_changes;
DROP TABLE IF EXISTS next_files; DROP TABLE IF EXISTS next_chunks; DROP TABLE IF EXISTS next_chunks_fts;
DROP TABLE IF EXISTS next_long_words;
DELETE FROM meta WHERE key IN ('rebuild', 'last_sync', 'recipe', 'damage', 'vector_file');
"""
COLUMNS = """
SELECT made.name, field.name, field.type, field."notnull", field.dflt_value, field.pk
FROM sqlite_schema AS made JOIN pragma_table_xinfo(made.name) AS field
WHERE made.type = 'table' AND made.sql LIKE 'CREATE TABLE %'
"""
KEYS = """
SELECT made.name, "unique", (SELECT group_concat(name) FROM pragma_index_info(list.name))
FROM sqlite_schema AS made JOIN pragma_index_list(made.name) AS list
WHERE made.type = 'table' AND made.sql LIKE 'CREATE TABLE %'
"""
OWNERS = "SELECT type, tbl_name, count(*) FROM sqlite_schema GROUP BY type, tbl_name"
MODULES = """
SELECT name, substr(sql, instr(sql, ' USING ')) FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE %'
"""


def check(connection: Connection, path: Path) -> bool:
    """Return whether the tables are intact and of this version; False if they still have to be created.

    Raises:
        IndexTooNew: a later version wrote the file.
        IndexDamaged: the file is ours, but its tables or version marks have been altered.
        IndexProblem: it belongs to another program.
    """
    found = connection.execute("PRAGMA user_version").get
    application = connection.execute("PRAGMA application_id").get
    if application == APPLICATION_ID and SCHEMA_VERSION < found <= MAX_VERSION:
        raise IndexTooNew(path, found=found, supported=SCHEMA_VERSION)
    if 0 < found < SCHEMA_VERSION and application == APPLICATION_ID:
        return False
    is_whole = _shape_as_made() <= _shape(connection)
    if is_whole and (found, application) == (SCHEMA_VERSION, APPLICATION_ID):
        return True
    if is_whole or application == APPLICATION_ID:
        raise IndexDamaged(path, "its tables have been altered")
    if application:
        raise IndexProblem(path, "it belongs to another program; choose another store.path")
    return False


def _shape(connection: Connection) -> frozenset[tuple[object, ...]]:
    """Return the tables, columns and keys that the file declares, regardless of how the SQL is written."""
    return frozenset(row for query in (COLUMNS, KEYS, OWNERS, MODULES) for row in connection.execute(query))


@lru_cache(maxsize=1)
def _shape_as_made() -> frozenset[tuple[object, ...]]:
    with closing(Connection(":memory:")) as fresh:
        _create_all(fresh)
        return _shape(fresh)


def create(connection: Connection, path: Path) -> None:
    """Create the tables if they are missing, and recreate those of an older version.

    The next sync fills them from the notes; vectors with a checksum are kept, so none is computed twice.

    Raises:
        IndexTooNew: a later version wrote the file.
        IndexDamaged: the file is corrupt, or not a database.
        IndexProblem: it belongs to another program.
    """
    if check(connection, path):  # another process was faster
        return
    version = connection.execute("PRAGMA user_version").get
    if version:
        connection.execute(DROP_PASSAGES)
        if version < WITH_CHECKSUMS:
            connection.execute("DROP TABLE embedding_cache")
    elif connection.execute("SELECT count(*) FROM sqlite_schema").get:
        raise IndexProblem(path, "it holds the tables of another program; choose another store.path")
    _create_all(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _create_all(connection: Connection) -> None:
    connection.execute(SHARED)
    create_passages(connection, LIVE)
    connection.execute(VECTOR_CHANGES + WATCH_VECTORS)


def add_long_words(connection: Connection, tables: Tables, words: Iterable[str]) -> None:
    """Add words that may be compounds."""
    rows = [(backwards,) for backwards in sorted(word[::-1] for word in words)]
    connection.executemany(tables.sql(INSERT_LONG_WORD), rows)


def is_marked(header: bytes) -> bool:
    """Return whether a file with this header is an index of ours, however damaged the rest is."""
    return header.startswith(b"SQLite format 3\0") and header[68:72] == APPLICATION_ID.to_bytes(4)


def checksum_of(
    path: str,
    source: str,
    start_line: int,
    end_line: int,
    start_char: int,
    digest: str,
    *,
    title: str,
    headings: str,
) -> int:
    """Return the checksum of a passage's place, the hash of its text, and what is shown with it."""
    place = f"{path}\0{source}\0{start_line}\0{end_line}\0{start_char}"
    return zlib.crc32(f"{place}\0{digest}\0{title}\0{headings}".encode("utf-8", "surrogatepass"))


def is_whole(
    path: str,
    source: str,
    start_line: int,
    end_line: int,
    start_char: int,
    digest: str,
    text: bytes | None,
    checksum: int | None,
    headings: str,
    title: str | None,
) -> bool:
    """Return whether a passage is as it was written."""
    if text is None or sha256(text).hexdigest() != digest:
        return False
    place = (path, source, start_line, end_line, start_char, digest)
    return checksum == checksum_of(*place, title=title or "", headings=headings)


def create_passages(connection: Connection, tables: Tables, suffix: str = "") -> None:
    """Create one set of tables for files, chunks and keywords; `suffix` makes its index names unique."""
    connection.execute(tables.sql(PASSAGES + KEYWORDS + LONG_WORDS))
    connection.execute(INDEXES.format(chunks=tables.chunks, suffix=suffix))
