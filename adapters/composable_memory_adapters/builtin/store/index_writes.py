"""What a sync reads from and writes to the index: functions on a connection, inside the caller's transaction.

A file is written whole or not at all. Chunks that an edit did not change keep their row, keywords and vector;
only their line numbers move. Each function works on one set of tables: the live ones, or those of a rebuild.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from composable_memory_adapters.builtin.notes.changed_notes import FileDraft, FileState
from composable_memory_adapters.builtin.notes.fields import KeywordRow, keyword_row
from composable_memory_adapters.builtin.store import document_cache, embedding_cache, index_meta, schema
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.schema import LIVE, Tables
from composable_memory_adapters.chunking import Chunk
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_adapters.sqlite_transactions import data_version
from composable_memory_adapters.text.compounds import long_words
from composable_memory_ops_logs.quick_dataclass import dataclass

INSERT_CHUNK = """
INSERT INTO {chunks}
  (id, path, source, start_line, end_line, start_char, hash, text, headings, checksum, updated_at,
  embedding_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, (
  SELECT id FROM embedding_cache WHERE hash = ?7 AND provider_key = ?12 AND model = ?13 AND provider = ?14
))
"""
UPDATE_CHUNK = """
UPDATE {chunks} SET start_line = ?, end_line = ?, start_char = ?, text = ?, headings = ?, checksum = ?
WHERE id = ?
"""
FILE_STATES = "SELECT path, mtime, size, chunker, hash, source, is_utf8, ctime FROM {files}"
AMONG = " WHERE path IN (SELECT value FROM json_each(?))"
REPLACE_FILE = """
INSERT OR REPLACE INTO {files}
  (hash, mtime, size, ctime, chunker, is_utf8, path, source, title, aliases, tags, type, day)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
UPDATE_FILE = """
UPDATE {files} SET hash = ?, mtime = ?, size = ?, ctime = ?, chunker = ?, is_utf8 = ?
WHERE path = ? AND source = ?
"""
FIELDS = "SELECT title, aliases, tags, type, day FROM {files} WHERE path = ? AND source = ?"
CHUNKS_OF_FILE = "SELECT id FROM {chunks} WHERE path = ? AND source = ?"
COUNT_PENDING = "SELECT count(*) FROM {chunks} WHERE embedding_id IS NULL"
TEXT_OF_CHUNK = "SELECT hash, text FROM {chunks} WHERE id = ? AND embedding_id IS NULL"
PLACE_OF_CHUNK = "SELECT path, start_line FROM {chunks} WHERE id = ?"
GIVE_VECTOR = "UPDATE {chunks} SET embedding_id = ? WHERE id = ? AND hash = ? AND embedding_id IS NULL"
LET_GO_OF_VECTOR = """
UPDATE embedding_cache SET updated_at = ?2 WHERE id = (SELECT embedding_id FROM {chunks} WHERE id = ?1)
"""
ROWS_OF_FILE = """
SELECT hash, id, start_line, end_line, start_char, headings FROM {chunks}
WHERE path = ? AND source = ? ORDER BY id DESC
"""
ADOPT_CACHED = (
    "UPDATE {chunks} SET embedding_id = cached.id FROM embedding_cache AS cached WHERE embedding_id IS NULL"
    " AND cached.hash = {chunks}.hash AND provider_key = ? AND model = ? AND provider = ?"
)
PENDING = """
SELECT {chunks}.id FROM {chunks} JOIN {files} USING (path, source)
WHERE embedding_id IS NULL ORDER BY {files}.mtime DESC, path, start_line, {chunks}.id
"""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of what was done: files, chunks, and chunks that found their vector in the cache.

    `overtaken` counts the files that another process wrote first.
    """

    indexed: int = 0
    removed: int = 0
    chunks: int = 0
    vectors_reused: int = 0
    overtaken: int = 0

    def add(self, other: "Tally") -> None:
        """Add another tally's counts to these."""
        self.indexed += other.indexed
        self.removed += other.removed
        self.chunks += other.chunks
        self.vectors_reused += other.vectors_reused
        self.overtaken += other.overtaken

    @property
    def has_changes(self) -> bool:
        """Return whether a file was written or removed."""
        return bool(self.indexed or self.removed)


