"""Values of a replay: what is changed, where results go, what the judgements say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import combinations
from typing import Literal

from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """What differs from the policy that was logged; what is None stays as it was.

    `table` gives every backend its weight for the kind of the question. `dropped` names further backends that
    count as if they had not answered. `calibration` is a method for the scores of all backends.
    """

    table: WeightTable | None = None
    fusion: str | None = None
    dedup: str | None = None
    dropped: frozenset[str] = frozenset()
    min_score: float | None = None
    calibration: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A result that stands elsewhere after a change; places count from 1, None is outside the top k."""

    hit: RankedHit
    before: int | None
    after: int | None

    @property
    def kind(self) -> Literal["up", "down", "in", "out"]:
        """Return where it went."""
        if self.before is None:
            return "in"
        if self.after is None:
            return "out"
        return "up" if self.after < self.before else "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReplay:
    """One query before and after a change, cut to the top k.

    `moves` stand in the order after the change, what is out last. `overlap` is the share of results that both
    have; `kendall` is Kendall's tau of those, from -1 (reversed) to 1 (same order). The nDCG values are None
    where the query was not judged.
    """

    query: LoggedQuery
    before: tuple[RankedHit, ...]
    after: tuple[RankedHit, ...]
    moves: tuple[Move, ...]
    overlap: float
    kendall: float
    ndcg_before: float | None = None
    ndcg_after: float | None = None

    @property
    def is_changed(self) -> bool:
        """Return whether any result stands elsewhere."""
        return bool(self.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the judgements say of a change; means and differences are of nDCG.

    `coverage` is the share of the top k after the change that was judged; the rest is estimated.
    `effective` is how many equally telling queries the interval rests on (Kish 1965): as many as `queries`
    where a query counts as much as another, fewer where some stand for several.
    """

    queries: int
    effective: float
    ndcg_before: float
    ndcg_after: float
    difference: Interval
    coverage: float
    by_intent: Mapping[IntentKind, Interval] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Logged queries under a change; `judged` is None where none of them was judged.

    Of `total` queries the top k of `changed` ones changed; `queries` holds those that were to be kept.
    """

    change: PolicyChange
    k: int
    total: int
    changed: int
    queries: tuple[QueryReplay, ...]
    judged: Judged | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """Whether a candidate may follow a baseline: the paired difference of nDCG, and the reason in words.

    `coverage` is the share of the candidate's top k that was judged. The less of it, the more the difference
    is an estimate, and the wider its interval.
    """

    passed: bool
    difference: Interval
    cases: int
    reason: str
    coverage: float = 1.0


def compared(query: LoggedQuery, before: Sequence[RankedHit], after: Sequence[RankedHit]) -> QueryReplay:
    """Compare two rankings of a query; results are the same when they share a key.

    A result may be represented by another of its duplicates, so its own key is tried before the others'.
    """
    came_from = _came_from([one.keys for one in before], [one.keys for one in after])
    longest = max(len(before), len(after))
    return QueryReplay(
        query=query,
        before=tuple(before),
        after=tuple(after),
        moves=tuple(_moves(before, after, came_from)),
        overlap=len(came_from) / longest if longest else 1.0,
        kendall=_kendall([came_from[place] for place in sorted(came_from)]),
    )


def _came_from(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> dict[int, int]:
    """Return by place after where each common result, of these keys, stood before, both from 0."""
    free = dict(enumerate(before))
    found: dict[int, int] = {}

    def pair(place: int, old: int | None) -> None:
        if old is not None:
            found[place] = old
            del free[old]

    stood = {keys[0]: at for at, keys in enumerate(before)}
    for place, keys in enumerate(after):
        pair(place, stood.pop(keys[0], None))
    for place, keys in enumerate(after):
        if place not in found:
            pair(place, next((at for at, old in free.items() if not set(old).isdisjoint(keys)), None))
    return found


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
