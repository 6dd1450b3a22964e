"""What the judgements on one query come to, over all of its results and by backend (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from composable_memory_feedback.judgements import RELEVANT, Judgement

__all__ = ["Aggregate", "BackendAggregate", "aggregate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendAggregate:
    """How the judged results of one backend did: share of relevant ones, mean, and how many."""

    precision: float
    mean_relevance: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """How all judged results did; the results of stand-ins count here and under no backend."""

    precision: float
    mean_relevance: float
    used_count: int
    judged_count: int
    by_backend: Mapping[str, BackendAggregate]


def aggregate(judgements: Sequence[Judgement]) -> Aggregate:
    """Return the share of relevant results, the mean relevance and the use; 0 where nothing was judged."""
    backends = sorted({one.backend for one in judgements if one.backend is not None})
    whole = _backend_aggregate(judgements)
    return Aggregate(
        precision=whole.precision,
        mean_relevance=whole.mean_relevance,
        used_count=sum(one.was_used for one in judgements),
        judged_count=whole.count,
        by_backend={
            backend: _backend_aggregate([one for one in judgements if one.backend == backend])
            for backend in backends
        },
    )


def _backend_aggregate(judgements: Sequence[Judgement]) -> BackendAggregate:
    if not judgements:
        return BackendAggregate(precision=0.0, mean_relevance=0.0, count=0)
    return BackendAggregate(
        precision=fmean(one.relevance > RELEVANT for one in judgements),
        mean_relevance=fmean(one.relevance for one in judgements),
        count=len(judgements),
    )
