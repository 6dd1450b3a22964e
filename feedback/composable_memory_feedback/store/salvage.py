"""Checks a feedback store's file for damage, and saves what is readable of a damaged one.

A damaged file is kept under a name with the date until something is forgotten. Every readable, intact entry
goes into a new file; missing ones are restored from the newest sound copy.
"""

import glob
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from shutil import copyfile

from composable_memory_feedback.store import earlier_layouts, readable
from composable_memory_feedback.store.entries import APPLICATION_ID, VERSION, Entries, Entry, make_table
from composable_memory_feedback.store.kinds import plain_text
from composable_memory_feedback.store.readable import Found
from composable_memory_ops_logs.private_files import replacing, sync_folder

KEPT_COPIES = 3


def copies_of(path: Path) -> list[Path]:
    """Return the copies kept of a store, oldest first."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.????-??-??.copy"))


def copy_of(path: Path, now: datetime) -> Path:
    """Return the path of a day's copy."""
    return path.with_name(f"{path.name}.{now:%Y-%m-%d}.copy")


def damaged_of(path: Path) -> list[Path]:
    """Return the damaged files that were set aside, with their logs."""
    return [*path.parent.glob(f"{glob.escape(path.name)}.damaged-*")]


def keep_copy(connection: sqlite3.Connection, path: Path, now: datetime) -> None:
    """Keep a copy of a store beside it; remove the oldest copies."""
    copy_into(connection, copy_of(path, now))
    for old in copies_of(path)[:-KEPT_COPIES]:
        old.unlink(missing_ok=True)


def copy_into(connection: sqlite3.Connection, target: Path) -> None:
    """Write what the connection sees into a file, also while others write; an older copy is replaced."""
    with replacing(target, survives="power cut") as scratch:
        connection.execute("VACUUM INTO ?", (str(scratch),))


def take_over(connection: sqlite3.Connection, source: Path) -> None:
    """Replace the content of an open database by that of a copy."""
    address = f"{source.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as copy:
        copy.backup(connection)


MOST_CHECKED_BYTES = 4 * 2**20
"""A larger file is only checked before the day's copy is made, not on every opening.

Rows that are read from it are still checked one by one.
"""
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_COMPANIONS = ("-wal", "-journal")


def damage_in(path: Path, *, however_large: bool = False, by_row: bool = True) -> str | None:
    """Return what is wrong with a store's file; None if nothing is, or if it is not our file.

    `by_row` also verifies each row's checksum.
    """
    if not path.exists():
        return None
    size = path.stat().st_size
    if size == 0:
        return "it is empty, and was not"
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.text_factory = _text
            connection.execute("BEGIN")  # all of one moment: another process may be converting the file
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID or version > VERSION:
                return None  # of another program, or of a later version
            if version == VERSION and size > MOST_CHECKED_BYTES and not however_large:
                return None
            known = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
            has_entries = "entries" in known or version == VERSION
            needed = {"entries"} if has_entries else earlier_layouts.required_tables(version)
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if missing := sorted(needed - known):
                return f"{', '.join(missing)} is gone"
            if found != "ok":
                return str(found).splitlines()[-1]
            if not version or has_entries != (version == VERSION):
                return "its version is lost"
            if by_row and has_entries:
                Entries(connection).check()
            elif by_row and not earlier_layouts.found_in(connection).is_sound:
                return "a row has been altered"
            return None
    except UnicodeDecodeError as error:  # Python decodes SQLite's message, which quotes the damaged text
        return str(error)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE:
            return str(error)
        raise


def mend(path: Path, at: datetime, *, however_large: bool = False) -> str | None:
    """Replace a damaged store by a new one with everything readable, and say what was saved.

    The damaged file is kept beside it. Returns None if there is no damage.
    """
    reason = damage_in(path, however_large=however_large)
    if reason is None:
        return None
    aside = _put_aside(path, at)
    is_sound = aside.stat().st_size > 0 and damage_in(aside, however_large=True, by_row=False) is None
    found, more = _read(aside), dict[int, Entry]()
    copies = [copy for copy in reversed(copies_of(path)) if damage_in(copy, however_large=True) is None]
    if copies and (found.damaged or not is_sound):
        held = _read(copies[0]).entries
        if is_sound and any(checksum for _, checksum in found.damaged.values()):
            # It has the original checksum of each damaged row, so only what matches is restored.
            known = {one.checksum: one for one in held.values()}
            written = {id_: known.get(checksum) for id_, (_, checksum) in found.damaged.items()}
            more = {id_: entry._replace(id=id_) for id_, entry in written.items() if entry}
        else:
            keys = {(one.kind, one.key) for one in found.entries.values() if one.key is not None}
            more = {
                id_: one
                for id_, one in held.items()
                if id_ not in found.entries and (one.kind, one.key) not in keys
            }
    with replacing(path, survives="power cut") as scratch:
        with closing(sqlite3.connect(scratch, isolation_level=None)) as fresh, fresh:
            fresh.execute("BEGIN")
            make_table(fresh)
            Entries(fresh).put([*found.entries.values(), *more.values()])
        for companion in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + companion).unlink(missing_ok=True)
    kinds = {_plain(kind) for id_, (kind, _) in found.damaged.items() if id_ not in more}
    lost = f"not all of {', '.join(sorted(kinds)) or 'it'} could be read"
    parts = [
        f"the feedback store was damaged ({reason}): {path}",
        f"saved {_counted(found.entries.values()) or 'nothing'}",
        f"{_counted(more.values())} more from {copies[0].name}" if more else "",
        lost if kinds or not found.is_whole else "nothing is lost",
        f"the damaged file is kept as {aside.name}",
    ]
    return plain_text("; ".join(part for part in parts if part))


def _put_aside(path: Path, at: datetime) -> Path:
    """Copy the file, with its pending writes, to a separate name."""
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


def _read(path: Path) -> Found:
    """Return what is readable of a file, whatever is wrong with it."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.text_factory = _text
            return _found_in(connection)
    except (sqlite3.Error, UnicodeDecodeError):
        return Found(is_whole=False)


def _found_in(connection: sqlite3.Connection) -> Found:
    is_present = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'entries'").fetchone()
    return readable.found_in(connection) if is_present else earlier_layouts.found_in(connection)


def _counted(entries: Iterable[Entry]) -> str:
    counts = Counter(one.kind for one in entries)
    return ", ".join(f"{count} {_plain(kind)}" for kind, count in counts.items())


def _plain(kind: object) -> str:
    return str(kind).replace("_", " ")  # damage may leave no text of it


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")  # invalid text has another checksum
