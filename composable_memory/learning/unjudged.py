"""Chooses the results of logged queries that a language model has still to judge (pure)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from composable_memory.query.replay import Replayer
from composable_memory.query.weights import WeightTable
from composable_memory_feedback.advice.evidence import EvidenceOfQuery, QueryKey, evidence_of
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.logged import LoggedQuery, RankedHit
from composable_memory_feedback.replay import PolicyChange, changed

__all__ = ["Unjudged", "never_judged", "unjudged_under"]


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
