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
"""Key of how the chunks and their keywords were made."""
CACHE_USE = "cache_use"
IDENTITY = "identity"
VECTOR_FILE = "vector_file"
FORGOTTEN = "forgotten"
"""Key of how often something was forgotten for good."""

REBUILD = "rebuild"
"""Key of the token of the rebuild whose tables stand beside the live ones."""

BUMP = """
INSERT INTO meta (key, value) VALUES ('revision', '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1
"""
KEPT_CHANGES = 65_536
"""What searches vectors in another process may miss so many of their changes before it compares all ids."""

FORGET_CHANGES = """
DELETE FROM vector_changes WHERE position <= (SELECT max(position) FROM vector_changes) - ?
"""
# One count each: SQLite counts the rows of a table or index by its pages, but looks at every value. So do
# transcripts have a count by how their keys begin: to group by source would look at every row. Passages
# without a vector are looked at one by one, too, unless none has any.
SNAPSHOT = """
SELECT (SELECT count(*) FROM chunks),
  (SELECT count(*) FROM chunks WHERE embedding_id IS NULL AND EXISTS (SELECT 1 FROM embedding_cache)),
  (SELECT count(*) FROM embedding_cache), (SELECT count(*) FROM files),
  (SELECT count(*) FROM files WHERE source = 'sessions' AND path BETWEEN 'sessions/' AND 'sessions0'),
  (SELECT count(*) FROM chunks WHERE source = 'sessions' AND path BETWEEN 'sessions/' AND 'sessions0')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncMark:
    """When all notes were last indexed, which could not be read, all problems, and what was passed over.

    `languages` are the shares of the languages among a sample of the passages.
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
        """Return the share of hits, None before the first."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSnapshot:
    """What an index says of itself at one moment, and what it holds, where that was counted.

    `sources` has files and chunks of each source. `space` and `recipe` say how the chunks were made. `mark`
    is None until all notes were indexed once.
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
    """Damage that was found, and that no sync has repaired yet."""
    is_rebuilding: bool = False
    """Whether tables of a rebuild stand beside the live ones."""


def milliseconds(moment: datetime) -> int:
    """Return a time as the index stores it, in milliseconds since 1970."""
    return int(moment.timestamp() * 1000)


def bump_revision(connection: Connection) -> None:
    """Raise the revision, so that readers notice that chunks or vectors have changed."""
    connection.execute(BUMP)
    connection.execute(FORGET_CHANGES, (KEPT_CHANGES,))


def stored_space(connection: Connection) -> EmbeddingSpace | None:
    """Return the space that the chunks' vectors are in, None before the first."""
    return _parse_space(value(connection, SPACE))


def store_space(connection: Connection, space: EmbeddingSpace) -> None:
    """Store the space that the chunks' vectors are in."""
    set_value(connection, SPACE, json.dumps(asdict(space)))


def write_mark(connection: Connection, mark: SyncMark) -> None:
    """Store that all notes are indexed."""
    # A third of the time of `asdict`, for each note that is written.
    told = {one.name: getattr(mark, one.name) for one in fields(mark)}
    set_value(connection, LAST_SYNC, json.dumps(told))


def add_cache_use(connection: Connection, *, hits: int, misses: int) -> None:
    """Count further chunks that found their vector in the cache, and texts that had to be embedded."""
    used = said(connection).cache_use
    total = CacheUse(hits=used.hits + hits, misses=used.misses + misses)
    set_value(connection, CACHE_USE, json.dumps(asdict(total)))


def said(connection: Connection) -> IndexSnapshot:
    """Return what the index says of itself, without what it holds."""
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
    """Return what the index says of itself, and what it holds."""
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
    """Return the unique id of this index; the first call makes it."""
    known = value(connection, IDENTITY)
    if known is None:
        known = uuid4().hex[:16]
        set_value(connection, IDENTITY, known)
    return known


def forgotten(connection: Connection) -> int:
    """Return how often something was forgotten for good."""
    return int(value(connection, FORGOTTEN) or 0)


def count_forgotten(connection: Connection) -> None:
    """Note that something is forgotten for good: what was made of the index before must not be kept."""
    set_value(connection, FORGOTTEN, str(forgotten(connection) + 1))


def value(connection: Connection, key: str) -> str | None:
    """Return the value of `key`."""
    found: str | None = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    return found


def set_value(connection: Connection, key: str, value: str | None) -> None:
    """Write `value` under `key`; None removes the key."""
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
"""The lease on an index: one process at a time does long work on it, such as a rebuild or an embedding."""


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
