"""Interleaves the rankings of two weight tables into one list, to compare them in live traffic (pure).

Team draft: F. Radlinski, M. Kurup, T. Joachims, CIKM 2008; O. Chapelle, T. Joachims, F. Radlinski, Y. Yue,
"Large-scale validation and analysis of interleaved search evaluation", ACM TOIS 30(1), 2012.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from hashlib import blake2b, shake_128
from itertools import accumulate
from typing import Literal

from composable_memory.query.fusion import Merged, T
from composable_memory_ops_logs import Interleaved
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Pick:
    """One place of the interleaved list: result `index`, from 0, of the ranking of `team`.

    `is_shared` says that both teams wanted the result and a coin gave it to this one; its use is credited to
    neither.
    """

    team: Literal["a", "b"]
    index: int
    is_shared: bool = False

    @property
    def mark(self) -> Literal["a", "b", "-"]:
        """Return the team to credit for this place, as it is logged: `a`, `b`, or `-` for neither."""
        return "-" if self.is_shared else self.team


def team_draft(
    a: Sequence[Collection[Hashable]], b: Sequence[Collection[Hashable]], *, k: int, seed: int
) -> list[Pick]:
    """Return the first `k` places of both rankings, interleaved; the same seed gives the same draft.

    Each result is a collection of keys; two results are the same if they share a key, and only one of them is
    shown. The team with fewer places picks its best result that is not shown yet; a coin decides between
    equals, so each team has the same chance of each place. When one ranking is exhausted, the rest of the
    other follows.

    If the teams are level and want the same result, it is shared and credited to neither: crediting it by a
    coin would add only noise, and without it far fewer queries find the better ranking. Equal rankings share
    everything.
    """
    taken: set[Hashable] = set()
    picks: list[Pick] = []
    i = j = lead = 0
    coins = _coins(seed, min(k, len(a) + len(b)))
    while len(picks) < k:
        i, j = _next(a, i, taken), _next(b, j, taken)
        a_is_left, b_is_left = i < len(a), j < len(b)
        if not a_is_left and not b_is_left:
            break
        if a_is_left and b_is_left:
            is_shared = lead == 0 and not set(a[i]).isdisjoint(b[j])
            is_a = lead < 0 or (lead == 0 and bool(coins & 1))
        else:
            is_shared, is_a = False, a_is_left
        coins >>= 1
        picks.append(Pick("a", i, is_shared) if is_a else Pick("b", j, is_shared))
        taken.update(a[i] if is_a else b[j])
        lead += 0 if is_shared else 1 if is_a else -1
    return picks


def seed_of(trace_id: str, query_id: str, experiment_id: str) -> int:
    """Return the seed for one query's draft, below 2**48 so that any JSON reader can hold it as a number."""
    text = f"{trace_id}\0{query_id}\0{experiment_id}"
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")


def _next(ranking: Sequence[Collection[Hashable]], at: int, taken: set[Hashable]) -> int:
    """Return the index of the first result from `at` on that is not shown yet, or the length."""
    while at < len(ranking) and not taken.isdisjoint(ranking[at]):
        at += 1
    return at


def _coins(seed: int, count: int) -> int:
    """Return `count` fair coin flips as bits, from a hash: the same in every version of Python."""
    return int.from_bytes(shake_128(b"%d" % seed).digest(max(0, count) // 8 + 1), "little")


def interleave(
    a: Merged[T], b: Merged[T], draw: Interleaved, *, max_results: int
) -> tuple[Merged[T], Interleaved]:
    """Return the interleaved list of both rankings, and the draw with the team credited for each result.

    Results are the same if they have a candidate in common. Scores are lowered where needed to never
    increase. The dropped candidates and the counts are those of `a`.
    """
    sides = {"a": a, "b": b}
    names = [[frozenset(group.keys) for group in one.kept] for one in (a, b)]
    picks = team_draft(*names, k=max_results, seed=draw.seed)
    picked = [sides[pick.team].kept[pick.index] for pick in picks]
    scores = accumulate((group.score for group in picked), min)
    shown = frozenset(group.key for group in picked)
    merged = replace(
        a,
        kept=tuple(replace(group, score=score) for group, score in zip(picked, scores, strict=True)),
        losers=tuple(one for one in a.losers if one.result.key not in shown),
        beyond=tuple(one for one in (*a.kept, *a.beyond) if one.key not in shown),
    )
    return merged, replace(draw, teams=tuple(pick.mark for pick in picks))
