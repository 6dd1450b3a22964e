"""What a sync reads from and writes to the index: functions on a connection, inside the caller's transaction.

A file is written whole or not at all. Chunks that an edit left alone keep their row, their keywords and their
vector; only their lines move.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from composable_memory_adapters.builtin import books, embedding_cache
from composable_memory_adapters.builtin.chunking import Chunk
from composable_memory_adapters.builtin.drafts import FileDraft, FileState
from composable_memory_adapters.builtin.embedding_cache import EmbeddingSpace
from composable_memory_adapters.sqlite_file import Connection

__all__ = [
    "WriteCount",
    "adopt_cached_vectors",
    "count_pending",
    "file_states",
    "pending_chunks",
    "point_at_space",
    "remove_files",
    "store_vectors",
    "texts_to_embed",
    "write_drafts",
]

INSERT_CHUNK = """
INSERT INTO chunks (id, path, source, start_line, end_line, hash, text, updated_at, embedding_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, (
  SELECT id FROM embedding_cache WHERE hash = ?6 AND provider_key = ?9 AND model = ?10 AND provider = ?11
))
"""
UPDATE_CHUNK = "UPDATE chunks SET start_line = ?, end_line = ?, text = ? WHERE id = ?"
UPSERT_FILE = """
INSERT INTO files (path, source, hash, mtime, size, chunker) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (path, source) DO UPDATE SET
  hash = excluded.hash, mtime = excluded.mtime, size = excluded.size, chunker = excluded.chunker
"""
POINT_AT_SPACE = """
UPDATE chunks SET embedding_id = (
  SELECT id FROM embedding_cache AS cached
  WHERE cached.hash = chunks.hash AND provider_key = ? AND model = ? AND provider = ?
)
"""
ADOPT_CACHED = (
    "UPDATE chunks SET embedding_id = cached.id FROM embedding_cache AS cached WHERE embedding_id IS NULL"
    " AND cached.hash = chunks.hash AND provider_key = ? AND model = ? AND provider = ?"
)
PENDING = """
SELECT chunks.id FROM chunks JOIN files USING (path, source)
WHERE embedding_id IS NULL ORDER BY files.mtime DESC, path, start_line, chunks.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCount:
    """What became of some drafts; `overtaken` names those that another process was faster with."""

    files: int
    chunks: int
    vectors_reused: int
    overtaken: tuple[str, ...]


def file_states(connection: Connection, source: str = "memory") -> dict[str, FileState]:
    """Return what the index knows of each file."""
    rows = connection.execute(
        "SELECT path, mtime, size, chunker, hash FROM files WHERE source = ?", (source,)
    )
    return {path: FileState(mtime, size, recipe, digest) for path, mtime, size, recipe, digest in rows}


def write_drafts(
    connection: Connection,
    drafts: Sequence[FileDraft],
    *,
    space: EmbeddingSpace | None,
    keywords: Callable[[str], str] | None,
    now_ms: int,
) -> WriteCount:
    """Make the index hold `drafts`; `keywords` turns a text into its keyword form, None leaves them out.

    New chunks point at their vector in `space` if it is known already.
    """
    plan = _Plan()
    for draft in drafts:
        plan.add(draft, _file_state(connection, draft.key, draft.source), connection)
    if plan.chunk_changes:
        plan.write_chunks(connection, space or books.stored_space(connection), keywords, now_ms)
        books.bump_revision(connection)
    connection.executemany(UPSERT_FILE, plan.files)
    return plan.count(connection)


def remove_files(connection: Connection, files: Mapping[str, FileState], source: str = "memory") -> int:
    """Remove the given files unless they are no longer as given; return how many went."""
    gone = [key for key, seen in files.items() if _file_state(connection, key, source) == seen]
    for key in gone:
        ids = connection.execute("SELECT id FROM chunks WHERE path = ? AND source = ?", (key, source))
        _delete_keywords(connection, [row[0] for row in ids])
        connection.execute("DELETE FROM chunks WHERE path = ? AND source = ?", (key, source))
        connection.execute("DELETE FROM files WHERE path = ? AND source = ?", (key, source))
    if gone:
        books.bump_revision(connection)
    return len(gone)


