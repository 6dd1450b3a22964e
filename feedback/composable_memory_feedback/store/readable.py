"""Reads what is readable of a file's table, however damaged it is."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from typing import Any

from composable_memory_feedback.store.entries import Entry
from composable_memory_ops_logs.quick_dataclass import dataclass

_MOST_RANGES = 20_000
"""How many unreadable row ranges are searched; the rest of a table is then lost."""

UNREADABLE = (sqlite3.Error, OverflowError, UnicodeDecodeError)


@dataclass(slots=True, kw_only=True)
class Found:
    """The intact entries of a file by their ids, and what is known of the others."""

    entries: dict[int, Entry] = field(default_factory=dict)
    damaged: dict[int, tuple[str, Any]] = field(default_factory=dict)
    """The kind and the original checksum of each damaged entry."""
    is_whole: bool = True
    """Whether every row could be read."""

    def add(self, entry: Entry, id_: int) -> None:
        """Add an intact entry."""
        self.entries[id_] = entry._replace(id=id_)

    @property
    def is_sound(self) -> bool:
        """Return whether everything is intact."""
        return self.is_whole and not self.damaged


def found_in(connection: sqlite3.Connection) -> Found:
    """Return what is readable of the table in a file, however damaged it is."""
    found = Found()
    rows, found.is_whole = readable_rows(connection, "entries")
    for id_, row in rows.items():
        checksum = row.pop("checksum")
        entry = Entry(**row)
        if entry.checksum == checksum:
            found.entries[id_] = entry
        else:
            found.damaged[id_] = entry.kind, checksum
    return found


def readable_rows(connection: sqlite3.Connection, table: str) -> tuple[dict[int, dict[str, Any]], bool]:
    """Return the readable rows of a table by their row ids, and whether those are all."""
    select = "SELECT {} FROM " + table  # noqa: S608 - our own names
    try:
        names = [one[0] for one in connection.execute(f"{select.format('*')} LIMIT 0").description]
    except UNREADABLE:
        return {}, False
    last = 2**40
    with suppress(*UNREADABLE):
        last = min(connection.execute(select.format("max(rowid)")).fetchone()[0] or 0, last)
    sql = f"{select.format('rowid, *')} WHERE rowid BETWEEN ? AND ?"
    rows, is_whole = _in_ranges(connection, sql, 0, last, iter(range(_MOST_RANGES)))
    return {id_: dict(zip(names, row, strict=True)) for id_, *row in rows}, is_whole


def _in_ranges(
    connection: sqlite3.Connection, sql: str, first: int, last: int, left: Iterator[int]
) -> tuple[list[Any], bool]:
    """Read a range of row ids, halving it while something in it is unreadable; `left` limits the attempts."""
    try:
        return connection.execute(sql, (first, last)).fetchall(), True
    except UNREADABLE:
        if first == last or next(left, None) is None:
            return [], False
    middle = (first + last) // 2
    rows, _ = _in_ranges(connection, sql, first, middle, left)
    more, _ = _in_ranges(connection, sql, middle + 1, last, left)
    return rows + more, False
