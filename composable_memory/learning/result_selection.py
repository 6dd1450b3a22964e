"""Select results of logged queries to be judged: one that somebody names, or those nobody judged (pure)."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from composable_memory.citations import read_citation
from composable_memory.query.replay import Replayer
from composable_memory_feedback.advice.evidence import EvidenceOfQuery, QueryKey, evidence_of
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit
from composable_memory_feedback.replay import PolicyChange, changed
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

TOLD_RESULTS = 5
_RANK = re.compile(r"[0-9]{1,6}")


def named_result(query: LoggedQuery, name: str, *, hidden: Collection[int] = ()) -> RankedHit:
    """Return a result by its place in the answer, from 1, its path, or its path and lines.

    Results of `hidden` ranks were not delivered: they have no place in the answer, and their path alone does
    not name them. With its lines, as in `path#L3-L5`, `path:3-5` or `path:3:5`, a candidate is found that was
    not shown. A piece of a long line is named by its citation, as in `path#L3:1280`; without the character it
    is the piece with which the line begins, and where that was not found, the first that was.

    Raises:
        FeedbackError: no result is called so; the error names those that were shown.
    """
    delivered = [hit for rank, hit in enumerate(query.shown, 1) if rank not in hidden]
    places = dict(enumerate(delivered, 1))
    if _RANK.fullmatch(name) and int(name) in places:
        return places[int(name)]
    found = [*query.shown, *_candidates(query)]
    named = [hit for hit in delivered if hit.path == name] + [hit for hit in found if hit.key == name]
    if cited := read_citation(name):
        of_lines = [hit for hit in found if (hit.path, hit.start_line, hit.end_line) == cited[:3]]
        named += [hit for hit in of_lines if hit.start_char == (cited.start_char or 0)]
        named += of_lines if cited.start_char is None else []
    if named:
        return named[0]
    shown = "; ".join(f"{rank}: {hit.key}" for rank, hit in list(places.items())[:TOLD_RESULTS]) or "nothing"
    raise FeedbackError("this query found no such result", subject=name, advice=f"it showed {shown}")


def _candidates(query: LoggedQuery) -> Iterator[RankedHit]:
    """Yield what the backends answered, in the order in which they were asked."""
    for answered in query.lists:
        for one in answered.candidates:
            yield RankedHit(
                path=one.path,
                start_line=one.start_line,
                end_line=one.end_line,
                start_char=one.start_char or 0,
                backend=answered.backend,
                score=one.score,
                calibrated=one.score,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A logged query, and those results of it that are to be judged, best first."""

    query: LoggedQuery
    hits: tuple[RankedHit, ...]

    @property
    def key(self) -> QueryKey:
        """Return the trace id and the query id."""
        return self.query.trace_id, self.query.query_id


def never_judged(queries: Iterable[LoggedQuery], done: Collection[QueryKey]) -> Iterator[Unjudged]:
    """Yield what was shown for queries that are not `done`, in their order."""
    shown = (Unjudged(query=query, hits=query.shown) for query in queries)
    return (one for one in shown if one.hits and one.key not in done)


def unjudged_under(
    table: WeightTable, queries: Iterable[LoggedQuery], judgements: Sequence[Judgement], *, depth: int
) -> Iterator[Unjudged]:
    """Yield what judged queries would show under other weights, of the first `depth` results, unjudged.

    They keep their order. Queries of which only use is known are left to a judgement of what they did show.
    """
    known, ranker, change = evidence_of(judgements), Replayer(keeps=1), PolicyChange(table=table)
    for query in queries:
        evidence = known.get((query.trace_id, query.query_id), {})
        if _is_judged(evidence) and ranker.reproduces(query):
            ranking = ranker(query, changed(query, change))[:depth]
            hits = tuple(hit for hit in ranking if not any(key in evidence for key in hit.keys))
            if hits:
                yield Unjudged(query=query, hits=hits)


def _is_judged(evidence: EvidenceOfQuery) -> bool:
    return any(not one.kind.is_implicit for one in evidence.values())
