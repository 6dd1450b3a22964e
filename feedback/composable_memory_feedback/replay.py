"""Replays logged queries unchanged and with a change: how results move, and what judgements say about it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from composable_memory_feedback.advice.estimating import Rankings, compare, worths_of
from composable_memory_feedback.advice.evidence import Case
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit, Ranker, RankingPolicy
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import SAME, IntentKind, WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

LEAST_CASES = 10
"""An interval over fewer judged queries is no basis for a gate."""
_SLACK = 100
"""How many more queries to collect before dropping the less important ones."""
ALLOWANCE = 0.5
"""How far the estimated contribution of unjudged results may be wrong, as a share of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """A change to the logged policy; None leaves a part as it was.

    `table` gives every backend its weight for the kind of the question. `dropped` names more backends to
    treat as if they had not answered. `calibration` is a method for the scores of all backends.
    """

    table: WeightTable | None = None
    fusion: str | None = None
    dedup: str | None = None
    dropped: frozenset[str] = frozenset()
    min_score: float | None = None
    calibration: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A result that has another rank after a change; ranks count from 1, None is outside the top k."""

    hit: RankedHit
    before: int | None
    after: int | None

    @property
    def kind(self) -> Literal["up", "down", "in", "out"]:
        """Return the direction of the move."""
        if self.before is None:
            return "in"
        if self.after is None:
            return "out"
        return "up" if self.after < self.before else "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReplay:
    """One query before and after a change, cut to the top k.

    `moves` are in the order after the change, results that left come last. The nDCG values are None if the
    query was not judged.
    """

    query: LoggedQuery
    after: tuple[RankedHit, ...]
    moves: tuple[Move, ...]
    ndcg_before: float | None = None
    ndcg_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the judgements say about a change; means and differences are of nDCG.

    `coverage` is the share of the top k after the change that was judged; the rest is estimated.
    """

    queries: int
    ndcg_before: float
    ndcg_after: float
    difference: Interval
    coverage: float
    by_intent: Mapping[IntentKind, Interval] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Logged queries with a change; `judged` is None if none of them was judged.

    Of `total` queries that are complete in the log, the top k of `changed` ones changed; `queries` has those
    that were to be kept. `not_reproduced` are the traces of queries whose unchanged ranking differs from the
    logged one. `incomplete` counts, by reason, what could not be used.
    """

    change: PolicyChange
    k: int
    total: int
    changed: int
    queries: tuple[QueryReplay, ...]
    judged: Judged | None = None
    not_reproduced: tuple[str, ...] = ()
    incomplete: Mapping[str, int] = field(default_factory=dict)

    @property
    def reproduced(self) -> int:
        """Return how many queries gave the logged ranking again."""
        return self.total - len(self.not_reproduced)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """Whether a candidate may replace a baseline: the judgements of it, and the reason in words."""

    passed: bool
    judged: Judged
    reason: str


def changed(query: LoggedQuery, change: PolicyChange) -> RankingPolicy:
    """Return the policy of a query with a change applied."""
    policy = query.policy if change.table is None else query.under(change.table)
    return replace(
        policy,
        fusion=change.fusion or policy.fusion,
        dedup=change.dedup or policy.dedup,
        dropped=policy.dropped | change.dropped,
        min_score=policy.min_score if change.min_score is None else change.min_score,
        calibration=change.calibration or policy.calibration,
    )


def replay(
    queries: Iterable[LoggedQuery | Case], change: PolicyChange, *, ranker: Ranker, k: int = 10, keep: int
) -> ReplayReport:
    """Rank logged queries again, unchanged and with a change, and compare.

    Both rankings come from the ranker, so that a query served from two tables is compared with what its
    policy says, not with the interleaved list that was shown. Queries given as a case are scored. The queries
    are taken one by one and may not fit into memory: the report keeps only the `keep` most important ones
    that change.

    Raises:
        FeedbackError: The change names a backend that none of the queries asked.
    """
    cases: list[Case] = []
    pairs: list[Rankings] = []
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
        policy = changed(query, change)
        before = ranker(query, query.policy)[:k]
        after = before if policy == query.policy else ranker(query, policy)[:k]
        if isinstance(item, Case):
            cases.append(item)
            pairs.append((before, after))
        elif (one := compared(query, before, after)).moves:
            changes += 1
            found.append(one)
            if len(found) > 2 * keep + _SLACK:
                found = by_importance(found)[:keep]
    _refuse_unknown_backends(backends, change)
    judged = None
    if cases:
        order = sorted(range(len(cases)), key=lambda at: cases[at].query.at)
        judged, scored = _judged([cases[at] for at in order], [pairs[at] for at in order], ranker, k)
        found += scored
        changes += len(scored)
    return ReplayReport(
        change=change,
        k=k,
        total=total,
        changed=changes,
        queries=tuple(by_importance(found)[:keep]),
        judged=judged,
    )


def compared(query: LoggedQuery, before: Sequence[RankedHit], after: Sequence[RankedHit]) -> QueryReplay:
    """Compare two rankings of a query; results are the same if they share a key.

    A result may be represented by another of its duplicates, so its own key is tried before the others'.
    """
    came_from = _index_before([one.keys for one in before], [one.keys for one in after])
    return QueryReplay(
        query=query,
        after=tuple(after),
        moves=tuple(_moves(before, after, came_from)),
    )


def by_importance(queries: Iterable[QueryReplay]) -> list[QueryReplay]:
    """Return the queries that change: by the change of nDCG, then by the number of results that move."""

    def importance(one: QueryReplay) -> tuple[float, int, float]:
        gain = (one.ndcg_after or 0.0) - (one.ndcg_before or 0.0)
        return -abs(gain), -len(one.moves), -one.query.at.timestamp()

    return sorted((one for one in queries if one.moves), key=importance)


def gate(
    cases: Sequence[Case],
    baseline: PolicyChange,
    candidate: PolicyChange,
    *,
    ranker: Ranker,
    k: int = 10,
    tolerance: float = 0.0,
) -> GateVerdict:
    """Return whether a candidate may replace a baseline: not if the 95 % interval reaches below -`tolerance`.

    `tolerance` is in nDCG. A candidate that ranks like the baseline passes.

    Raises:
        FeedbackError: There are fewer than `LEAST_CASES` judged queries, or none asked a backend that a
        change
            names.
    """
    if len(cases) < LEAST_CASES:
        raise FeedbackError(
            "too few judged queries for a gate",
            subject=f"{len(cases)} of at least {LEAST_CASES}",
            advice="run `cmem feedback evaluate`, or read more of the log",
        )
    backends = {one for case in cases for one in case.query.backends}
    for change in (baseline, candidate):
        _refuse_unknown_backends(backends, change)
    pairs = []
    for case in cases:
        before, after = (ranker(case.query, changed(case.query, one)) for one in (baseline, candidate))
        pairs.append((before[:k], after[:k]))
    judged, _ = _judged(cases, pairs, ranker, k)
    passed = judged.difference.low >= -tolerance - SAME
    return GateVerdict(passed=passed, judged=judged, reason=_reason(passed, judged, tolerance))


def _index_before(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> dict[int, int]:
    """Map the index of each common result after to its index before, given the keys of results."""
    free = dict(enumerate(before))
    found: dict[int, int] = {}

    def pair(place: int, old: int | None) -> None:
        if old is not None:
            found[place] = old
            del free[old]

    stood = {keys[0]: at for at, keys in enumerate(before)}
    for place, keys in enumerate(after):
        pair(place, stood.pop(keys[0], None))
    for place, keys in enumerate(after):
        if place not in found:
            pair(place, next((at for at, old in free.items() if not set(old).isdisjoint(keys)), None))
    return found


def _moves(
    before: Sequence[RankedHit], after: Sequence[RankedHit], came_from: dict[int, int]
) -> Iterator[Move]:
    """Yield the moved results in the order after, then those that left in the order before."""
    for place, hit in enumerate(after):
        old = came_from.get(place)
        if old != place:
            yield Move(hit=hit, before=None if old is None else old + 1, after=place + 1)
    stayed = set(came_from.values())
    for place, hit in enumerate(before):
        if place not in stayed:
            yield Move(hit=hit, before=place + 1, after=None)


def _refuse_unknown_backends(known: Collection[str], change: PolicyChange) -> None:
    strangers = sorted(change.dropped.difference(known)) if known else []
    if strangers:
        raise FeedbackError(
            "no query in the log asked this backend",
            subject=", ".join(strangers),
            advice=f"the log knows {', '.join(sorted(known))}",
        )


def _judged(
    cases: Sequence[Case], pairs: Sequence[Rankings], ranker: Ranker, k: int
) -> tuple[Judged, list[QueryReplay]]:
    """Return what the judgements say about a change, and the queries that it changes with their scores."""
    found = compare(cases, pairs, worths=worths_of(cases, ranker), k=k)
    total = float(found.weights.sum())
    judged = Judged(
        queries=len(cases),
        ndcg_before=float(found.weights @ found.before) / total,
        ndcg_after=float(found.weights @ found.after) / total,
        difference=found.interval(allowance=ALLOWANCE),
        coverage=_coverage(cases, pairs),
        by_intent=found.by_kind(allowance=ALLOWANCE),
    )
    scored = [
        replace(compared(case.query, *pair), ndcg_before=before, ndcg_after=after)
        for case, pair, before, after in zip(
            cases, pairs, found.before.tolist(), found.after.tolist(), strict=True
        )
    ]
    return judged, [one for one in scored if one.moves]


def _coverage(cases: Sequence[Case], pairs: Sequence[Rankings]) -> float:
    """Return the share of the results after a change that was judged."""
    known = [
        sum(any(key in case.evidence for key in hit.keys) for hit in after) / len(after) if after else 1.0
        for case, (_, after) in zip(cases, pairs, strict=True)
    ]
    return sum(known) / len(known)


def _reason(passed: bool, judged: Judged, tolerance: float) -> str:
    difference, unknown = judged.difference, 1.0 - judged.coverage
    said = (
        f"nDCG changes by {difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
        f" over {judged.queries} judged queries"
    )
    if passed:
        said += f"; the lower bound is not below {-tolerance or 0.0:g}"
    elif difference.high < 0.0:
        said += "; it is worse, so keep the baseline"
    else:
        said += f"; a loss beyond {tolerance:g} cannot be ruled out, judge more queries or keep the baseline"
    return said + (
        f" ({unknown:.0%} of its results are not judged, but estimated)" if unknown > 0.005 else ""
    )