def file_states(
    connection: Connection, tables: Tables, keys: Sequence[str] | None = None
) -> dict[str, FileState]:
    """Return the state of each file in the index, or of `keys`; no note has the key of a transcript."""
    sql, given = (FILE_STATES, ()) if keys is None else (FILE_STATES + AMONG, (json.dumps(keys),))
    rows = connection.execute(tables.sql(sql), given)
    return {row[0]: tuple.__new__(FileState, row[1:]) for row in rows}  # half the time of `_make`


class KnownFiles(NamedTuple):
    """The files of an index at one version, as counted by a connection."""

    connection: Connection
    version: int
    files: Mapping[str, FileState]
    problems: Mapping[str, str]


def known_files(
    connection: Connection, tables: Tables, *, seen: Mapping[Connection, int] | None = None
) -> KnownFiles | None:
    """Return the files of the index; None if nothing was stored since the version in `seen`."""
    version = data_version(connection)
    if seen is not None and seen.get(connection) == version:
        return None
    files = file_states(connection, tables)
    return KnownFiles(connection, version, files, document_cache.problems(connection))


def write_drafts(
    connection: Connection,
    tables: Tables,
    drafts: Sequence[FileDraft],
    *,
    space: EmbeddingSpace | None,
    has_keywords: bool,
    now_ms: int,
) -> Tally:
    """Bring the index in line with `drafts`, with or without keywords.

    New chunks get their vector in `space`, by default that of the index, if it is already cached.
    """
    tables.check_owner(connection)
    plan = _Plan(connection, tables)
    states = file_states(connection, tables, [draft.key for draft in drafts])
    for draft in drafts:
        plan.add(draft, states.get(draft.key))
    if plan.chunk_changes:
        plan.write_chunks(space or index_meta.stored_space(connection), now_ms, has_keywords=has_keywords)
        _notify_readers(connection, tables)
    _execute(connection, tables, REPLACE_FILE, plan.files)
    _execute(connection, tables, UPDATE_FILE, plan.unchanged)
    return plan.count()


def remove_files(
    connection: Connection,
    tables: Tables,
    files: Mapping[str, FileState],
    *,
    now_ms: int,
) -> int:
    """Remove those files whose state is still as given; return how many."""
    tables.check_owner(connection)
    states = file_states(connection, tables, [*files])
    gone = [(key, seen.source) for key, seen in files.items() if states.get(key) == seen]
    for place in gone:
        ids = [row[0] for row in connection.execute(tables.sql(CHUNKS_OF_FILE), place)]
        _delete_chunks(connection, tables, ids, now_ms)
        connection.execute(tables.sql("DELETE FROM {files} WHERE path = ? AND source = ?"), place)
    if gone:
        _notify_readers(connection, tables)
    return len(gone)


def adopt_cached_vectors(connection: Connection, tables: Tables, space: EmbeddingSpace) -> int:
    """Give chunks without a vector those that are now in the cache; return how many."""
    tables.check_owner(connection)
    connection.execute(tables.sql(ADOPT_CACHED), space.identity)
    adopted = connection.changes()
    if adopted:
        _notify_readers(connection, tables)
    return adopted


def count_pending(connection: Connection, tables: Tables) -> int:
    """Return how many chunks have no vector."""
    return int(connection.execute(tables.sql(COUNT_PENDING)).get)


def pending_chunks(connection: Connection, tables: Tables) -> list[int]:
    """Return the ids of chunks without a vector, newest files first."""
    return [row[0] for row in connection.execute(tables.sql(PENDING))]


def texts_to_embed(connection: Connection, tables: Tables, chunk_ids: Iterable[int]) -> dict[str, str]:
    """Return hash and text of those of the chunks that still have no vector."""
    return dict(connection.executemany(tables.sql(TEXT_OF_CHUNK), [(chunk_id,) for chunk_id in chunk_ids]))


def places_of(connection: Connection, tables: Tables, chunk_ids: Iterable[int]) -> list[str]:
    """Return the places of those chunks that still exist, as `path:start_line`."""
    rows = connection.executemany(tables.sql(PLACE_OF_CHUNK), [(chunk_id,) for chunk_id in chunk_ids])
    return [f"{path}:{line}" for path, line in rows]


