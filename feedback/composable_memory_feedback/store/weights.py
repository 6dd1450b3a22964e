"""Weight tables in the feedback store: which one is in force, and a history that is only added to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from sqlite3 import Connection, Row

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store.codecs import INTERVALS, TABLES, WEIGHTS, plain_text, time_of, time_text
from composable_memory_feedback.store.values import StoredWeights, WeightAction, WeightChange
from composable_memory_feedback.weights import WeightTable

__all__ = ["SETTINGS", "adopt", "current_weights", "read_changes", "read_table", "roll_back"]

SETTINGS = "settings"
"""What `roll_back` takes for the weights of the settings."""

_LATEST = """
SELECT change.*, stored.detail FROM checked_weight_changes AS change
LEFT JOIN checked_weight_tables AS stored USING (version)
ORDER BY change.id DESC LIMIT ?
"""

_NEXT = "SELECT coalesce(max(number), 0) + 1 FROM weight_tables"

_KEEP = "INSERT INTO weight_tables (number, version, replaced, detail) VALUES (?, ?, ?, ?)"

_CHANGE = """
INSERT INTO weight_changes (version, replaced, at, actor, action, reason, base, gain)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

_TABLE = "SELECT replaced, detail FROM checked_weight_tables WHERE version = ?"

_VERSIONS = "SELECT version FROM weight_tables ORDER BY number DESC LIMIT 20"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One line to be added to the history."""

    version: str | None
    replaced: str | None
    at: datetime
    actor: str
    action: WeightAction
    reason: str
    base: Mapping[str, float]
    gain: Interval | None = None


def adopt(
    connection: Connection,
    table: WeightTable,
    *,
    base: Mapping[str, float],
    actor: str,
    at: datetime,
    gain: Interval | None,
    expected: str | None = None,
) -> WeightTable:
    """Put a table in force under the next version, and return it with that version.

    Raises:
        FeedbackError: `expected`, a version or `SETTINGS`, is not what was in force last.
    """
    replaced = _active_version(connection)
    if expected not in (None, replaced or SETTINGS):
        raise FeedbackError(
            "the weights stay as they are",
            subject=f"others put {replaced or SETTINGS} in force meanwhile",
            advice="advise again",
        )
    (number,) = connection.execute(_NEXT).fetchone()
    adopted = replace(table, version=f"v{number}", reason=plain_text(table.reason))
    connection.execute(_KEEP, (number, adopted.version, replaced, TABLES.write(adopted)))
    entry = _Entry(
        version=adopted.version,
        replaced=replaced,
        at=at,
        actor=actor,
        action="adopt",
        reason=adopted.reason,
        base=base,
        gain=gain,
    )
    _add(connection, entry)
    return adopted


def current_weights(connection: Connection) -> StoredWeights | None:
    """Return the table in force; None where the weights of the settings are."""
    latest = _latest(connection)
    if latest is None or latest["version"] is None:
        return None
    return StoredWeights(
        table=TABLES.read(latest["detail"]), base=WEIGHTS.read(latest["base"]), since=time_of(latest["at"])
    )


def read_changes(connection: Connection, limit: int) -> list[WeightChange]:
    """Return the history, newest first."""
    return [_change_of(row) for row in connection.execute(_LATEST, (limit,))]


def read_table(connection: Connection, version: str) -> WeightTable:
    """Return the table of a version, in force or not.

    Raises:
        FeedbackError: There is none.
    """
    return TABLES.read(_row_of(connection, version)["detail"])


def roll_back(
    connection: Connection, to: str | None, *, actor: str, at: datetime, base: Mapping[str, float] | None
) -> WeightTable | None:
    """Put an earlier table in force again, or the weights of the settings, and return what is in force.

    Raises:
        FeedbackError: There is no such version, or it is in force already.
    """
    latest = _latest(connection)
    if latest is None:
        raise _nothing_to_roll_back()
    version = _target(connection, latest["version"], to)
    adopted_over = WEIGHTS.read(latest["base"])
    if version == latest["version"] and (version is None or base in (None, adopted_over)):
        raise FeedbackError(
            "these weights are in force already", subject=version or SETTINGS, advice="name another version"
        )
    table = None if version is None else read_table(connection, version)
    entry = _Entry(
        version=version,
        replaced=latest["version"],
        at=at,
        actor=actor,
        action="reset" if version is None else "rollback",
        reason=_way_back(latest["version"], version),
        base=adopted_over if base is None else base,
    )
    _add(connection, entry)
    return table


def _target(connection: Connection, current: str | None, to: str | None) -> str | None:
    """Return the version to go back to; None for the settings.

    The one before is the one that the current was adopted over, so that going back again goes further back.
    """
    if to is None:
        if current is None:
            raise _nothing_to_roll_back()
        replaced = _row_of(connection, current)["replaced"]
        return None if replaced is None else str(replaced)
    return None if to == SETTINGS else to


def _way_back(current: str | None, version: str | None) -> str:
    if version == current:
        return f"{version} over changed settings"
    return f"back from {current or SETTINGS} to {version or SETTINGS}"


def _nothing_to_roll_back() -> FeedbackError:
    return FeedbackError(
        "there is nothing to go back to",
        subject="the weights of the settings are in force",
        advice="see `cmem weights history`",
    )


def _row_of(connection: Connection, version: str) -> Row:
    row: Row | None = connection.execute(_TABLE, (version,)).fetchone()
    if row is None:
        known = ", ".join(row["version"] for row in connection.execute(_VERSIONS)) or "none so far"
        raise FeedbackError(
            "there is no such version of weights", subject=version, advice=f"known are {known}"
        )
    return row


def _latest(connection: Connection) -> Row | None:
    row: Row | None = connection.execute(_LATEST, (1,)).fetchone()
    return row


def _active_version(connection: Connection) -> str | None:
    latest = _latest(connection)
    return None if latest is None else latest["version"]


def _add(connection: Connection, entry: _Entry) -> None:
    connection.execute(
        _CHANGE,
        (
            entry.version,
            entry.replaced,
            time_text(entry.at),
            plain_text(entry.actor),
            entry.action,
            entry.reason,
            WEIGHTS.write(entry.base),
            None if entry.gain is None else INTERVALS.write(entry.gain),
        ),
    )


def _change_of(row: Row) -> WeightChange:
    table = None if row["detail"] is None else TABLES.read(row["detail"])
    return WeightChange(
        version=row["version"],
        at=time_of(row["at"]),
        actor=row["actor"],
        action=row["action"],
        reason=row["reason"],
        weights={} if table is None else table.weights,
        by_intent={} if table is None else table.by_intent,
        replaced=row["replaced"],
        gain=None if row["gain"] is None else INTERVALS.read(row["gain"]),
    )
