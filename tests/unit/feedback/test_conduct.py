"""How an experiment stands, in figures and in words, and whether a better table is found in time."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import log2

import pytest

from composable_memory.query.interleaving import team_draft
from composable_memory_feedback.experiments import (
    Experiment,
    Outcome,
    judge,
    status_of,
)
from composable_memory_feedback.weights import WeightTable

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)
A, B = (WeightTable.fixed({"qmd": weight}, made_at=AT) for weight in (1.0, 0.5))


def record(max_queries: int = 2000) -> Experiment:
    return Experiment(id="exp-1", a=A, b=B, started_at=AT, max_queries=max_queries)


def outcomes(winners: str) -> list[Outcome]:
    """Return one outcome a minute, won by `a`, by `b`, or by neither."""
    return [
        Outcome(
            experiment_id="exp-1",
            trace_id=f"t{number}",
            query_id="q1",
            at=AT + timedelta(minutes=number),
            a=float(winner == "a"),
            b=float(winner == "b"),
        )
        for number, winner in enumerate(winners)
    ]


def test_before_the_first_use_it_says_what_to_do() -> None:
    status = status_of(record(), outcomes("---"))
    assert "none of 3 queries" in str(status.needs)
    assert (status.found.queries, status.found.ties, status.decision, status.is_over) == (3, 3, None, False)


def test_an_undecided_one_says_when_it_ends_at_the_latest() -> None:
    status = status_of(record(max_queries=100), outcomes("ab" * 20))
    assert (status.decision, status.is_over) == (None, False)
    assert "60 more queries" in status.needs


def test_a_decided_one_names_the_winner() -> None:
    status = status_of(record(), outcomes("b" * 30))
    assert (status.decision, status.is_over) == ("b", True)
    wins = status.found.wins_b
    assert status.needs == f"b is better: it won {wins} of the {wins} queries that showed a difference"


def test_after_its_last_query_it_ends_and_says_what_is_known() -> None:
    status = status_of(record(max_queries=40), outcomes("ab" * 20 + "b" * 100))
    assert (status.found.queries, status.decision, status.is_over) == (40, None, True)
    assert status.needs.startswith("no difference was found in 40 queries: a won 20 ")


def test_outcomes_are_taken_in_the_order_of_their_queries() -> None:
    told = outcomes("b" * 30 + "a" * 30)
    assert status_of(record(), reversed(told)) == status_of(record(), told)


def test_outcomes_of_another_experiment_are_left_out() -> None:
    others = [replace(one, experiment_id="exp-0") for one in outcomes("a" * 50)]
    assert status_of(record(), others).found.queries == 0


def test_an_ended_one_keeps_its_winner_and_its_reason() -> None:
    ended = replace(record(), state="stopped", reason="stopped by hand", ended_at=AT)
    status = status_of(ended, outcomes("b" * 30))
    assert (status.decision, status.needs, status.is_over) == (None, "stopped by hand", True)


@pytest.mark.parametrize(("alpha", "max_queries"), [(0.0, 10), (1.0, 10), (float("nan"), 10), (0.05, 0)])
def test_an_experiment_that_could_not_end_is_refused(alpha: float, max_queries: int) -> None:
    with pytest.raises(ValueError, match="experiment"):
        Experiment(id="x", a=A, b=B, started_at=AT, alpha=alpha, max_queries=max_queries)


class World:
    """Questions with three relevant notes among twenty; a ranking sees which through noise."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.gained = {"a": 0.0, "b": 0.0}

    def outcomes(self, queries: int, *, noise_a: float, noise_b: float) -> Iterable[Outcome]:
        for seed in range(queries):
            shared = [self.draw.gauss(float(note < 3), 0.4) for note in range(20)]
            a, b = self.ranking("a", shared, noise_a), self.ranking("b", shared, noise_b)
            picks = team_draft([(note,) for note in a], [(note,) for note in b], k=10, seed=seed)
            used = [
                pick.mark
                for rank, pick in enumerate(picks)
                if {"a": a, "b": b}[pick.team][pick.index] < 3 and self.draw.random() < 0.9**rank
            ]
            yield replace(ANY, a=float(used.count("a")), b=float(used.count("b")))

    def ranking(self, side: str, shared: Sequence[float], noise: float) -> list[int]:
        """Return the ten best notes, and count what they gain."""
        scores = [score + self.draw.gauss(0.0, noise) for score in shared]
        best = sorted(range(20), key=scores.__getitem__, reverse=True)[:10]
        self.gained[side] += sum(1 / log2(rank + 2) for rank, note in enumerate(best) if note < 3)
        return best


(ANY,) = outcomes("-")


def test_a_table_that_is_a_tenth_better_is_found_within_three_hundred_queries() -> None:
    world = World(seed=3)
    found = [judge(world.outcomes(300, noise_a=0.38, noise_b=0.1)) for _ in range(20)]
    assert world.gained["b"] / world.gained["a"] == pytest.approx(1.10, abs=0.02)
    assert [one.decision for one in found].count("b") >= 19
    assert "a" not in [one.decision for one in found]


def test_two_tables_of_equal_worth_are_hardly_ever_told_apart() -> None:
    world = World(seed=4)
    found = [judge(world.outcomes(150, noise_a=0.3, noise_b=0.3)) for _ in range(40)]
    assert sum(one.decision is not None for one in found) <= 2
