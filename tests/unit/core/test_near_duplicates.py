"""When two results are the same place, or the same in nearly the same words."""

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from composable_memory.query.near_duplicates import (
    are_near,
    near_pairs,
    near_pairs_shown,
    nearly_equal,
    overlap,
    same_lines,
    words_of,
)
from composable_memory.types import MemorySearchResult, Origin


def result(snippet: str, path: str = "a.md", start: int = 1, end: int = 2) -> MemorySearchResult:
    return MemorySearchResult(path=path, start_line=start, end_line=end, score=0.5, snippet=snippet)


def numbered(snippets: Sequence[str]) -> list[MemorySearchResult]:
    return [result(snippet, path=f"{number}.md") for number, snippet in enumerate(snippets)]


def words(*numbers: int) -> str:
    return " ".join(f"w{number}" for number in numbers)


def by_comparing_all(results: Sequence[MemorySearchResult]) -> set[tuple[int, int]]:
    split = [words_of(one.snippet) for one in results]
    return {
        (one, other)
        for one, other in combinations(range(len(results)), 2)
        if results[one].key != results[other].key and nearly_equal(split[one], split[other])
    }


# --- places -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "better", "expected"),
    [((1, 4), (3, 9), True), ((1, 4), (4, 9), False), ((5, 5), (1, 9), True), ((1, 9), (5, 5), False)],
)
def test_lines_overlap_when_half_of_them_stand_in_the_better_ones(
    lines: tuple[int, int], better: tuple[int, int], expected: bool
) -> None:
    one, other = (Origin(path="a.md", start_line=start, end_line=end) for start, end in (lines, better))

    assert overlap(one, other) is expected


def test_the_same_lines_begin_and_end_together() -> None:
    assert same_lines(result("", start=3, end=5), result("", start=3, end=5))
    assert not same_lines(result("", start=3, end=5), result("", start=3, end=6))


# --- texts --------------------------------------------------------------------------------------------------


def test_words_count_once_and_without_their_case() -> None:
    assert words_of("The port, the PORT") == {"the", "port,", "port"}


def test_a_text_without_spaces_is_compared_by_pairs_of_signs() -> None:
    assert words_of("港口是一个船舶停靠的地方而码头不是") >= {"港口", "口是", "不是"}


def test_texts_of_seventeen_common_words_in_twenty_are_nearly_equal() -> None:
    common = words(*range(17))

    assert nearly_equal(words_of(common + " x y"), words_of(common + " z"))
    assert not nearly_equal(words_of(common + " x y"), words_of(common + " z u"))


def test_texts_without_words_are_not_evidence_of_anything() -> None:
    assert not are_near(result(""), result("  "))
    assert list(near_pairs(numbered(["", "", " "]))) == []


def test_texts_are_near_in_either_order() -> None:
    one, same, other = result(words(1, 2, 3)), result(words(3, 2, 1)), result(words(4, 5, 6))

    assert [are_near(one, same), are_near(one, other), are_near(same, one), are_near(other, one)] == [
        True, False, True, False,
    ]  # fmt: skip


# --- all pairs ----------------------------------------------------------------------------------------------


def test_the_pairs_found_are_those_that_comparing_all_would_find() -> None:
    for seed in range(25):
        results = numbered(copied_and_changed(Random(seed)))

        found = list(near_pairs(results))

        assert set(found) == by_comparing_all(results)
        assert len(set(found)) == len(found)
        assert all(one < other for one, other in found)


def test_two_texts_are_near_if_comparing_all_their_words_says_so() -> None:
    for seed in range(25):
        results = numbered(copied_and_changed(Random(seed)))
        pairs = combinations(range(len(results)), 2)

        found = {(one, other) for one, other in pairs if are_near(results[one], results[other])}

        assert found == by_comparing_all(results)


def test_texts_of_very_many_words_are_near_if_they_share_nearly_all() -> None:
    texts = [
        words(*range(4000)),
        words(*range(600, 4000)),
        words(*range(700, 4000)),
        words(*range(9000, 13000)),
    ]

    assert set(near_pairs(numbered(texts))) == {(0, 1), (1, 2)}


