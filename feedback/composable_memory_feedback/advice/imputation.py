"""What results that nobody judged are worth, learnt from those that were.

A ranking that was never shown holds results nobody judged. To count them 0 would favour what was shown, and
to give them what shown ones are worth would favour what was not: they were not shown because they scored low.
So the worth is a logistic regression on all that decided whether a result was shown: the calibrated score
each backend gave it, and which backends did not find it. Given these, whether it was judged tells no more
(missing at random; Little and Rubin 2002). How much else is known to be relevant for the question counts as
well. Questions of one kind have coefficients of their own, held near those of all by a ridge. A use at
rank r enters as 1 / examination(r) uses, so that together with the boosts of `evidence` this is a doubly
robust estimate with clipped propensities (Dudík, Langford, Li 2011).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from composable_memory_feedback.advice.evidence import Case
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.logged import LoggedQuery, RankedHit, Ranker

__all__ = ["Imputation", "Worth"]

Floats = NDArray[np.float64]
Worth = Callable[[RankedHit], float]
"""What a result of one case is worth where nobody judged it, from 0 to 1."""

RIDGE = 1.0
RIDGE_OF_KIND = 10.0
"""How firmly the coefficients of a kind are held near those of all questions."""
UNLIKELY = -3.0
"""The log odds of relevance before anything is known: about 1 in 20."""
STEPS = 12
SMALL_STEP = 1e-3
MOST_KNOWN = 3.0


@dataclass(slots=True)
class _Candidate:
    """One candidate of a case: what is known of it and what it is worth where it was judged."""

    case: int
    key: str
    row: list[float]
    worth: float | None


class Imputation:
    """Learns from judged candidates of cases and tells what the others are worth."""

    def __init__(self, cases: Sequence[Case], ranker: Ranker) -> None:
        self._count = len(cases)
        self._backends = sorted({one for case in cases for one in case.query.backends})
        found = [one for at, case in enumerate(cases) for one in self._candidates(at, case, ranker)]
        self._keys = [(one.case, one.key) for one in found]
        width = 2 + 2 * len(self._backends)
        self._rows = np.array([one.row for one in found], dtype=np.float64).reshape(-1, width)
        self._is_judged = np.array([one.worth is not None for one in found], dtype=bool)
        self._worths = np.array([one.worth or 0.0 for one in found])
        self._cases = np.array([one.case for one in found], dtype=np.int64)
        kinds = [str(case.query.intent) for case in cases]
        self._kinds = np.array([kinds[one.case] for one in found], dtype=str)

    def worths(self, left_out: Sequence[int] = ()) -> list[Worth]:
        """Return what unjudged results of each case are worth, learnt without the cases at some places."""
        told: list[dict[str, float]] = [{} for _ in range(self._count)]
        learnt = self._is_judged & ~np.isin(self._cases, list(left_out))
        if learnt.any():
            for (case, key), worth in zip(self._keys, self._predicted(learnt).tolist(), strict=True):
                told[case][key] = worth
        return [_worth_by(one) for one in told]

    def _predicted(self, learnt: NDArray[np.bool_]) -> Floats:
        start = np.zeros(self._rows.shape[1])
        start[0] = UNLIKELY
        of_all = _fitted(self._rows[learnt], self._worths[learnt], start, RIDGE)
        predicted = np.zeros(len(self._rows))
        for kind in IntentKind:
            own = self._kinds == str(kind)
            if own.any():
                rows, worths = self._rows[learnt & own], self._worths[learnt & own]
                predicted[own] = _chances(self._rows[own], _fitted(rows, worths, of_all, RIDGE_OF_KIND))
        return predicted

    def _candidates(self, at: int, case: Case, ranker: Ranker) -> list[_Candidate]:
        known = sum(one.relevance for one in case.evidence.values())
        found = []
        for key, scores in _scores_by_key(case.query, ranker).items():
            own = case.evidence.get(key)
            elsewhere = min(MOST_KNOWN, known - (own.relevance if own else 0.0))
            given = [
                value
                for backend in self._backends
                for value in ((scores[backend], 0.0) if backend in scores else (0.0, 1.0))
            ]
            worth = own.relevance * own.needed_boost if own else None
            found.append(_Candidate(at, key, [1.0, elsewhere, *given], worth))
        return found


def _scores_by_key(query: LoggedQuery, ranker: Ranker) -> Mapping[str, Mapping[str, float]]:
    """Return the calibrated score that each backend itself gave each candidate."""
    found: dict[str, dict[str, float]] = {}
    for backend in query.backends:
        if backend in query.stand_ins:
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


def _worth_by(told: Mapping[str, float]) -> Worth:
    return lambda hit: max((told[key] for key in hit.keys if key in told), default=0.0)


def _fitted(rows: Floats, worths: Floats, near: Floats, ridge: float) -> Floats:
    """Return coefficients of a logistic regression, held near some by a ridge (Newton's method)."""
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
