"""Guardrails for advisors: what speaks against adopting a proposal."""

from collections.abc import Iterator, Sequence
from math import ceil

from composable_memory_feedback.advice.proposal import AdviceLimits, Objection, Proposal
from composable_memory_feedback.golden import GoldenComparison
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import same_proportions

MOST_WORTH_JUDGING = 10_000
"""A gain that it takes more judged queries than these to see is none to wait for."""


def check(
    proposal: Proposal,
    *,
    limits: AdviceLimits,
    golden: GoldenComparison | None,
    backends: Sequence[str] | None = None,
) -> tuple[Objection, ...]:
    """Return what speaks against adopting a proposal that was clamped to one step, the gravest first.

    The expected gain must be above 0 with its whole interval, of the step or of all of the way that it leads,
    whoever adopts it. `backends` are those the proposal was clamped for, by default all that either table
    names. `golden` is None where there are no golden questions.
    """
    backends = backends or sorted({*proposal.current.weights, *proposal.table.weights})
    if same_proportions(proposal.table, proposal.current, backends=backends):
        because = f" ({proposal.notes[0]})" if proposal.notes else ""
        text = f"it ranks as the current weights do{because}; keep them"
        return (Objection(code="no-change", text=text),)
    found = []
    if (missing := limits.min_samples - proposal.sample_size) > 0:
        text = f"{proposal.sample_size} judged queries of {limits.min_samples}; judge {missing} more"
        found.append(Objection(code="too-few-samples", text=text))
    return (*found, *_no_gain(proposal), *_below_floor(golden, limits))


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
