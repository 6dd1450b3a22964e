"""The metadata of an index file: its revision, its embedding space, its last sync, its counts."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field, fields, replace
from datetime import datetime
from uuid import uuid4

from composable_memory.supervision.lease import LeaseRow
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.sqlite_file import Connection, Unreadable
from composable_memory_ops_logs.quick_dataclass import dataclass

LAST_SYNC = "last_sync"
DAMAGE = "damage"
SPACE = "space"
RECIPE = "recipe"
"""Key of the versions and settings that made the chunks and keywords."""
CACHE_USE = "cache_use"
IDENTITY = "identity"
VECTOR_FILE = "vector_file"
FORGOTTEN = "forgotten"
"""Key of the number of purges of forgotten lines."""

REBUILD = "rebuild"
"""Key of the token of the rebuild whose tables exist beside the live ones."""

BUMP = """
INSERT INTO meta (key, value) VALUES ('revision', '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1
"""
KEPT_CHANGES = 65_536
"""How many changes the log keeps; a vector search in another process that misses more compares all ids."""

FORGET_CHANGES = """
DELETE FROM vector_changes WHERE position <= (SELECT max(position) FROM vector_changes) - ?
"""
# Separate counts: SQLite counts a table or index by its pages, without looking at values. Transcripts are
# counted by key prefix for the same reason: grouping by source would read every row. Passages without a
# vector are counted row by row, unless there are no vectors at all.
SNAPSHOT = """
SELECT (SELECT count(*) FROM chunks),
  (SELECT count(*) FROM chunks WHERE embedding_id IS NULL AND EXISTS (SELECT 1 FROM embedding_cache)),
  (SELECT count(*) FROM embedding_cache), (SELECT count(*) FROM files),
  (SELECT count(*) FROM files WHERE source = 'sessions' AND path BETWEEN 'sessions/' AND 'sessions0'),
  (SELECT count(*) FROM chunks WHERE source = 'sessions' AND path BETWEEN 'sessions/' AND 'sessions0')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncMark:
    """When all notes were last indexed, which could not be read, all problems, and what was skipped.

    `languages` are the languages' shares of a sample of the passages.
    """

    finished_ms: int
    unreadable: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    passed_over: Mapping[str, int] = field(default_factory=dict)
    languages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """How many chunks found their vector in the cache, and how many texts had to be embedded."""

    hits: int = 0
    misses: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Return the share of hits; None before the first lookup."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSnapshot:
    """The metadata of an index at one moment, and its counts, if they were read.

    `sources` has the numbers of files and chunks per source. `space` and `recipe` say how the chunks were
    made. `mark` is None until all notes have been indexed once.
    """

    revision: int = 0
    files: int = 0
    chunks: int = 0
    embedded: int = 0
    cached_vectors: int = 0
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    space: EmbeddingSpace | None = None
    recipe: str | None = None
    cache_use: CacheUse = CacheUse()
    mark: SyncMark | None = None
    damage: str | None = None
    """Damage that was found and not repaired yet."""
    is_rebuilding: bool = False
    """Whether the tables of a rebuild exist beside the live ones."""


def milliseconds(moment: datetime) -> int:
    """Return a time as the index stores it, in milliseconds since 1970."""
    return int(moment.timestamp() * 1000)


def bump_revision(connection: Connection) -> None:
    """Raise the revision, so that readers notice that chunks or vectors have changed."""
    connection.execute(BUMP)
    connection.execute(FORGET_CHANGES, (KEPT_CHANGES,))


def stored_space(connection: Connection) -> EmbeddingSpace | None:
    """Return the space of the chunks' vectors; None before the first."""
    return _parse_space(value(connection, SPACE))


def store_space(connection: Connection, space: EmbeddingSpace) -> None:
    """Store the space of the chunks' vectors."""
    set_value(connection, SPACE, json.dumps(asdict(space)))


def write_mark(connection: Connection, mark: SyncMark) -> None:
    """Record that all notes are indexed."""
    # This runs for each note that is written; `asdict` would take three times as long.
    told = {one.name: getattr(mark, one.name) for one in fields(mark)}
    set_value(connection, LAST_SYNC, json.dumps(told))


def add_cache_use(connection: Connection, *, hits: int, misses: int) -> None:
    """Add to the counts of vectors found in the cache and of texts embedded."""
    used = said(connection).cache_use
    total = CacheUse(hits=used.hits + hits, misses=used.misses + misses)
    set_value(connection, CACHE_USE, json.dumps(asdict(total)))


def said(connection: Connection) -> IndexSnapshot:
    """Return the metadata of the index, without counts."""
    stored = dict(connection.execute("SELECT key, value FROM meta"))
    mark, used = stored.get(LAST_SYNC), stored.get(CACHE_USE)
    with _understanding():
        return IndexSnapshot(
            revision=int(stored.get("revision") or 0),
            space=_parse_space(stored.get(SPACE)),
            recipe=stored.get(RECIPE),
            cache_use=CacheUse(**json.loads(used)) if used else CacheUse(),
            mark=_parse_mark(mark) if mark else None,
            damage=stored.get(DAMAGE),
            is_rebuilding=REBUILD in stored,
        )


def snapshot(connection: Connection) -> IndexSnapshot:
    """Return the metadata and the counts of the index."""
    chunks, pending, cached, files, transcripts, messages = next(connection.execute(SNAPSHOT))
    counts = {"memory": (files - transcripts, chunks - messages), "sessions": (transcripts, messages)}
    return replace(
        said(connection),
        files=files,
        chunks=chunks,
        embedded=chunks - pending if cached else 0,
        cached_vectors=cached,
        sources={source: count for source, count in counts.items() if count[0]},
    )


def identity(connection: Connection) -> str:
    """Return the unique id of this index, generating it on the first call."""
    known = value(connection, IDENTITY)
    if known is None:
        known = uuid4().hex[:16]
        set_value(connection, IDENTITY, known)
    return known


def forgotten(connection: Connection) -> int:
    """Return how often forgotten lines were purged."""
    return int(value(connection, FORGOTTEN) or 0)


def count_forgotten(connection: Connection) -> None:
    """Count a purge: nothing derived from the index before it may be kept."""
    set_value(connection, FORGOTTEN, str(forgotten(connection) + 1))


def value(connection: Connection, key: str) -> str | None:
    """Return the value of `key`."""
    found: str | None = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    return found


def set_value(connection: Connection, key: str, value: str | None) -> None:
    """Store `value` under `key`; None removes the key."""
    if value is None:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
        return
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def _lease(connection: Connection) -> str | None:
    return value(connection, "lease")


def _set_lease(connection: Connection, holder: str | None) -> None:
    set_value(connection, "lease", holder)


LEASE: LeaseRow[Connection] = LeaseRow(_lease, _set_lease)
"""The lease on an index: only one process at a time does long work, such as a rebuild or embedding."""


def _parse_space(stored: str | None) -> EmbeddingSpace | None:
    with _understanding():
        return EmbeddingSpace(**json.loads(stored)) if stored else None


def _parse_mark(stored: str) -> SyncMark:
    told = json.loads(stored)
    return SyncMark(
        finished_ms=told["finished_ms"],
        unreadable=tuple(told["unreadable"]),
        problems=tuple(told["problems"]),
        passed_over=dict(told.get("passed_over", {})),
        languages=dict(told.get("languages", {})),
    )


@contextmanager
def _understanding() -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, ValueError) as cause:
        raise Unreadable(f"its metadata cannot be read: {cause}") from cause
