"""How backends did day by day: each judged query counts once for each backend and group of kinds."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime
from sqlite3 import Connection

from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import RELEVANT, BackendDay, Judgement, JudgementKind, KindGroup

_RANK = {
    JudgementKind.EXPLICIT: 0,
    JudgementKind.GOLDEN: 1,
    JudgementKind.MODEL: 2,
    JudgementKind.QUOTED: 3,
    JudgementKind.OPENED: 4,
    JudgementKind.REQUERIED: 5,
}
"""Whose word counts where several speak of one result: the lowest, and of equals the one stored last."""

_CLEAR = "DELETE FROM backend_queries WHERE trace_id = ? AND query_id = ?"

_COUNT = """
INSERT INTO backend_queries (trace_id, query_id, backend, kind_group, day, intent,
                             precision, mean_relevance, used, results)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_DAYS = """
SELECT day, backend, intent, kind_group, count(*) AS queries, avg(precision) AS precision,
       avg(mean_relevance) AS mean_relevance, sum(used) AS used, sum(results) AS results
FROM backend_queries
WHERE day >= :since
GROUP BY day, backend, intent, kind_group
ORDER BY day, backend, intent, kind_group
"""


def count_query(connection: Connection, query: tuple[str, str], judgements: Sequence[Judgement]) -> None:
    """Count a query by all of its judgements, as they were stored, in the place of how it was counted."""
    groups: defaultdict[tuple[str, KindGroup], list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        if judgement.backend is not None:
            groups[judgement.backend, _group_of(judgement.kind)].append(judgement)
    counts = [(*query, *name, *_counted(members)) for name, members in groups.items()]
    connection.execute(_CLEAR, query)
    connection.executemany(_COUNT, counts)


def read_days(connection: Connection, *, since: datetime | None) -> list[BackendDay]:
    """Return the days from that of `since` on, in order, then by backend, intent and group."""
    values = {"since": _day_of(since).isoformat() if since else ""}
    return [
        BackendDay(
            day=date.fromisoformat(row["day"]),
            backend=row["backend"],
            intent=IntentKind(row["intent"]),
            queries=row["queries"],
            precision=row["precision"],
            mean_relevance=row["mean_relevance"],
            used=row["used"],
            results=row["results"],
            group=row["kind_group"],
        )
        for row in connection.execute(_DAYS, values)
    ]


def _counted(judgements: Sequence[Judgement]) -> tuple[str | float, ...]:
    """Return the day, the kind of question, precision, mean relevance, uses and results of one backend."""
    deciding: dict[str, Judgement] = {}
    for judgement in sorted(judgements, key=lambda one: -_RANK[one.kind]):
        deciding[judgement.key] = judgement
    latest = judgements[-1]
    relevances = [one.relevance for one in deciding.values()]
    return (
        _day_of(latest.at).isoformat(),
        latest.intent,
        sum(one > RELEVANT for one in relevances) / len(relevances),
        sum(relevances) / len(relevances),
        len({one.key for one in judgements if one.was_used}),
        len(relevances),
    )


def _group_of(kind: JudgementKind) -> KindGroup:
    return "implicit" if kind.is_implicit else "judged"


def _day_of(at: datetime) -> date:
    return at.astimezone(UTC).date()
