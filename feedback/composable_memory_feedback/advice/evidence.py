"""What judgements say about the results of a query, one verdict per result (pure).

Sources count in this order: a person, a golden question, a model, and last what was inferred from use. Use
depends on rank: the lower a result, the less likely it was looked at. A use at rank r is therefore multiplied
by 1 / examination(r) = r, at most `MOST_BOOST` (Joachims, Swaminathan, Schnabel 2017), and what was shown but
not used counts 0.
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
"""The most a use can count, so that a single one far down does not decide everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How relevant a result is, from 0 to 1, and who says so.

    `boost` is the factor for a use by its rank, from 1 to `MOST_BOOST`; 1 for other judgements.
    """

    relevance: float
    kind: JudgementKind
    boost: float = 1.0


EvidenceOfQuery = Mapping[str, Evidence]
"""By the key of the result, as in `RankedHit.key`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A logged query with what is known about its results; a ranking of it can be scored."""

    query: LoggedQuery
    evidence: EvidenceOfQuery = field(default_factory=dict)


_FIRST_HEARD = (JudgementKind.EXPLICIT, JudgementKind.MODEL)


def evidence_of(judgements: Iterable[Judgement]) -> dict[QueryKey, dict[str, Evidence]]:
    """Return the evidence of each query by key of the result.

    Of several judgements from the most trusted kind of source, the latest of each judge counts, and their
    mean is taken. Use counts more than a repeated question.
    """
    gathered: dict[QueryKey, dict[str, list[Judgement]]] = defaultdict(lambda: defaultdict(list))
    for one in judgements:
        gathered[one.trace_id, one.query_id][one.key].append(one)
    return {
        query: {key: _combined(several) for key, several in by_key.items()}
        for query, by_key in gathered.items()
    }


def cases_of(queries: Iterable[LoggedQuery], judgements: Iterable[Judgement]) -> list[Case]:
    """Return the queries with a relevant result, in their order, converted by `case_of`."""
    known = evidence_of(judgements)
    found = (case_of(query, known.get(query.key, {})) for query in queries)
    return [case for case in found if case is not None]


def case_of(query: LoggedQuery, evidence: EvidenceOfQuery) -> Case | None:
    """Return a query with its evidence; None if no result of it is known to be relevant.

    If use was observed, results that were shown and not used are evidence too.
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
    """Add what was shown beside used results; the keys of duplicates count as shown."""
    full = dict(evidence)
    if not any(one.kind.is_implicit for one in evidence.values()):
        return full
    for hit in query.shown:
        if not any(key in evidence for key in hit.keys):
            full[hit.key] = Evidence(relevance=0.0, kind=JudgementKind.OPENED)
    return full


@dataclass(slots=True)
class CaseScores:
    """Scores many rankings of one case against the same ideal: the best order of all their results.

    Add all rankings first, then ask for scores: a ranking that is added later may raise the ideal.
    """

    evidence: EvidenceOfQuery
    k: int
    imputed: Callable[[RankedHit], float] | None = None
    weight: float = field(init=False)
    """How many queries the case represents; see `case_weight`."""
    _group_of: dict[str, int] = field(default_factory=dict)
    _worth: list[float] = field(default_factory=list)
    _known: dict[tuple[object, ...], tuple[float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weight = case_weight(self.evidence, self.k)

    def add(self, hits: Sequence[RankedHit]) -> float:
        """Return the discounted gain of a ranking and remember its results."""
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
        """Return each gain as a share of the ideal, at most 1; 0 if nothing can be gained."""
        ideal = self.ideal
        return [min(1.0, gain / ideal) if ideal > 0.0 else 0.0 for gain in gains]

    def _look_up(self, hit: RankedHit) -> tuple[float, int]:
        """Return the worth and group of a hit, with boosts normalised: the weight has the rest."""
        known = [self.evidence[key] for key in hit.keys if key in self.evidence]
        if known:
            worth = max(one.relevance * one.boost for one in known) / self.weight
        else:
            worth = self.imputed(hit) if self.imputed is not None else 0.0
        return worth, self._group(hit.keys, worth)

    def _group(self, keys: Sequence[str], worth: float) -> int:
        """Return the number of the group of results that share one of these keys."""
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

    A result is as relevant as the best of its duplicates, and a repeated one counts once. Unjudged results
    count 0.
    """
    scores = CaseScores(evidence=evidence, k=k)
    return scores.shares([scores.add(hits)])[0]


def case_weight(evidence: EvidenceOfQuery, k: int) -> float:
    """Return how many queries a case represents, at least 1: more if a use far down is boosted.

    Of queries known only by use, those whose best result was ranked low are seldom among the cases; the
    observed ones represent the others (self-normalised inverse propensity; Swaminathan and Joachims 2015).
    """
    plain = dcg(nlargest(k, (one.relevance for one in evidence.values())), k)
    boosted = dcg(nlargest(k, (one.relevance * one.boost for one in evidence.values())), k)
    return boosted / plain if plain > 0.0 else 1.0