def copied_and_changed(draw: Random) -> list[str]:
    """Return texts of which many are copies of others with a few words changed."""
    texts: list[list[int]] = []
    for _ in range(40):
        length = draw.choice([0, 1, 2, 6, 7, 8, 20, 40])
        own = draw.choice(texts) if texts and draw.random() < 0.6 else draw.sample(range(60), length)
        texts.append([draw.randrange(60) if draw.random() < 0.08 else number for number in own])
    return [words(*numbers) for numbers in texts]


def test_pairs_of_texts_without_spaces_are_found_too() -> None:
    text = "港口是一个船舶停靠的地方而码头不是这样的一个地方"
    results = numbered([text, "咖啡和茶都在厨房里面的架子上放着不要忘记买", text + "了", text[1:]])

    assert set(near_pairs(results)) == by_comparing_all(results) == {(0, 2), (0, 3), (2, 3)}


def test_results_at_the_same_lines_are_no_pair() -> None:
    assert list(near_pairs([result("the port"), result("the port")])) == []
    assert list(near_pairs([result("the port"), result("the port", start=2)])) == [(0, 1)]


# --- pairs that an answer can need ----------------------------------------------------------------------


def alone(
    number: int, snippet: str, *, exact: bool = False, origin: Origin | None = None
) -> MemorySearchResult:
    return MemorySearchResult(
        path=f"{number}.md",
        start_line=0 if origin else 1,
        end_line=0 if origin else 2,
        score=0.9 - number / 100,
        snippet=snippet,
        exact=exact,
        origin=origin,
    )


def test_results_that_cannot_reach_the_answer_are_not_compared() -> None:
    texts = ["a port", "a dock", "a queue", "the ferry", "the ferry"]

    assert list(near_pairs_shown([[alone(at, text) for at, text in enumerate(texts)]], 3)) == []
    assert list(near_pairs_shown([[alone(at, text) for at, text in enumerate(texts)]], 5)) == [(3, 4)]


def test_a_result_that_gives_its_place_to_a_twin_lets_the_next_one_in() -> None:
    found = [alone(at, "the ferry") for at in range(4)]

    assert set(near_pairs_shown([found], 2)) == set(near_pairs(found))


def test_exact_hits_are_looked_at_however_many_stand_before_that_may_score_too_little() -> None:
    found = [alone(at, f"text {at}") for at in range(5)]
    found += [alone(at, "the ferry", exact=True) for at in (5, 6)]

    assert list(near_pairs_shown([found], 2)) == [(5, 6)]


def test_facts_that_may_lose_score_do_not_keep_others_out() -> None:
    facts = [
        alone(at, f"fact {at}", origin=Origin(path=f"n{at}.md", start_line=1, end_line=2)) for at in range(5)
    ]

    assert list(near_pairs_shown([[*facts, alone(5, "the ferry"), alone(6, "the ferry")]], 2)) == [(5, 6)]


def test_what_shares_lines_is_looked_at_at_any_depth() -> None:
    one = [*(alone(at, f"text {at}") for at in range(6)), alone(6, "the ferry"), alone(7, "the ferry")]
    other = [alone(6, "another cut of it"), alone(7, "and again")]

    assert list(near_pairs_shown([one, other], 2)) == [(6, 7)]


def test_what_may_be_left_out_with_a_twin_of_its_file_does_not_keep_others_out() -> None:
    one = [alone(0, "the port"), alone(1, "text 1"), alone(2, "text 2"), alone(3, "the port")]
    other = [alone(1, "the port"), alone(2, "the port")]

    assert (0, 3) in near_pairs_shown([one, other], 2)


def test_a_text_that_lacks_just_so_many_words_of_another_is_near_it() -> None:
    results = numbered([words(*range(17)), words(*range(20)), words(*range(16))])

    assert list(near_pairs(results)) == [(0, 1), (0, 2)]


def test_far_down_it_is_looked_at_what_shares_a_single_line_with_another() -> None:
    first, far = result(words(*range(9)), path="x.md"), result(words(*range(9)), start=1, end=3)
    between, beside = result(words(11), path="y.md"), result(words(12), path="z.md")
    last_line = result(words(13), start=3, end=3)

    assert (0, 2) in near_pairs_shown([[first, between, far], [beside, last_line]], most=1)