def store_vectors(
    connection: Connection,
    tables: Tables,
    space: EmbeddingSpace,
    chunk_ids: Iterable[int],
    vectors: Mapping[str, Sequence[float]],
    *,
    now_ms: int,
) -> bool:
    """Store `vectors` for the chunks; False if the index has moved to another space."""
    tables.check_owner(connection)
    select = tables.sql("SELECT id, hash FROM {chunks} WHERE id = ?")
    rows = list(connection.executemany(select, [(chunk_id,) for chunk_id in chunk_ids]))
    wanted = {digest: vectors[digest] for _, digest in rows if digest in vectors}
    ids = embedding_cache.store(connection, space, wanted, now_ms=now_ms)
    if tables is LIVE and index_meta.stored_space(connection) != space:
        return False
    known = [(ids[digest], row, digest) for row, digest in rows if digest in ids]
    connection.executemany(tables.sql(GIVE_VECTOR), known)
    _notify_readers(connection, tables)
    return True


class _Row(NamedTuple):
    """A chunk in the index."""

    id: int
    start_line: int
    end_line: int
    start_char: int
    headings: str


class _Plan:
    """The row changes that a group of drafts requires.

    Deletes come before inserts, and both in ascending order: the keyword index starts a new segment whenever
    a row id is lower than the last.
    """

    def __init__(self, connection: Connection, tables: Tables) -> None:
        self._connection = connection
        self._tables = tables
        self.files: list[tuple[str | int, ...]] = []
        self.unchanged: list[tuple[str | int, ...]] = []
        self._deleted: list[int] = []
        self._moved: list[tuple[int, FileDraft, Chunk]] = []
        self._rewritten: list[tuple[int, FileDraft, Chunk]] = []
        self._inserted: list[tuple[FileDraft, Chunk]] = []
        self._overtaken = 0
        self._first_id = 0

    @property
    def chunk_changes(self) -> int:
        return len(self._deleted) + len(self._moved) + len(self._rewritten) + len(self._inserted)

    def add(self, draft: FileDraft, state: FileState | None) -> None:
        if state != draft.seen:
            self._overtaken += 1
            return
        row = (
            draft.note.hash,
            draft.note.mtime_ns,
            draft.note.size,
            draft.note.ctime_ns,
            draft.recipe,
            draft.note.reading,
            draft.key,
            draft.source,
        )
        if draft.chunks is None:
            self.unchanged.append(row)
            return
        self.files.append((*row, *draft.fields))
        if state is None:
            self._inserted += [(draft, chunk) for chunk in draft.chunks]
        else:
            self._match(draft, draft.chunks, state)

    def _match(self, draft: FileDraft, chunks: Sequence[Chunk], state: FileState) -> None:
        """Keep the rows of unchanged texts, even if rewritten: a running search may hold their ids.

        Equal texts are matched in order.
        """
        kept: defaultdict[str, list[_Row]] = defaultdict(list)
        query = self._tables.sql(ROWS_OF_FILE)
        for digest, *row in self._connection.execute(query, (draft.key, draft.source)):
            kept[digest].append(_Row(*row))
        fields = self._connection.execute(self._tables.sql(FIELDS), (draft.key, draft.source)).fetchone()
        is_current = state.recipe == draft.recipe and fields == draft.fields
        for chunk in chunks:
            if not kept[chunk.hash]:
                self._inserted.append((draft, chunk))
                continue
            row = kept[chunk.hash].pop()
            headings = "\n".join(chunk.headings)
            if not is_current or row.headings != headings:
                self._rewritten.append((row.id, draft, chunk))
            elif row[1:4] != (chunk.start_line, chunk.end_line, chunk.start_char):
                self._moved.append((row.id, draft, chunk))
        self._deleted += [row.id for rows in kept.values() for row in rows]

    def write_chunks(self, space: EmbeddingSpace | None, now_ms: int, *, has_keywords: bool) -> None:
        connection, tables = self._connection, self._tables
        _delete_keywords(connection, tables, [row_id for row_id, *_ in self._rewritten])
        _delete_chunks(connection, tables, sorted(self._deleted), now_ms)
        _execute(
            connection,
            tables,
            UPDATE_CHUNK,
            [
                (
                    chunk.start_line,
                    chunk.end_line,
                    chunk.start_char,
                    chunk.text,
                    "\n".join(chunk.headings),
                    _checksum(draft, chunk),
                    row_id,
                )
                for row_id, draft, chunk in (*self._moved, *self._rewritten)
            ],
        )
        self._first_id = _next_chunk_id(connection, tables)
        connection.executemany(tables.sql(INSERT_CHUNK), self._chunk_rows(space, now_ms))
        if has_keywords:
            rows = [(row_id, draft, chunk) for row_id, (draft, chunk) in self._new_rows()]
            rows = sorted([*rows, *self._rewritten], key=lambda row: row[0])
            words = long_words([chunk.text for _, _, chunk in rows])
            schema.add_long_words(connection, tables, words)
            connection.executemany(
                tables.sql(schema.INSERT_KEYWORDS),
                [(row_id, *_keywords(draft, chunk)) for row_id, draft, chunk in rows],
            )

    def _new_rows(self) -> Iterator[tuple[int, tuple[FileDraft, Chunk]]]:
        return enumerate(self._inserted, start=self._first_id)

    def _chunk_rows(self, space: EmbeddingSpace | None, now_ms: int) -> Iterator[tuple[int | str, ...]]:
        identity = space.identity if space else ("", "", "")
        for row_id, (draft, chunk) in self._new_rows():
            place = (draft.key, draft.source, chunk.start_line, chunk.end_line, chunk.start_char)
            headings, checksum = "\n".join(chunk.headings), _checksum(draft, chunk)
            yield (row_id, *place, chunk.hash, chunk.text, headings, checksum, now_ms, *identity)

    def count(self) -> Tally:
        reused = self._tables.sql("SELECT count(embedding_id) FROM {chunks} WHERE id >= ?")
        return Tally(
            indexed=len(self.files),
            chunks=len(self._inserted) + len(self._rewritten),
            vectors_reused=self._connection.execute(reused, (self._first_id,)).get if self._inserted else 0,
            overtaken=self._overtaken,
        )


