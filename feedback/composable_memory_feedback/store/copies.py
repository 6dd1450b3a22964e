"""Copies of the feedback store: one consistent moment in one file, put in its place at once."""

import glob
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from composable_memory_ops_logs.private_files import replacing

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
