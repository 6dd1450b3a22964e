"""Looks whether the file of a feedback store is sound, and saves what can be read of one that is not.

What is damaged is put aside under a name with the date, never deleted. Every row that can be read, and says
something that the store could have written, goes into a new file; where a table could not be read whole, rows
of the newest sound copy fill it up.
"""

import glob
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from shutil import copyfile

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store.codecs import ROWS
from composable_memory_feedback.store.schema import (
    APPLICATION_ID,
    CHECKSUMS_SINCE,
    VERSION,
    damaged_rows,
    row_checksum,
)
from composable_memory_ops_logs.private_files import replacing, sync_folder

KEPT_COPIES = 3


def copies_of(path: Path) -> list[Path]:
    """Return the copies that were kept of a store, oldest first."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.????-??-??.copy"))


def copy_of(path: Path, now: datetime) -> Path:
    """Return where the copy of a day is kept."""
    return path.with_name(f"{path.name}.{now:%Y-%m-%d}.copy")


def keep_copy(connection: sqlite3.Connection, path: Path, now: datetime) -> None:
    """Keep a copy of a store beside it; the oldest go."""
    copy_into(connection, copy_of(path, now))
    for old in copies_of(path)[:-KEPT_COPIES]:
        old.unlink(missing_ok=True)


def copy_into(connection: sqlite3.Connection, target: Path) -> None:
    """Write what the connection sees now into a file, also while others write; an older copy is replaced."""
    with replacing(target, survives="power cut") as scratch:
        connection.execute("VACUUM INTO ?", (str(scratch),))


def take_over(connection: sqlite3.Connection, source: Path) -> None:
    """Make a copy the content of the store that a connection has open, in one transaction.

    Other connections go on, and see it from their next transaction on.
    """
    address = f"{source.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as copy:
        copy.backup(connection)


MOST_CHECKED_BYTES = 4 * 2**20
"""A larger file is looked through before the copy of a day is made, not whenever it is opened.

