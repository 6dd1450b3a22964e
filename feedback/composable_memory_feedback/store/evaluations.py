"""Evaluations in the feedback store, and the quota that holds for all processes together."""

from datetime import datetime, timedelta
from sqlite3 import Connection

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store.codecs import EVALUATIONS, time_text
from composable_memory_feedback.store.judgements import BEGINNING
from composable_memory_feedback.store.values import Evaluation

__all__ = ["QUOTA_WINDOW", "begin_evaluation", "finish_evaluation", "forget_evaluations", "read_evaluations"]

QUOTA_WINDOW = timedelta(hours=1)

# A clock that was wrong by years must not use up the quota of those years.
_RESERVED = "SELECT count(*) FROM evaluations WHERE reserved_at > ? AND reserved_at < ?"

_RESERVE = "INSERT INTO evaluations (reserved_at) VALUES (?)"

_FINISH = "UPDATE evaluations SET at = ?, detail = ? WHERE id = ?"

_SELECT = "SELECT detail FROM checked_evaluations WHERE detail IS NOT NULL AND at >= ? ORDER BY at, id"

_FORGET = "DELETE FROM evaluations WHERE coalesce(at, reserved_at) < ? AND reserved_at < ?"


def begin_evaluation(connection: Connection, *, per_hour: int, now: datetime) -> int | None:
    """Reserve one call of the rolling hour, inside a transaction; return its number, or None."""
    window = (time_text(now - QUOTA_WINDOW), time_text(now + QUOTA_WINDOW))
    (reserved,) = connection.execute(_RESERVED, window).fetchone()
    if reserved >= per_hour:
        return None
    return connection.execute(_RESERVE, (time_text(now),)).lastrowid


def finish_evaluation(connection: Connection, number: int, evaluation: Evaluation) -> None:
    """Record what came of a reserved call.

    Raises:
        FeedbackError: No call has this number.
    """
    values = (time_text(evaluation.at), EVALUATIONS.write(evaluation), number)
    if not connection.execute(_FINISH, values).rowcount:
        raise FeedbackError(
            "no evaluation has this number", subject=str(number), advice="begin one, and finish it once"
        )


def read_evaluations(connection: Connection, since: datetime | None) -> list[Evaluation]:
    """Return what was finished at or after a time, oldest first."""
    rows = connection.execute(_SELECT, (time_text(since) if since else BEGINNING,))
    return [EVALUATIONS.read(row["detail"]) for row in rows]


def forget_evaluations(connection: Connection, at: datetime, *, now: datetime) -> int:
    """Delete evaluations from before a time, but none that the quota still counts."""
    return connection.execute(_FORGET, (time_text(at), time_text(now - QUOTA_WINDOW))).rowcount
