"""Detects and repairs damage to the stored rows of an index.

A passage has a hash of its text and a checksum of its place; a vector has a checksum. SQLite notices broken
pages, but not a flipped bit within a text. Damage found by a search or a check is recorded in the file. The
next sync then examines all of it, reads the notes of damaged passages again, drops damaged vectors, and
requests a new file if the structure is broken.
"""

import json
import zlib
from collections.abc import Iterable
from contextlib import closing
from itertools import zip_longest

from composable_memory_adapters.builtin.notes.changed_notes import KEYWORD_VERSION
from composable_memory_adapters.builtin.notes.fields import NoteFields, keyword_row
from composable_memory_adapters.builtin.store import index_meta, schema
from composable_memory_adapters.builtin.store.schema import LIVE
from composable_memory_adapters.sqlite_file import Connection, Unreadable
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

PASSAGES = """
SELECT id, path, source, start_line, end_line, start_char, chunks.hash, CAST(text AS BLOB), checksum,
  headings, title, aliases, tags, type, day
FROM chunks LEFT JOIN files USING (path, source) ORDER BY id
"""
VECTORS = "SELECT id, embedding, dims, checksum FROM embedding_cache"
WHOLE_VECTORS = """
SELECT id, provider, model, provider_key, hash, embedding, dims, updated_at, checksum FROM embedding_cache
WHERE id > ? ORDER BY id LIMIT 2000
"""
RESTORE = """
INSERT OR IGNORE INTO embedding_cache
  (provider, model, provider_key, hash, embedding, dims, updated_at, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
MADE_OTHERWISE = "SELECT EXISTS (SELECT 1 FROM files WHERE chunker NOT LIKE '%/' || ?)"
VOCABULARY = "CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, chunks_fts, instance)"
WORDS = """
SELECT term, count(*), sum(doc), sum("offset"), sum(doc * "offset") FROM temp.words
WHERE doc NOT IN (SELECT value FROM json_each(?)) GROUP BY term, col
"""
READ_AGAIN = "UPDATE files SET chunker = '' WHERE path = ? AND source = ?"
LET_GO = "UPDATE chunks SET embedding_id = NULL WHERE embedding_id = ?"
DROP_VECTOR = "DELETE FROM embedding_cache WHERE id = ?"
OTHER_WORDS = "the keyword index does not match the passages"
SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is damaged: the file's structure, passages of these files (path and source), vectors by id."""

    structure: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    vectors: tuple[int, ...] = ()

    def describe(self) -> str | None:
        """Describe the damage; None if there is none."""
        if self.structure is not None:
            return self.structure
        parts = []
        if self.files:
            paths = [path for path, _ in self.files]
            more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
            parts.append(f"passages of {', '.join(paths[:SHOWN])}{more} are not what was written")
        if self.vectors:
            parts.append(f"{counted(len(self.vectors), 'vector is', 'vectors are')} not what was written")
        return "; ".join(parts) or None


def examine(connection: Connection, *, passages_too: bool = True) -> Findings:
    """Read the whole file and verify its checksums; takes seconds for a large index.

    Without `passages_too`, examines only what survives a rebuild: the file's structure and the vectors.
    """
    structure = _problem_with_structure(connection)
    damaged: dict[int, tuple[str, str]] = {}
    if structure is None and passages_too:
        damaged, has_other_words = _passages_and_words(connection)
        structure = OTHER_WORDS if has_other_words else None
    if structure is not None:
        return Findings(structure=structure)
    vectors = [
        id_
        for id_, blob, dims, checksum in connection.execute(VECTORS)
        if len(blob) != 4 * dims or checksum != zlib.crc32(blob)
    ]
    return Findings(files=tuple(dict.fromkeys(damaged.values())), vectors=tuple(vectors))


