"""Judgements in the feedback store: the latest word of each judge on each delivered result."""

from collections.abc import Collection, Iterable
from datetime import datetime
from sqlite3 import Connection, Row

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import RELEVANT, Judgement, JudgementKind
from composable_memory_feedback.store.codecs import plain_text, time_of, time_text
from composable_memory_feedback.store.days import count_query

__all__ = [
    "BEGINNING",
    "END",
    "add_judgements",
    "count_again",
    "forget_judgements",
    "judged_queries",
    "judged_traces",
    "judgements_mark",
    "read_judgements",
]

BEGINNING, END = "", "~"
"""Before and after every time, as `time_text` writes them."""

_INSERT = """
INSERT INTO judgements (trace_id, query_id, path, start_line, end_line, kind, judge,
                        at, rank, backend, intent, relevance, was_used, rationale)
VALUES (:trace_id, :query_id, :path, :start_line, :end_line, :kind, :judge,
        :at, :rank, :backend, :intent, :relevance, :was_used, :rationale)
ON CONFLICT DO NOTHING
"""

# The later word is the one that is stored later: a clock may have been ahead, so times say nothing of it. It
# takes a new id, by which words are ordered. What is judged again as it was is not written: the signals of
# the last hour are gathered again and again.
_REPLACE = """
UPDATE judgements
SET id = (SELECT max(id) + 1 FROM judgements), at = :at, rank = :rank, backend = :backend, intent = :intent,
    relevance = :relevance, was_used = :was_used, rationale = :rationale
WHERE trace_id = :trace_id AND query_id = :query_id AND path = :path
  AND start_line = :start_line AND end_line = :end_line AND kind = :kind AND judge = :judge
  AND (at, rank, backend, intent, relevance, was_used, rationale)
      IS NOT (:at, :rank, :backend, :intent, :relevance, :was_used, :rationale)
"""

_STANDS = """
SELECT 1 FROM judgements
WHERE trace_id = :trace_id AND query_id = :query_id AND path = :path
  AND start_line = :start_line AND end_line = :end_line AND kind = :kind AND judge = :judge
  AND (at, rank, backend, intent, relevance, was_used, rationale)
      IS (:at, :rank, :backend, :intent, :relevance, :was_used, :rationale)
"""

_OF_QUERY = "SELECT * FROM checked_judgements WHERE trace_id = ? AND query_id = ? ORDER BY id"

_SELECT = """
SELECT * FROM checked_judgements AS one
WHERE at >= :since AND at < :until
  AND (:trace_id IS NULL OR trace_id = :trace_id)
  AND (:kinds IS NULL OR instr(:kinds, ' ' || kind || ' '))
  AND (NOT :of_relevant OR EXISTS (
    SELECT 1 FROM judgements AS other
    WHERE other.trace_id = one.trace_id AND other.query_id = one.query_id
      AND other.at >= :since AND other.at < :until AND other.relevance > :least
  ))
ORDER BY id
"""

_JUDGED = "SELECT DISTINCT trace_id, query_id FROM judgements WHERE kind = ? AND at >= ?"

# By whole queries: half of the judgements of a query would say something else than all of them.
_FORGET = """
DELETE FROM judgements
WHERE at < :at AND NOT EXISTS (
    SELECT 1 FROM judgements AS later
    WHERE later.trace_id = judgements.trace_id AND later.query_id = judgements.query_id AND later.at >= :at
)
"""


def add_judgements(connection: Connection, judgements: Iterable[Judgement]) -> int:
    """Add or replace judgements, count the touched queries again, and return how many were new.

    Raises:
        FeedbackError: One of them does not stand in the store afterwards.
    """
    new = 0
    touched: dict[tuple[str, str], None] = {}
    for judgement in judgements:
        values = _values_of(judgement)
        is_new = connection.execute(_INSERT, values).rowcount
        if is_new or connection.execute(_REPLACE, values).rowcount:
            touched[judgement.trace_id, judgement.query_id] = None
        elif connection.execute(_STANDS, values).fetchone() is None:
            raise FeedbackError(
                "a judgement was not stored", subject=judgement.key, advice="nothing was changed; try again"
            )
        new += is_new
    for query in touched:
        count_again(connection, query)
    return new


def count_again(connection: Connection, query: tuple[str, str]) -> None:
    """Count a query, by its trace and query ids, by all that is judged of it."""
    count_query(connection, query, _judgements_of(connection.execute(_OF_QUERY, query)))


def read_judgements(
    connection: Connection,
    *,
    since: datetime | None,
    until: datetime | None,
    kinds: Collection[JudgementKind] | None,
    trace_id: str | None,
    of_relevant: bool = False,
) -> list[Judgement]:
    """Return judgements made from `since` to before `until`, in the order in which they were stored.

    With `of_relevant`, they are those of the queries that one of them finds something relevant for.
    """
    values = {
        "since": time_text(since) if since else BEGINNING,
        "until": time_text(until) if until else END,
        "kinds": None if kinds is None else f" {' '.join(kinds)} ",
        "trace_id": trace_id,
        "of_relevant": of_relevant,
        "least": RELEVANT,
    }
    return _judgements_of(connection.execute(_SELECT, values))


def judgements_mark(connection: Connection) -> tuple[int, int | None]:
    """Return the number of judgements and the number of the latest."""
    row = connection.execute("SELECT count(*), max(id) FROM judgements").fetchone()
    return int(row[0]), row[1]


def judged_traces(connection: Connection) -> set[str]:
    """Return the trace ids of all judgements."""
    return {row["trace_id"] for row in connection.execute("SELECT DISTINCT trace_id FROM judgements")}


def judged_queries(connection: Connection, since: datetime | None) -> set[tuple[str, str]]:
    """Return trace and query ids of what a model has judged."""
    values = (JudgementKind.MODEL, time_text(since) if since else BEGINNING)
    return {(row["trace_id"], row["query_id"]) for row in connection.execute(_JUDGED, values)}


def forget_judgements(connection: Connection, at: datetime) -> int:
    """Delete the judgements of queries that were last judged before a time; their days stay as counted."""
    return connection.execute(_FORGET, {"at": time_text(at)}).rowcount


def _values_of(judgement: Judgement) -> dict[str, str | int | float | None]:
    return {
        "trace_id": plain_text(judgement.trace_id),
        "query_id": plain_text(judgement.query_id),
        "path": plain_text(judgement.path),
        "start_line": judgement.start_line,
        "end_line": judgement.end_line,
        "kind": judgement.kind,
        "judge": plain_text(judgement.by),
        "at": time_text(judgement.at),
        "rank": judgement.rank,
        "backend": judgement.backend,
        "intent": judgement.intent,
        "relevance": judgement.relevance,
        "was_used": judgement.was_used,
        "rationale": plain_text(judgement.rationale),
    }


def _judgements_of(rows: Iterable[Row]) -> list[Judgement]:
    try:
        return [_judgement_of(row) for row in rows]
    except (TypeError, ValueError) as error:
        raise FeedbackError(
            "a judgement cannot be read", subject=str(error), advice="the feedback store is damaged"
        ) from error


def _judgement_of(row: Row) -> Judgement:
    return Judgement(
        trace_id=row["trace_id"],
        query_id=row["query_id"],
        at=time_of(row["at"]),
        path=row["path"],
        start_line=row["start_line"],
        end_line=row["end_line"],
        rank=row["rank"],
        backend=row["backend"],
        intent=IntentKind(row["intent"]),
        kind=JudgementKind(row["kind"]),
        relevance=row["relevance"],
        was_used=bool(row["was_used"]),
        rationale=row["rationale"],
        by=row["judge"],
    )
