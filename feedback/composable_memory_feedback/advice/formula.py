"""The advisor that needs no replay: weights follow the mean precision of each backend (pure).

A backend whose results are relevant more often than `EXPECTED_PRECISION` gains weight, one below loses it,
by half of the difference, less while there is little evidence, and never by more than `LARGEST_STEP`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from composable_memory_feedback.advice.values import BackendAdvice, Proposal
from composable_memory_feedback.backend_days import BackendDay
from composable_memory_feedback.weights import WeightTable

__all__ = ["advise", "confidence_of", "suggested_weight"]

EXPECTED_PRECISION = 0.6
STRENGTH = 0.5
LARGEST_STEP = 0.2
LEAST_WEIGHT, LARGEST_WEIGHT = 0.1, 1.0
LEAST_SAMPLE, FULL_SAMPLE = 10, 50
LEAST_CHANGE = 0.01
ROUNDING = 1e-9
"""So far may a sum of binary fractions be off; a change of 0.01 less that is a change of 0.01."""


def advise(
    days: Sequence[BackendDay],
    *,
    current: WeightTable,
    now: datetime,
    window: timedelta = timedelta(days=7),
) -> Proposal:
    """Return a proposal for the backends that `current` lists, from the days within the window before `now`.

    A backend with too few judged queries, or whose weight would barely change, stays as it is. There is no
    expected gain: nothing was replayed.
    """
    first = (now - window).date()
    recent = [day for day in days if first <= day.day <= now.date()]
    tallies = {backend: _Tally.of(recent, backend) for backend in sorted(current.weights)}
    advices = [_advice(backend, current[backend], tally) for backend, tally in tallies.items()]
    changes = tuple(one for one in advices if one is not None)
    return Proposal(
        advisor="formula",
        current=current,
        table=_changed(current, {one.backend: one.suggested for one in changes}, now),
        changes=changes,
        sample_size=max((tally.queries for tally in tallies.values()), default=0),
        made_at=now,
        notes=() if changes else ("no backend's precision calls for another weight",),
    )


def suggested_weight(current: float, precision: float, sample_size: int) -> float | None:
    """Return the weight that a mean precision calls for, or None where it stays as it is."""
    confidence = confidence_of(sample_size)
    if confidence == 0.0:
        return None
    delta = _clamp((precision - EXPECTED_PRECISION) * confidence * STRENGTH, -LARGEST_STEP, LARGEST_STEP)
    suggested = _clamp(current + delta, LEAST_WEIGHT, LARGEST_WEIGHT)
    return suggested if abs(suggested - current) >= LEAST_CHANGE - ROUNDING else None


def confidence_of(sample_size: int) -> float:
    """Return how far a sample is trusted: 0 up to 10 queries, 1 from 50 on, and linear between."""
    return _clamp((sample_size - LEAST_SAMPLE) / (FULL_SAMPLE - LEAST_SAMPLE), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Tally:
    """How many queries a backend was judged on, and its mean precision on them."""

    queries: int
    precision: float

    @classmethod
    def of(cls, days: Sequence[BackendDay], backend: str) -> "_Tally":
        own = [day for day in days if day.backend == backend and day.group == "judged"]
        queries = sum(day.queries for day in own)
        total = sum(day.precision * day.queries for day in own)
        return cls(queries, total / queries if queries else 0.0)


def _advice(backend: str, current: float, tally: _Tally) -> BackendAdvice | None:
    suggested = suggested_weight(current, tally.precision, tally.queries)
    if suggested is None:
        return None
    return BackendAdvice(
        backend=backend,
        intent=None,
        current=current,
        suggested=suggested,
        sample_size=tally.queries,
        confidence=confidence_of(tally.queries),
        rationale=_rationale(current, suggested, tally),
        mean_precision=tally.precision,
    )


def _rationale(current: float, suggested: float, tally: _Tally) -> str:
    direction = "raise" if suggested > current else "lower"
    return (
        f"{tally.precision:.0%} of its results were relevant in {tally.queries} judged queries, where "
        f"{EXPECTED_PRECISION:.0%} are expected; {direction} it from {current:.2f} to {suggested:.2f}"
    )


def _changed(current: WeightTable, suggested: Mapping[str, float], now: datetime) -> WeightTable:
    if not suggested:
        return current
    return WeightTable.fixed(
        {**current.weights, **suggested},
        by_intent=current.by_intent,
        reason="advice of the formula",
        made_at=now,
    )


def _clamp(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))
