"""Making unlike scores comparable."""

import pytest

from composable_memory.query.calibration import Calibration, calibrate


@pytest.mark.parametrize(
    ("method", "scores", "expected"),
    [
        (Calibration.IDENTITY, [0.9, 0.2], [0.9, 0.2]),
        (Calibration.IDENTITY, [3.0, -1.0], [1.0, 0.0]),
        (Calibration.MAX, [4.0, 1.0], [1.0, 0.25]),
        (Calibration.MAX, [0.0, -2.0], [0.0, 0.0]),
        (Calibration.MIN_MAX, [3.0, 2.0, 1.0], [1.0, 0.5, 0.0]),
        (Calibration.MIN_MAX, [0.5, 0.5], [1.0, 1.0]),
        (Calibration.RANK, [7.0, 7.0], [1.0, 8 / 9]),
    ],
)
def test_each_method_follows_its_formula(
    method: Calibration, scores: list[float], expected: list[float]
) -> None:
    assert calibrate(scores, method) == (expected, method)


@pytest.mark.parametrize("method", list(Calibration))
def test_scores_of_any_size_end_between_nought_and_one(method: Calibration) -> None:
    for scores in ([1.7e308, 0.0, -1.7e308], [1e-310, 5e-324, -1e-310], [-1.7e308, -1.7e308]):
        assert all(0.0 <= one <= 1.0 for one in calibrate(scores, method)[0])


@pytest.mark.parametrize("method", list(Calibration))
def test_every_method_takes_an_empty_list(method: Calibration) -> None:
    assert calibrate([], method)[0] == []


def test_auto_takes_promised_scores_at_their_word() -> None:
    assert calibrate([0.7, 0.1], Calibration.AUTO) == ([0.7, 0.1], Calibration.IDENTITY)


def test_auto_scales_scores_that_break_the_promise() -> None:
    assert calibrate([8.0, 2.0], Calibration.AUTO) == ([1.0, 0.25], Calibration.MAX)


def test_auto_scales_scores_that_are_not_absolute() -> None:
    assert calibrate([0.03, 0.015], Calibration.AUTO, absolute=False) == ([1.0, 0.5], Calibration.MAX)


def test_auto_goes_by_rank_where_all_scores_are_equal() -> None:
    """Facts of a graph that all score 0.8 must not outrank every note by construction."""
    scores, method = calibrate([0.8, 0.8, 0.8], Calibration.AUTO, absolute=False)

    assert method is Calibration.RANK
    assert scores == [1.0, 8 / 9, 8 / 10]
