"""What ranking reads from an index, whatever stores it, and the SQL that reads an index file.

Every function reads within the caller's transaction, so everything one caller reads is consistent.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, tzinfo
from typing import Protocol, cast, runtime_checkable

import orjson

from composable_memory.types import MemorySource
from composable_memory_adapters.builtin.store import message_times, schema
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.schema import GENERATION_BITS, LIVE
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs.quick_dataclass import dataclass

PASSAGES = """
SELECT id, path, source, start_line, end_line, start_char, chunks.hash, CAST(text AS BLOB), checksum,
  headings, title
FROM chunks LEFT JOIN files USING (path, source) WHERE id IN (SELECT value FROM json_each(?))
"""
ORIGINS = """
SELECT id, path, source, mtime FROM chunks LEFT JOIN files USING (path, source)
WHERE id IN (SELECT value FROM json_each(?))
"""
SESSIONS = """
SELECT id FROM chunks WHERE id IN (SELECT value FROM json_each(?)) AND source = 'sessions'
"""
SAMPLE = """
SELECT DISTINCT (
  SELECT id FROM chunks WHERE id >= first + (last - first) * value / max(?1 - 1, 1) ORDER BY id LIMIT 1
)
FROM (SELECT (SELECT min(id) FROM chunks) AS first, (SELECT max(id) FROM chunks) AS last), json_each(?2)
WHERE first IS NOT NULL
"""
LOST = "SELECT EXISTS (SELECT 1 FROM chunks_fts_docsize WHERE id IN (SELECT value FROM json_each(?)))"
"""Whether keywords exist for missing passages; both are written in one transaction, so that is damage."""
NO_NAME = "notes whose names are lost"
TEXTS = "SELECT CAST(text AS BLOB) FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
PASSAGES_OF_EMBEDDINGS = """
SELECT embedding_id, id FROM chunks WHERE embedding_id IN (SELECT value FROM json_each(?))
ORDER BY embedding_id, id
"""
EMBEDDINGS_OF_PASSAGES = """
SELECT id, embedding_id FROM chunks
WHERE id IN (SELECT value FROM json_each(?)) AND embedding_id IS NOT NULL
"""
LIVE_EMBEDDING_IDS = """
SELECT DISTINCT embedding_id FROM chunks WHERE embedding_id IS NOT NULL ORDER BY embedding_id
"""
POSITIONS = "SELECT (SELECT min(position) FROM vector_changes), (SELECT max(position) FROM vector_changes)"
CHANGED = """
SELECT embedding_id, EXISTS (SELECT 1 FROM chunks WHERE chunks.embedding_id = changed.embedding_id)
FROM (SELECT DISTINCT embedding_id FROM vector_changes WHERE position > ?) AS changed
"""
VECTORS_IN_SPACE = """
SELECT id, embedding FROM embedding_cache
WHERE id IN (SELECT value FROM json_each(?)) AND provider_key = ? AND model = ? AND provider = ?
"""
LIVE_VECTORS = """
SELECT id, embedding FROM embedding_cache
WHERE id > ? AND provider_key = ? AND model = ? AND provider = ?
  AND EXISTS (SELECT 1 FROM chunks WHERE embedding_id = embedding_cache.id)
ORDER BY id LIMIT ?
"""
TEXTS_AFTER = "SELECT id, CAST(text AS BLOB) FROM chunks WHERE id > ? ORDER BY id LIMIT ?"
VECTOR_COUNTS = """
SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM chunks WHERE embedding_id IS NULL)
"""
GENERATION = "SELECT seq >> ? FROM sqlite_sequence WHERE name = ?"
REVISION = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'revision'"
STATE = f"SELECT ({GENERATION}), ({REVISION})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageRow:
    """A stored passage with its place: file, source, 1-based lines, and the character it starts at.

    `title` is its note's, `headings` are those above it, outermost first.
    """

    id: int
    path: str
    source: MemorySource
    start_line: int
    end_line: int
    start_char: int
    text: str
    title: str
    headings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """Passages by id, and the files of those that are damaged.

    `lacks_some` means that some of the requested passages are no longer in the index.
    """

    rows: Mapping[int, PassageRow]
    damaged: frozenset[str]
    lacks_some: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file of a passage; `mtime_ns` is None if the index does not have it."""

    path: str
    source: MemorySource
    mtime_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCounts:
    """How many passages there are, and how many of them have no vector yet."""

    passages: int
    pending: int

    @property
    def with_vector(self) -> int:
        """Return how many passages have a vector."""
        return self.passages - self.pending


