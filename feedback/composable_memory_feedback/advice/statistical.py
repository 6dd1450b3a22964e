"""The advisor that replays: tries many weight tables on judged queries and proposes what does best on others.

Each case is ranked under each table and scored (nDCG@k). The best table has the highest mean minus a ridge on
the logarithms of the weights, which holds it near the current one and weakens as cases grow. Questions of one
kind get weights of their own if there are enough of them, shrunk towards those of all.

The expected gain is cross-fitted: chosen on four fifths, cut down to an allowed step, and scored on the last
fifth, so that no case speaks for a table it helped to choose. As the folds share most of their cases, the
interval is wider than that of a mean of independent values (Nadeau and Bengio 2003).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from itertools import product
from math import exp, log
from random import Random

import numpy as np
from numpy.typing import NDArray

from composable_memory_feedback.advice.estimating import Comparison, compare, counts_of, worths_of
from composable_memory_feedback.advice.evidence import Case, CaseScores
from composable_memory_feedback.advice.proposal import AdviceLimits, Proposal, clamp_steps
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit, Ranker
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import IntentKind, WeightTable, same_proportions
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

Floats = NDArray[np.float64]

RIDGE = 0.5
"""The cost in nDCG, divided by the number of cases, of a weight that is e times as heavy."""
FOLDS = 5
SEED = 0
"""For all randomness: the same cases give the same proposal."""
WIDENING = (1.0 + FOLDS / (FOLDS - 1)) ** 0.5
"""By Nadeau and Bengio the variance is (1/folds + tested/trained) times that of a fold, not 1/folds."""
LEAST_FOR_GAIN_OF_INTENT = 10
ROUNDED = 1.5e-4
"""Proportions that differ by less are equal: both were rounded to four digits."""
REASON = "advice of the statistical advisor"

Vector = tuple[float, ...]
"""One weight per backend, in their order; the heaviest is 1."""

SMALLEST = 0.01
"""A weight of 0 is read as this share of the heaviest; a proportion to 0 has no meaning."""
ALL_UP_TO = 3
"""Up to this many backends every combination of levels is tried; with more they are sampled."""
LEVELS = {1: 1, 2: 13, 3: 6}
LEVELS_OF_MANY = 5
SAMPLED = 70


def advise(
    cases: Sequence[Case],
    *,
    current: WeightTable,
    backends: Sequence[str],
    ranker: Ranker,
    limits: AdviceLimits,
    k: int = 10,
    now: datetime,
    pace: Callable[[], None] = lambda: None,
) -> Proposal:
    """Return the allowed step that is expected to rank best, with its gain.

    If that falls short of the best table, the proposal also has that as its destination, and the gain of
    going all the way. Cases in which a fallback answered for one of the backends are left out. `pace` is
    called before a case is ranked under a table: to sleep for a moment, or to raise in order to stop. The
    same arguments give the same proposal. With fewer than two usable cases or backends it is the current
    table, with a note.
    """
    usable = [case for case in cases if case.query.fallbacks.isdisjoint(backends)]
    notes: tuple[str, ...] = ()
    if left_out := len(cases) - len(usable):
        notes = (f"{counted(left_out, 'query', 'queries')} left out: a fallback had answered for a backend",)
    unchanged = Proposal(
        advisor="statistical",
        current=current,
        table=current,
        sample_size=len(usable),
        made_at=now,
    )
    if len(usable) < 2 or len(backends) < 2:
        nothing = "there is nothing to compare: advice needs two judged queries and two backends"
        return replace(unchanged, notes=(*notes, nothing))
    study = _Study(
        usable,
        current=current,
        backends=backends,
        ranker=ranker,
        limits=limits,
        k=k,
        pace=pace,
    )
    wanted = study.table(study.choose(np.ones(len(usable))), now)
    step = partial(clamp_steps, current=current, limits=limits, backends=backends)
    table = step(wanted)
    if same_proportions(table, current, backends=backends, tolerance=ROUNDED):
        table = current
        notes += ("no other table within the limits ranks better",)
    gain, gain_by_intent = _gain(study, lambda choice: step(study.table(choice, now)))
    goes_on = not same_proportions(wanted, table, backends=backends, tolerance=ROUNDED)
    destination_gain = _gain(study, lambda choice: study.table(choice, now))[0] if goes_on else None
    return replace(
        unchanged,
        table=table,
        gain=gain,
        gain_by_intent=gain_by_intent,
        destination=wanted if goes_on else None,
        destination_gain=destination_gain,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """The vector that does best over all questions, and those for each kind."""

    overall: Vector
    by_intent: Mapping[IntentKind, Vector] = field(default_factory=dict)


class _Study:
    """Cases, each ranked once under every vector, and what does best over them."""

    def __init__(
        self,
        cases: Sequence[Case],
        *,
        current: WeightTable,
        backends: Sequence[str],
        ranker: Ranker,
        limits: AdviceLimits,
        k: int,
        pace: Callable[[], None],
    ) -> None:
        self.cases, self.current, self.backends = cases, current, backends
        self._ranker, self._k = ranker, k
        self._worths = worths_of(cases, ranker)
        self._weights = np.array([counts_of(one, k) for one in cases])
        self.vectors = coarse(positive(vector_of(current, backends)), floor=limits.min_weight, seed=SEED)
        self._logs = np.log(np.array(self.vectors))
        self._scores = np.array([self._scored(at, pace) for at in range(len(cases))])
        self.intents = [case.query.intent for case in cases]
        members = {kind: np.array([float(one is kind) for one in self.intents]) for kind in IntentKind}
        self.members = {kind: one for kind, one in members.items() if one.sum() >= limits.min_intent_samples}
        """For each kind with enough questions: 1 for its cases, 0 for the others."""

    def choose(self, counted: Floats) -> _Choice:
        """Return what does best over the `counted` cases; among equals the first, the current one."""
        heavy = counted * self._weights
        means = heavy @ self._scores / max(heavy.sum(), 1e-12)
        overall = self._best(means, self.vectors[0], float(counted.sum()))
        by_intent = {}
        for kind, is_member in self.members.items():
            own = heavy * is_member
            of_kind = own @ self._scores / max(own.sum(), 1e-12)
            by_intent[kind] = self._best(of_kind, overall, float((counted * is_member).sum()))
        return _Choice(overall, by_intent)

    def _best(self, means: Floats, near: Vector, count: float) -> Vector:
        distances = ((self._logs - np.log(near)) ** 2).sum(axis=1)
        return self.vectors[int(np.argmax(means - RIDGE / max(count, 1.0) * distances))]

    def table(self, choice: _Choice, now: datetime) -> WeightTable:
        """Return a choice as a table; kinds about which nothing new is known keep their weights."""
        kept = {kind: vector_of(self.current, self.backends, kind) for kind in self.current.by_intent}
        rows = {**kept, **choice.by_intent}
        by_intent = {kind: self._by_backend(row) for kind, row in rows.items() if row != choice.overall}
        weights = self._by_backend(choice.overall)
        return WeightTable.fixed(weights, by_intent=by_intent, reason=REASON, made_at=now)

    def compare(self, changes: Sequence[tuple[Vector, Vector]]) -> Comparison:
        """Score each case under its own vectors before and after a change."""
        rankings = [
            (self._ranked(case.query, before), self._ranked(case.query, after))
            for case, (before, after) in zip(self.cases, changes, strict=True)
        ]
        return compare(self.cases, rankings, worths=self._worths, k=self._k)

    def _scored(self, at: int, pace: Callable[[], None]) -> list[float]:
        """Return the nDCG of a case under each vector, against the best order of all of these."""
        case = self.cases[at]
        scores = CaseScores(evidence=case.evidence, k=self._k, imputed=self._worths[at])
        gains = []
        for vector in self.vectors:
            pace()
            gains.append(scores.add(self._ranked(case.query, vector)))
        return scores.shares(gains)

    def _ranked(self, query: LoggedQuery, vector: Vector) -> Sequence[RankedHit]:
        weights = {**query.policy.weights, **dict(zip(self.backends, vector, strict=True))}
        return self._ranker(query, replace(query.policy, weights=weights))

    def _by_backend(self, vector: Vector) -> dict[str, float]:
        """Return a vector as weights; what is 0 now stays 0 unless it is to be raised."""
        return {
            one: 0.0 if weight <= SMALLEST and self.current[one] == 0.0 else weight
            for one, weight in zip(self.backends, vector, strict=True)
        }


def _gain(
    study: _Study, tabled: Callable[[_Choice], WeightTable]
) -> tuple[Interval, dict[IntentKind, Interval]]:
    """Return the cross-fitted gain over the current table, over all cases and for each kind."""
    folds = np.arange(len(study.intents)) % FOLDS
    changes: list[tuple[Vector, Vector]] = [((), ())] * len(study.intents)
    for fold in range(FOLDS):
        table = tabled(study.choose((folds != fold).astype(np.float64)))
        for at in np.flatnonzero(folds == fold).tolist():
            kind = study.intents[at]
            before, after = (vector_of(one, study.backends, kind) for one in (study.current, table))
            changes[at] = before, after
    found = study.compare(changes)
    return found.interval(widening=WIDENING), found.by_kind(LEAST_FOR_GAIN_OF_INTENT, widening=WIDENING)


def coarse(current: Vector, *, floor: float, seed: int) -> list[Vector]:
    """Return vectors over the whole range from `floor` to 1, `current` (positive) and the equal one first."""
    count, equal = len(current), (1.0,) * len(current)
    lowest, steps = log(max(floor, SMALLEST)), LEVELS.get(count, LEVELS_OF_MANY)
    levels = [round(exp(lowest * step / max(steps - 1, 1)), 4) for step in range(steps)]
    if count <= ALL_UP_TO:
        others: list[Vector] = [one for one in product(levels, repeat=count) if max(one) == 1.0]
    else:
        random = Random(seed)  # noqa: S311
        others = [
            (*base[:place], level, *base[place + 1 :])
            for base in (current, equal)
            for place, level in product(range(count), levels)
        ]
        others += [tuple(exp(random.uniform(lowest, 0.0)) for _ in range(count)) for _ in range(SAMPLED)]
    scaled = (tuple(round(weight / max(one), 4) for weight in one) for one in others)
    return list(dict.fromkeys([current, equal, *scaled]))


def vector_of(table: WeightTable, backends: Sequence[str], kind: IntentKind | None = None) -> Vector:
    """Return the proportions of a table's weights for questions of a kind, with the heaviest as 1."""
    return tuple(round(one, 4) for one in table.proportions(backends, kind).values())


def positive(vector: Vector) -> Vector:
    """Return proportions that have logarithms: none below `SMALLEST`, all equal if all were 0."""
    return tuple(max(SMALLEST, one) for one in vector) if any(vector) else (1.0,) * len(vector)
