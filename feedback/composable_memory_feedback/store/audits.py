"""Who did what to the learning, and named marks of how far it came."""

from collections.abc import Mapping
from datetime import datetime
from json import dumps, loads
from sqlite3 import Connection

from composable_memory_feedback.store.codecs import plain_text, time_of, time_text
from composable_memory_feedback.store.values import AuditEntry
from composable_memory_ops_logs.events import JsonValue

__all__ = ["add_audit", "read_audits", "read_mark", "set_mark"]

_ADD = "INSERT INTO audits (at, action, actor, detail) VALUES (?, ?, ?, ?)"

_LATEST = "SELECT * FROM checked_audits ORDER BY id DESC LIMIT ?"

_MARK = "SELECT value FROM marks WHERE name = ?"

_SET_MARK = """
INSERT INTO marks (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value IS NOT excluded.value
"""


def add_audit(
    connection: Connection, action: str, actor: str, detail: Mapping[str, JsonValue], at: datetime
) -> None:
    """Add an entry; none is ever changed or deleted."""
    values = (time_text(at), plain_text(action), plain_text(actor), dumps(detail))
    connection.execute(_ADD, values)


def read_audits(connection: Connection, limit: int) -> list[AuditEntry]:
    """Return entries, newest first."""
    return [
        AuditEntry(
            action=row["action"],
            actor=row["actor"],
            at=time_of(row["at"]),
            detail=loads(row["detail"]),
        )
        for row in connection.execute(_LATEST, (limit,))
    ]


def read_mark(connection: Connection, name: str) -> str | None:
    """Return the value of a mark."""
    row = connection.execute(_MARK, (name,)).fetchone()
    return None if row is None else str(row["value"])


def set_mark(connection: Connection, name: str, value: str) -> None:
    """Set a mark."""
    connection.execute(_SET_MARK, (name, plain_text(value)))
