"""What the index file notes about itself: its revision, its embedding space, its last sync, its counts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from composable_memory_adapters.builtin.embedding_cache import EmbeddingSpace
from composable_memory_adapters.sqlite_file import Connection, Unreadable

__all__ = [
    "IndexSnapshot",
    "SyncMark",
    "bump_revision",
    "is_sound",
    "read_mark",
    "snapshot",
    "store_space",
    "stored_space",
    "write_mark",
]

BUMP = """
INSERT INTO meta (key, value) VALUES ('revision', '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1
"""
SNAPSHOT = """
SELECT (SELECT count(*) FROM files), count(*), count(embedding_id), (SELECT count(*) FROM embedding_cache)
FROM chunks
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncMark:
    """When all notes were last in, which of them could not be read, and all that was remarked."""

    finished_ms: int
    unreadable: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSnapshot:
    """Counts of the index at one moment; `mark` is None until all notes were in once."""

    revision: int = 0
    files: int = 0
    chunks: int = 0
    embedded: int = 0
    cached_vectors: int = 0
    mark: SyncMark | None = None


def bump_revision(connection: Connection) -> None:
    """Tell all readers that chunks or vectors have changed."""
    connection.execute(BUMP)


def stored_space(connection: Connection) -> EmbeddingSpace | None:
    """Return the space that the chunks' vectors are in, None before the first."""
    stored = _value(connection, "space")
    with _understanding():
        return EmbeddingSpace(**json.loads(stored)) if stored else None


def store_space(connection: Connection, space: EmbeddingSpace) -> None:
    """Note the space that the chunks' vectors are in from now on."""
    _set_value(connection, "space", json.dumps(asdict(space)))


def read_mark(connection: Connection) -> SyncMark | None:
    """Return what the last sync noted, None before the first that had all notes in."""
    stored = _value(connection, "last_sync")
    return _parse_mark(stored) if stored else None


def write_mark(connection: Connection, mark: SyncMark) -> None:
    """Note that all notes are in."""
    _set_value(connection, "last_sync", json.dumps(asdict(mark)))


def snapshot(connection: Connection) -> IndexSnapshot:
    """Return the counts of the index."""
    files, chunks, embedded, cached = next(connection.execute(SNAPSHOT))
    with _understanding():
        revision = int(_value(connection, "revision") or 0)
    return IndexSnapshot(
        revision=revision,
        files=files,
        chunks=chunks,
        embedded=embedded,
        cached_vectors=cached,
        mark=read_mark(connection),
    )


def is_sound(connection: Connection) -> bool:
    """Say whether the file passes SQLite's quick check, and its books can be read; reads all of it."""
    if connection.execute("PRAGMA quick_check(1)").get != "ok":
        return False
    try:
        snapshot(connection)
        stored_space(connection)
        for _ in connection.execute("SELECT path, hash FROM files"):
            pass
    except (UnicodeDecodeError, Unreadable):
        return False
    return True


def _value(connection: Connection, key: str) -> str | None:
    value: str | None = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).get
    return value


def _set_value(connection: Connection, key: str, value: str) -> None:
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def _parse_mark(stored: str) -> SyncMark:
    with _understanding():
        fields = json.loads(stored)
        return SyncMark(
            finished_ms=fields["finished_ms"],
            unreadable=tuple(fields["unreadable"]),
            problems=tuple(fields["problems"]),
        )


@contextmanager
def _understanding() -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, ValueError) as cause:
        raise Unreadable(f"its books cannot be read: {cause}") from cause
