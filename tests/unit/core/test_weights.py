"""The table of weights."""

import math

import pytest

from composable_memory_feedback.weights import WeightTable


def test_a_backend_that_is_not_listed_has_weight_one() -> None:
    assert WeightTable.fixed({"a": 0.5})["b"] == 1.0


def test_equal_weights_have_equal_versions_in_any_order() -> None:
    assert WeightTable.fixed({"a": 0.5, "b": 2.0}).version == WeightTable.fixed({"b": 2.0, "a": 0.5}).version


def test_whole_numbers_are_the_same_weights() -> None:
    whole, broken = WeightTable.fixed({"a": 1, "b": 0}), WeightTable.fixed({"a": 1.0, "b": 0.0})

    assert whole.version == broken.version
    assert repr(whole.of("a")) == "1.0"


def test_other_weights_have_another_version() -> None:
    assert WeightTable.fixed({"a": 0.5}).version != WeightTable.fixed({"a": 0.6}).version


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_a_weight_that_is_no_weight_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="the weight of 'a' is"):
        WeightTable.fixed({"a": weight})
