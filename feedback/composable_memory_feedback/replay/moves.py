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
    free = dict(enumerate(before))
    found: dict[int, int] = {}
    for is_same in (_same_key, _share_key):
        for place, hit in enumerate(after):
            old = next((at for at, one in free.items() if is_same(one, hit)), None)
            if place not in found and old is not None:
                found[place] = old
                del free[old]
    return found


def _same_key(one: RankedHit, other: RankedHit) -> bool:
    return one.key == other.key


def _share_key(one: RankedHit, other: RankedHit) -> bool:
    return not set(one.keys).isdisjoint(other.keys)


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
