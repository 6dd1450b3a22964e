"""Scores of cases under weight tables; each case is ranked once under each."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from composable_memory_feedback.advice.candidates import Vector, normalised
from composable_memory_feedback.advice.estimating import Comparison, compare, counts_of
from composable_memory_feedback.advice.evidence import Case, CaseScores
from composable_memory_feedback.advice.imputation import Imputation
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.logged import LoggedQuery, RankedHit, Ranker
from composable_memory_feedback.weights import WeightTable

__all__ = ["Board", "vector_of"]


def vector_of(table: WeightTable, backends: Sequence[str], kind: IntentKind | None = None) -> Vector:
    """Return the proportions of a table's weights for questions of a kind, with the heaviest as 1."""
    return normalised([table.of(backend, kind) for backend in backends])


class Board:
    """Ranks cases under tables and keeps what came of it."""

    def __init__(
        self,
        cases: Sequence[Case],
        *,
        backends: Sequence[str],
        ranker: Ranker,
        k: int,
        pace: Callable[[], None],
    ) -> None:
        self._cases, self._backends, self._ranker, self._pace = cases, backends, ranker, pace
        self._k, self._imputation = k, Imputation(cases, ranker)
        worths = self._imputation.worths()
        self._scores = [
            CaseScores(evidence=one.evidence, k=k, imputed=worth)
            for one, worth in zip(cases, worths, strict=True)
        ]
        self._gains: list[dict[Vector, float]] = [{} for _ in cases]
        self.weights = [counts_of(one, k) for one in cases]
        """How much each case counts."""

    def rank(self, at: int, vectors: Sequence[Vector]) -> None:
        """Rank the case at a place under each vector that it was not ranked under yet."""
        gains, query = self._gains[at], self._cases[at].query
        for vector in vectors:
            if vector not in gains:
                self._pace()
                gains[vector] = self._scores[at].add(self._ranked(query, vector))

    def score(self, at: int, vectors: Sequence[Vector]) -> list[float]:
        """Return the nDCG of a case under each vector, against the best order of all it was ranked under."""
        self.rank(at, vectors)
        gains, ideal = self._gains[at], self._scores[at].ideal
        return [min(1.0, gains[vector] / ideal) if ideal > 0.0 else 0.0 for vector in vectors]

    def compare(self, changes: Sequence[tuple[Vector, Vector]], *, seed: int) -> Comparison:
        """Return how each case scores under its own vectors before and after a change."""
        rankings = [
            (self._ranked(case.query, before), self._ranked(case.query, after))
            for case, (before, after) in zip(self._cases, changes, strict=True)
        ]
        return compare(self._cases, rankings, imputation=self._imputation, k=self._k, seed=seed)

    def _ranked(self, query: LoggedQuery, vector: Vector) -> Sequence[RankedHit]:
        weights = {**query.policy.weights, **dict(zip(self._backends, vector, strict=True))}
        return self._ranker(query, replace(query.policy, weights=weights))
