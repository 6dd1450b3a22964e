"""Ranks logged queries as they were and under a change, and scores both by what is known."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from composable_memory_feedback.advice.estimating import Comparison, Rankings, compare
from composable_memory_feedback.advice.evidence import Case
from composable_memory_feedback.advice.imputation import Imputation
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.logged import LoggedQuery, RankedHit, Ranker, RankingPolicy
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay.moves import way_between
from composable_memory_feedback.replay.values import (
    GateVerdict,
    Judged,
    PolicyChange,
    QueryReplay,
    ReplayReport,
)

__all__ = ["LEAST_CASES", "changed", "gate", "replay"]

LEAST_CASES = 10
"""An interval over fewer judged queries says nothing that a gate could stand on."""
TOLERANCE = 1e-9
"""Scores that differ by less are equal; it covers what floating point loses."""


def changed(query: LoggedQuery, change: PolicyChange) -> RankingPolicy:
    """Return the policy of a query with a change made to it."""
    policy = query.policy
    weights = dict(policy.weights)
    if change.table is not None:
        weights |= {one: change.table.of(one, query.intent) for one in query.backends}
    return replace(
        policy,
        weights=weights | dict(change.weights or {}),
        fusion=change.fusion or policy.fusion,
        dedup=change.dedup or policy.dedup,
        rrf_k=policy.rrf_k if change.rrf_k is None else change.rrf_k,
        dropped=policy.dropped | change.dropped,
    )


def replay(
    queries: Sequence[LoggedQuery],
    change: PolicyChange,
    *,
    ranker: Ranker,
    cases: Sequence[Case] = (),
    k: int = 10,
    pace: Callable[[], None] = lambda: None,
) -> ReplayReport:
    """Rank logged queries anew, as they were and under a change, and compare.

    Both rankings come from the ranker, so that a query that was served from two tables is compared with what
    its policy says and not with the mixture that was shown. `cases` may hold further queries; those among
    `queries` are scored. `pace` is called after each query and may raise to stop.

    Raises:
        FeedbackError: The change names a backend that none of the queries asked.
    """
    _refuse_strangers(queries, change)
    case_of = {(one.query.trace_id, one.query.query_id): one for one in cases}
    pairs: list[Rankings] = []
    for query in queries:
        pairs.append((ranker(query, query.policy)[:k], ranker(query, changed(query, change))[:k]))
        pace()
    at = [place for place, query in enumerate(queries) if (query.trace_id, query.query_id) in case_of]
    own = [case_of[queries[place].trace_id, queries[place].query_id] for place in at]
    scored = _scored(own, [pairs[place] for place in at], ranker, k) if own else None
    ndcgs = dict(zip(at, scored.ndcgs, strict=True)) if scored else {}
    compared = [
        _compare(*one, ndcgs.get(place)) for place, one in enumerate(zip(queries, pairs, strict=True))
    ]
    return ReplayReport(
        change=change, k=k, queries=tuple(compared), judged=_judged(scored) if scored else None
    )


def gate(
    cases: Sequence[Case],
    baseline: PolicyChange,
    candidate: PolicyChange,
    *,
    ranker: Ranker,
    k: int = 10,
    tolerance: float = 0.0,
) -> GateVerdict:
    """Say whether a candidate may follow a baseline: not if the 95 % interval reaches below -`tolerance`.

    `tolerance` is in nDCG. A candidate that ranks as the baseline does passes.

    Raises:
        FeedbackError: There are fewer than `LEAST_CASES` judged queries, or none asked a backend that a
            change names.
    """
    if len(cases) < LEAST_CASES:
        raise FeedbackError(
            "too few judged queries for a gate",
            subject=f"{len(cases)} of at least {LEAST_CASES}",
            advice="run `cmem feedback evaluate`, or read more of the log",
        )
    for change in (baseline, candidate):
        _refuse_strangers([case.query for case in cases], change)
    pairs = []
    for case in cases:
        before, after = (ranker(case.query, changed(case.query, one)) for one in (baseline, candidate))
        pairs.append((before[:k], after[:k]))
    scored = _scored(cases, pairs, ranker, k)
    difference, coverage = scored.comparison.interval(), scored.coverage
    passed = difference.low >= -tolerance - TOLERANCE
    return GateVerdict(
        passed=passed,
        difference=difference,
        cases=len(cases),
        reason=_reason(passed, difference, len(cases), tolerance) + _estimated(coverage),
        coverage=coverage,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """Judged queries before and after; `coverage` is the share of what stands there after that was judged."""

    cases: Sequence[Case]
    comparison: Comparison
    coverage: float

    @property
    def ndcgs(self) -> list[tuple[float, float]]:
        """Return the nDCG of each before and after."""
        return list(zip(self.comparison.before.tolist(), self.comparison.after.tolist(), strict=True))


def _refuse_strangers(queries: Iterable[LoggedQuery], change: PolicyChange) -> None:
    known = {one for query in queries for one in query.backends}
    strangers = sorted(change.backends - known) if known else []
    if strangers:
        raise FeedbackError(
            "no query in the log asked this backend",
            subject=", ".join(strangers),
            advice=f"the log knows {', '.join(sorted(known))}",
        )


def _scored(cases: Sequence[Case], pairs: Sequence[Rankings], ranker: Ranker, k: int) -> _Scored:
    comparison = compare(cases, pairs, imputation=Imputation(cases, ranker), k=k)
    known = [_known(case, after) for case, (_, after) in zip(cases, pairs, strict=True)]
    return _Scored(cases=cases, comparison=comparison, coverage=sum(known) / len(known))


def _known(case: Case, hits: Sequence[RankedHit]) -> float:
    """Return the share of results that were judged."""
    return sum(any(key in case.evidence for key in hit.keys) for hit in hits) / len(hits) if hits else 1.0


def _compare(query: LoggedQuery, pair: Rankings, ndcgs: tuple[float, float] | None) -> QueryReplay:
    before, after = tuple(pair[0]), tuple(pair[1])
    way = way_between(before, after)
    return QueryReplay(
        query=query,
        before=before,
        after=after,
        moves=way.moves,
        overlap=way.overlap,
        kendall=way.kendall,
        ndcg_before=ndcgs[0] if ndcgs else None,
        ndcg_after=ndcgs[1] if ndcgs else None,
    )


def _judged(scored: _Scored) -> Judged:
    found = scored.comparison
    total = float(found.weights.sum())
    places = {
        kind: [at for at, case in enumerate(scored.cases) if case.query.intent is kind] for kind in IntentKind
    }
    return Judged(
        queries=len(scored.cases),
        effective=total**2 / float((found.weights**2).sum()),
        ndcg_before=float(found.weights @ found.before) / total,
        ndcg_after=float(found.weights @ found.after) / total,
        difference=found.interval(),
        coverage=scored.coverage,
        by_intent={kind: found.interval(own) for kind, own in places.items() if own},
    )


def _reason(passed: bool, difference: Interval, cases: int, tolerance: float) -> str:
    said = (
        f"nDCG changes by {difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
        f" over {cases} judged queries"
    )
    if passed:
        return f"{said}; the lower bound is not below {-tolerance or 0.0:g}"
    if difference.high < 0.0:
        return f"{said}; it is worse, keep the baseline"
    return f"{said}; a loss beyond {tolerance:g} cannot be ruled out, judge more queries or keep the baseline"


def _estimated(coverage: float) -> str:
    return f" ({1.0 - coverage:.0%} of its results are not judged, but estimated)" if coverage < 0.995 else ""
