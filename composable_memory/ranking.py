"""Makes one ranking of several answers: calibration, merge, and depth that only ever appends (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from composable_memory.calibration import Calibration, calibrate
from composable_memory.entries import Seat
from composable_memory.interfaces import Capability
from composable_memory.merge import BackendList, Dedup, Fusion, Merged, merge
from composable_memory.types import BackendAnswer, SearchOptions
from composable_memory.weights import WeightTable

__all__ = ["MergePolicy", "Ranking", "depth_for", "rank"]


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
    rrf_k: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A merged list with the calibration that each backend's scores went through."""

    merged: Merged
    calibrations: Mapping[str, Calibration]


def depth_for(max_results: int, depth: int) -> int:
    """Return how many candidates to ask for: `depth`, doubled until it covers `max_results`."""
    while depth < max_results:
        depth *= 2
    return depth


def rank(
    answers: Sequence[BackendAnswer],
    seats: Mapping[str, Seat],
    *,
    weights: WeightTable,
    policy: MergePolicy,
    options: SearchOptions,
    min_depth: int,
) -> Ranking:
    """Rank what the backends found within the depth that `options` call for, tier by tier.

    `min_depth` is how deep they were asked. The first tier reads every list to `policy.depth`; each further
    one reads twice as deep and appends what it adds.
    """
    reached = policy.depth
    ranking = _tier(answers, seats, weights, policy, options, reached)
    while reached < min_depth:
        reached *= 2
        deeper = _tier(answers, seats, weights, policy, options, reached)
        ranking = _append(ranking, deeper, options.max_results)
    return ranking


def _tier(
    answers: Sequence[BackendAnswer],
    seats: Mapping[str, Seat],
    weights: WeightTable,
    policy: MergePolicy,
    options: SearchOptions,
    depth: int,
) -> Ranking:
    lists: list[BackendList] = []
    methods: dict[str, Calibration] = {}
    for answer in answers:
        if not answer.results:
            continue
        seat = seats[answer.backend_id]
        results = answer.results[:depth]
        calibrated, methods[answer.backend_id] = calibrate(
            [result.score for result in results],
            seat.entry.calibration,
            absolute=Capability.CALIBRATED in seat.capabilities,
        )
        lists.append(
            BackendList(
                backend_id=answer.backend_id,
                weight=weights[answer.backend_id],
                results=results,
                calibrated=calibrated,
            )
        )
    merged = merge(
        lists,
        fusion=policy.fusion,
        dedup=policy.dedup,
        max_results=options.max_results,
        min_score=options.min_score,
        rrf_k=policy.rrf_k,
    )
    return Ranking(merged=merged, calibrations=methods)


def _append(first: Ranking, deeper: Ranking, max_results: int) -> Ranking:
    """Keep the first ranking and append what only the deeper one has."""
    known = {result.key for result in first.merged.results}
    known.update(label.split(" ", 1)[1] for one in first.merged.attributions for label in one.merged_with)
    fresh = [
        (result, attribution)
        for result, attribution in zip(deeper.merged.results, deeper.merged.attributions, strict=True)
        if result.key not in known
    ][: max_results - len(first.merged.results)]
    merged = replace(
        deeper.merged,
        results=first.merged.results + tuple(result for result, _ in fresh),
        attributions=first.merged.attributions + tuple(attribution for _, attribution in fresh),
    )
    return Ranking(merged=merged, calibrations=deeper.calibrations)
