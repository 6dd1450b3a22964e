"""Laws of the fusion that hold for any hits."""

from hypothesis import given
from hypothesis import strategies as st

from composable_memory_adapters.builtin.search.hybrid import (
    MOST_VECTOR_WEIGHT,
    KeywordHit,
    fuse,
    vector_weight_for,
)

IDS = st.integers(1, 40)
KEYWORD = st.dictionaries(IDS, st.tuples(st.floats(0, 1e6), st.booleans()), max_size=20).map(
    lambda hits: [KeywordHit(id=id_, bm25=bm25, exact=exact) for id_, (bm25, exact) in hits.items()]
)
VECTOR = st.dictionaries(IDS, st.floats(-1, 1), max_size=20)
SCALES = st.floats(1e-3, 1e3)
LEGS = {"keyword": st.none() | KEYWORD, "vector": st.none() | VECTOR, "scale": SCALES}


@given(**LEGS, weight=st.floats(0, 1))
def test_every_score_is_between_zero_and_one_and_in_order(
    keyword: list[KeywordHit] | None, vector: dict[int, float] | None, scale: float, weight: float
) -> None:
    hits = fuse(keyword, vector, scale=scale, vector_weight=weight)

    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    parts = [part for hit in hits for part in (hit.keyword_score, hit.vector_score) if part is not None]
    assert all(0.0 <= score <= 1.0 + 1e-9 for score in scores + parts)


@given(**LEGS)
def test_every_passage_that_a_leg_named_is_there_once(
    keyword: list[KeywordHit] | None, vector: dict[int, float] | None, scale: float
) -> None:
    hits = fuse(keyword, vector, scale=scale)

    named = {hit.id for hit in keyword or ()}.union(vector or ())
    assert sorted(hit.id for hit in hits) == sorted(named)
    assert {hit.id for hit in hits if hit.exact} == {hit.id for hit in keyword or () if hit.exact}


@given(keyword=KEYWORD, vector=VECTOR, scale=SCALES, data=st.data())
def test_the_order_in_which_hits_come_does_not_matter(
    keyword: list[KeywordHit], vector: dict[int, float], scale: float, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(keyword)), dict(data.draw(st.permutations([*vector.items()])))

    assert fuse(*shuffled, scale=scale) == fuse(keyword, vector, scale=scale)


@given(keyword=KEYWORD, vector=VECTOR.filter(bool), more=VECTOR, scale=SCALES)
def test_what_else_was_found_changes_no_score(
    keyword: list[KeywordHit], vector: dict[int, float], more: dict[int, float], scale: float
) -> None:
    known = [hit for hit in keyword if hit.id in vector]

    before = fuse(known, vector, scale=scale)
    after = fuse(known, more | vector, scale=scale)
    assert before == [hit for hit in after if hit.id in vector]


@given(keyword=KEYWORD.filter(bool), vector=VECTOR, scale=SCALES, gain=st.floats(0, 100), data=st.data())
def test_a_more_relevant_passage_never_falls(
    keyword: list[KeywordHit], vector: dict[int, float], scale: float, gain: float, data: st.DataObject
) -> None:
    chosen = data.draw(st.sampled_from(keyword))
    better = KeywordHit(id=chosen.id, bm25=chosen.bm25 + gain, exact=chosen.exact)
    others = [hit for hit in keyword if hit.id != chosen.id]

    before = [hit.id for hit in fuse(keyword, vector, scale=scale)]
    after = [hit.id for hit in fuse([*others, better], vector, scale=scale)]
    assert after.index(chosen.id) <= before.index(chosen.id)


@given(nearest=st.floats(-1, 1), some=st.lists(st.floats(-1, 1), max_size=40), by_words=st.floats(0, 1))
def test_vectors_never_count_for_more_than_their_full_weight(
    nearest: float, some: list[float], by_words: float
) -> None:
    assert 0.0 <= vector_weight_for(nearest, some, by_words=by_words) <= MOST_VECTOR_WEIGHT
