"""Makes one list of the rankings of two weight tables, which are so compared in live traffic (pure).

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

    `is_shared` says that both teams wanted it and a coin fell for this one; its use tells nothing of either.
    """

    team: Literal["a", "b"]
    index: int
    is_shared: bool = False

    @property
    def mark(self) -> Literal["a", "b", "-"]:
        """Return who has the credit of the place, as it is logged: a team, or `-` for neither."""
        return "-" if self.is_shared else self.team


def team_draft(
    a: Sequence[Collection[Hashable]], b: Sequence[Collection[Hashable]], *, k: int, seed: int
) -> list[Pick]:
    """Return the first `k` places of both rankings, interleaved; the same seed draws the same.

    A result is given by its keys, the best result first; two are the same when they have a key in common,
    and only one of them is shown. The team with fewer places puts up its best result that is not shown yet;
    a coin decides between equals, so that each team has the same chance of each place. When one ranking is
    at its end, the rest of the other follows.

    Where the teams are equal and want the same result, it is shared and counts for neither: credit by a coin
    is noise alone, and without it far fewer queries find the better ranking. Two equal rankings share all.
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
    """Return the seed of one query's draft, below 2**48, so that it is a plain number in any JSON reader."""
    text = f"{trace_id}\0{query_id}\0{experiment_id}"
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big")


def _next(ranking: Sequence[Collection[Hashable]], at: int, taken: set[Hashable]) -> int:
    """Return the place of the first result from `at` on that is not shown yet, or the length."""
    while at < len(ranking) and not taken.isdisjoint(ranking[at]):
        at += 1
    return at


def _coins(seed: int, count: int) -> int:
    """Return `count` fair coins as bits, from a hash: the same in every version of Python."""
    return int.from_bytes(shake_128(b"%d" % seed).digest(max(0, count) // 8 + 1), "little")


def interleave(
    a: Merged[T], b: Merged[T], draw: Interleaved, *, max_results: int
) -> tuple[Merged[T], Interleaved]:
    """Return the list that both rankings draft in turns, and the draw with what each result counts for.

    Results are the same when they stand for a common candidate. A score is never better than that of the
    result before. What was ruled out, and the counts, are those of `a`.
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
