"""How much better or worse rankings of cases are than others, and how sure that is.

The interval accounts for what a mean over the cases leaves open:

- Other cases might have come: the Bayesian bootstrap over cases (Rubin 1981).
- What unjudged results are worth is learnt from few: it is learnt again without each of `GROUPS` groups of
  cases, and the spread of the outcome is that of the delete-a-group jackknife (Kott 2001). As both come from
  the same cases, their standard deviations are added, which is the most they can come to.
- Unjudged results may differ from judged ones in ways nobody sees: `ALLOWANCE` of what they contribute to
  the difference is taken as a further standard deviation (a sensitivity analysis; Rosenbaum 2002).
- Use shows only some of what is relevant, and what is not seen is missing from the ideal too: against an
  ideal that is too small for the sum, differences come out too small by a common factor. Where enough cases
  are judged directly, it is the ratio of the mean nDCG of both sorts of cases, which rank the same way (a
  ratio estimate; Cochran 1977). Elsewhere it is anything between 1 and what would make the rankings
  perfect, each as likely. It never turns a loss into a gain.

A case that is known only by use tells far less than one that is judged directly: it counts `USE_COUNTS` of
such a one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from composable_memory_feedback.advice.evidence import Case, CaseScores, case_weight
from composable_memory_feedback.advice.imputation import Imputation, Worth
from composable_memory_feedback.logged import RankedHit
from composable_memory_feedback.metrics import Interval

__all__ = ["Comparison", "Rankings", "compare", "counts_of"]

Floats = NDArray[np.float64]
Rankings = tuple[Sequence[RankedHit], Sequence[RankedHit]]
"""What a case showed before and after a change."""

DRAWS = 2000
GROUPS = 10
ALLOWANCE = 0.5
USE_COUNTS = 0.15
"""About the ratio of the variances of both sorts of cases in simulated worlds."""
LEAST_BY_USE = 0.5
"""A mean nDCG by use is taken to be at least this, so that the factor is at most 2."""
LEAST_DIRECT = 10
"""From so many cases on that are judged directly, they tell by how much use blunts differences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """nDCG of cases before and after; `weights` is how much each counts."""

    before: Floats
    after: Floats
    weights: Floats
    is_direct: NDArray[np.bool_]
    refitted: Floats
    """The differences when unjudged results are valued without each group of cases in turn."""
    unimputed: Floats
    """The differences when unjudged results are worth nothing."""
    sharpening: Floats
    """Draws of the factor by which use blunts differences, at least 1."""

    def interval(self, at: Sequence[int] | None = None, *, widening: float = 1.0, seed: int = 0) -> Interval:
        """Return the mean difference over the cases at some places, or over all, with its 95 % interval.

        `widening` is what the spread between cases is multiplied by, for cases that are not independent.
        """
        places = np.arange(len(self.weights)) if at is None else np.array(at, dtype=np.int64)
        random = np.random.default_rng(seed)
        weights, direct = self.weights[places], self.is_direct[places]
        values = (self.after - self.before)[places]
        factor = float(self.sharpening.mean())
        share = weights * np.where(direct, 1.0, factor) / weights.sum()
        mean = float(share @ values)
        spread = np.zeros(DRAWS)
        if len(places) > 1:
            drawn = random.standard_exponential((DRAWS, len(places))) * weights
            sums = drawn @ (values * direct) + self.sharpening * (drawn @ (values * ~direct))
            spread = widening * (sums / drawn.sum(axis=1) - mean)
        refits = self.refitted[:, places] @ share
        learnt = ((GROUPS - 1) * float(refits.var())) ** 0.5
        spread *= 1.0 + learnt / max(float(spread.std()), 1e-12)
        allowed = ALLOWANCE * float(share @ (values - self.unimputed[places]))
        ends = np.quantile(spread + allowed * random.standard_normal(DRAWS), (0.025, 0.975))
        return Interval(mean=mean, low=mean + float(ends[0]), high=mean + float(ends[1]))


def compare(
    cases: Sequence[Case], rankings: Sequence[Rankings], *, imputation: Imputation, k: int, seed: int = 0
) -> Comparison:
    """Return how cases score under two rankings each; `imputation` is of the same cases."""
    random = np.random.default_rng(seed)
    weights = np.array([counts_of(case, k) for case in cases])
    groups = np.array_split(random.permutation(len(cases)), GROUPS)
    scores = _scores(cases, rankings, imputation.worths(), k)
    refitted = [_scores(cases, rankings, imputation.worths(group.tolist()), k) for group in groups]
    unimputed = _scores(cases, rankings, None, k)
    is_direct = np.array([_is_direct(case) for case in cases], dtype=bool)
    return Comparison(
        before=scores[0],
        after=scores[1],
        weights=weights,
        is_direct=is_direct,
        refitted=np.array([after - before for before, after in refitted]),
        unimputed=unimputed[1] - unimputed[0],
        sharpening=_sharpening(scores[0], weights, is_direct, random),
    )


def counts_of(case: Case, k: int) -> float:
    """Return how much a case counts beside others: for how many queries it stands and how much it tells."""
    return case_weight(case.evidence, k) * (1.0 if _is_direct(case) else USE_COUNTS)


def _scores(
    cases: Sequence[Case], rankings: Sequence[Rankings], worths: Sequence[Worth] | None, k: int
) -> Floats:
    """Return a row before and a row after; both rankings of a case are held against one ideal."""
    found = np.zeros((2, len(cases)))
    for at, (case, pair) in enumerate(zip(cases, rankings, strict=True)):
        one = CaseScores(evidence=case.evidence, k=k, imputed=worths[at] if worths else None)
        gains = [one.add(hits) for hits in pair]
        ideal = one.ideal
        found[:, at] = [min(1.0, gain / ideal) if ideal > 0.0 else 0.0 for gain in gains]
    return found


def _is_direct(case: Case) -> bool:
    """Say whether most of what is known of a case was said by somebody and not inferred from use."""
    return 2 * sum(one.kind.is_implicit for one in case.evidence.values()) <= len(case.evidence)


def _sharpening(
    before: Floats, weights: Floats, is_direct: NDArray[np.bool_], random: np.random.Generator
) -> Floats:
    """Return draws of the factor that brings the scores by use to those that are judged directly."""
    if is_direct.all():
        return np.ones(DRAWS)
    drawn = random.standard_exponential((DRAWS, len(weights))) * weights
    by_use, direct = (
        (drawn[:, own] @ before[own]) / np.maximum(drawn[:, own].sum(axis=1), 1e-12)
        for own in (~is_direct, is_direct)
    )
    most: Floats = 1.0 / np.clip(by_use, LEAST_BY_USE, 1.0)
    if is_direct.sum() < LEAST_DIRECT:
        factors: Floats = 1.0 + random.random(DRAWS) * (most - 1.0)
    else:
        factors = np.clip(direct / np.maximum(by_use, 1e-12), 1.0, most)
    return factors
