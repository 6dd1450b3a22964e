"""The sequential test: its promise at every look, and what it finds."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from composable_memory_feedback.experiments import Outcome, judge

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)


def outcome(a: float, b: float) -> Outcome:
    return Outcome(experiment_id="exp-1", trace_id="t", query_id="q", at=AT, a=a, b=b)


OUTCOMES = {"a": outcome(1, 0), "b": outcome(0, 1), "-": outcome(2, 2)}


def outcomes(winners: Iterable[str]) -> list[Outcome]:
    return [OUTCOMES[one] for one in winners]


def decided(runs: int, queries: int, *, b_wins: float, seed: int, alpha: float = 0.05) -> list[str]:
    """Return the decisions of those runs that were decided."""
    draw = random.Random(seed)
    drawn = (draw.choices("ab", (1 - b_wins, b_wins), k=queries) for _ in range(runs))
    decisions = (judge(outcomes(winners), alpha).decision for winners in drawn)
    return [one for one in decisions if one is not None]


def test_two_equal_sides_are_told_apart_in_no_more_than_five_of_a_hundred_runs_at_any_look() -> None:
    stops = decided(1000, 500, b_wins=0.5, seed=11)
    assert 5 <= len(stops) <= 50
    assert {"a", "b"} == set(stops)


def test_a_looser_promise_is_kept_as_well_and_is_not_idle() -> None:
    assert 50 <= len(decided(1000, 300, b_wins=0.5, seed=12, alpha=0.2)) <= 200


def test_a_side_that_wins_two_of_three_is_found_within_two_hundred_decisive_queries() -> None:
    found = decided(300, 200, b_wins=0.66, seed=13)
    assert found.count("b") >= 285
    assert "a" not in found


def test_the_worse_side_loses_whichever_it_is() -> None:
    assert judge(outcomes("a" * 30)).decision == "a"
    assert judge(outcomes("b" * 30)).decision == "b"


def test_the_evidence_of_two_wins_is_what_the_hand_computes() -> None:
    assert judge(outcomes("b")).e_value == pytest.approx(1.0)
    assert judge(outcomes("bb")).e_value == pytest.approx(8 / 7)
    assert judge(outcomes("bba")).e_value == pytest.approx(8 / 7 * 6 / 8)


def test_ties_tell_nothing() -> None:
    assert judge(outcomes("-" * 40)).e_value == 1.0
    with_ties, without = judge(outcomes("b-b--ab-")), judge(outcomes("bbab"))
    assert (with_ties.e_value, with_ties.ties) == (without.e_value, 4)
    assert with_ties.queries == 8


def test_what_comes_after_the_decision_is_not_counted() -> None:
    early = judge(outcomes("b" * 30))
    assert judge(outcomes("b" * 30 + "a" * 300)) == early
    assert early.queries < 30


def test_evidence_does_not_overflow_in_long_runs() -> None:
    assert judge(outcomes("b" * 2000), alpha=1e-300).decision == "b"