def mend(connection: Connection, found: Findings) -> None:
    """Make the next sync rewrite damaged passages and vectors, and clear the record of damage."""
    connection.executemany(READ_AGAIN, found.files)
    connection.executemany(LET_GO, [(id_,) for id_ in found.vectors])
    connection.executemany(DROP_VECTOR, [(id_,) for id_ in found.vectors])
    index_meta.set_value(connection, index_meta.DAMAGE, None)
    if found.vectors:
        index_meta.bump_revision(connection)


def note_damage(connection: Connection, what: str) -> None:
    """Record that the file is damaged; an earlier record is kept."""
    if index_meta.value(connection, index_meta.DAMAGE) is None:
        index_meta.set_value(connection, index_meta.DAMAGE, what)


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A row of the cache of vectors."""

    id: int
    values: tuple[str, str, str, str, bytes, int, int, int | None]

    @property
    def is_whole(self) -> bool:
        """Return whether the vector is as it was written."""
        *_, blob, dims, _, checksum = self.values
        if not isinstance(blob, bytes) or not isinstance(dims, int):  # NULL in a truncated file
            return False
        return len(blob) == 4 * dims and checksum == zlib.crc32(blob)


def vectors_of(connection: Connection, *, after: int) -> list[StoredVector]:
    """Return the next vectors after the id `after`, from a file that may be damaged."""
    rows = connection.execute(WHOLE_VECTORS, (after,))
    return [StoredVector(id_, tuple(values)) for id_, *values in rows]


def restore_vectors(connection: Connection, rows: Iterable[StoredVector]) -> None:
    """Add intact vectors to this file's cache."""
    connection.executemany(RESTORE, [row.values for row in rows if row.is_whole])


def _problem_with_structure(connection: Connection) -> str | None:
    # A query first makes FTS5 notice writes by others: its check alone uses the segments it read last,
    # and reports those that others have merged since as damaged.
    connection.execute("SELECT rowid FROM chunks_fts LIMIT 1").fetchall()
    # This covers the keyword index too: SQLite runs the check of each virtual table.
    result = connection.execute("PRAGMA integrity_check(1)").get
    if result != "ok":
        return f"it fails SQLite's integrity check ({str(result)[:200]})"
    try:
        index_meta.snapshot(connection)
        for _ in connection.execute("SELECT path, hash FROM files"):
            pass
    except (UnicodeDecodeError, Unreadable) as error:
        return f"it contains data that was never written ({error})"
    return None


def _passages_and_words(connection: Connection) -> tuple[dict[int, tuple[str, str]], bool]:
    """Return the damaged passages, and whether the keyword index differs from one rebuilt from the others.

    SQLite cannot check this, since the keyword index stores no text to compare with. An index made by an
    older version of the rules, which a rebuild will replace, is not compared.
    """
    is_comparable = not connection.execute(MADE_OTHERWISE, (KEYWORD_VERSION,)).get
    damaged: dict[int, tuple[str, str]] = {}
    with closing(Connection("")) as fresh:  # a temporary database, which SQLite spills to disk
        schema.create_passages(fresh, LIVE)
        fresh.execute("BEGIN")
        for id_, *row, aliases, tags, type_, day in connection.execute(PASSAGES):
            if not schema.is_whole(*row):
                damaged[id_] = (row[0], row[1])
            elif is_comparable:
                fields = NoteFields(row[9], aliases, tags, type_, day)
                row_words = keyword_row(row[0], fields, row[8], row[6].decode())
                fresh.execute(LIVE.sql(schema.INSERT_KEYWORDS), (id_, *row_words))
        if not is_comparable:
            return damaged, False
        words = zip_longest(_words(fresh, damaged), _words(connection, damaged))
        return damaged, any(one != other for one, other in words)


def _words(connection: Connection, without: Iterable[int]) -> Iterable[tuple[object, ...]]:
    """Yield each word of the keyword index with sums over its positions, leaving out some passages."""
    query_only = connection.pragma("query_only")
    connection.pragma("query_only", 0)  # a temporary table does not change the file
    connection.execute(VOCABULARY)
    connection.pragma("query_only", query_only)
    yield from connection.execute(WORDS, (json.dumps([*without]),))
