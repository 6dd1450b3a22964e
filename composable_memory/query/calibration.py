"""Calibrates backend scores: maps each backend's own scale to [0, 1] so that scores can be compared (pure).

Raw scores are not commensurate: a fused rank may be 0.03 where a cosine is 0.8. The method used is part of
the answer and of the log.
"""

from collections.abc import Sequence
from enum import StrEnum
from statistics import median

RANK_HALF = 8
"""The rank method halves a score about every eight places."""

STRONG = 0.43
"""A list this strong has an answer; `benchmarks/weak_answers.py` fits it and shows its price."""
STRONG_HYBRID = 0.37
"""The same for lists ranked with vectors, which lower the scores of passages that only share words."""
NOISE = 0.1
"""A passage with a lower absolute score shares next to nothing with the question."""
LEAD_SHARE = 0.3
"""How much the lead of the best result over the rest of its list adds to the list's strength."""


GOOD_ALONE = STRONG_HYBRID / (1 + LEAD_SHARE)
"""The score from which on a passage would be no weak answer if it were all that was found."""


class Calibration(StrEnum):
    """How raw scores become comparable."""

    AUTO = "auto"
    """`IDENTITY` if the backend promises scores in [0, 1]; else `MAX`, or `RANK` if all are equal."""
    IDENTITY = "identity"
    """Scores are absolute: used as they are, clipped to [0, 1]."""
    MAX = "max"
    """Divided by the highest score: the best becomes 1, the theoretical minimum 0 stays 0."""
    MIN_MAX = "min-max"
    """Stretched between the lowest and the highest score; a single result, or equal ones, become 1."""
    RANK = "rank"
    """By rank alone: 8 / (7 + rank), so 1.0, 0.89, 0.8 …, for backends without usable scores."""


def calibrate(
    scores: Sequence[float], method: Calibration, *, absolute: bool = True
) -> tuple[list[float], Calibration]:
    """Return the calibrated scores, in the order given, and the method that `AUTO` resolved to.

    `scores` must be finite and sorted best first. `absolute` says whether the backend promises absolute
    scores; it only matters for `AUTO`. As the theoretical minimum is 0, `MAX` is the theoretical min-max
    normalisation of Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval" (2022).
    """
    if method is Calibration.AUTO:
        method = _resolve(scores, absolute=absolute)
    return _METHODS[method](scores), method


def strength(scores: Sequence[float]) -> float:
    """Return how strongly a list suggests that it holds an answer, from its calibrated scores, best first.

    A question that the notes do not answer still finds passages that share a word or two with it, but their
    scores are low and none stands out.
    """
    if not scores:
        return 0.0
    best, *rest = scores
    return best + LEAD_SHARE * (best - (median(rest) if rest else 0.0))


def _resolve(scores: Sequence[float], *, absolute: bool) -> Calibration:
    if absolute and min(scores, default=0.0) >= 0.0 and max(scores, default=0.0) <= 1.0:
        return Calibration.IDENTITY
    if not scores or max(scores) <= 0.0 or (len(scores) > 1 and min(scores) == max(scores)):
        return Calibration.RANK
    return Calibration.MAX


def _identity(scores: Sequence[float]) -> list[float]:
    return [score if 0.0 < score < 1.0 else min(1.0, max(0.0, score)) for score in scores]


def _max(scores: Sequence[float]) -> list[float]:
    top = max(scores, default=0.0)
    return [max(0.0, score) / top for score in scores] if top > 0.0 else [0.0 for _ in scores]


def _min_max(scores: Sequence[float]) -> list[float]:
    # Halved, or the spread of the largest floats would be infinite and the quotients NaN.
    halves = [score / 2.0 for score in scores]
    top, bottom = max(halves, default=0.0), min(halves, default=0.0)
    spread = top - bottom
    return [(half - bottom) / spread for half in halves] if spread > 0.0 else [1.0 for _ in scores]


def _rank(scores: Sequence[float]) -> list[float]:
    return [RANK_HALF / (RANK_HALF + place) for place in range(len(scores))]


_METHODS = {
    Calibration.IDENTITY: _identity,
    Calibration.MAX: _max,
    Calibration.MIN_MAX: _min_max,
    Calibration.RANK: _rank,
}
