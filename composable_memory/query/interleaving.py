"""Makes one list of the rankings of two weight tables, which are so compared in live traffic (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from composable_memory.query.fusion import T
from composable_memory.query.ranking import QueryContext, Ranking, rank
from composable_memory.types import BackendAnswer, MemorySearchResult, SearchOptions
from composable_memory_feedback.experiments.interleaving import seed_of, team_draft
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How a list was drawn from two rankings: by which seed, of which weights, and who put up each result."""

    experiment_id: str
    weights_a: Mapping[str, float]
    weights_b: Mapping[str, float]
    seed: int
    teams: tuple[str, ...] = ()


def rank_active(
    answers: Sequence[BackendAnswer],
    terms: QueryContext,
    options: SearchOptions,
    *,
    min_depth: int,
    trace_id: str,
) -> tuple[Ranking[MemorySearchResult], Draw | None]:
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
            is_near=terms.texts,
        )

    experiment = terms.active_weights.experiment
    if experiment is None:
        return ranked(terms.weights), None
    a, b = terms.weights_of(experiment.a), terms.weights_of(experiment.b)
    seed = seed_of(trace_id, terms.query_id, experiment.id)
    draw = Draw(experiment_id=experiment.id, weights_a=a, weights_b=b, seed=seed)
    return interleave(ranked(a), ranked(b), draw, max_results=options.max_results)


def interleave(a: Ranking[T], b: Ranking[T], draw: Draw, *, max_results: int) -> tuple[Ranking[T], Draw]:
    """Return the list that both rankings draft in turns, and the draw with what each result counts for.

    Results are the same when they stand for a common candidate. A score is never better than that of the
    result before. What was ruled out, and the counts, are those of `a`.
    """
    sides = {"a": a.merged, "b": b.merged}
    names = [[frozenset(group.keys) for group in one.merged.kept] for one in (a, b)]
    picks = team_draft(*names, k=max_results, seed=draw.seed)
    picked = [sides[pick.team].kept[pick.index] for pick in picks]
    scores = accumulate((group.score for group in picked), min)
    shown = frozenset(group.key for group in picked)
    merged = replace(
        a.merged,
        kept=tuple(replace(group, score=score) for group, score in zip(picked, scores, strict=True)),
        losers=tuple(one for one in a.merged.losers if one.result.key not in shown),
        beyond=tuple(one for one in (*a.merged.kept, *a.merged.beyond) if one.key not in shown),
    )
    return replace(a, merged=merged), replace(draw, teams=tuple(pick.mark for pick in picks))
