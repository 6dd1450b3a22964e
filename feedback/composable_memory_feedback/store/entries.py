"""The one table of a feedback store: entries, each a text of some kind with a key and a time.

SQLite notices a broken page, but not a bit that changed within a text. So every row has a checksum, which is
verified on every read.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32


class Entry(NamedTuple):
    """One stored entry; one for each kind and key, or any number without a key."""

    kind: str
    key: str | None
    at: str
    detail: str
    id: int | None = None
    """Ascends in the order of storing; None before it is stored."""

    @property
    def checksum(self) -> int:
        """Return a checksum that detects changed bits, which SQLite does not."""
        text = f"{self.kind}\0{self.key}\0{self.at}\0{self.detail}"
        return crc32(text.encode("utf-8", "surrogateescape"))


APPLICATION_ID = 0x434D4662
"""Marks a file as a feedback store ("CMFb"), so that a database of another program is left alone."""

VERSION = 5

_SCHEMA = (
    """
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        key TEXT,
        at TEXT NOT NULL,
        detail TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        UNIQUE (kind, key)
    )
    """,
    "CREATE INDEX entries_in_order ON entries (kind, id, at)",
    *(
        f"""
        CREATE TRIGGER no_{event.lower()} BEFORE {event} ON entries WHEN old.kind = 'weight_changes'
        BEGIN SELECT RAISE(ABORT, 'the history of weights is never changed'); END
        """
        for event in ("UPDATE", "DELETE")
    ),
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)

_COLUMNS = "kind, key, at, detail, id, checksum"
_READ = f"""
SELECT {_COLUMNS} FROM entries
WHERE kind = :kind AND at >= :since AND (:prefix = '' OR substr(key, 1, length(:prefix)) = :prefix)
ORDER BY id DESC LIMIT :newest
"""  # noqa: S608 - our own names
_FIND = f"SELECT {_COLUMNS} FROM entries WHERE kind = ? AND key = ?"  # noqa: S608
_INDEX = "SELECT id, key FROM entries WHERE kind = ? AND at >= ? AND at < ? ORDER BY id"
_COUNT = "SELECT count(*), max(id) FROM entries WHERE kind = ?"
_PUT = f"""
INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, key) DO UPDATE SET at = excluded.at, detail = excluded.detail, checksum = excluded.checksum
WHERE (entries.at, entries.detail) IS NOT (excluded.at, excluded.detail)
"""  # noqa: S608


class Entries:
    """The entries of a file, on a connection with an open transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def read(self, kind: str, *, since: str = "", prefix: str = "", newest: int | None = None) -> list[Entry]:
        """Return the entries since a time whose keys have a prefix, in the order of storing.

        With `newest`, only that many, those stored last.
        """
        limit = -1 if newest is None else newest
        values = {"kind": kind, "since": since, "prefix": prefix, "newest": limit}
        return [*self._checked(_READ, values)][::-1]

    def find(self, kind: str, keys: Sequence[str]) -> dict[str, Entry]:
        """Return the entries that exist for some keys."""
        return {key: entry for key in keys for entry in self._checked(_FIND, (kind, key))}

    def index(self, kind: str, *, since: str = "", before: str = "~") -> list[tuple[int, str]]:
        """Return id and key of the entries between two times, without reading their content."""
        return self._connection.execute(_INDEX, (kind, since, before)).fetchall()

    def count(self, kind: str) -> tuple[int, int | None]:
        """Return the number of entries, and the id of the latest."""
        count, latest = self._connection.execute(_COUNT, (kind,)).fetchone()
        return count, latest

    def put(self, entries: Iterable[Entry]) -> None:
        """Store entries; one with a known key replaces the old one and keeps its id."""
        self._connection.executemany(_PUT, ((*entry, entry.checksum) for entry in entries))

    def remove(self, ids: Iterable[int | None]) -> None:
        """Remove the entries with some ids."""
        self._connection.executemany("DELETE FROM entries WHERE id = ?", ((one,) for one in ids))

    def check(self) -> None:
        """Read all entries and verify them.

        Raises:
            sqlite3.DatabaseError: An entry is not as it was written.
        """
        for _ in self._checked(f"SELECT {_COLUMNS} FROM entries", {}):  # noqa: S608 - our own names
            pass

    def _checked(self, sql: str, values: dict[str, object] | tuple[str, str]) -> Iterator[Entry]:
        for *columns, checksum in self._connection.execute(sql, values):
            entry = Entry(*columns)
            if entry.checksum != checksum:
                raise damaged("an entry has been altered")
            yield entry


def make_table(connection: sqlite3.Connection) -> None:
    """Create the table within a transaction, which makes the file one of this version."""
    for statement in _SCHEMA:
        connection.execute(statement)


def damaged(problem: str) -> sqlite3.DatabaseError:
    """Return an error like SQLite's for a damaged file."""
    error = sqlite3.DatabaseError(problem)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
