"""How keyword hits and vector hits become one ranking."""

import math
from collections.abc import Container

import pytest

from composable_memory_adapters.builtin.search.hybrid import (
    VECTOR_WEIGHT,
    FusedHit,
    KeywordHit,
    fuse,
    reranked,
    vector_weight_for,
)


def words(*hits: tuple[int, float], exact: Container[int] = ()) -> list[KeywordHit]:
    return [KeywordHit(id=id_, bm25=bm25, exact=id_ in exact) for id_, bm25 in hits]


def near(*hits: tuple[int, float]) -> dict[int, float]:
    return dict(hits)


def ids(hits: list[FusedHit]) -> list[int]:
    return [hit.id for hit in hits]


def test_a_score_is_the_weighted_sum_of_what_both_legs_say() -> None:
    (hit,) = fuse(words((1, 5.0), exact={1}), near((1, 0.5)), scale=10.0, vector_weight=0.25)

    keyword = 1 - math.exp(-2.4 * 0.5)
    assert hit == FusedHit(
        id=1, score=0.75 * keyword + 0.25 * 0.5, keyword_score=keyword, vector_score=0.5, exact=True
    )


def test_a_full_match_scores_high_and_a_fifth_of_one_low() -> None:
    full, fifth = fuse(words((1, 10.0), (2, 2.0)), near((1, 0.3), (2, 0.3)), scale=10.0)

    assert full.score > 0.7
    assert fifth.score < 0.4


def test_the_score_of_a_passage_does_not_depend_on_what_else_was_found() -> None:
    alone = fuse(words((1, 5.0)), near((1, 0.5)), scale=10.0)
    among_others = fuse(
        words((1, 5.0), (2, 9.0), (3, 0.1)), near((1, 0.5), (2, 0.1), (3, 0.9), (4, 0.2)), scale=10.0
    )

    assert alone[0] in among_others


def test_without_keyword_search_the_vectors_decide() -> None:
    hits = fuse(None, near((1, 0.2), (2, 0.8)), scale=1.0)

    assert ids(hits) == [2, 1]
    assert [hit.score for hit in hits] == [hit.vector_score for hit in hits]


@pytest.mark.parametrize("vector", [None, {}], ids=["not asked", "no vectors yet"])
def test_without_vectors_the_keywords_decide(vector: dict[int, float] | None) -> None:
    hits = fuse(words((1, 2.0), (2, 8.0)), vector, scale=10.0)

    assert ids(hits) == [2, 1]
    assert [hit.score for hit in hits] == [hit.keyword_score for hit in hits]


def test_a_question_whose_words_nobody_wrote_scores_low() -> None:
    (hit,) = fuse([], near((1, 0.5)), scale=1.0)

    assert hit.score == pytest.approx(0.15)


def test_nothing_found_is_nothing() -> None:
    assert fuse([], {}, scale=1.0) == []
    assert fuse(None, None, scale=1.0) == []


def test_a_passage_without_a_vector_yet_is_no_nearer_than_the_others() -> None:
    hits = fuse(words((1, 5.0), (2, 5.0)), near((1, 0.5), (3, 0.2)), scale=10.0)

    new = next(hit for hit in hits if hit.id == 2)
    assert new.vector_score is None
    assert new.score == pytest.approx(0.7 * (new.keyword_score or 0) + 0.3 * 0.2)


@pytest.mark.parametrize("cosine", [-1.0, -0.3, math.nan, math.inf])
def test_a_cosine_that_says_nothing_good_counts_as_none(cosine: float) -> None:
    (hit,) = fuse(None, near((1, cosine)), scale=1.0)

    assert hit.score == 0.0


def test_equal_scores_are_in_the_order_of_ids() -> None:
    assert ids(fuse(words((7, 1.0), (3, 1.0), (5, 1.0)), None, scale=1.0)) == [3, 5, 7]


def test_of_equal_scores_the_one_with_the_words_comes_first() -> None:
    keyword = 1 - math.exp(-2.4 * 0.25)
    hits = fuse(words((9, 2.5)), near((1, keyword), (9, 0.0)), scale=10.0, vector_weight=0.5)

    assert hits[0].score == hits[1].score
    assert ids(hits) == [9, 1]


@pytest.mark.parametrize(
    ("nearest", "ordinary", "share"),
    [
        (0.5, 0.05, 1.0),
        (0.5, 0.35, 1.0),
        (0.8, 0.68, 0.5),
        (0.8, 0.76, 1 / 6),
        (0.8, 0.8, 0.0),
        (0.5, -0.4, 1.0),
        (-0.1, -0.4, 1.0),
    ],
)
def test_vectors_count_less_where_an_ordinary_passage_is_nearly_as_near_as_the_nearest(
    nearest: float, ordinary: float, share: float
) -> None:
    weight = vector_weight_for(nearest, [ordinary] * 32, by_words=1.0)

    assert weight == pytest.approx(VECTOR_WEIGHT * share)


def test_of_a_handful_of_passages_none_is_ordinary() -> None:
    assert vector_weight_for(0.8, [0.8] * 7, by_words=1.0) == VECTOR_WEIGHT


@pytest.mark.parametrize(
    ("by_words", "weight"), [(1.0, 0.3), (0.8, 0.3), (0.6, 0.44), (0.4, 0.58), (0.2, 0.6), (0.0, 0.6)]
)
def test_vectors_count_for_more_the_less_the_best_passage_has_of_the_words(
    by_words: float, weight: float
) -> None:
    assert vector_weight_for(0.5, [0.1] * 32, by_words=by_words) == pytest.approx(weight)
    assert vector_weight_for(0.8, [0.68] * 32, by_words=by_words) == pytest.approx(weight / 2)


@pytest.mark.parametrize(
    ("keyword", "expected"), [(None, 0.4), ([], 0.3 * 0.4)], ids=["vectors alone", "hybrid"]
)
def test_a_cosine_is_the_score_alone_and_its_share_in_the_hybrid(
    keyword: list[KeywordHit] | None, expected: float
) -> None:
    (hit,) = fuse(keyword, near((1, 0.4)), scale=1.0)

    assert hit.score == pytest.approx(expected)


# --- reranking ---


def fused_hits(*scores: float) -> list[FusedHit]:
    return [
        FusedHit(id=at, score=score, keyword_score=score, vector_score=None, exact=False)
        for at, score in enumerate(scores)
    ]


def test_a_judgement_counts_half() -> None:
    hits = reranked(fused_hits(0.8, 0.6), {0: 0.0, 1: 1.0})

    assert [(hit.id, round(hit.score, 9)) for hit in hits] == [(1, 0.8), (0, 0.4)]


def test_a_reranker_that_finds_all_alike_counts_less() -> None:
    scores = [0.5 - at / 100 for at in range(10)]
    alike = dict.fromkeys(range(10), 0.5)
    telling = dict.fromkeys(range(9), 0.1) | {9: 0.9}

    assert [hit.score for hit in reranked(fused_hits(*scores), alike)] == scores
    assert reranked(fused_hits(*scores), telling)[0].id == 9
    assert reranked(fused_hits(*scores), dict.fromkeys(range(10), 0.0)) == fused_hits(*scores)


def test_what_was_not_judged_comes_behind() -> None:
    hits = reranked(fused_hits(0.8, 0.7, 0.6), {0: 0.9, 1: 0.5})

    assert [hit.id for hit in hits] == [0, 1, 2]
