"""Guardrails for advisors: limit a proposed table to a small safe step, and check what speaks against it.

Only the proportions of weights matter to a ranking, so all limits are read with the heaviest backend as 1.
A proposal that turns the order round therefore arrives over several changes: first the lighter backends come
up to the heaviest, then another one leads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import TypeAlias

from composable_memory_feedback.advice.proposal import AdviceLimits, Objection, Proposal, Verdict
from composable_memory_feedback.golden import GoldenComparison
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import (
    SAME,
    IntentKind,
    WeightTable,
    are_same,
    kinds_of,
    same_proportions,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

Row: TypeAlias = dict[str, float]
"""A weight per backend, for questions of one kind or for all."""


DECIMALS = 4
"""Weights are rounded to so many decimals; less changes no ranking that anyone could tell apart."""
HARDLY = 10.0**-DECIMALS
"""Weights that differ by less are left as they are."""
MOST = 1e9
"""No proportion is taken to be larger, so that no division overflows."""
MOST_WORTH_JUDGING = 10_000
"""A gain that it takes more judged queries than these to see is none to wait for."""


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
    Others than `backends` are left out.
    """
    notes: list[str] = []
    clamp = _Clamp(table=table, current=current, limits=limits, backends=tuple(backends), notes=notes)
    weights = clamp.row(None)
    rows = {kind: clamp.row_of_kind(kind, samples) for kind in kinds_of(table, current)}
    by_intent = {kind: row for kind, row in rows.items() if row is not None and not are_same(row, weights)}
    result = replace(table, weights=weights, by_intent=by_intent)
    if same_proportions(result, current, backends=backends):
        result = current
    return Clamped(table=result, adjustments=tuple(notes))


def check(
    proposal: Proposal,
    *,
    limits: AdviceLimits,
    golden: GoldenComparison | None,
    backends: Sequence[str] | None = None,
    adjustments: Sequence[str] = (),
) -> Verdict:
    """Return what speaks against adopting a proposal that was clamped to one step, the gravest first.

    The expected gain must be above 0 with its whole interval, of the step or of all of the way that it leads,
    whoever adopts it. `backends` are those the proposal was clamped for, by default all that either table
    names. `golden` is None where there are no golden questions.
    """
    backends = backends or sorted({*proposal.current.weights, *proposal.table.weights})
    objections = [*_no_change(proposal, backends)]
    if not objections:
        objections += _too_few(proposal, limits)
        objections += _no_gain(proposal)
        objections += _below_floor(golden, limits)
    return Verdict(objections=tuple(objections), adjustments=tuple(adjustments))


# --- one step -----------------------------------------------------------------------------------------------


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
        return self.current.proportions(self.backends, kind) if kind in self.current.by_intent else None

    def row(self, kind: IntentKind | None) -> Row:
        """Return the weights after one step for questions of a kind."""
        wanted = self.table.proportions(self.backends, kind)
        present = self.current.proportions(self.backends, kind)
        if not any(wanted.values()):
            if any(present.values()):
                self.notes.append(
                    f"every weight{_of(kind)} was 0, which proposes nothing; they stay as they are"
                )
            return present
        if not any(present.values()):
            present = dict.fromkeys(self.backends, 1.0)
        stepped = _step(wanted, present, self.limits)
        self.notes.extend(self._cuts(kind, wanted, present, stepped))
        return stepped

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


def _of(kind: IntentKind | None) -> str:
    return "" if kind is None else f" for {kind} questions"


# --- what speaks against it ---------------------------------------------------------------------------------


def _no_change(proposal: Proposal, backends: Sequence[str]) -> Iterator[Objection]:
    if same_proportions(proposal.table, proposal.current, backends=backends):
        because = f" ({proposal.notes[0]})" if proposal.notes else ""
        yield Objection(code="no-change", text=f"it ranks as the current weights do{because}; keep them")


def _too_few(proposal: Proposal, limits: AdviceLimits) -> Iterator[Objection]:
    missing = limits.min_samples - proposal.sample_size
    if missing > 0:
        text = f"{proposal.sample_size} judged queries of {limits.min_samples}; judge {missing} more"
        yield Objection(code="too-few-samples", text=text)


def _no_gain(proposal: Proposal) -> Iterator[Objection]:
    if proposal.gain is None:
        text = "its gain is unknown, for no judged query could be replayed; judge some queries first"
        yield Objection(code="no-gain", text=text)
    elif not _gains(proposal.gain, proposal.destination_gain):
        yield Objection(
            code="no-gain", text=_doubt(proposal.gain, proposal.destination_gain, proposal.sample_size)
        )
    for kind, gain in sorted(proposal.gain_by_intent.items()):
        if gain.high < 0.0:
            text = f"{kind} questions would lose, {_said(gain)}; propose weights of their own for them"
            yield Objection(code="no-gain", text=text)


def _gains(step: Interval, way: Interval | None) -> bool:
    """Return whether a step surely gains, or does not surely lose and all of its way surely gains.

    A step is cut so short that hundreds of judged queries may not prove it. On a plateau it even changes no
    ranking, and only several steps together do. Written so that NaN is no gain.
    """
    return step.low > 0.0 or (way is not None and step.high >= 0.0 and way.low > 0.0)


def _doubt(step: Interval, way: Interval | None, samples: int) -> str:
    """Say which gain is not sure, and how many judged queries would make it so if it is what it seems."""
    if way is not None and way.low > 0.0:
        lost = f"the next step would lose, {_said(step)}, though all of the way gains {_said(way)}"
        return f"{lost}; try all of it with `cmem experiment start`"
    gain = way or step
    doubt = f"the expected gain of {_said(gain)} may be nothing or a loss"
    if not gain.mean > 0.0:
        return f"{doubt}; nothing tells that other weights are better, so keep the current ones"
    wanted = samples * ((gain.mean - gain.low) / gain.mean) ** 2
    if not wanted < MOST_WORTH_JUDGING:
        return f"{doubt}; over {MOST_WORTH_JUDGING:,} judged queries would have to tell, so keep the weights"
    return f"{doubt}; about {max(1, ceil(wanted - samples))} more judged queries would tell"


def _below_floor(golden: GoldenComparison | None, limits: AdviceLimits) -> Iterator[Objection]:
    if golden is None or not golden.falls_by_more_than(limits.golden_tolerance):
        return
    current, proposed = golden.current, golden.proposed
    worst = ", ".join(golden.worse[:3]) + (", ..." if len(golden.worse) > 3 else "")
    text = (
        f"golden questions fall from nDCG {current.ndcg:.4f} to {proposed.ndcg:.4f}"
        f" and from recall {current.recall:.4f} to {proposed.recall:.4f}"
        f" (worse: {worst or 'none by nDCG'}); look at these questions, or allow it with golden_tolerance"
    )
    yield Objection(code="golden-floor", text=text)


def _said(interval: Interval) -> str:
    return f"nDCG {interval.mean:+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]"
