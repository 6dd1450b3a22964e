"""Turns several answers into one ranking: calibration, merge, growing depth, active weights."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Generic

from composable_memory.query.calibration import STRONG, STRONG_HYBRID, Calibration, calibrate, strength
from composable_memory.query.fusion import DEFAULT_RRF_K, BackendList, Dedup, Fusion, Merged, T, merge
from composable_memory.query.interleaving import interleave, seed_of
from composable_memory.query.near_duplicates import are_near
from composable_memory.types import BackendAnswer, MemorySearchResult, SearchOptions
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs import Interleaved
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory_feedback.experiments import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveWeights:
    """What ranks a query: a weight table, or during an experiment the two tables being compared.

    `set_aside` says why an adopted table is not active.
    """

    table: WeightTable
    experiment: "Experiment | None" = None
    set_aside: str | None = None

    @property
    def version(self) -> str:
        """Return the version of the table."""
        return self.table.version


class LiveWeights:
    """Holds the active weights; a running query keeps those it began with."""

    def __init__(self, table: WeightTable | Mapping[str, float]) -> None:
        fixed = table if isinstance(table, WeightTable) else WeightTable.fixed(table)
        self._now = ActiveWeights(table=fixed)
        self.problem: str | None = None
        """Why the learnt weights could not be read, so that others are active; None if they could."""

    @property
    def now(self) -> ActiveWeights:
        """Return the active weights."""
        return self._now

    def put(self, weights: ActiveWeights) -> None:
        """Make other weights active for all queries that begin from now on."""
        self._now = weights
        self.problem = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """How answers are merged into one ranking.

    Every backend is asked for `depth` candidates, however many results are wanted, so that the first k of a
    longer answer are the answer for k. For more than `depth` results the depth doubles, and what the deeper
    lists add is appended.
    """

    fusion: Fusion = Fusion.WEIGHTED
    dedup: Dedup = Dedup.NEAR
    depth: int = 24
    rrf_k: int = DEFAULT_RRF_K


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRule:
    """How a backend's scores are calibrated."""

    method: Calibration
    is_absolute: bool
    """Whether the backend promises absolute scores, which `Calibration.AUTO` then takes as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(Generic[T]):
    """A merged list, with the calibration applied to each backend's scores."""

    merged: Merged[T]
    calibrations: Mapping[str, Calibration]


def depth_for(max_results: int, depth: int) -> int:
    """Return how many candidates to ask for: `depth`, doubled until it covers `max_results`."""
    while depth < max_results:
        depth *= 2
    return depth


def rank(
    found: Mapping[str, Sequence[T]],
    rules: Mapping[str, CalibrationRule],
    *,
    weights: Mapping[str, float],
    policy: MergePolicy,
    options: SearchOptions,
    min_depth: int,
    is_near: Callable[[T, T], bool] = are_near,
) -> Ranking[T]:
    """Rank what each backend `found` to the depth that `options` call for, tier by tier.

    `rules` and `weights` need an entry for every backend that found something. `min_depth` is the depth the
    backends were asked for. The first tier reads every list to `policy.depth`; each further one reads twice
    as deep and appends what it adds. `is_near` compares texts; by default it compares snippets.
    """

    def rank_tier(depth: int, max_results: int | None) -> Ranking[T]:
        lists: list[BackendList[T]] = []
        methods: dict[str, Calibration] = {}
        for backend_id, results in found.items():
            if results:
                rule, cut = rules[backend_id], results[:depth]
                calibrated, methods[backend_id] = calibrate(
                    [result.score for result in cut], rule.method, absolute=rule.is_absolute
                )
                weight = weights[backend_id]
                lists.append(
                    BackendList(backend_id=backend_id, weight=weight, results=cut, calibrated=calibrated)
                )
        merged = merge(
            lists,
            fusion=policy.fusion,
            dedup=policy.dedup,
            max_results=max_results,
            min_score=options.min_score,
            rrf_k=policy.rrf_k,
            is_near=is_near,
        )
        return Ranking(merged=merged, calibrations=methods)

    reached = policy.depth
    if reached >= min_depth:
        return rank_tier(reached, options.max_results)
    # Cutting a tier before all are joined would let a later tier go ahead of what was cut.
    ranking = rank_tier(reached, None)
    while reached < min_depth:
        reached *= 2
        ranking = _append(ranking, rank_tier(reached, None))
    return _cut(ranking, options.max_results)


