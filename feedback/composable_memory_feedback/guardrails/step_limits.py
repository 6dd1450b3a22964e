"""Clamp a proposed table to one small safe step from the current one (pure)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from composable_memory_feedback.advice.proposal import AdviceLimits
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.weights import SAME, WeightTable, are_same, kinds_of, same_proportions
from composable_memory_ops_logs.quick_dataclass import dataclass

Row: TypeAlias = dict[str, float]
"""A weight per backend, for questions of one kind or for all."""


DECIMALS = 4
"""Weights are rounded to so many decimals; less changes no ranking that anyone could tell apart."""
HARDLY = 10.0**-DECIMALS
"""Weights that differ by less are left as they are."""
MOST = 1e9
"""No proportion is taken to be larger, so that no division overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamped:
    """A table within the limits, with the heaviest weight 1, and what was cut down for that, in words.

    `table` is the current one itself where nothing is left of a proposal.
    """

    table: WeightTable
    adjustments: tuple[str, ...] = ()


def clamp_steps(
    table: WeightTable,
    *,
    current: WeightTable,
    limits: AdviceLimits,
    backends: Sequence[str],
    samples: Mapping[IntentKind, int] | None = None,
) -> Clamped:
    """Return the nearest table that is one allowed step from the current one, over all kinds of questions.

    No weight of `backends` moves by more than `max_step`, and none falls below `min_weight`, or below where
    it stands if that is lower already: a weight of 0 that a person set is only raised by a proposal that does
    so. A row of which every weight is 0 proposes nothing; where every current weight is 0, steps count from
    equal weights. With `samples`, a kind with fewer than `min_intent_samples` keeps the weights it has.
    Backends that are not in `backends` keep their proportion; one that the current table does not know
    either is left out.
    """
    notes = [
        f"{one}: left out, it is no backend of this memory" for one in _strangers(table, current, backends)
    ]
    clamp = _Clamp(table=table, current=current, limits=limits, backends=tuple(backends), notes=notes)
    weights = clamp.row(None)
    rows = {kind: clamp.row_of_kind(kind, samples) for kind in kinds_of(table, current)}
    by_intent = {kind: row for kind, row in rows.items() if row is not None and not are_same(row, weights)}
    result = replace(table, weights=weights, by_intent=by_intent)
    if same_proportions(result, current, backends=backends):
        result = current
    return Clamped(table=result, adjustments=tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clamp:
    """Steps from the current weights towards the proposed ones, row by row, and notes what it cuts."""

    table: WeightTable
    current: WeightTable
    limits: AdviceLimits
    backends: tuple[str, ...]
    notes: list[str]

    def row_of_kind(self, kind: IntentKind, samples: Mapping[IntentKind, int] | None) -> Row | None:
        """Return the weights of a kind; with too few samples those it has, None being the common ones."""
        found = self.limits.min_intent_samples if samples is None else samples.get(kind, 0)
        if kind not in self.table.by_intent or found >= self.limits.min_intent_samples:
            return self.row(kind)
        needed = self.limits.min_intent_samples
        self.notes.append(f"{kind} questions keep their weights: {found} of {needed} are judged")
        return self._kept_row(kind) if kind in self.current.by_intent else None

    def row(self, kind: IntentKind | None) -> Row:
        """Return the weights after one step for questions of a kind, with the backends that are not asked."""
        wanted = self.table.proportions(self.backends, kind)
        present = self.current.proportions(self.backends, kind)
        if not any(wanted.values()):
            if any(present.values()):
                self.notes.append(
                    f"every weight{_of(kind)} was 0, which proposes nothing; they stay as they are"
                )
            return self._kept_row(kind)
        if not any(present.values()):
            present = dict.fromkeys(self.backends, 1.0)
        stepped = _step(wanted, present, self.limits)
        self.notes.extend(self._cuts(kind, wanted, present, stepped))
        return stepped | self._others(kind)

    def _kept_row(self, kind: IntentKind | None) -> Row:
        """Return the current weights for questions of a kind, the heaviest of `backends` as 1."""
        return self.current.proportions(self.backends, kind) | self._others(kind)

    def _others(self, kind: IntentKind | None) -> Row:
        named = {one for row in (self.current.weights, *self.current.by_intent.values()) for one in row}
        heaviest = max((self.current.of(one, kind) for one in self.backends), default=0.0) or 1.0
        return {
            one: min(MOST, self.current.of(one, kind) / heaviest)
            for one in sorted(named.difference(self.backends))
        }

    def _cuts(self, kind: IntentKind | None, wanted: Row, present: Row, stepped: Row) -> Iterator[str]:
        for one in self.backends:
            if abs(wanted[one] - stepped[one]) < HARDLY:
                continue
            change = f"{one}{_of(kind)}: {stepped[one]:.3g} rather than {wanted[one]:.3g}"
            if abs(abs(stepped[one] - present[one]) - self.limits.max_step) < SAME:
                yield f"{change}; a weight moves by at most {self.limits.max_step:g} at a time"
            elif stepped[one] > wanted[one] and stepped[one] <= self.limits.min_weight:
                yield f"{change}; every backend keeps at least {self.limits.min_weight:g} of the heaviest"
            else:
                yield f"{change}; the heaviest weight is 1 before and after"


def _step(wanted: Row, present: Row, limits: AdviceLimits) -> Row:
    """Return the allowed row that comes nearest to `wanted`; both have 1 as their largest, and so has it.

    The backend that leads is the one that is wanted most of those that a step can bring to 1. What is wanted
    is scaled so that this one stands at 1, which keeps the proportions of all that stays within its bounds.
    """
    bounds = {one: _bounds(weight, limits) for one, weight in present.items()}
    reaching = [one for one in present if bounds[one][1] >= 1.0]
    leader = max(reaching, key=lambda one: (wanted[one], present[one]))
    scale = min(MOST, 1.0 / wanted[leader]) if wanted[leader] > 1.0 / MOST else 1.0
    stepped = {one: _within(_near(wanted[one] * scale, present[one]), bounds[one]) for one in present}
    return stepped | {leader: 1.0}


def _near(wanted: float, present: float) -> float:
    """Round a weight, but leave one that hardly differs from the present one where it is."""
    return present if abs(wanted - present) < HARDLY else round(wanted, DECIMALS)


def _bounds(weight: float, limits: AdviceLimits) -> tuple[float, float]:
    """Return how low and how high a weight may go, rounded so that 0.7 - 0.2 is 0.5."""
    low = max(weight - limits.max_step, min(weight, limits.min_weight))
    high = min(1.0, weight + limits.max_step)
    return round(low, 12), round(high, 12)


def _within(value: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return max(low, min(high, value))


def _strangers(table: WeightTable, current: WeightTable, backends: Sequence[str]) -> list[str]:
    named = {one for row in (table.weights, *table.by_intent.values()) for one in row}
    return sorted(named.difference(backends, current.weights))


def _of(kind: IntentKind | None) -> str:
    return "" if kind is None else f" for {kind} questions"
