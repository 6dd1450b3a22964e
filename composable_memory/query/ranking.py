"""Makes one ranking of several answers: calibration, merge, depth that only appends, active weights."""

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
    """What ranks a query: a table, or for the time of an experiment the two tables that are compared.

    `set_aside` says why an adopted table is not in force.
    """

    table: WeightTable
    experiment: "Experiment | None" = None
    set_aside: str | None = None

    @property
    def version(self) -> str:
        """Return the version of the table."""
        return self.table.version


class LiveWeights:
    """Holds the weights in force; a query that is under way keeps those that it began with."""

    def __init__(self, table: WeightTable | Mapping[str, float]) -> None:
        fixed = table if isinstance(table, WeightTable) else WeightTable.fixed(table)
        self._now = ActiveWeights(table=fixed)
        self.lost: str | None = None
        """Why what was learnt could not be read yet, so that other weights are in force."""

    @property
    def now(self) -> ActiveWeights:
        """Return what is in force at this moment."""
        return self._now

    def put(self, weights: ActiveWeights) -> None:
        """Put other weights in force for all queries that begin from now on."""
        self._now = weights
        self.lost = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """How answers become one ranking.

    Every backend is asked for `depth` candidates, whatever the caller wants, so that the first k of a longer
    answer are the answer for k; for more than `depth` results the depth doubles, and what the deeper lists
    add comes after.
    """

    fusion: Fusion = Fusion.WEIGHTED
    dedup: Dedup = Dedup.NEAR
    depth: int = 24
    rrf_k: int = DEFAULT_RRF_K


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRule:
    """How the scores of one backend are brought to the common scale."""

    method: Calibration
    is_absolute: bool
    """Whether the backend promises absolute scores, which `Calibration.AUTO` then takes as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(Generic[T]):
    """A merged list with the calibration that each backend's scores went through."""

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
    """Rank what each backend `found` within the depth that `options` call for, tier by tier.

    `rules` and `weights` have an entry for every backend that found something. `min_depth` is how deep they
    were asked. The first tier reads every list to `policy.depth`; each further one reads twice as deep and
    appends what it adds. `is_near` compares texts; by default their snippets are.
    """

    def one_tier(depth: int, max_results: int | None) -> Ranking[T]:
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
        return one_tier(reached, options.max_results)
    # A tier that is cut before all are joined would let a later one go before what it left out.
    ranking = one_tier(reached, None)
    while reached < min_depth:
        reached *= 2
        ranking = _append(ranking, one_tier(reached, None))
    return _cut(ranking, options.max_results)


def is_weak(
    found: Mapping[str, Sequence[T]],
    rules: Mapping[str, CalibrationRule],
    *,
    weights: Mapping[str, float],
    policy: MergePolicy,
    hybrid: Set[str] = frozenset(),
) -> bool:
    """Return whether something was found, and nothing that matches the question well.

    Scores of a backend that only order its own list cannot tell: what it found counts as good. `hybrid` names
    the backends whose scores come from vectors as well as from words.
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
    is_telling = method is Calibration.IDENTITY
    return not is_telling or any(one.exact for one in results) or strength(sorted(calibrated)[::-1]) >= least


def _append(first: Ranking[T], deeper: Ranking[T]) -> Ranking[T]:
    """Keep the first ranking and append what only the deeper one has, with no better scores."""
    kept = list(first.merged.kept)
    ceiling = kept[-1].score if kept else 1.0
    known = {key for group in kept for key in group.keys}
    # A fact that was told already, and now stands behind its passage, is no reason to leave the passage out.
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
    """What holds for one query of one composite from its beginning to its end.

    `kind` is that of the question, and `weights` are those of each backend for it. `memory` is the mark of
    the memory, where several share one log.
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
    terms: QueryContext,
    options: SearchOptions,
    *,
    min_depth: int,
    trace_id: str,
) -> tuple[Ranking[MemorySearchResult], Interleaved | None]:
    """Rank under the weights in force, or draw from two rankings while an experiment compares tables."""
    found = {one.backend_id: one.results for one in answers}

    def ranked(weights: Mapping[str, float]) -> Ranking[MemorySearchResult]:
        return rank(
            found,
            terms.rules,
            weights=weights,
            policy=terms.policy,
            options=options,
            min_depth=min_depth,
        )

    experiment = terms.active_weights.experiment
    if experiment is None:
        return ranked(terms.weights), None
    a, b = terms.weights_of(experiment.a), terms.weights_of(experiment.b)
    seed = seed_of(trace_id, terms.query_id, experiment.id)
    draw = Interleaved(id=experiment.id, weights_a=a, weights_b=b, seed=seed)
    one, other = ranked(a), ranked(b)
    merged, drawn = interleave(one.merged, other.merged, draw, max_results=options.max_results)
    return replace(one, merged=merged), drawn
