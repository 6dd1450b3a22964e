"""Scores rankings of a case by what is known about its results, also those that bring up unseen ones (pure).

What nobody judged counts 0, or what the caller gives it; `imputation` learns what that is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from math import log2

from composable_memory_feedback.advice.evidence import Evidence, EvidenceOfQuery
from composable_memory_feedback.logged import RankedHit
from composable_memory_feedback.metrics import dcg

__all__ = ["CaseScores", "case_weight", "score"]


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
            seen = (hit.path, hit.start_line, hit.end_line, hit.others, hit.backend, hit.calibrated)
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

    def _look_up(self, hit: RankedHit) -> tuple[float, int]:
        worth = self._worth_of(hit)
        return worth, self._group(hit.keys, worth)

    def _worth_of(self, hit: RankedHit) -> float:
        """Return the relevance of a hit, boosts by their proportions; the weight holds the rest."""
        known = _best(hit.keys, self.evidence)
        average = self.imputed(hit) if self.imputed is not None else 0.0
        if known is None:
            return average
        return known.relevance * known.boost / self.weight + known.left_open * average

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


def score(
    hits: Sequence[RankedHit],
    evidence: EvidenceOfQuery,
    *,
    k: int,
    imputed: Callable[[RankedHit], float] | None = None,
) -> float:
    """Return nDCG@k of a ranking, in [0, 1].

    A result is as relevant as the best of its duplicates, and what stands twice is paid once. What nobody
    judged counts 0, or what `imputed` gives it.
    """
    scores = CaseScores(evidence=evidence, k=k, imputed=imputed)
    gain = scores.add(hits)
    ideal = scores.ideal
    return min(1.0, gain / ideal) if ideal > 0.0 else 0.0


def case_weight(evidence: EvidenceOfQuery, k: int) -> float:
    """Return for how many queries a case stands, at least 1: where uses far down count more, several.

    Of queries that are known only by use, those whose best result stood low are seldom among the cases; the
    seen ones stand for the others (self-normalised inverse propensity; Swaminathan and Joachims 2015).
    """
    plain = dcg(nlargest(k, (one.relevance for one in evidence.values())), k)
    boosted = dcg(nlargest(k, (one.relevance * one.boost for one in evidence.values())), k)
    return boosted / plain if plain > 0.0 else 1.0


def _best(keys: Iterable[str], evidence: EvidenceOfQuery) -> Evidence | None:
    known = [evidence[key] for key in keys if key in evidence]
    return max(known, key=lambda one: one.relevance * one.boost, default=None)
