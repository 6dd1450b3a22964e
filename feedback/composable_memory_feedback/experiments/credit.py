"""Credits each side of an experiment with the results of its that were used (pure)."""

from collections.abc import Iterable, Mapping

from composable_memory_feedback.judgements import RELEVANT, Judgement, JudgementKind
from composable_memory_feedback.logged import LoggedQuery

__all__ = ["CREDITED", "credit"]

USE = (JudgementKind.OPENED, JudgementKind.QUOTED)
CREDITED = (*USE, JudgementKind.EXPLICIT)
"""The kinds of judgements that say whether a result was of use."""


def credit(query: LoggedQuery, judgements: Iterable[Judgement]) -> tuple[float, float]:
    """Return how many results of `a`, and of `b`, were of use; judgements of other queries do not count.

    The judgements stand in the order in which they were stored.

    A result was of use when it was opened or quoted. What a person or an agent said of it stands above that,
    the last word of several: it was used, or is relevant. What a model thinks of it is no use. A result
    counts once, whatever duplicates it stands for; one that both sides wanted counts for neither, nor does
    one that a stand-in brought.
    """
    if query.experiment is None:
        return 0.0, 0.0
    useful = _useful(query, judgements)
    marks = [
        mark
        for mark, hit in zip(query.experiment.teams, query.shown, strict=False)
        if hit.backend not in query.stand_ins and any(useful.get(key) for key in hit.keys)
    ]
    return float(marks.count("a")), float(marks.count("b"))


def _useful(query: LoggedQuery, judgements: Iterable[Judgement]) -> Mapping[str, bool]:
    """Return for each key that anything is known of whether it was of use."""
    own = [one for one in judgements if (one.trace_id, one.query_id) == (query.trace_id, query.query_id)]
    used = {one.key: True for one in own if one.kind in USE and _tells_use(one)}
    return used | {one.key: _tells_use(one) for one in own if one.kind is JudgementKind.EXPLICIT}


def _tells_use(judgement: Judgement) -> bool:
    return judgement.was_used or judgement.relevance > RELEVANT
