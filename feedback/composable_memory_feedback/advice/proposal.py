"""Values of advice: what is proposed, how sure that is, the objections; and one safe step towards it.

Only the proportions of weights matter to a ranking, so all limits apply with the heaviest backend as 1. A
proposal that reverses the order therefore takes several changes: first the lighter backends come up to the
heaviest, then another one leads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from math import ceil
from typing import Literal, TypeAlias

from composable_memory_feedback.golden import GoldenComparison
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import IntentKind, WeightTable, are_same, kinds_of, same_proportions
from composable_memory_ops_logs.quick_dataclass import dataclass

Row: TypeAlias = dict[str, float]
"""A weight per backend, for questions of one kind or for all."""


DECIMALS = 4
"""Decimals of weights; smaller differences change no ranking noticeably."""
HARDLY = 10.0**-DECIMALS
"""Weights that differ by less are left as they are."""
MOST = 1e9
"""Upper limit of proportions, so that no division overflows."""

AdvisorName = Literal["statistical", "llm"]

ObjectionCode = Literal[
    "no-change",
    "too-few-samples",
    "no-gain",
    "golden-floor",
    "taken-back",
]

MOST_WORTH_JUDGING = 10_000
"""A gain that takes more judged queries to detect is not worth waiting for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceLimits:
    """The limits for advisors.

    Weights are normalised with the heaviest as 1: after every change each backend keeps at least
    `min_weight`, and none moves by more than `max_step`. A proposal needs `min_samples` judged queries, and
    `min_intent_samples` of a kind for weights of that kind. `golden_tolerance` is how far the golden score
    may fall.
    """

    min_weight: float = 0.1
    max_step: float = 0.2
    min_samples: int = 50
    min_intent_samples: int = 40
    golden_tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A table that an advisor proposes to replace the current one.

    `gain` is the expected change of nDCG at the requested depth, on queries that the proposal was not made
    from; None if nothing could be replayed. `destination` is where the advisor would go if the limits allowed
    it, with `table` the next step, and `destination_gain` the gain of going all the way; None if the table is
    already the destination.
    """

    advisor: AdvisorName
    current: WeightTable
    table: WeightTable
    sample_size: int
    made_at: datetime
    gain: Interval | None = None
    gain_by_intent: Mapping[IntentKind, Interval] = field(default_factory=dict)
    destination: WeightTable | None = None
    destination_gain: Interval | None = None
    notes: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reasons for single backends, from an advisor that gives any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """A reason why a proposal is not adopted."""

    code: ObjectionCode
    text: str


def clamp_steps(
    table: WeightTable, *, current: WeightTable, limits: AdviceLimits, backends: Sequence[str]
) -> WeightTable:
    """Return the nearest table that is one allowed step from the current one, for all kinds of questions.

    No weight of `backends` moves by more than `max_step`, and none falls below `min_weight`, or below its
    present value if that is already lower: a weight of 0 set by a person is only raised by a proposal that
    does so. A row with all weights 0 proposes nothing; if all current weights are 0, steps count from equal
    weights. Backends other than `backends` are left out. If nothing is left of a proposal, the current table
    itself is returned.
    """

    def stepped(kind: IntentKind | None) -> Row:
        wanted, present = (one.proportions(backends, kind) for one in (table, current))
        if not any(wanted.values()):
            return present
        return _step(wanted, present if any(present.values()) else dict.fromkeys(backends, 1.0), limits)

    weights = stepped(None)
    rows = {kind: stepped(kind) for kind in kinds_of(table, current)}
    by_intent = {kind: row for kind, row in rows.items() if not are_same(row, weights)}
    result = replace(table, weights=weights, by_intent=by_intent)
    return current if same_proportions(result, current, backends=backends) else result


def _step(wanted: Row, present: Row, limits: AdviceLimits) -> Row:
    """Return the allowed row that is nearest to `wanted`; the largest value of both, and of the result, is 1.

    Of the backends that a step can bring to 1, the one that is wanted most leads. The wanted row is scaled to
    have 1 there, which keeps the proportions of all that stays within its bounds.
    """
    bounds = {one: _bounds(weight, limits) for one, weight in present.items()}
    reaching = [one for one in present if bounds[one][1] >= 1.0]
    leader = max(reaching, key=lambda one: (wanted[one], present[one]))
    scale = min(MOST, 1.0 / wanted[leader]) if wanted[leader] > 1.0 / MOST else 1.0
    stepped = {}
    for one, (low, high) in bounds.items():
        aim = wanted[one] * scale
        # A weight that would hardly change is left as it is.
        aim = present[one] if abs(aim - present[one]) < HARDLY else round(aim, DECIMALS)
        stepped[one] = max(low, min(high, aim))
    return stepped | {leader: 1.0}


def _bounds(weight: float, limits: AdviceLimits) -> tuple[float, float]:
    """Return how low and how high a weight may go, rounded so that 0.7 - 0.2 is 0.5."""
    low = max(weight - limits.max_step, min(weight, limits.min_weight))
    high = min(1.0, weight + limits.max_step)
    return round(low, 12), round(high, 12)


def check(
    proposal: Proposal,
    *,
    limits: AdviceLimits,
    golden: GoldenComparison | None,
    backends: Sequence[str] | None = None,
) -> tuple[Objection, ...]:
    """Return the objections to a proposal that was clamped to one step, the most serious first.

    The whole interval of the expected gain must be above 0, of the step or of going all the way, whoever
    adopts it. `backends` are those the proposal was clamped for, by default all in either table. `golden` is
    None without golden questions.
    """
    backends = backends or sorted({*proposal.current.weights, *proposal.table.weights})
    if same_proportions(proposal.table, proposal.current, backends=backends):
        because = f" ({proposal.notes[0]})" if proposal.notes else ""
        text = f"it ranks like the current weights{because}; keep them"
        return (Objection(code="no-change", text=text),)
    found = []
    if (missing := limits.min_samples - proposal.sample_size) > 0:
        text = f"{proposal.sample_size} judged queries of {limits.min_samples}; judge {missing} more"
        found.append(Objection(code="too-few-samples", text=text))
    return (*found, *_no_gain(proposal), *_below_floor(golden, limits))


def _no_gain(proposal: Proposal) -> Iterator[Objection]:
    if proposal.gain is None:
        text = "its gain is unknown, because no judged query could be replayed; judge some queries first"
        yield Objection(code="no-gain", text=text)
    elif not _gains(proposal.gain, proposal.destination_gain):
        yield Objection(
            code="no-gain", text=_doubt(proposal.gain, proposal.destination_gain, proposal.sample_size)
        )
    for kind, gain in sorted(proposal.gain_by_intent.items()):
        if gain.high < 0.0:
            text = f"{kind} questions would lose, {_format(gain)}; propose separate weights for them"
            yield Objection(code="no-gain", text=text)


def _gains(step: Interval, way: Interval | None) -> bool:
    """Return whether a step surely gains, or does not surely lose and all of its way surely gains.

    A step is so short that hundreds of judged queries may not prove it. On a plateau it changes no ranking at
    all, and only several steps together do. Written so that NaN is no gain.
    """
    return step.low > 0.0 or (way is not None and step.high >= 0.0 and way.low > 0.0)


def _doubt(step: Interval, way: Interval | None, samples: int) -> str:
    """Say which gain is uncertain, and how many judged queries would make it certain if it is real."""
    if way is not None and way.low > 0.0:
        lost = f"the next step would lose {_format(step)}, although going all the way gains {_format(way)}"
        return f"{lost}; try the full change with `cmem experiment start`"
    gain = way or step
    doubt = f"the expected gain of {_format(gain)} may be nothing or a loss"
    if not gain.mean > 0.0:
        return f"{doubt}; there is no sign that other weights are better, so keep the current ones"
    wanted = samples * ((gain.mean - gain.low) / gain.mean) ** 2
    if not wanted < MOST_WORTH_JUDGING:
        return f"{doubt}; over {MOST_WORTH_JUDGING:,} judged queries are needed to tell, so keep the weights"
    return f"{doubt}; about {max(1, ceil(wanted - samples))} more judged queries would settle it"


def _below_floor(golden: GoldenComparison | None, limits: AdviceLimits) -> Iterator[Objection]:
    if golden is None or not golden.falls_by_more_than(limits.golden_tolerance):
        return
    current, proposed = golden.current, golden.proposed
    worst = ", ".join(golden.worse[:3]) + (", ..." if len(golden.worse) > 3 else "")
    text = (
        f"golden questions fall from nDCG {current.ndcg:.4f} to {proposed.ndcg:.4f}"
        f" and from recall {current.recall:.4f} to {proposed.recall:.4f}"
        f" (worse: {worst or 'none by nDCG'}); check these questions, or allow it with golden_tolerance"
    )
    yield Objection(code="golden-floor", text=text)


def _format(interval: Interval) -> str:
    return f"nDCG {interval.mean:+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]"
