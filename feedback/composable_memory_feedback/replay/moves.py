"""Where results go from one ranking to another (pure)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from composable_memory_feedback.logged import RankedHit
from composable_memory_feedback.replay.values import Move

__all__ = ["Way", "way_between"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What moves between two rankings, and how alike they are.

    `overlap` is the share of results that both have, `kendall` the rank correlation of those.
    """

    moves: tuple[Move, ...]
    overlap: float
    kendall: float


def way_between(before: Sequence[RankedHit], after: Sequence[RankedHit]) -> Way:
    """Compare two rankings; results are the same when they share a key.

    A result may be represented by another of its duplicates, so its own key is tried before the others'.
    """
    if before == after:
        return Way(moves=(), overlap=1.0, kendall=1.0)
    came_from = _came_from(before, after)
    longest = max(len(before), len(after))
    return Way(
        moves=tuple(_moves(before, after, came_from)),
        overlap=len(came_from) / longest if longest else 1.0,
        kendall=_kendall([came_from[place] for place in sorted(came_from)]),
    )


def _came_from(before: Sequence[RankedHit], after: Sequence[RankedHit]) -> dict[int, int]:
    """Return by place after where each common result stood before, both from 0."""
    free = {at: one.keys for at, one in enumerate(before)}
    found: dict[int, int] = {}
    for place, keys in enumerate(own := [hit.keys for hit in after]):
        _pair(place, next((at for at, old in free.items() if old[0] == keys[0]), None), free, found)
    for place, keys in enumerate(own):
        if place not in found:
            _pair(
                place,
                next((at for at, old in free.items() if not set(old).isdisjoint(keys)), None),
                free,
                found,
            )
    return found


def _pair(place: int, old: int | None, free: dict[int, tuple[str, ...]], found: dict[int, int]) -> None:
    if old is not None:
        found[place] = old
        del free[old]


def _moves(
    before: Sequence[RankedHit], after: Sequence[RankedHit], came_from: dict[int, int]
) -> Iterator[Move]:
    """Yield what moved in the order after, then what is out in the order before."""
    for place, hit in enumerate(after):
        old = came_from.get(place)
        if old != place:
            yield Move(hit=hit, before=None if old is None else old + 1, after=place + 1)
    stayed = set(came_from.values())
    for place, hit in enumerate(before):
        if place not in stayed:
            yield Move(hit=hit, before=place + 1, after=None)


def _kendall(order: Sequence[int]) -> float:
    """Return Kendall's tau (1938) of a list of former places; 1 where there are fewer than two."""
    pairs = list(combinations(order, 2))
    return 2 * sum(one < other for one, other in pairs) / len(pairs) - 1 if pairs else 1.0
