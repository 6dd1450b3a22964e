"""What judgements say about the results of a query, one word per result (pure).

Who speaks counts in this order: a person, a golden question, a model, and last what was inferred from use.
What was used depends on where it stood: the lower, the less likely it was looked at. A use at rank r is
therefore multiplied by 1 / examination(r) = r**eta, at most `MOST_BOOST` (Joachims, Swaminathan, Schnabel
2017), and what was shown and not used counts 0. Where the cap bites, the share that the capped weight does
not account for is left to what such results are worth on average (Dudík, Langford, Li 2011, clipped).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from composable_memory_feedback.judgements import RELEVANT, Judgement, JudgementKind
from composable_memory_feedback.logged import LoggedQuery

__all__ = [
    "ETA",
    "MOST_BOOST",
    "Case",
    "Evidence",
    "EvidenceOfQuery",
    "QueryKey",
    "case_of",
    "cases_of",
    "evidence_of",
]

ETA = 1.0
"""How fast attention falls with the rank: it is looked at with probability 1 / rank**eta."""
MOST_BOOST = 4.0
"""A use counts at most so many times, lest a single one far down decides all."""

QueryKey = tuple[str, str]
"""The trace id and the query id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How relevant a result is, from 0 to 1, and who says so.

    `boost` is what a use is multiplied by for where it stood, from 1 to `MOST_BOOST`. `left_open` is the
    share of an average result's worth that is added, from 0 to 1; both are 1 and 0 for direct judgements.
    """

    relevance: float
    kind: JudgementKind
    boost: float = 1.0
    left_open: float = 0.0

    @property
    def needed_boost(self) -> float:
        """Return the boost without the cap; too wild for one result, right for a mean of many."""
        return self.boost / (1.0 - self.left_open)


EvidenceOfQuery = Mapping[str, Evidence]
"""By the key of the result, `path:start_line:end_line`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A logged query with what is known about its results; a ranking of it can be scored."""

    query: LoggedQuery
    evidence: EvidenceOfQuery = field(default_factory=dict)


_FIRST_HEARD = (JudgementKind.EXPLICIT, JudgementKind.GOLDEN, JudgementKind.MODEL)


def evidence_of(judgements: Iterable[Judgement], *, eta: float = ETA) -> dict[QueryKey, dict[str, Evidence]]:
    """Return the evidence of each query by key of the result.

    Of several judgements of the first kind heard, the latest of each judge counts, and their mean is taken.
    A use is stronger than a renewed question.
    """
    gathered: dict[QueryKey, dict[str, list[Judgement]]] = defaultdict(lambda: defaultdict(list))
    for one in judgements:
        gathered[one.trace_id, one.query_id][one.key].append(one)
    return {
        query: {key: _combined(several, eta) for key, several in by_key.items()}
        for query, by_key in gathered.items()
    }


def cases_of(
    queries: Iterable[LoggedQuery], judgements: Iterable[Judgement], *, eta: float = ETA
) -> list[Case]:
    """Return the queries that something relevant is known for, in their order, as `case_of` does each."""
    known = evidence_of(judgements, eta=eta)
    found = (case_of(query, known.get((query.trace_id, query.query_id), {}), eta=eta) for query in queries)
    return [case for case in found if case is not None]


def case_of(query: LoggedQuery, evidence: EvidenceOfQuery, *, eta: float = ETA) -> Case | None:
    """Return a query with its evidence; None where it says of no result that it is relevant.

    Where use was seen, the results that were shown and not used are evidence as well.
    """
    if not any(one.relevance > RELEVANT for one in evidence.values()):
        return None
    return Case(query=query, evidence=_with_unused(query, evidence, eta))


def _combined(judgements: Sequence[Judgement], eta: float) -> Evidence:
    for kind in _FIRST_HEARD:
        heard = [one for one in judgements if one.kind is kind]
        if heard:
            return Evidence(relevance=_mean_of_judges(heard), kind=kind)
    best = max(judgements, key=lambda one: (one.relevance, one.at))
    return _inferred(best.relevance, best.kind, best.rank, eta)


def _mean_of_judges(judgements: Sequence[Judgement]) -> float:
    ordered = sorted(judgements, key=lambda one: (one.by, one.at))
    latest = [list(several)[-1].relevance for _, several in groupby(ordered, key=lambda one: one.by)]
    return sum(latest) / len(latest)


def _inferred(relevance: float, kind: JudgementKind, rank: int, eta: float) -> Evidence:
    needed = float(max(rank, 1)) ** eta
    boost = min(needed, MOST_BOOST)
    return Evidence(
        relevance=relevance,
        kind=kind,
        boost=boost if relevance > 0.0 else 1.0,
        left_open=1.0 - boost / needed,
    )


def _with_unused(query: LoggedQuery, evidence: EvidenceOfQuery, eta: float) -> dict[str, Evidence]:
    """Add what was shown beside results that were used; keys of duplicates count as shown."""
    full = dict(evidence)
    if not any(one.kind.is_implicit for one in evidence.values()):
        return full
    for rank, hit in enumerate(query.shown, 1):
        if not any(key in evidence for key in hit.keys):
            full[hit.key] = _inferred(0.0, JudgementKind.OPENED, rank, eta)
    return full
