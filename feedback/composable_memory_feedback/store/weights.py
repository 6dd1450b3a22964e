"""Weight tables in the feedback store: which one is in force, and a history that is only added to."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from sqlite3 import Connection, Row

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store.codecs import (
    INTERVALS,
    TABLES,
    WEIGHTS,
    plain_text,
    time_of,
    time_text,
)
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.weights import WeightChange, WeightTable

SETTINGS = "settings"
"""What `rollback` takes for the weights of the settings."""

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


class WeightRows(Database):
    """The history of weights."""

    def adopt(
        self,
        table: WeightTable,
        *,
        base: Mapping[str, float],
        actor: str,
        at: datetime,
        gain: Interval | None = None,
        expected: str | None = None,
    ) -> WeightTable:
        """Put a table in force, and return it with its version: `v1`, `v2` and so on.

        `base` are the weights of the settings that it is adopted over. With `expected`, a version or
        `settings`, nothing happens unless that is what was put in force last.

        Raises:
            FeedbackError: Something else than `expected` was.
        """
        with self.writing() as connection:
            latest = _latest(connection)
            replaced = None if latest is None else latest["version"]
            if expected not in (None, replaced or SETTINGS):
                raise FeedbackError(
                    "the weights are unchanged",
                    subject=f"another process activated {replaced or SETTINGS} in the meantime",
                    advice="advise again",
                )
            (number,) = connection.execute(_NEXT).fetchone()
            adopted = replace(table, version=f"v{number}", reason=plain_text(table.reason))
            connection.execute(_KEEP, (number, adopted.version, replaced, TABLES.write(adopted)))
            change = WeightChange(
                table=adopted,
                at=at,
                actor=actor,
                action="adopt",
                reason=adopted.reason,
                base=base,
                replaced=replaced,
                gain=gain,
            )
            _add(connection, change)
        self._renew_copy()
        return adopted

    def current(self) -> WeightChange | None:
        """Return the change that put the table in force; None where the weights of the settings are."""
        latest = self.history(1)
        return latest[0] if latest and latest[0].table else None

    def history(self, limit: int = 50) -> list[WeightChange]:
        """Return the changes of weights, newest first."""
        with self.reading() as connection:
            return [_change_of(row) for row in connection.execute(_LATEST, (limit,))]

    def table(self, version: str) -> WeightTable:
        """Return the table of a version, in force or not.

        Raises:
            FeedbackError: There is none; it names those that there are.
        """
        with self.reading() as connection:
            return TABLES.read(_row_of(connection, version)["detail"])

    def rollback(
        self, to: str | None, *, actor: str, at: datetime, base: Mapping[str, float] | None = None
    ) -> WeightTable | None:
        """Put an earlier table in force again, and return it; None when it is the weights of the settings.

        `to` is a version, `settings`, or None for the one that the current was adopted over: going back twice
        goes back by two. `base` is as in `adopt`; without it, it stays as it was at the last change. With
        another `base`, even the version of the last change can be named: it is put over the new settings.

        Raises:
            FeedbackError: There is no such version, it is in force already, or there is none before.
        """
        with self.writing() as connection:
            latest = _latest(connection)
            if latest is None:
                raise _nothing_to_roll_back()
            version = _target(connection, latest["version"], to)
            adopted_over = WEIGHTS.read(latest["base"])
            if version == latest["version"] and (version is None or base in (None, adopted_over)):
                subject, advice = version or SETTINGS, "name another version"
                raise FeedbackError("these weights are already active", subject=subject, advice=advice)
            table = None if version is None else TABLES.read(_row_of(connection, version)["detail"])
            way = f"back from {latest['version'] or SETTINGS} to {version or SETTINGS}"
            change = WeightChange(
                table=table,
                at=at,
                actor=actor,
                action="reset" if version is None else "rollback",
                reason=f"{version} over changed settings" if version == latest["version"] else way,
                base=adopted_over if base is None else base,
                replaced=latest["version"],
            )
            _add(connection, change)
        self._renew_copy()
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


def _nothing_to_roll_back() -> FeedbackError:
    return FeedbackError(
        "there is nothing to roll back to",
        subject="the settings' weights are active",
        advice="see `cmem weights history`",
    )


def _row_of(connection: Connection, version: str) -> Row:
    row: Row | None = connection.execute(_TABLE, (version,)).fetchone()
    if row is None:
        known = ", ".join(row["version"] for row in connection.execute(_VERSIONS)) or "none so far"
        raise FeedbackError(
            "there is no such version of the weights", subject=version, advice=f"known versions: {known}"
        )
    return row


def _latest(connection: Connection) -> Row | None:
    row: Row | None = connection.execute(_LATEST, (1,)).fetchone()
    return row


def _add(connection: Connection, change: WeightChange) -> None:
    connection.execute(
        _CHANGE,
        (
            change.version,
            change.replaced,
            time_text(change.at),
            plain_text(change.actor),
            change.action,
            change.reason,
            WEIGHTS.write(change.base),
            None if change.gain is None else INTERVALS.write(change.gain),
        ),
    )


def _change_of(row: Row) -> WeightChange:
    return WeightChange(
        table=None if row["detail"] is None else TABLES.read(row["detail"]),
        at=time_of(row["at"]),
        actor=row["actor"],
        action=row["action"],
        reason=row["reason"],
        base=WEIGHTS.read(row["base"]),
        replaced=row["replaced"],
        gain=None if row["gain"] is None else INTERVALS.read(row["gain"]),
    )
