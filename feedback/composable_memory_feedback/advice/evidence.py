"""What judgements say about the results of a query, one word per result (pure).

Who speaks counts in this order: a person, a golden question, a model, and last what was inferred from use.
What was used depends on where it stood: the lower, the less likely it was looked at. A use at rank r is
therefore multiplied by 1 / examination(r) = r, at most `MOST_BOOST` (Joachims, Swaminathan, Schnabel
2017), and what was shown and not used counts 0.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from heapq import nlargest
from math import log2
from statistics import fmean

from composable_memory_feedback.judgements import RELEVANT, Judgement, JudgementKind, QueryKey
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit
from composable_memory_feedback.metrics import dcg
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_BOOST = 4.0
"""A use counts at most so many times, lest a single one far down decides all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How relevant a result is, from 0 to 1, and who says so.

    `boost` is what a use is multiplied by for where it stood, from 1 to `MOST_BOOST`; 1 for other judgements.
    """

    relevance: float
    kind: JudgementKind
    boost: float = 1.0


EvidenceOfQuery = Mapping[str, Evidence]
"""By the key of the result, as `RankedHit.key` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A logged query with what is known about its results; a ranking of it can be scored."""

    query: LoggedQuery
    evidence: EvidenceOfQuery = field(default_factory=dict)


_FIRST_HEARD = (JudgementKind.EXPLICIT, JudgementKind.MODEL)


def evidence_of(judgements: Iterable[Judgement]) -> dict[QueryKey, dict[str, Evidence]]:
    """Return the evidence of each query by key of the result.

    Of several judgements of the first kind heard, the latest of each judge counts, and their mean is taken.
    A use is stronger than a renewed question.
    """
    gathered: dict[QueryKey, dict[str, list[Judgement]]] = defaultdict(lambda: defaultdict(list))
    for one in judgements:
        gathered[one.trace_id, one.query_id][one.key].append(one)
    return {
        query: {key: _combined(several) for key, several in by_key.items()}
        for query, by_key in gathered.items()
    }


def cases_of(queries: Iterable[LoggedQuery], judgements: Iterable[Judgement]) -> list[Case]:
    """Return the queries that something relevant is known for, in their order, as `case_of` does each."""
    known = evidence_of(judgements)
    found = (case_of(query, known.get(query.key, {})) for query in queries)
    return [case for case in found if case is not None]


def case_of(query: LoggedQuery, evidence: EvidenceOfQuery) -> Case | None:
    """Return a query with its evidence; None where it says of no result that it is relevant.

    Where use was seen, the results that were shown and not used are evidence as well.
    """
    if not any(one.relevance > RELEVANT for one in evidence.values()):
        return None
    return Case(query=query, evidence=_with_unused(query, evidence))


def _combined(judgements: Sequence[Judgement]) -> Evidence:
    for kind in _FIRST_HEARD:
        heard = [one for one in judgements if one.kind is kind]
        if heard:
            return Evidence(relevance=_mean_of_judges(heard), kind=kind)
    best = max(judgements, key=lambda one: (one.relevance, one.at))
    boost = min(float(max(best.rank, 1)), MOST_BOOST) if best.relevance > 0.0 else 1.0
    return Evidence(relevance=best.relevance, kind=best.kind, boost=boost)


def _mean_of_judges(judgements: Sequence[Judgement]) -> float:
    latest = {one.by: one.relevance for one in sorted(judgements, key=lambda one: one.at)}
    return fmean(latest.values())


def _with_unused(query: LoggedQuery, evidence: EvidenceOfQuery) -> dict[str, Evidence]:
    """Add what was shown beside results that were used; keys of duplicates count as shown."""
    full = dict(evidence)
    if not any(one.kind.is_implicit for one in evidence.values()):
        return full
    for hit in query.shown:
        if not any(key in evidence for key in hit.keys):
            full[hit.key] = Evidence(relevance=0.0, kind=JudgementKind.OPENED)
    return full


@dataclass(slots=True)
class CaseScores:
    """Scores many rankings of one case against one ideal: the best order of all that any of them brought up.

    Rank first, then ask for scores: a ranking that is added later may raise the ideal.
    """

    evidence: EvidenceOfQuery
    k: int
    imputed: Callable[[RankedHit], float] | None = None
    weight: float = field(init=False)
    """For how many queries the case stands; see `case_weight`."""
    _group_of: dict[str, int] = field(default_factory=dict)
    _worth: list[float] = field(default_factory=list)
    _known: dict[tuple[object, ...], tuple[float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weight = case_weight(self.evidence, self.k)

    def add(self, hits: Sequence[RankedHit]) -> float:
        """Return the discounted gain of a ranking and remember what it brought up."""
        gain, paid = 0.0, set[int]()
        for place, hit in enumerate(hits[: self.k]):
            lines = (hit.path, hit.start_line, hit.end_line, hit.start_char)
            seen = (*lines, hit.others, hit.backend, hit.calibrated)
            worth, group = self._known.get(seen) or self._known.setdefault(seen, self._look_up(hit))
            if worth > 0.0 and group not in paid:
                gain += worth / log2(place + 2)
            paid.add(group)
        return gain

    @property
    def ideal(self) -> float:
        """Return the largest discounted gain that can be reached with what is known."""
        unseen = (
            one.relevance * one.boost / self.weight
            for key, one in self.evidence.items()
            if key not in self._group_of
        )
        return dcg(nlargest(self.k, [*self._worth, *unseen]), self.k)

    def shares(self, gains: Sequence[float]) -> list[float]:
        """Return each gain as a part of the ideal, at most 1; 0 where nothing can be gained."""
        ideal = self.ideal
        return [min(1.0, gain / ideal) if ideal > 0.0 else 0.0 for gain in gains]

    def _look_up(self, hit: RankedHit) -> tuple[float, int]:
        """Return the worth of a hit, with boosts by their proportions: the weight holds the rest."""
        known = [self.evidence[key] for key in hit.keys if key in self.evidence]
        if known:
            worth = max(one.relevance * one.boost for one in known) / self.weight
        else:
            worth = self.imputed(hit) if self.imputed is not None else 0.0
        return worth, self._group(hit.keys, worth)

    def _group(self, keys: Sequence[str], worth: float) -> int:
        """Return the number of the results that one of the keys was seen with before."""
        group = next((self._group_of[key] for key in keys if key in self._group_of), len(self._worth))
        if group == len(self._worth):
            self._worth.append(worth)
        else:
            self._worth[group] = max(self._worth[group], worth)
        for key in keys:
            self._group_of.setdefault(key, group)
        return group


def score(hits: Sequence[RankedHit], evidence: EvidenceOfQuery, *, k: int) -> float:
    """Return nDCG@k of a ranking, in [0, 1].

    A result is as relevant as the best of its duplicates, and what stands twice is paid once. What nobody
    judged counts 0.
    """
    scores = CaseScores(evidence=evidence, k=k)
    return scores.shares([scores.add(hits)])[0]


def case_weight(evidence: EvidenceOfQuery, k: int) -> float:
    """Return for how many queries a case stands, at least 1: where uses far down count more, several.

    Of queries that are known only by use, those whose best result stood low are seldom among the cases; the
    seen ones stand for the others (self-normalised inverse propensity; Swaminathan and Joachims 2015).
    """
    plain = dcg(nlargest(k, (one.relevance for one in evidence.values())), k)
    boosted = dcg(nlargest(k, (one.relevance * one.boost for one in evidence.values())), k)
    return boosted / plain if plain > 0.0 else 1.0
