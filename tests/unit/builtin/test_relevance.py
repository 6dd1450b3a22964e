"""How relevant a passage is by where the words of the question are in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory_adapters.text.relevance import Relevance, rarity

EVEN = Relevance(rarities=[1.0, 1.0], average_length=100)


def score(*places: list[int], length: int = 100, relevance: Relevance = EVEN) -> float:
    return relevance.of(places, length=length)


def test_an_average_passage_with_all_words_near_each_other_reaches_the_scale() -> None:
    assert score([10], [12]) == pytest.approx(EVEN.scale) == pytest.approx(3.0)


def test_a_passage_without_the_words_has_no_relevance() -> None:
    assert score([], []) == 0.0


def test_both_words_are_better_than_one_twice() -> None:
    assert score([10], [50]) > score([10, 50], [])


def test_words_that_stand_together_are_better_than_words_apart() -> None:
    assert score([10], [20]) > score([10], [60])


def test_standing_together_ends_after_sixteen_words() -> None:
    assert score([10], [26]) > score([10], [27]) == score([10], [90])


def test_the_best_place_counts_wherever_it_is() -> None:
    assert score([0, 40, 80], [84]) == score([0, 40, 80], [44]) == score([0, 40, 80], [4])


def test_repetition_counts_ever_less() -> None:
    once, twice, thrice = (score(places, []) for places in ([1], [1, 50], [1, 50, 99]))

    assert twice - once > thrice - twice > 0


def test_a_short_passage_is_better_than_a_long_one() -> None:
    assert score([1], [2], length=20) > score([1], [2], length=400)


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    relevance = Relevance(rarities=[5.0, 0.5], average_length=100)

    assert score([1], [], relevance=relevance) > score([], [1], relevance=relevance)


def test_words_that_no_passage_has_raise_what_a_good_answer_needs() -> None:
    assert Relevance(rarities=[1.0], missing=2.0, average_length=100).scale == pytest.approx(4.5)


@pytest.mark.parametrize("passages", [1, 3, 1000])
def test_even_a_word_in_every_passage_is_worth_something(passages: int) -> None:
    assert rarity(passages, passages) > 0


def test_the_fewer_passages_have_a_word_the_more_it_is_worth() -> None:
    worth = [rarity(10, frequency) for frequency in range(11)]

    assert worth == sorted(worth, reverse=True)
    assert len(set(worth)) == 11


@given(
    places=st.lists(
        st.lists(st.integers(0, 200), max_size=6, unique=True).map(sorted), min_size=3, max_size=3
    ),
    length=st.integers(1, 400),
)
def test_what_the_terms_add_is_what_the_passage_has(places: list[list[int]], length: int) -> None:
    relevance = Relevance(rarities=[3.0, 1.5, 0.25], average_length=100)

    given_by = relevance.by_term(places, length=length)

    assert sum(given_by) == pytest.approx(relevance.of(places, length=length))
    assert [bool(one) for one in given_by] == [bool(one) for one in places]
