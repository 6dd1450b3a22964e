"""What a proposal says of each backend, in numbers and in a sentence a person can read (pure)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from composable_memory_feedback.advice.evidence import Case
from composable_memory_feedback.advice.score_matrix import vector_of
from composable_memory_feedback.advice.values import BackendAdvice
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import RELEVANT
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import WeightTable

__all__ = ["Belief", "advices"]

LEAST_CHANGE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Where the best weight of one backend lies, and the share of plausible tables that raise it."""

    plausible: Interval
    raised: float
    lowered: float


def advices(
    current: WeightTable,
    table: WeightTable,
    *,
    backends: Sequence[str],
    cases: Sequence[Case],
    beliefs: Mapping[tuple[IntentKind | None, str], Belief],
) -> Iterator[BackendAdvice]:
    """Yield what changes, first over all questions, then for each kind; weights with the heaviest as 1."""
    for kind in (None, *sorted(table.by_intent)):
        before, after = vector_of(current, backends, kind), vector_of(table, backends, kind)
        own = [case for case in cases if kind is None or case.query.intent is kind]
        for backend, old, new in zip(backends, before, after, strict=True):
            if abs(new - old) > LEAST_CHANGE:
                yield _advice(backend, kind, (old, new), own, beliefs.get((kind, backend)))


def _advice(
    backend: str,
    kind: IntentKind | None,
    change: tuple[float, float],
    cases: Sequence[Case],
    belief: Belief | None,
) -> BackendAdvice:
    old, new = change
    confidence = 0.0 if belief is None else belief.raised if new > old else belief.lowered
    return BackendAdvice(
        backend=backend,
        intent=kind,
        current=old,
        suggested=new,
        sample_size=len(cases),
        confidence=confidence,
        rationale=_sentence(kind, change, len(cases), belief),
        plausible=belief.plausible if belief else None,
        mean_precision=_precision(backend, cases),
    )


def _sentence(kind: IntentKind | None, change: tuple[float, float], count: int, belief: Belief | None) -> str:
    old, new = change
    where = f"{count} judged {kind} questions" if kind else f"{count} judged questions"
    text = f"{'raise' if new > old else 'lower'} it from {old:.2f} to {new:.2f}: over {where}"
    if belief is None:
        return f"{text} the rankings are better so"
    low, high = f"{belief.plausible.low:.2f}", f"{belief.plausible.high:.2f}"
    if low == high:
        return f"{text} the best weight is {low} (95 %, where the heaviest backend has 1)"
    return f"{text} the best weight lies between {low} and {high} (95 %)"


def _precision(backend: str, cases: Sequence[Case]) -> float | None:
    """Return the share of relevant ones among the judged results that were shown for a backend."""
    judged = [
        max(case.evidence[key].relevance for key in hit.keys if key in case.evidence) > RELEVANT
        for case in cases
        for hit in case.query.shown
        if hit.backend == backend and any(key in case.evidence for key in hit.keys)
    ]
    return sum(judged) / len(judged) if judged else None