def point_at_space(connection: Connection, space: EmbeddingSpace) -> None:
    """Make all chunks point at their vectors in `space`, and at none where there is none yet."""
    connection.execute(POINT_AT_SPACE, (space.provider_key, space.model, space.provider))
    books.store_space(connection, space)
    books.bump_revision(connection)


def adopt_cached_vectors(connection: Connection, space: EmbeddingSpace) -> int:
    """Point chunks without a vector at one that is known by now; return how many."""
    connection.execute(ADOPT_CACHED, (space.provider_key, space.model, space.provider))
    adopted = connection.changes()
    if adopted:
        books.bump_revision(connection)
    return adopted


def count_pending(connection: Connection) -> int:
    """Return how many chunks have no vector."""
    return int(connection.execute("SELECT count(*) FROM chunks WHERE embedding_id IS NULL").get)


def pending_chunks(connection: Connection) -> list[int]:
    """Return the ids of chunks without a vector, those of the newest files first."""
    return [row[0] for row in connection.execute(PENDING)]


def texts_to_embed(connection: Connection, chunk_ids: Iterable[int]) -> dict[str, str]:
    """Return hash and text of those chunks that still have no vector."""
    query = "SELECT hash, text FROM chunks WHERE id = ? AND embedding_id IS NULL"
    return dict(connection.executemany(query, [(chunk_id,) for chunk_id in chunk_ids]))


def store_vectors(
    connection: Connection,
    space: EmbeddingSpace,
    chunk_ids: Iterable[int],
    vectors: Mapping[str, Sequence[float]],
    *,
    now_ms: int,
) -> bool:
    """Keep `vectors` and point the chunks at them; False if the index is in another space by now."""
    ids = embedding_cache.store(connection, space, vectors, now_ms=now_ms)
    if books.stored_space(connection) != space:
        return False
    update = "UPDATE chunks SET embedding_id = ? WHERE id = ? AND hash = ? AND embedding_id IS NULL"
    select = "SELECT id, hash FROM chunks WHERE id = ?"
    rows = list(connection.executemany(select, [(chunk_id,) for chunk_id in chunk_ids]))
    connection.executemany(update, [(ids[digest], row, digest) for row, digest in rows if digest in ids])
    books.bump_revision(connection)
    return True


class _Row(NamedTuple):
    """A chunk as it stands in the index."""

    id: int
    start_line: int
    end_line: int


