"""Judgements in the feedback store: the latest word of each judge on each delivered result.

With them stand the calls of models that judged, and the quota that holds for all processes together.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import RELEVANT, Evaluation, Judgement, JudgementKind
from composable_memory_feedback.store.codecs import EVALUATIONS, JUDGEMENTS, columns_of, time_text
from composable_memory_feedback.store.database import Database

BEGINNING = ""
"""Before and after every time, as `time_text` writes them."""

_INSERT = """
INSERT INTO judgements (trace_id, query_id, path, start_line, end_line, kind, judge,
                        at, rank, backend, intent, relevance, was_used, rationale, start_char)
VALUES (:trace_id, :query_id, :path, :start_line, :end_line, :kind, :by,
        :at, :rank, :backend, :intent, :relevance, :was_used, :rationale, :start_char)
ON CONFLICT DO NOTHING
"""

_OF_IT = """
WHERE trace_id = :trace_id AND query_id = :query_id AND path = :path AND start_line = :start_line
  AND end_line = :end_line AND start_char = :start_char AND kind = :kind AND judge = :by
"""

_STANDS = f"SELECT 1 FROM judgements {_OF_IT}"  # noqa: S608 - our own names

# The later word is the one that is stored later: a clock may have been ahead, so times say nothing of it. It
# takes a new id, by which words are ordered. What is judged again as it was is not written: the signals of
# the last hour are gathered again and again.
_REPLACE = f"""
UPDATE judgements
SET id = (SELECT max(id) + 1 FROM judgements), at = :at, rank = :rank, backend = :backend, intent = :intent,
    relevance = :relevance, was_used = :was_used, rationale = :rationale
{_OF_IT}
  AND (at, rank, backend, intent, relevance, was_used, rationale)
      IS NOT (:at, :rank, :backend, :intent, :relevance, :was_used, :rationale)
"""  # noqa: S608 - our own names

_SELECT = """
SELECT *, judge AS by FROM checked_judgements AS one
WHERE at >= :since
  AND (CAST(:kinds AS TEXT) IS NULL OR instr(:kinds, ' ' || kind || ' ') > 0)
  AND (NOT :of_relevant OR EXISTS (
    SELECT 1 FROM judgements AS other
    WHERE other.trace_id = one.trace_id AND other.query_id = one.query_id
      AND other.at >= :since AND other.relevance > :least
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

QUOTA_WINDOW = timedelta(hours=1)

# A clock that was wrong by years must not use up the quota of those years.
_RESERVED = "SELECT count(*) FROM evaluations WHERE reserved_at > ? AND reserved_at < ?"

_RESERVE = "INSERT INTO evaluations (reserved_at) VALUES (?)"

_FINISH = "UPDATE evaluations SET at = ?, detail = ? WHERE id = ?"

_EVALUATIONS = "SELECT detail FROM checked_evaluations WHERE detail IS NOT NULL AND at >= ? ORDER BY at, id"

_FORGET_EVALUATIONS = "DELETE FROM evaluations WHERE coalesce(at, reserved_at) < ? AND reserved_at < ?"


class JudgementRows(Database):
    """Judgements, and the calls of models that made some of them."""

    def add(self, judgements: Iterable[Judgement], /) -> int:
        """Add judgements, all or none, and return how many were new.

        Of one judge on one result of one query, by one kind, only the one stored last stays, whatever their
        times say: the clock may have been ahead.
        """
        new = 0
        with self.writing() as connection:
            for judgement in judgements:
                values = columns_of(judgement)
                is_new = connection.execute(_INSERT, values).rowcount
                is_kept = is_new or connection.execute(_REPLACE, values).rowcount
                if not is_kept and connection.execute(_STANDS, values).fetchone() is None:
                    advice = "nothing was changed; try again"
                    raise FeedbackError("a judgement was not stored", subject=judgement.key, advice=advice)
                new += is_new
        return new

    def judgements(
        self,
        *,
        since: datetime | None = None,
        kinds: Collection[JudgementKind] | None = None,
        of_relevant: bool = False,
    ) -> list[Judgement]:
        """Return judgements made since a time, in the order in which they were stored.

        With `of_relevant`, they are those of the queries that one of them finds something relevant for.
        """
        values = {
            "since": time_text(since) if since else BEGINNING,
            "kinds": None if kinds is None else f" {' '.join(kinds)} ",
            "of_relevant": of_relevant,
            "least": RELEVANT,
        }
        with self.reading() as connection:
            return JUDGEMENTS.of_rows(connection.execute(_SELECT, values))

    def judgements_mark(self) -> tuple[int, int | None]:
        """Return what changes with every judgement: how many there are, and the number of the latest."""
        with self.reading() as connection:
            row = connection.execute("SELECT count(*), max(id) FROM judgements").fetchone()
        return int(row[0]), row[1]

    def judged_traces(self) -> set[str]:
        """Return the trace ids of all judgements, whoever made them."""
        with self.reading() as connection:
            rows = connection.execute("SELECT DISTINCT trace_id FROM judgements")
            return {row["trace_id"] for row in rows}

    def judged_queries(self, since: datetime | None = None) -> set[tuple[str, str]]:
        """Return (trace id, query id) of the queries that a model has judged."""
        values = (JudgementKind.MODEL, time_text(since) if since else BEGINNING)
        with self.reading() as connection:
            return {(row["trace_id"], row["query_id"]) for row in connection.execute(_JUDGED, values)}

    def begin_evaluation(self, *, per_hour: int, now: datetime) -> int | None:
        """Reserve one call out of the quota of the rolling hour, which all processes share.

        Returns the number to finish it with, or None when the quota is used up. A call that fails, or whose
        process dies, has used its part.
        """
        with self.writing() as connection:
            window = (time_text(now - QUOTA_WINDOW), time_text(now + QUOTA_WINDOW))
            (reserved,) = connection.execute(_RESERVED, window).fetchone()
            if reserved >= per_hour:
                return None
            return connection.execute(_RESERVE, (time_text(now),)).lastrowid

    def finish_evaluation(self, number: int, evaluation: Evaluation, /) -> None:
        """Record what came of a reserved call.

        Raises:
            FeedbackError: No call has this number.
        """
        values = (time_text(evaluation.at), EVALUATIONS.write(evaluation), number)
        with self.writing() as connection:
            if not connection.execute(_FINISH, values).rowcount:
                advice = "begin one, and finish it once"
                raise FeedbackError("no evaluation has this number", subject=str(number), advice=advice)

    def evaluations(self, since: datetime | None = None) -> list[Evaluation]:
        """Return what was finished at or after a time, oldest first."""
        with self.reading() as connection:
            rows = connection.execute(_EVALUATIONS, (time_text(since) if since else BEGINNING,))
            return [EVALUATIONS.read(row["detail"]) for row in rows]

    def forget_before(self, at: datetime) -> int:
        """Delete judgements and evaluations from before a time, and return how many went.

        A query whose judgements go on until after that time keeps them all. What the quota still counts stays
        as well.
        """
        counted = time_text(self._clock() - QUOTA_WINDOW)
        with self.writing() as connection:
            judged = connection.execute(_FORGET, {"at": time_text(at)}).rowcount
            return judged + connection.execute(_FORGET_EVALUATIONS, (time_text(at), counted)).rowcount
