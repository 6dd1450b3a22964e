"""Rank logged queries as they were and under a change, and score both by what is known."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from composable_memory_feedback.advice.estimating import Comparison, Imputation, Rankings, compare
from composable_memory_feedback.advice.evidence import Case
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.logged.logged_query import LoggedQuery, Ranker, RankingPolicy
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay.report import (
    GateVerdict,
    Judged,
    PolicyChange,
    QueryReplay,
    ReplayReport,
    compared,
)
from composable_memory_feedback.weights import IntentKind

LEAST_CASES = 10
"""An interval over fewer judged queries says nothing that a gate could stand on."""
_SLACK = 100
"""So many more queries are gathered before the less important ones are let go."""
ALLOWANCE = 0.5
"""How far what unjudged results are estimated to contribute may be wrong, as a share of it."""
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
        weights=weights,
        fusion=change.fusion or policy.fusion,
        dedup=change.dedup or policy.dedup,
        dropped=policy.dropped | change.dropped,
        min_score=policy.min_score if change.min_score is None else change.min_score,
        calibration=change.calibration or policy.calibration,
    )


def replay(
    queries: Iterable[LoggedQuery | Case], change: PolicyChange, *, ranker: Ranker, k: int = 10, keep: int
) -> ReplayReport:
    """Rank logged queries anew, as they were and under a change, and compare.

    Both rankings come from the ranker, so that a query that was served from two tables is compared with what
    its policy says and not with the mixture that was shown. Those that come as a case are scored. The queries
    are taken one by one and may be more than fit into memory: the report holds only `keep` of those that
    change, the most important first.

    Raises:
        FeedbackError: The change names a backend that none of the queries asked.
    """
    judged_ones: list[tuple[Case, QueryReplay]] = []
    found: list[QueryReplay] = []
    backends: set[str] = set()
    total = changes = 0
    changes_nothing = change == PolicyChange()
    for item in queries:
        query = item.query if isinstance(item, Case) else item
        backends.update(query.backends)
        total += 1
        if changes_nothing and not isinstance(item, Case):
            continue
        one = _compare(query, change, ranker, k)
        changes += one.is_changed
        if isinstance(item, Case):
            judged_ones.append((item, one))
        elif one.is_changed:
            found.append(one)
            if len(found) > 2 * keep + _SLACK:
                found = by_importance(found)[:keep]
    _refuse_strangers(backends, change)
    judged = None
    if judged_ones:
        judged_ones.sort(key=lambda one: one[0].query.at)
        cases = [case for case, _ in judged_ones]
        pairs = [(one.before, one.after) for _, one in judged_ones]
        scores = compare(cases, pairs, imputation=Imputation(cases, ranker), k=k)
        judged = _judged(cases, scores, _coverage(cases, pairs))
        scored = zip(judged_ones, scores.before.tolist(), scores.after.tolist(), strict=True)
        found += [replace(one, ndcg_before=before, ndcg_after=after) for (_, one), before, after in scored]
    return ReplayReport(
        change=change,
        k=k,
        total=total,
        changed=changes,
        queries=tuple(by_importance(found)[:keep]),
        judged=judged,
    )


def by_importance(queries: Iterable[QueryReplay]) -> list[QueryReplay]:
    """Return the queries that change: first by how much nDCG does, then by how many results go."""
    return sorted((one for one in queries if one.is_changed), key=_importance)


def _importance(one: QueryReplay) -> tuple[float, float, float, float]:
    gain = (one.ndcg_after or 0.0) - (one.ndcg_before or 0.0)
    return -abs(gain), one.overlap, one.kendall, -one.query.at.timestamp()


def gate(
    cases: Sequence[Case],
    baseline: PolicyChange,
    candidate: PolicyChange,
    *,
    ranker: Ranker,
    k: int = 10,
    tolerance: float = 0.0,
) -> GateVerdict:
    """Return whether a candidate may follow a baseline: not if the 95 % interval reaches below -`tolerance`.

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
    backends = {one for case in cases for one in case.query.backends}
    for change in (baseline, candidate):
        _refuse_strangers(backends, change)
    pairs = []
    for case in cases:
        before, after = (ranker(case.query, changed(case.query, one)) for one in (baseline, candidate))
        pairs.append((before[:k], after[:k]))
    found = compare(cases, pairs, imputation=Imputation(cases, ranker), k=k)
    difference, coverage = found.interval(allowance=ALLOWANCE), _coverage(cases, pairs)
    passed = difference.low >= -tolerance - TOLERANCE
    return GateVerdict(
        passed=passed,
        difference=difference,
        cases=len(cases),
        reason=_reason(passed, difference, len(cases), tolerance) + _estimated(coverage),
        coverage=coverage,
    )


def _refuse_strangers(known: Collection[str], change: PolicyChange) -> None:
    strangers = sorted(change.dropped.difference(known)) if known else []
    if strangers:
        raise FeedbackError(
            "no query in the log asked this backend",
            subject=", ".join(strangers),
            advice=f"the log knows {', '.join(sorted(known))}",
        )


def _coverage(cases: Sequence[Case], pairs: Sequence[Rankings]) -> float:
    """Return the share of what stands there after a change that was judged."""
    known = [
        sum(any(key in case.evidence for key in hit.keys) for hit in after) / len(after) if after else 1.0
        for case, (_, after) in zip(cases, pairs, strict=True)
    ]
    return sum(known) / len(known)


def _compare(query: LoggedQuery, change: PolicyChange, ranker: Ranker, k: int) -> QueryReplay:
    policy = changed(query, change)
    before = tuple(ranker(query, query.policy)[:k])
    after = before if policy == query.policy else tuple(ranker(query, policy)[:k])
    return compared(query, before, after)


def _judged(cases: Sequence[Case], found: Comparison, coverage: float) -> Judged:
    total = float(found.weights.sum())
    places = {kind: [at for at, case in enumerate(cases) if case.query.intent is kind] for kind in IntentKind}
    return Judged(
        queries=len(cases),
        effective=total**2 / float((found.weights**2).sum()),
        ndcg_before=float(found.weights @ found.before) / total,
        ndcg_after=float(found.weights @ found.after) / total,
        difference=found.interval(allowance=ALLOWANCE),
        coverage=coverage,
        by_intent={kind: found.interval(own, allowance=ALLOWANCE) for kind, own in places.items() if own},
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
