"""In which order results differ, and how notes stand among transcripts."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory_adapters.builtin.search.diversity import (
    Saying,
    balanced_order,
    diverse_order,
    likeness,
)
from composable_memory_adapters.text.forms import word_set

SCORES = st.floats(0, 1)
SAYINGS = st.lists(
    st.builds(Saying, score=SCORES, words=st.frozensets(st.sampled_from("abcdef"))), max_size=12
).map(lambda found: sorted(found, key=lambda one: -one.score))
PLACES = st.lists(st.tuples(SCORES, st.booleans()), max_size=30).map(
    lambda found: sorted(found, key=lambda one: -one[0])
)


def says(*results: tuple[float, str]) -> list[Saying]:
    return [Saying(score=score, words=frozenset(text.split())) for score, text in results]


def balanced(kinds: str, scores: Sequence[float]) -> str:
    order = balanced_order(scores, [kind == "s" for kind in kinds])
    return "".join(kinds[at] for at in order)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("", "", 1.0), ("red", "", 0.0), ("red lamp", "red lamp", 1.0), ("red lamp", "red door", 1 / 3)],
)
def test_likeness_is_the_share_of_common_words(one: str, other: str, expected: float) -> None:
    assert likeness(set(one.split()), set(other.split())) == pytest.approx(expected)


def test_what_was_said_already_makes_room() -> None:
    results = says((0.9, "red lamp context"), (0.88, "red lamp context"), (0.8, "blue door"), (0.1, "tea"))

    assert diverse_order(results, lambda_=0.7) == [0, 2, 1, 3]


def test_something_new_that_hardly_fits_does_not_come_before_a_repetition() -> None:
    results = says((0.9, "red lamp context"), (0.88, "red lamp context"), (0.2, "blue door"), (0.1, "tea"))

    assert diverse_order(results, lambda_=0.7) == [0, 1, 2, 3]


def test_of_equals_the_earlier_comes_first() -> None:
    assert diverse_order(says((0.5, "a"), (0.5, "b"), (0.5, "c")), lambda_=0.7) == [0, 1, 2]


def test_of_equal_merit_the_higher_score_comes_first() -> None:
    assert diverse_order(says((0.2, "a"), (0.9, "b"), (0.5, "c")), lambda_=0.0) == [1, 2, 0]


@given(results=SAYINGS)
def test_with_lambda_one_the_scores_decide(results: Sequence[Saying]) -> None:
    assert diverse_order(results, lambda_=1.0) == [*range(len(results))]


@given(results=SAYINGS, lambda_=st.floats(0, 1))
def test_nothing_is_lost_and_the_best_stays_first(results: Sequence[Saying], lambda_: float) -> None:
    order = diverse_order(results, lambda_=lambda_)

    assert sorted(order) == [*range(len(results))]
    assert [results[at].score for at in order[:1]] == [one.score for one in results[:1]]


@pytest.mark.parametrize(
    ("given_order", "expected"),
    [
        ("", ""),
        ("mmm", "mmm"),
        ("sss", "sss"),
        ("ssssmm", "smsmss"),
        ("mmss", "mmss"),
        ("mssssm", "mssmss"),
        ("smsm", "smsm"),
    ],
)
def test_half_of_every_beginning_are_notes_while_there_are_some(given_order: str, expected: str) -> None:
    assert balanced(given_order, [0.5] * len(given_order)) == expected


def test_a_note_that_hardly_fits_holds_no_transcript_back() -> None:
    assert balanced("sssm", [0.8, 0.8, 0.8, 0.39]) == "sssm"


def test_a_note_half_as_good_as_the_transcript_is_worth_its_place() -> None:
    assert balanced("sssm", [0.8, 0.8, 0.8, 0.4]) == "smss"


@given(results=PLACES)
def test_the_balance_holds_at_every_length_and_each_kind_keeps_its_order(
    results: Sequence[tuple[float, bool]],
) -> None:
    scores, is_session = [score for score, _ in results], [kind for _, kind in results]
    order = balanced_order(scores, is_session)

    assert sorted(order) == [*range(len(results))]
    for kind in (True, False):
        own = [at for at in order if is_session[at] is kind]
        assert own == sorted(own)
    for length in range(1, len(order) + 1):
        last = order[length - 1]
        notes_left = [scores[at] for at in order[length:] if not is_session[at]]
        if is_session[last] and any(score >= scores[last] / 2 for score in notes_left):
            assert sum(is_session[at] for at in order[:length]) <= (length + 1) // 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Café Zürich", "cafe ZURICH"),
        ("部署方案", "部署方案。"),
        ("ＷＩＤＥ letters", "wide LETTERS"),
        ("الكِتاب", "كتاب"),
        ("ｶﾞｲﾄﾞ", "ガイド"),
    ],
)
def test_words_are_compared_in_every_script(one: str, other: str) -> None:
    assert word_set(one) == word_set(other) != frozenset()


def test_asian_texts_are_compared_by_characters_and_pairs() -> None:
    assert word_set("部署方案") == {"部", "署", "方", "案", "部署", "署方", "方案"}
