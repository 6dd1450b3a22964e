"""Measures of a ranking against judged relevance (pure)."""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from math import log2

from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Return what a difference with this interval means: better, worse, or not clear."""
        if self.low > 0.0:
            return "better"
        return "worse" if self.high < 0.0 else "no clear difference"


def dcg(gains: Sequence[float], k: int) -> float:
    """Return the discounted cumulative gain of the first `k`: the sum of gain / log2(rank + 1).

    Gains are linear, as in Järvelin and Kekäläinen (2002), so a relevance of 0.5 counts half.
    """
    return sum(gain / log2(place + 2) for place, gain in enumerate(gains[: max(k, 0)]))


def ndcg(gains: Sequence[float], ideal: Iterable[float], k: int) -> float:
    """Return the discounted gain of a ranking over the largest that `ideal` allows; 0 if that is 0.

    `gains` are in the order of the ranking, `ideal` has all the gains there are, in any order. The result is
    in [0, 1] as long as the gains are among the ideal ones.
    """
    best = dcg(nlargest(max(k, 0), ideal), k)
    return dcg(gains, k) / best if best > 0.0 else 0.0
