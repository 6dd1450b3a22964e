"""Estimates what unjudged results are worth, and how much better some rankings are than others.

A ranking that was never shown has results nobody judged. Counting them as 0 would favour what was shown, and
giving them the worth of shown ones would favour what was not: they were not shown because they scored low. So
their worth is a logistic regression on what decided whether a result was shown: the calibrated score from
each backend, and which backends did not find it. Given these, whether it was judged says nothing more
(missing at random; Little and Rubin 2002). How much else is known to be relevant for the question counts as
well. Questions of one kind have coefficients of their own, shrunk towards those of all. A use counts as often
as `evidence` boosts it.

A case known only by use says far less than one judged directly: it counts `USE_COUNTS` of such a one. The
interval of a mean over cases is that of the Bayesian bootstrap (Rubin 1981). A large change brings up many
unjudged results that may differ from judged ones in unobserved ways; its interval allows for that by a share
of what unjudged results contribute (a sensitivity analysis; Rosenbaum 2002).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from composable_memory_feedback.advice.evidence import Case, CaseScores, case_weight
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit, Ranker
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs.quick_dataclass import dataclass

Floats = NDArray[np.float64]
Worth = Callable[[RankedHit], float]
"""What an unjudged result of one case is worth, from 0 to 1."""
Rankings = tuple[Sequence[RankedHit], Sequence[RankedHit]]
"""What a case shows before and after a change."""

RIDGE = 1.0
RIDGE_OF_KIND = 10.0
"""How strongly the coefficients of a kind of question are shrunk towards those of all."""
UNLIKELY = -3.0
"""The prior log odds of relevance: about 1 in 20."""
STEPS = 12
SMALL_STEP = 1e-3
MOST_KNOWN = 3.0
DRAWS = 2000
USE_COUNTS = 0.15
"""About the ratio of the variances of both sorts of cases in simulated worlds."""


def worths_of(cases: Sequence[Case], ranker: Ranker) -> list[Worth]:
    """Return for each case a function for the worth of unjudged candidates, learnt from judged ones."""
    backends = sorted({one for case in cases for one in case.query.backends})
    rows, known, places = [], [], []
    for at, case in enumerate(cases):
        for key, scores in _scores_by_key(case.query, ranker).items():
            rows.append(_row(case, key, scores, backends))
            own = case.evidence.get(key)
            known.append(own.relevance * own.boost if own else np.nan)
            places.append((at, key))
    found: list[dict[str, float]] = [{} for _ in cases]
    kinds = np.array([str(cases[at].query.intent) for at, _ in places], dtype=str)
    predicted = _predicted(np.array(rows, dtype=np.float64), np.array(known, dtype=np.float64), kinds)
    for (at, key), worth in zip(places, predicted.tolist(), strict=True):
        found[at][key] = worth
    return [_worth_by(one) for one in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """nDCG of cases before and after a change; `weights` is how much each counts."""

    before: Floats
    after: Floats
    weights: Floats
    imputed: Floats
    """The part of each difference that comes from the estimated worth of unjudged results."""
    kinds: Sequence[IntentKind]

    def interval(
        self,
        at: Sequence[int] | None = None,
        *,
        widening: float = 1.0,
        allowance: float = 0.0,
    ) -> Interval:
        """Return the mean difference over the cases at some places, or over all, with its 95 % interval.

        `widening` multiplies the spread between cases, for cases that are not independent; `allowance` is the
        share of the imputed part that is added as a further standard deviation.
        """
        places = np.arange(len(self.weights)) if at is None else np.array(at, dtype=np.int64)
        weights, values = self.weights[places], (self.after - self.before)[places]
        mean = float(weights @ values / weights.sum())
        random = np.random.default_rng(0)
        drawn = random.standard_exponential((DRAWS, len(places))) * weights
        spread = widening * ((drawn @ values) / drawn.sum(axis=1) - mean)
        if allowance:
            unsure = allowance * float(weights @ self.imputed[places] / weights.sum())
            spread += unsure * random.standard_normal(DRAWS)
        low, high = np.quantile(spread, (0.025, 0.975))
        return Interval(mean=mean, low=mean + float(low), high=mean + float(high))

    def by_kind(self, least: int = 1, **how: float) -> dict[IntentKind, Interval]:
        """Return `interval` for each kind of question with at least this many cases."""
        places = {kind: [at for at, one in enumerate(self.kinds) if one is kind] for kind in IntentKind}
        return {kind: self.interval(own, **how) for kind, own in places.items() if len(own) >= least}


def compare(
    cases: Sequence[Case], rankings: Sequence[Rankings], *, worths: Sequence[Worth], k: int
) -> Comparison:
    """Score cases under two rankings each; `worths` are those of the same cases."""
    after, before = _scores(cases, rankings, worths, k)
    judged_after, judged_before = _scores(cases, rankings, [None] * len(cases), k)
    return Comparison(
        before=before,
        after=after,
        weights=np.array([counts_of(case, k) for case in cases]),
        imputed=(after - before) - (judged_after - judged_before),
        kinds=[case.query.intent for case in cases],
    )


def counts_of(case: Case, k: int) -> float:
    """Return the weight of a case: how many queries it represents, and how much it says."""
    by_use = sum(one.kind.is_implicit for one in case.evidence.values())
    is_direct = 2 * by_use <= len(case.evidence)
    return case_weight(case.evidence, k) * (1.0 if is_direct else USE_COUNTS)


def _scores(
    cases: Sequence[Case], rankings: Sequence[Rankings], worths: Sequence[Worth | None], k: int
) -> tuple[Floats, Floats]:
    """Return nDCG after and before; both rankings of a case are measured against one ideal."""
    found = np.zeros((2, len(cases)))
    for at, (case, (before, after), worth) in enumerate(zip(cases, rankings, worths, strict=True)):
        scores = CaseScores(evidence=case.evidence, k=k, imputed=worth)
        found[:, at] = scores.shares([scores.add(after), scores.add(before)])
    return found[0], found[1]


def _scores_by_key(query: LoggedQuery, ranker: Ranker) -> Mapping[str, Mapping[str, float]]:
    """Return the calibrated score that each backend itself gave each candidate."""
    found: dict[str, dict[str, float]] = {}
    for backend in query.backends:
        if backend in query.fallbacks:
            continue
        alone = replace(
            query.policy,
            weights={backend: 1.0},
            dropped=frozenset(query.backends) - {backend},
            min_score=0.0,
            max_results=max(query.policy.max_results, query.policy.depth),
        )
        for hit in ranker(query, alone):
            score = min(1.0, max(0.0, hit.calibrated)) if isfinite(hit.calibrated) else 0.0
            for key in hit.keys:
                found.setdefault(key, {}).setdefault(backend, score)
    return found


def _row(case: Case, key: str, scores: Mapping[str, float], backends: Sequence[str]) -> list[float]:
    """Return the features of a candidate: 1, what else is relevant, a score and a gap for each backend."""
    own = case.evidence.get(key)
    known = sum(one.relevance for one in case.evidence.values()) - (own.relevance if own else 0.0)
    given = [(scores.get(backend, 0.0), float(backend not in scores)) for backend in backends]
    return [1.0, min(MOST_KNOWN, known), *(value for pair in given for value in pair)]


def _worth_by(told: Mapping[str, float]) -> Worth:
    return lambda hit: max((told[key] for key in hit.keys if key in told), default=0.0)


def _predicted(rows: Floats, known: Floats, kinds: NDArray[np.str_]) -> Floats:
    """Return the probability of relevance of each row, learnt from those with a known one."""
    is_known, predicted = ~np.isnan(known), np.zeros(len(known))
    if is_known.any():
        start = np.zeros(rows.shape[1])
        start[0] = UNLIKELY
        of_all = _fitted(rows[is_known], known[is_known], start, RIDGE)
        for kind in np.unique(kinds):
            own = kinds == kind
            of_kind = _fitted(rows[own & is_known], known[own & is_known], of_all, RIDGE_OF_KIND)
            predicted[own] = _chances(rows[own], of_kind)
    return predicted


def _fitted(rows: Floats, worths: Floats, near: Floats, ridge: float) -> Floats:
    """Return coefficients of a logistic regression with a ridge towards given ones (Newton's method)."""
    found, penalty = near.copy(), ridge * np.eye(len(near))
    for _ in range(STEPS):
        chances = _chances(rows, found)
        slope = rows.T @ (worths - chances) - ridge * (found - near)
        bend = (rows * (chances * (1.0 - chances))[:, None]).T @ rows + penalty
        step = np.clip(np.linalg.solve(bend, slope), -2.0, 2.0)
        found = found + step
        if np.abs(step).max() < SMALL_STEP:
            break
    return found


def _chances(rows: Floats, coefficients: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(rows @ coefficients, -30.0, 30.0)))