class _Plan:
    """The rows that a group of drafts comes to.

    Deletes come before inserts, and both in ascending order: the keyword index starts a new segment whenever
    row ids go back.
    """

    def __init__(self) -> None:
        self.files: list[tuple[str, str, str, int, int, str]] = []
        self._deleted: list[int] = []
        self._moved: list[tuple[int, Chunk]] = []
        self._rewritten: list[tuple[int, Chunk]] = []
        self._inserted: list[tuple[FileDraft, Chunk]] = []
        self._overtaken: list[str] = []
        self._unchanged = 0
        self._first_id = 0

    @property
    def chunk_changes(self) -> int:
        return len(self._deleted) + len(self._moved) + len(self._rewritten) + len(self._inserted)

    def add(self, draft: FileDraft, state: FileState | None, connection: Connection) -> None:
        if state != draft.seen:
            self._overtaken.append(draft.key)
            return
        if draft.chunks is None:
            self._unchanged += 1
        elif state is None:
            self._inserted += [(draft, chunk) for chunk in draft.chunks]
        else:
            self._match(draft, draft.chunks, state, connection)
        row = (draft.key, draft.source, draft.hash, draft.mtime_ns, draft.size, draft.recipe)
        self.files.append(row)

    def _match(
        self, draft: FileDraft, chunks: Sequence[Chunk], state: FileState, connection: Connection
    ) -> None:
        """Keep the rows of texts that stay, even to write them anew: a search under way may know their ids.

        Equal texts are told apart by their order.
        """
        kept: defaultdict[str, list[_Row]] = defaultdict(list)
        query = (
            "SELECT hash, id, start_line, end_line FROM chunks WHERE path = ? AND source = ? ORDER BY id DESC"
        )
        for digest, row_id, start_line, end_line in connection.execute(query, (draft.key, draft.source)):
            kept[digest].append(_Row(row_id, start_line, end_line))
        is_current = state.recipe == draft.recipe and not draft.replace
        for chunk in chunks:
            if not kept[chunk.hash]:
                self._inserted.append((draft, chunk))
                continue
            row = kept[chunk.hash].pop()
            if not is_current:
                self._rewritten.append((row.id, chunk))
            elif (row.start_line, row.end_line) != (chunk.start_line, chunk.end_line):
                self._moved.append((row.id, chunk))
        self._deleted += [row.id for rows in kept.values() for row in rows]

    def write_chunks(
        self,
        connection: Connection,
        space: EmbeddingSpace | None,
        keywords: Callable[[str], str] | None,
        now_ms: int,
    ) -> None:
        _delete_keywords(connection, [*self._deleted, *(row_id for row_id, _ in self._rewritten)])
        connection.executemany("DELETE FROM chunks WHERE id = ?", [(row_id,) for row_id in self._deleted])
        connection.executemany(
            UPDATE_CHUNK,
            [
                (chunk.start_line, chunk.end_line, chunk.text, row_id)
                for row_id, chunk in (*self._moved, *self._rewritten)
            ],
        )
        self._first_id = _next_chunk_id(connection)
        connection.executemany(INSERT_CHUNK, self._chunk_rows(space, now_ms))
        if keywords is not None:
            texts = [(row_id, chunk.text) for row_id, chunk in self._rewritten]
            texts += [(row_id, chunk.text) for row_id, (_, chunk) in self._new_rows()]
            connection.executemany(
                "INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)",
                [(row_id, keywords(text)) for row_id, text in sorted(texts)],
            )

    def _new_rows(self) -> Iterator[tuple[int, tuple[FileDraft, Chunk]]]:
        return enumerate(self._inserted, start=self._first_id)

    def _chunk_rows(self, space: EmbeddingSpace | None, now_ms: int) -> Iterator[tuple[int | str, ...]]:
        identity = (space.provider_key, space.model, space.provider) if space else ("", "", "")
        for row_id, (draft, chunk) in self._new_rows():
            place = (draft.key, draft.source, chunk.start_line, chunk.end_line)
            yield (row_id, *place, chunk.hash, chunk.text, now_ms, *identity)

    def count(self, connection: Connection) -> WriteCount:
        reused = "SELECT count(embedding_id) FROM chunks WHERE id >= ?"
        return WriteCount(
            files=len(self.files) - self._unchanged,
            chunks=len(self._inserted) + len(self._rewritten),
            vectors_reused=connection.execute(reused, (self._first_id,)).get if self._inserted else 0,
            overtaken=tuple(self._overtaken),
        )


def _file_state(connection: Connection, key: str, source: str) -> FileState | None:
    query = "SELECT mtime, size, chunker, hash FROM files WHERE path = ? AND source = ?"
    row = connection.execute(query, (key, source)).fetchone()
    return FileState(*row) if row else None


def _next_chunk_id(connection: Connection) -> int:
    return 1 + (connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").get or 0)


def _delete_keywords(connection: Connection, ids: Iterable[int]) -> None:
    connection.executemany("DELETE FROM chunks_fts WHERE rowid = ?", [(row_id,) for row_id in sorted(ids)])
