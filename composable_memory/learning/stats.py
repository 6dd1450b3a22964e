"""Sums up what the store knows of the quality of the answers."""

from collections import Counter
from datetime import datetime, timedelta

from composable_memory.learning.active_weights import WeightsReport
from composable_memory.learning.values import LearningStats
from composable_memory_feedback.store import FeedbackStore

__all__ = ["no_stats", "stats_of"]


def stats_of(
    store: FeedbackStore, weights: WeightsReport, *, since: datetime, now: datetime, per_hour: int
) -> LearningStats:
    """Return what was judged since then, and what it has cost; the quota is that of the hour before `now`."""
    judgements, evaluations = store.judgements(since=since), store.evaluations(since=since)
    taken = sum(
        one.at > now - timedelta(hours=1) for one in store.evaluations(since=now - timedelta(hours=1))
    )
    return LearningStats(
        days=tuple(store.backend_days(since=since)),
        kinds=Counter(one.kind for one in judgements),
        judged_queries=len({(one.trace_id, one.query_id) for one in judgements}),
        evaluations=len(evaluations),
        failed_evaluations=sum(one.error is not None for one in evaluations),
        input_tokens=sum(one.input_tokens for one in evaluations),
        output_tokens=sum(one.output_tokens for one in evaluations),
        quota_left=max(0, per_hour - taken),
        weights=weights,
        shadow=store.shadow(),
    )


def no_stats(weights: WeightsReport, *, per_hour: int) -> LearningStats:
    """Return the stats of a memory of which nothing was ever judged."""
    return LearningStats(
        days=(),
        kinds={},
        judged_queries=0,
        evaluations=0,
        failed_evaluations=0,
        input_tokens=0,
        output_tokens=0,
        quota_left=per_hour,
        weights=weights,
    )