class PassageReader(Protocol):
    """Reads passages by id from one snapshot of an index; missing ones are left out."""

    def passages(self, ids: Iterable[int]) -> Passages:
        """Return texts and places."""
        ...

    def origins(self, ids: Iterable[int]) -> Mapping[int, Origin]:
        """Return the file of each passage."""
        ...

    def sessions(self, ids: Iterable[int]) -> Set[int]:
        """Return those that belong to transcripts."""
        ...

    def holders(self, embeddings: Iterable[int]) -> Mapping[int, Sequence[int]]:
        """Return the passages that have each embedding as their vector, in ascending order."""
        ...

    def cosines(self, vector: Sequence[float], ids: Iterable[int]) -> Mapping[int, float]:
        """Return the cosine of each passage that has a vector."""
        ...

    def days_of(self, ids: Iterable[int], zone: tzinfo | None) -> Mapping[int, set[date]]:
        """Return the days on which passages' messages were said, for those that have times."""
        ...


@runtime_checkable
class HeldVectors(Protocol):
    """Vectors in memory, by embedding id; may be called from any thread."""

    def cosines(self, query: Sequence[float], ids: Sequence[int]) -> Mapping[int, float]:
        """Return the cosine of each of `ids` that is present."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPassages:
    """Implements `PassageReader` within a transaction of the index file; without a `space` it has no vectors.

    Vectors that are not `held` are read from the index, which takes five times as long.
    """

    connection: Connection
    space: EmbeddingSpace | None
    held: HeldVectors | None = None

    def passages(self, ids: Iterable[int]) -> Passages:
        """Return texts and places of the undamaged passages."""
        rows, damaged, missing = {}, set(), set(ids)
        for id_, *row in self.connection.execute(PASSAGES, (_json(missing),)):
            missing.discard(id_)
            path, source, start_line, end_line, start_char, _, text, _, headings, title = row
            if not schema.is_whole(*row):
                damaged.add(path)
                continue
            rows[id_] = PassageRow(
                id=id_,
                path=path,
                source=cast("MemorySource", source),
                start_line=start_line,
                end_line=end_line,
                start_char=start_char,
                text=text.decode(),
                title=title or "",
                headings=tuple(headings.split("\n")) if headings else (),
            )
        if missing and self.connection.execute(LOST, (_json(missing),)).get:
            damaged.add(NO_NAME)
        return Passages(rows=rows, damaged=frozenset(damaged), lacks_some=bool(missing) and not damaged)

    def origins(self, ids: Iterable[int]) -> Mapping[int, Origin]:
        """Return the file of each passage."""
        rows = self.connection.execute(ORIGINS, (_json(ids),))
        return {id_: Origin(path=path, source=source, mtime_ns=mtime) for id_, path, source, mtime in rows}

    def sessions(self, ids: Iterable[int]) -> Set[int]:
        """Return those that belong to transcripts."""
        return {row[0] for row in self.connection.execute(SESSIONS, (_json(ids),))}

    def holders(self, embeddings: Iterable[int]) -> Mapping[int, Sequence[int]]:
        """Return the passages that have each embedding as their vector, in ascending order."""
        found: dict[int, list[int]] = {}
        for embedding_id, passage_id in self.connection.execute(PASSAGES_OF_EMBEDDINGS, (_json(embeddings),)):
            found.setdefault(embedding_id, []).append(passage_id)
        return found

    def cosines(self, vector: Sequence[float], ids: Iterable[int]) -> Mapping[int, float]:
        """Return the cosine of each passage that has a vector."""
        if self.space is None:
            return {}
        embeddings: dict[int, int] = dict(self.connection.execute(EMBEDDINGS_OF_PASSAGES, (_json(ids),)))
        found = {**self.held.cosines(vector, [*embeddings.values()])} if self.held else {}
        if missing := [id_ for id_ in embeddings.values() if id_ not in found]:
            from composable_memory_adapters.vectors import in_memory

            stored, blobs = vectors_in_space(self.connection, missing, self.space)
            matrix = in_memory.from_bytes(b"".join(blobs), self.space.dims)
            found |= zip(stored, in_memory.cosines(matrix, vector), strict=False)
        return {id_: found[embedding] for id_, embedding in embeddings.items() if embedding in found}

    def days_of(self, ids: Iterable[int], zone: tzinfo | None) -> Mapping[int, set[date]]:
        """Return the days on which passages' messages were said, for those that have times."""
        return message_times.days_of(self.connection, ids, zone)


