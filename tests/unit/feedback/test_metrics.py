"""Measures against values by hand; intervals of means."""

from math import log2

import pytest

from composable_memory_feedback.metrics import dcg, ndcg


def test_gains_are_discounted_by_the_logarithm_of_the_rank() -> None:
    assert dcg([1.0, 1.0, 0.5], 10) == pytest.approx(1.0 + 1.0 / log2(3) + 0.25)


def test_what_stands_below_the_depth_does_not_count() -> None:
    assert dcg([1.0, 1.0], 1) == 1.0
    assert dcg([1.0], 0) == 0.0
    assert dcg([1.0], -3) == 0.0


def test_the_best_order_has_an_ndcg_of_one() -> None:
    assert ndcg([1.0, 0.5, 0.0], [0.0, 0.5, 1.0], 10) == pytest.approx(1.0)


def test_a_relevant_result_in_second_place_is_worth_its_discount() -> None:
    assert ndcg([0.0, 1.0], [1.0], 10) == pytest.approx(0.63093, abs=1e-5)


def test_the_ideal_is_cut_at_the_same_depth() -> None:
    assert ndcg([1.0], [1.0, 1.0, 1.0], 1) == 1.0


def test_nothing_to_gain_is_an_ndcg_of_zero() -> None:
    assert ndcg([], [], 10) == 0.0
    assert ndcg([0.0], [0.0], 10) == 0.0
