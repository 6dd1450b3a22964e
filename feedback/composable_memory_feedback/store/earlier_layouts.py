"""Reads the layout of versions 1 to 4, which had a table for each kind of value and one for all checksums.

Files with it are converted when they are opened, and lines exported from it can be imported. Version 1 had no
checksums, judgements had no `start_char` before version 3, and before version 4 there were more tables.
"""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from zlib import crc32

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store.entries import Entry
from composable_memory_feedback.store.kinds import (
    EVALUATIONS,
    EXPERIMENTS,
    GOLDEN,
    JUDGEMENTS,
    KINDS,
    MARKS,
    OUTCOMES,
    WEIGHTS,
    Kind,
)
from composable_memory_feedback.store.readable import UNREADABLE, Found, readable_rows

VERSIONS = range(1, 5)
TABLES = ("weight_tables", *KINDS)
_CHECKSUMS_SINCE = 2
ALL_TABLES = frozenset((*TABLES, MARKS, "row_checksums", "backend_queries", "shadows", "audits"))
"""All that a file of one of the versions may have."""
_IDS = 2**32
"""Ids reserved for each table: an entry keeps an id made from its row's id, and so matches older copies."""


class Converter:
    """Converts rows to entries; pass a weight table before the changes that adopted it."""

    def __init__(self) -> None:
        self._tables: dict[object, object] = {}

    def entry(self, table: str, row: Mapping[str, object]) -> Entry | None:
        """Convert a row to an entry; None if it is now part of other entries, or no longer used.

        Raises:
            FeedbackError, LookupError, ValueError: It is not a row that the store wrote.
        """
        match table:
            case "weight_tables":
                self._tables[row["version"]] = row["detail"]
                return None
            case "weight_changes":
                version = row["version"]
                texts = {**row, "table": self._tables[version] if version else None}
                parts = {one: json.loads(str(texts[one] or "null")) for one in ("table", "base", "gain")}
                return _entry(WEIGHTS, {**row, **parts})
            case "golden":
                return _entry(GOLDEN, {one: json.loads(str(row[one])) for one in ("question", "query")})
            case "experiments":
                return _entry(EXPERIMENTS, json.loads(str(row["detail"])))
            case "outcomes":
                return _entry(OUTCOMES, row)
            case "evaluations":
                return _entry(EVALUATIONS, json.loads(str(row["detail"]))) if row["detail"] else None
            case "judgements":
                return _entry(JUDGEMENTS, {**row, "by": row["judge"]})
            case "backend_queries":  # in exports only: it is counted by the judgements
                return None
        raise ValueError(f"it names none of the store's tables: {', '.join(sorted(TABLES))}")


def required_tables(version: int) -> frozenset[str]:
    """Return the tables that a sound file of a version has."""
    return frozenset((*TABLES, MARKS, *(["row_checksums"] if version >= _CHECKSUMS_SINCE else ())))


def found_in(connection: sqlite3.Connection) -> Found:
    """Return what is readable of the tables in a file, however damaged it is."""
    found, converter = Found(), Converter()
    connection.text_factory = bytes  # checksums are of texts as they are on disk
    for number, table in enumerate(TABLES):
        ids = number * _IDS
        rows, is_whole = readable_rows(connection, table)
        found.is_whole &= is_whole
        written = _checksums(connection, table)
        for id_, row in rows.items():
            own = _checksum(table, row)
            try:
                if written.pop(next(iter(row.values())), own) != own:
                    raise ValueError("the row has been altered")
                entry = converter.entry(table, {name: _text(one) for name, one in row.items()})
            except (FeedbackError, LookupError, ValueError):
                found.damaged[ids + id_] = table, None
            else:
                if entry is not None:
                    found.add(entry, ids + id_)
        for _ in written:  # deleted rows
            found.damaged[-1 - len(found.damaged)] = table, None
    with suppress(*UNREADABLE):
        for at, (name, value) in enumerate(connection.execute("SELECT name, value FROM marks")):
            found.add(Entry(MARKS, _text(name), "", _text(value)), len(TABLES) * _IDS + at)
    connection.text_factory = str
    return found


def _checksums(connection: sqlite3.Connection, table: str) -> dict[object, object]:
    found: dict[object, object] = {}
    with suppress(*UNREADABLE):
        found |= connection.execute("SELECT row, checksum FROM row_checksums WHERE of_table = ?", (table,))
    return found


def _checksum(table: str, row: Mapping[str, object]) -> int:
    values = [*row.values()]
    if table == "judgements" and row.get("start_char") == 0:  # as it was written before there was one
        del values[-1]
    return crc32(repr(tuple(values)).encode())


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _entry(kind: Kind[Any], value: Mapping[str, object]) -> Entry:
    return kind.entry(kind.read(json.dumps(value)))