def _checksum(draft: FileDraft, chunk: Chunk) -> int:
    place = (draft.key, draft.source, chunk.start_line, chunk.end_line, chunk.start_char, chunk.hash)
    return schema.checksum_of(*place, title=draft.fields.title, headings="\n".join(chunk.headings))


def _keywords(draft: FileDraft, chunk: Chunk) -> KeywordRow:
    return keyword_row(draft.key, draft.fields, "\n".join(chunk.headings), chunk.text)


def _next_chunk_id(connection: Connection, tables: Tables) -> int:
    query = "SELECT seq FROM sqlite_sequence WHERE name = ?"
    return 1 + (connection.execute(query, (tables.chunks,)).get or 0)


def _delete_chunks(connection: Connection, tables: Tables, ids: Iterable[int], now_ms: int) -> None:
    """Remove chunks and their keywords; mark their vectors as used until now."""
    rows = [(row_id,) for row_id in ids]
    _execute(connection, tables, LET_GO_OF_VECTOR, [(row_id, now_ms) for (row_id,) in rows])
    _delete_keywords(connection, tables, [row_id for (row_id,) in rows])
    _execute(connection, tables, "DELETE FROM {chunks} WHERE id = ?", rows)


def _delete_keywords(connection: Connection, tables: Tables, ids: Iterable[int]) -> None:
    _execute(
        connection, tables, "DELETE FROM {keywords} WHERE rowid = ?", [(row_id,) for row_id in sorted(ids)]
    )


def _execute(
    connection: Connection, tables: Tables, statement: str, rows: Sequence[Sequence[str | int]]
) -> None:
    """Execute a statement once per row; without rows, it is not even prepared."""
    if rows:
        connection.executemany(tables.sql(statement), rows)


def _notify_readers(connection: Connection, tables: Tables) -> None:
    """Raise the revision if the tables are live: searches keep vectors in memory."""
    if tables is LIVE:
        index_meta.bump_revision(connection)
