"""The weights that are tried: levels apart by a constant factor, the heaviest always 1 (pure)."""

from collections.abc import Iterable, Sequence
from itertools import product
from math import exp, log
from random import Random

from composable_memory_feedback.weights import IntentKind, WeightTable

Vector = tuple[float, ...]
"""One weight per backend, in their order; the heaviest is 1."""

SMALLEST = 0.01
"""A weight of 0 is read as this share of the heaviest; a proportion to 0 has no meaning."""
ALL_UP_TO = 3
"""So many backends are tried in every combination of levels; more are sampled."""
LEVELS = {1: 1, 2: 13, 3: 6}
LEVELS_OF_MANY = 5
SAMPLED = 70


def coarse(current: Vector, *, floor: float, seed: int) -> list[Vector]:
    """Return vectors over the whole range from `floor` to 1, `current` (positive) and the equal one first."""
    count = len(current)
    levels = _levels(LEVELS.get(count, LEVELS_OF_MANY), floor)
    if count <= ALL_UP_TO:
        others: Iterable[Vector] = (one for one in product(levels, repeat=count) if max(one) == 1.0)
    else:
        others = [*_one_changed(current, levels), *_sampled(count, floor, Random(seed))]  # noqa: S311
    found = [current, (1.0,) * count, *(positive(normalised(one)) for one in others)]
    return list(dict.fromkeys(found))


def vector_of(table: WeightTable, backends: Sequence[str], kind: IntentKind | None = None) -> Vector:
    """Return the proportions of a table's weights for questions of a kind, with the heaviest as 1."""
    return tuple(round(one, 4) for one in table.proportions(backends, kind).values())


def normalised(weights: Sequence[float]) -> Vector:
    """Return the proportions of weights with the heaviest as 1; all 0 where every weight is 0."""
    heaviest = max(weights, default=0.0)
    return tuple(round(one / heaviest, 4) if heaviest > 0.0 else 0.0 for one in weights)


def positive(vector: Vector) -> Vector:
    """Return proportions that have logarithms: none below `SMALLEST`, all equal where all were 0."""
    return tuple(max(SMALLEST, one) for one in vector) if any(vector) else (1.0,) * len(vector)


def _levels(count: int, floor: float) -> list[float]:
    lowest = log(max(floor, SMALLEST))
    return [round(exp(lowest * step / max(count - 1, 1)), 4) for step in range(count)]


def _one_changed(vector: Vector, levels: Sequence[float]) -> Iterable[Vector]:
    for base in (vector, (1.0,) * len(vector)):
        for place, level in product(range(len(base)), levels):
            yield (*base[:place], level, *base[place + 1 :])


def _sampled(count: int, floor: float, random: Random) -> Iterable[Vector]:
    lowest = log(max(floor, SMALLEST))
    for _ in range(SAMPLED):
        yield tuple(exp(random.uniform(lowest, 0.0)) for _ in range(count))