What is read of it is checked row by row all the same.
"""
_MOST_RANGES = 20_000
"""So many ranges of rows that cannot be read are looked into; what is left of a table is lost then."""
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_COMPANIONS = ("-wal", "-journal")

_CHECKSUMS = "SELECT row, checksum FROM row_checksums WHERE of_table = ?"

Row = Mapping[str, object]


def damage_in(path: Path, *, however_large: bool = False, by_row: bool = True) -> str | None:
    """Return what is wrong with the file of a store; None where nothing is, or it is not ours to judge.

    `by_row` also looks whether each row is as it was written.
    """
    if not path.exists():
        return None
    size = path.stat().st_size
    if size == 0:
        return "it is empty, and was not"
    if size > MOST_CHECKED_BYTES and not however_large:
        return None
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.text_factory = _text
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID or version > VERSION:
                return None  # another program's, or a later version's
            known = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            has_checksums = version >= CHECKSUMS_SINCE
            if missing := sorted({*ROWS, "marks", *(["row_checksums"] if has_checksums else [])} - known):
                return f"{', '.join(missing)} is gone"
            if found != "ok":
                return str(found).splitlines()[-1]
            if not version:
                return "its version is lost"
            return damaged_rows(connection) if by_row and has_checksums else None
    except UnicodeDecodeError as error:  # Python reads SQLite's message, which quotes what is damaged
        return str(error)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE:
            return str(error)
        raise


def salvage(path: Path, fresh: sqlite3.Connection, scratch: Path, *, reason: str, at: datetime) -> str:
    """Fill `fresh`, the store in the file `scratch`, put that in the place of `path`, and say what was saved.

    The damaged file is kept beside it.
    """
    aside = _put_aside(path, at)
    saved, from_copy, broken = Counter[str](), Counter[str](), []
    is_exact = aside.stat().st_size > 0 and damage_in(aside, however_large=True, by_row=False) is None
    copies = [copy for copy in reversed(copies_of(path)) if damage_in(copy, however_large=True) is None]
    versions: set[object] = {None}
    with fresh:
        fresh.execute("BEGIN IMMEDIATE")
        for table in ROWS:
            rows, is_whole = _rows_of(aside, table)
            written = _checksums_of(aside, table)
            sound = [row for row in rows if row["checksum"] == written.get(_key(row), row["checksum"])]
            saved[table] = _insert(fresh, table, sound, versions)
            if is_whole and saved[table] == len(rows) and written.keys() <= {_key(row) for row in sound}:
                continue
            if copies:
                # Where the file is sound but for some rows, it says which rows those were: no others return.
                held = _rows_of(copies[0], table)[0]
                fitting = [row for row in held if not is_exact or row["checksum"] == written.get(_key(row))]
                from_copy[table] = _insert(fresh, table, fitting, versions)
            if not is_exact or saved[table] + from_copy[table] < len(written):
                broken.append(table)
    fresh.close()
    for companion in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + companion).unlink(missing_ok=True)
    scratch.replace(path)
    sync_folder(path.parent)
    return _told(path, aside, reason, saved, from_copy, broken, copies[0].name if copies else None)


def _put_aside(path: Path, at: datetime) -> Path:
    """Copy the file, with what was not yet written into it, to a name of its own."""
    aside = path.with_name(f"{path.name}.damaged-{at:%Y-%m-%d}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{at:%Y-%m-%d}-{number}")
    for companion in ("", *_COMPANIONS):
        source = path.with_name(path.name + companion)
        if source.exists():
            target = aside.with_name(aside.name + companion)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
            copyfile(source, target)
    sync_folder(path.parent)
    return aside


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[Row], versions: set[object]) -> int:
    """Insert the rows that the store could have written, and return how many there were."""
    count = 0
    for row in rows:
        values = dict(row)
        place = values.pop("place")
        del values["checksum"]
        try:
            ROWS[table].model_validate(values)
        except (FeedbackError, ValueError):
            continue
        if table == "weight_changes" and values["version"] not in versions:
            continue
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        added = connection.execute(
            f"INSERT OR IGNORE INTO {table} (rowid, {names}) VALUES (:place, {marks})",  # noqa: S608
            {**values, "place": place},
        )
        count += added.rowcount
        if table == "weight_tables":
            versions.add(values["version"])
    return count


def _rows_of(path: Path, table: str) -> tuple[list[Row], bool]:
    """Return the rows of a table that can be read, and whether those are all."""
    finished = " AND detail IS NOT NULL" if table == "evaluations" else ""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            connection.text_factory = _text
            known = [row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            # A file of an earlier version has fewer columns.
            columns = ", ".join(name for name in ROWS[table].model_fields if name in known)
            what = f"{columns}, rowid AS place, {row_checksum(connection, table)} AS checksum"
            sql = f"SELECT {what} FROM {table} WHERE rowid BETWEEN ? AND ?{finished}"  # noqa: S608
            return _in_ranges(connection, sql, 0, _last_row(connection, table), iter(range(_MOST_RANGES)))
    except (sqlite3.Error, UnicodeDecodeError):
        return [], False


def _checksums_of(path: Path, table: str) -> Mapping[object, object]:
    """Return the checksums of the rows of a table when they were written, as far as they can be read."""
    found: dict[object, object] = {}
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(path)) as connection:
        found.update(connection.execute(_CHECKSUMS, (table,)))
    return found


def _key(row: Row) -> object:
    return row.get("id", row["place"])


def _last_row(connection: sqlite3.Connection, table: str) -> int:
    try:
        found = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0]  # noqa: S608 - our own names
    except (sqlite3.Error, UnicodeDecodeError):
        return 2**20
    return min(found or 0, 2**40)


def _in_ranges(
    connection: sqlite3.Connection, sql: str, first: int, last: int, left: Iterator[int]
) -> tuple[list[Row], bool]:
    """Read a range of row ids, in halves as long as something in it cannot be read; `left` bounds that."""
    try:
        return [dict(row) for row in connection.execute(sql, (first, last))], True
    except (sqlite3.Error, OverflowError, UnicodeDecodeError):
        if first == last or next(left, None) is None:
            return [], False
    middle = (first + last) // 2
    rows, _ = _in_ranges(connection, sql, first, middle, left)
    more, _ = _in_ranges(connection, sql, middle + 1, last, left)
    return rows + more, False


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")  # what is no text fails to be a row


def _told(
    path: Path,
    aside: Path,
    reason: str,
    saved: Mapping[str, int],
    from_copy: Mapping[str, int],
    broken: Iterable[str],
    copy: str | None,
) -> str:
    kept = ", ".join(f"{count} {table.replace('_', ' ')}" for table, count in saved.items() if count)
    filled = ", ".join(f"{count} {table.replace('_', ' ')}" for table, count in from_copy.items() if count)
    lost = ", ".join(table.replace("_", " ") for table in broken)
    parts = [
        f"the feedback store was damaged ({reason}): {path}",
        f"saved {kept or 'nothing'}",
        f"{filled} more from {copy}" if filled else "",
        f"not all of {lost} could be read" if lost else "nothing is lost",
        f"the damaged file is kept as {aside.name}",
    ]
    return "; ".join(part for part in parts if part)