def texts_after(connection: Connection, last: int, count: int) -> list[tuple[int, str]]:
    """Return ids and texts of the next `count` passages after the id `last`."""
    rows = connection.execute(TEXTS_AFTER, (last, count))
    return [(id_, bytes(text).decode("utf-8", "replace")) for id_, text in rows]


def sample(connection: Connection, count: int) -> list[int]:
    """Return the ids of at most `count` passages spread over the index, the same until it changes."""
    return [row[0] for row in connection.execute(SAMPLE, (count, _json([*range(count)])))]


def sample_texts(connection: Connection, count: int) -> list[str]:
    """Return the texts of up to `count` passages, spread evenly over the index."""
    rows = connection.execute(TEXTS, (_json(sample(connection, count)),))
    return [str(text, "utf-8", "replace") for (text,) in rows]


def live_embedding_ids(connection: Connection) -> list[int]:
    """Return the ids of all embeddings used by a passage, ascending."""
    return [row[0] for row in connection.execute(LIVE_EMBEDDING_IDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorChanges:
    """The embeddings that may have changed: those now used by a passage, and those used by none."""

    live: Sequence[int]
    gone: Sequence[int]


def vector_position(connection: Connection) -> int:
    """Return the current position of the log of vector changes."""
    ((_, last),) = connection.execute(POSITIONS)
    return int(last)


def vector_changes(connection: Connection, since: int) -> VectorChanges | None:
    """Return the changes since a position of the log; None if it does not reach back that far."""
    ((first, last),) = connection.execute(POSITIONS)
    if not first - 1 <= since <= last:
        return None
    rows = list(connection.execute(CHANGED, (since,)))
    if any(id_ is None for id_, _ in rows):
        return None
    return VectorChanges(
        live=[id_ for id_, is_live in rows if is_live],
        gone=[id_ for id_, is_live in rows if not is_live],
    )


def vectors_after(
    connection: Connection, last: int, count: int, space: EmbeddingSpace
) -> tuple[list[int], list[bytes]]:
    """Return ids and float32 blobs of the next `count` embeddings in `space` that passages use."""
    return _sound(connection.execute(LIVE_VECTORS, (last, *space.identity, count)), space.dims)


def vectors_in_space(
    connection: Connection, ids: Iterable[int], space: EmbeddingSpace
) -> tuple[list[int], list[bytes]]:
    """Return ids and float32 blobs of those embeddings among `ids` that belong to `space`."""
    return _sound(connection.execute(VECTORS_IN_SPACE, (_json(ids), *space.identity)), space.dims)


def vector_counts(connection: Connection) -> VectorCounts:
    """Return the numbers of passages with and without a vector."""
    ((all_passages, pending),) = connection.execute(VECTOR_COUNTS)
    return VectorCounts(passages=all_passages, pending=pending)


def revision(connection: Connection) -> int:
    """Return the revision, which grows with every change of passages or vectors; 0 for an empty index."""
    row = connection.execute(REVISION).fetchone()
    return 0 if row is None else int(row[0])


def generation(connection: Connection) -> int:
    """Return the generation, which grows when a rebuilt index is swapped in: all passage ids are new then."""
    return int(connection.execute(GENERATION, (GENERATION_BITS, LIVE.chunks)).get or 0)


def state(connection: Connection) -> tuple[int, int]:
    """Return generation and revision."""
    ((made, changed),) = connection.execute(STATE, (GENERATION_BITS, LIVE.chunks))
    return int(made or 0), int(changed or 0)


def _sound(rows: Iterable[tuple[int, bytes]], dims: int) -> tuple[list[int], list[bytes]]:
    """Return ids and blobs separately, dropping blobs whose length is not that of `dims` float32 numbers."""
    whole = [row for row in rows if len(row[1]) == 4 * dims]
    return [id_ for id_, _ in whole], [blob for _, blob in whole]


def _json(ids: Iterable[int]) -> str:
    return orjson.dumps(ids if isinstance(ids, list) else [*ids]).decode()
