"""Finds the result of a logged query that somebody names (pure)."""

import re
from collections.abc import Iterator

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.logged import LoggedQuery, RankedHit

__all__ = ["named_result"]

TOLD_RESULTS = 5
_RANK = re.compile(r"[0-9]{1,6}")
# As a citation names a result, `path#L3-L5`, and as a search does, `path:3-5`.
_CITED = re.compile(r"(?P<path>.+?)(?:#L|:)(?P<start>[0-9]{1,9})(?:[-:]L?(?P<end>[0-9]{1,9}))?")


def named_result(query: LoggedQuery, name: str) -> RankedHit:
    """Return a result by its place in the answer, from 1, its path, or its path and lines.

    With its lines, as in `path#L3-L5`, `path:3-5` or `path:3:5`, a candidate is found that was not shown.

    Raises:
        FeedbackError: no result is called so; the error names those that were shown.
    """
    places = dict(enumerate(query.shown, 1))
    if _RANK.fullmatch(name) and int(name) in places:
        return places[int(name)]
    key = _key(name)
    for hit in query.shown:
        if name == hit.path or hit.key in (name, key):
            return hit
    for hit in _candidates(query):
        if hit.key in (name, key):
            return hit
    shown = "; ".join(f"{rank}: {hit.key}" for rank, hit in list(places.items())[:TOLD_RESULTS]) or "nothing"
    raise FeedbackError("this query found no such result", subject=name, advice=f"it showed {shown}")


def _key(name: str) -> str | None:
    """Return `path:start:end` of a name that tells lines."""
    cited = _CITED.fullmatch(name)
    if cited is None:
        return None
    return f"{cited['path']}:{int(cited['start'])}:{int(cited['end'] or cited['start'])}"


def _candidates(query: LoggedQuery) -> Iterator[RankedHit]:
    """Yield what the backends answered, in the order in which they were asked."""
    for answered in query.lists:
        for one in answered.candidates:
            yield RankedHit(
                path=one.path,
                start_line=one.start_line,
                end_line=one.end_line,
                backend=answered.backend,
                score=one.score,
                calibrated=one.score,
            )
