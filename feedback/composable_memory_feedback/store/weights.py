"""Weight tables in the feedback store: the active one, and an append-only history."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.kinds import WEIGHTS, plain_text
from composable_memory_feedback.weights import WeightChange, WeightTable

SETTINGS = "settings"
"""The version that stands for the weights of the settings in `rollback`."""

_NAMED = 20
"""How many versions are listed in the error for an unknown one."""


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
        """Make a table active, and return it with its version: `v1`, `v2` and so on.

        `base` are the weights in the settings that the table replaces. With `expected`, a version or
        `settings`, nothing happens unless that was adopted last.

        Raises:
            FeedbackError: Something other than `expected` was adopted last.
        """
        with self.writing() as entries:
            history = WEIGHTS.all(entries)
            replaced = history[-1].version if history else None
            if expected not in (None, replaced or SETTINGS):
                raise FeedbackError(
                    "the weights are unchanged",
                    subject=f"another process activated {replaced or SETTINGS} in the meantime",
                    advice="advise again",
                )
            numbers = (one[1:] for change in history for one in (change.version, change.replaced) if one)
            latest = max((int(one) for one in numbers if one.isdecimal()), default=0)
            adopted = replace(table, version=f"v{latest + 1}", reason=plain_text(table.reason))
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
            WEIGHTS.put(entries, change)
        self._renew_copy()
        return adopted

    def current(self) -> WeightChange | None:
        """Return the change that made the active table; None if the weights of the settings are active."""
        latest = self.history(1)
        return latest[0] if latest and latest[0].table else None

    def history(self, limit: int = 50) -> list[WeightChange]:
        """Return the changes of weights, newest first."""
        with self.reading() as entries:
            return WEIGHTS.all(entries, newest=limit)[::-1]

    def table(self, version: str) -> WeightTable:
        """Return the table of a version, active or not.

        Raises:
            FeedbackError: There is no such version; the message lists those that exist.
        """
        with self.reading() as entries:
            table = _adoption_of(version, WEIGHTS.all(entries)).table
        assert table is not None
        return table

    def rollback(
        self, to: str | None, *, actor: str, at: datetime, base: Mapping[str, float] | None = None
    ) -> WeightTable | None:
        """Make an earlier table active again, and return it; None for the weights of the settings.

        `to` is a version, `settings`, or None for the one that the current one replaced: rolling back twice
        goes back by two. `base` is as in `adopt`; if omitted, it stays as at the last change. With another
        `base`, even the version of the last change is allowed: it is applied to the new settings.

        Raises:
            FeedbackError: There is no such version, it is already active, or there is none before.
        """
        with self.writing() as entries:
            history = WEIGHTS.all(entries)
            if not history:
                raise _nothing_to_roll_back()
            latest = history[-1]
            version = _target(history, to)
            if version == latest.version and (version is None or base in (None, latest.base)):
                subject, advice = version or SETTINGS, "name another version"
                raise FeedbackError("these weights are already active", subject=subject, advice=advice)
            way = f"back from {latest.version or SETTINGS} to {version or SETTINGS}"
            change = WeightChange(
                table=None if version is None else _adoption_of(version, history).table,
                at=at,
                actor=actor,
                action="reset" if version is None else "rollback",
                reason=f"{version} over changed settings" if version == latest.version else way,
                base=latest.base if base is None else base,
                replaced=latest.version,
            )
            WEIGHTS.put(entries, change)
        self._renew_copy()
        return change.table


def _target(history: Sequence[WeightChange], to: str | None) -> str | None:
    """Return the version to roll back to; None for the settings.

    That is the one that the current one replaced, so that a second rollback goes further back.
    """
    if to is not None:
        return None if to == SETTINGS else to
    current = history[-1].version
    if current is None:
        raise _nothing_to_roll_back()
    return _adoption_of(current, history).replaced


def _nothing_to_roll_back() -> FeedbackError:
    return FeedbackError(
        "there is nothing to roll back to",
        subject="the settings' weights are active",
        advice="see `cmem weights history`",
    )


def _adoption_of(version: str, history: Sequence[WeightChange]) -> WeightChange:
    found = next((one for one in history if one.version == version), None)
    if found is None:
        versions = dict.fromkeys(one.version for one in history[::-1] if one.version)
        known = ", ".join([*versions][:_NAMED]) or "none so far"
        raise FeedbackError(
            "there is no such version of the weights", subject=version, advice=f"known versions: {known}"
        )
    return found