def is_weak(
    found: Mapping[str, Sequence[T]],
    rules: Mapping[str, CalibrationRule],
    *,
    weights: Mapping[str, float],
    policy: MergePolicy,
    hybrid: Set[str] = frozenset(),
) -> bool:
    """Return whether results were found but none matches the question well.

    Scores that only order their own list cannot tell, so such a backend's results count as good. `hybrid`
    names the backends whose scores come from vectors as well as from words.
    """
    lists = [
        (rules[id_], results[: policy.depth], STRONG_HYBRID if id_ in hybrid else STRONG)
        for id_, results in found.items()
        if results and weights[id_] > 0.0
    ]
    return bool(lists) and not any(_has_strong(*one) for one in lists)


def _has_strong(rule: CalibrationRule, results: Sequence[T], least: float) -> bool:
    scores = [result.score for result in results]
    calibrated, method = calibrate(scores, rule.method, absolute=rule.is_absolute)
    is_absolute = method is Calibration.IDENTITY
    return not is_absolute or any(one.exact for one in results) or strength(sorted(calibrated)[::-1]) >= least


def _append(first: Ranking[T], deeper: Ranking[T]) -> Ranking[T]:
    """Append to the first ranking what only the deeper one has, with scores that are no higher."""
    kept = list(first.merged.kept)
    ceiling = kept[-1].score if kept else 1.0
    known = {key for group in kept for key in group.keys}
    # A fact already shown, which the deeper ranking joins to its passage, is no reason to drop the passage.
    known -= {
        one.result.key
        for one in deeper.merged.losers
        if one.reason == "overlap" and one.result.origin is not None
    }
    kept += [
        replace(group, score=min(group.score, ceiling))
        for group in deeper.merged.kept
        if known.isdisjoint(group.keys)
    ]
    return replace(deeper, merged=replace(deeper.merged, kept=tuple(kept)))


def _cut(ranking: Ranking[T], max_results: int) -> Ranking[T]:
    kept = ranking.merged.kept
    merged = replace(ranking.merged, kept=kept[:max_results], beyond=kept[max_results:])
    return replace(ranking, merged=merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """What stays the same during one query of one composite.

    `kind` is the kind of the question, and `weights` are those of each backend for it. `memory` is the id of
    the memory, for when several share one log.
    """

    query_id: str
    manager_id: str
    active_weights: ActiveWeights
    kind: IntentKind
    weights: Mapping[str, float]
    rules: Mapping[str, CalibrationRule]
    policy: MergePolicy
    memory: str | None = None

    def weights_of(self, table: WeightTable) -> dict[str, float]:
        """Return the weight that a table gives each backend for this kind of question."""
        return {backend_id: table.of(backend_id, self.kind) for backend_id in self.weights}


def rank_active(
    answers: Sequence[BackendAnswer],
    context: QueryContext,
    options: SearchOptions,
    *,
    min_depth: int,
    trace_id: str,
) -> tuple[Ranking[MemorySearchResult], Interleaved | None]:
    """Rank by the active weights; during an experiment, interleave the rankings of both tables."""
    found = {one.backend_id: one.results for one in answers}

    def ranked(weights: Mapping[str, float]) -> Ranking[MemorySearchResult]:
        return rank(
            found,
            context.rules,
            weights=weights,
            policy=context.policy,
            options=options,
            min_depth=min_depth,
        )

    experiment = context.active_weights.experiment
    if experiment is None:
        return ranked(context.weights), None
    a, b = context.weights_of(experiment.a), context.weights_of(experiment.b)
    seed = seed_of(trace_id, context.query_id, experiment.id)
    draw = Interleaved(id=experiment.id, weights_a=a, weights_b=b, seed=seed)
    one, other = ranked(a), ranked(b)
    merged, drawn = interleave(one.merged, other.merged, draw, max_results=options.max_results)
    return replace(one, merged=merged), drawn
