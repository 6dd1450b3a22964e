"""Makes one ranking of several answers: calibration, merge, and depth that only ever appends (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from composable_memory.query.calibration import Calibration, calibrate
from composable_memory.query.fusion import DEFAULT_RRF_K, BackendList, Dedup, Fusion, Merged, merge
from composable_memory.query.near_duplicates import NearTexts, TextComparison
from composable_memory.types import Attribution, BackendAnswer, SearchOptions

__all__ = ["CalibrationRule", "MergePolicy", "Ranking", "depth_for", "rank"]


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
    rules: Mapping[str, CalibrationRule],
    *,
    weights: Mapping[str, float],
    policy: MergePolicy,
    options: SearchOptions,
    min_depth: int,
    is_near: TextComparison | None = None,
) -> Ranking:
    """Rank what the backends found within the depth that `options` call for, tier by tier.

    `rules` and `weights` have an entry for every backend that found something. `min_depth` is how deep they
    were asked. The first tier reads every list to `policy.depth`; each further one reads twice as deep and
    appends what it adds. `is_near` compares texts; by default their snippets are.
    """
    one_tier = partial(_tier, answers, rules, weights, policy, options, is_near or NearTexts())
    reached = policy.depth
    if reached >= min_depth:
        return one_tier(reached, max_results=options.max_results)
    # A tier that is cut before all are joined would let a later one go before what it left out.
    ranking = one_tier(reached, max_results=None)
    while reached < min_depth:
        reached *= 2
        ranking = _append(ranking, one_tier(reached, max_results=None))
    return _cut(ranking, options.max_results)


def _tier(
    answers: Sequence[BackendAnswer],
    rules: Mapping[str, CalibrationRule],
    weights: Mapping[str, float],
    policy: MergePolicy,
    options: SearchOptions,
    is_near: TextComparison,
    depth: int,
    *,
    max_results: int | None,
) -> Ranking:
    lists: list[BackendList] = []
    methods: dict[str, Calibration] = {}
    for answer in answers:
        if not answer.results:
            continue
        rule = rules[answer.backend_id]
        results = answer.results[:depth]
        calibrated, methods[answer.backend_id] = calibrate(
            [result.score for result in results], rule.method, absolute=rule.is_absolute
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
        max_results=max_results,
        min_score=options.min_score,
        rrf_k=policy.rrf_k,
        is_near=is_near,
    )
    return Ranking(merged=merged, calibrations=methods)


def _append(first: Ranking, deeper: Ranking) -> Ranking:
    """Keep the first ranking and append what only the deeper one has, with no better scores."""
    results, attributions = list(first.merged.results), list(first.merged.attributions)
    ceiling = results[-1].score if results else 1.0
    known = {result.key for result in results}
    known.update(*map(_merged_keys, attributions))
    # A fact that was told already, and now stands behind its passage, is no reason to leave the passage out.
    known -= {
        one.result.key
        for one in deeper.merged.dropped
        if one.reason == "overlap" and one.result.origin is not None
    }
    for result, attribution in zip(deeper.merged.results, deeper.merged.attributions, strict=True):
        if known.isdisjoint((result.key, *_merged_keys(attribution))):
            results.append(replace(result, score=min(result.score, ceiling)))
            attributions.append(attribution)
    merged = replace(deeper.merged, results=tuple(results), attributions=tuple(attributions))
    return Ranking(merged=merged, calibrations=deeper.calibrations)


def _merged_keys(attribution: Attribution) -> list[str]:
    return [label.split(" ", 1)[1] for label in attribution.merged_with]


def _cut(ranking: Ranking, max_results: int) -> Ranking:
    merged = ranking.merged
    beyond = zip(merged.attributions[max_results:], merged.results[max_results:], strict=True)
    cut = replace(
        merged,
        results=merged.results[:max_results],
        attributions=merged.attributions[:max_results],
        overflow=tuple((attribution.backend_id, result) for attribution, result in beyond),
    )
    return replace(ranking, merged=cut)
