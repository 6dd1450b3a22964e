"""Interleaving and its test, whatever the rankings and outcomes are."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import combinations
from math import isclose, lgamma, log

from hypothesis import given
from hypothesis import strategies as st

from composable_memory.query.interleaving import Pick, team_draft
from composable_memory_feedback.experiments import PRIOR, Outcome, judge

keys = st.frozensets(st.integers(0, 30), min_size=1, max_size=3)
rankings = st.lists(keys, max_size=12)
depths = st.integers(0, 30)
seeds = st.integers(-(2**70), 2**70)
Ranking = Sequence[frozenset[int]]


def results(a: Ranking, b: Ranking, picks: Sequence[Pick]) -> list[frozenset[int]]:
    return [{"a": a, "b": b}[pick.team][pick.index] for pick in picks]


@given(rankings, rankings, depths, seeds)
def test_no_two_places_are_the_same_result(a: Ranking, b: Ranking, k: int, seed: int) -> None:
    shown = results(a, b, team_draft(a, b, k=k, seed=seed))
    assert all(one.isdisjoint(other) for one, other in combinations(shown, 2))


@given(rankings, rankings, seeds)
def test_nothing_is_left_out_at_full_depth(a: Ranking, b: Ranking, seed: int) -> None:
    shown = results(a, b, team_draft(a, b, k=len(a) + len(b), seed=seed))
    assert all(any(one & other for other in shown) for one in (*a, *b))


@given(rankings, rankings, depths, seeds)
def test_each_team_keeps_its_own_order(a: Ranking, b: Ranking, k: int, seed: int) -> None:
    picks = team_draft(a, b, k=k, seed=seed)
    for team in ("a", "b"):
        places = [pick.index for pick in picks if pick.team == team]
        assert places == sorted(set(places))


@given(rankings, rankings, depths, seeds)
def test_fewer_places_are_the_first_of_more(a: Ranking, b: Ranking, k: int, seed: int) -> None:
    assert team_draft(a, b, k=k, seed=seed) == team_draft(a, b, k=k + 5, seed=seed)[:k]


@given(st.permutations(range(12)), st.permutations(range(12)), depths, seeds)
def test_neither_team_is_ever_ahead_by_more_than_one(
    a: Sequence[int], b: Sequence[int], k: int, seed: int
) -> None:
    marks = [pick.mark for pick in team_draft([(one,) for one in a], [(one,) for one in b], k=k, seed=seed)]
    for end in range(len(marks)):
        assert abs(marks[:end].count("a") - marks[:end].count("b")) <= 1


@given(rankings, depths, seeds)
def test_a_ranking_against_itself_is_itself(a: Ranking, k: int, seed: int) -> None:
    picks = team_draft(a, a, k=k, seed=seed)
    assert all(pick.is_shared for pick in picks)
    assert [pick.index for pick in picks] == sorted(pick.index for pick in picks)


@given(st.lists(st.booleans(), max_size=200))
def test_the_evidence_is_the_beta_mixture_of_all_chances_over_one_half(b_wins: Sequence[bool]) -> None:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    outcomes = [
        Outcome(experiment_id="e", trace_id="t", query_id="q", at=at, a=float(not won), b=float(won))
        for won in b_wins
    ]
    wins, of = sum(b_wins), len(b_wins)
    mixture = lgamma(wins + PRIOR) + lgamma(of - wins + PRIOR) - lgamma(of + 2 * PRIOR)
    prior = 2 * lgamma(PRIOR) - lgamma(2 * PRIOR)
    assert isclose(log(judge(outcomes, alpha=1e-300).e_value), mixture - prior + of * log(2), abs_tol=1e-9)
