"""Scores of foreign memories: by what their texts say, so that they can stand beside those of others."""

from pydantic import JsonValue

from composable_memory.types import MemorySearchResult
from composable_memory_adapters.external.answer_reader import (
    FieldNames,
    compared,
    read_answer,
    results_of,
)
from composable_memory_adapters.text.query_terms import KeywordQuery, analyse

QUERY = analyse("when was the harbour pump replaced?")


def read(*rows: JsonValue, query: KeywordQuery = QUERY) -> tuple[MemorySearchResult, ...]:
    found = read_answer(list(rows), backend_id="away", results_at=None, names=FieldNames())
    return results_of(compared(found.hits, query), query)


def test_a_text_with_the_words_of_the_question_goes_before_a_higher_score_without() -> None:
    best, other = read(
        {"id": "a", "text": "The office is closed.", "score": 0.99},
        {"id": "b", "text": "The pump of the harbour was replaced in May.", "score": 0.2},
    )
    assert (best.path, other.path) == ("away://b", "away://a")
    assert other.score < 0.43 < best.score <= 1.0


def test_a_list_in_which_nothing_answers_has_low_scores_whatever_its_order_says() -> None:
    assert max(one.score for one in read({"text": "Soup."}, {"text": "Bread."}, {"text": "Tea."})) < 0.31


def test_the_title_counts_and_equal_texts_keep_their_order() -> None:
    results = read(
        {"id": "c", "name": "Harbour pump", "text": "Replaced in May."},
        {"id": "d", "text": "Replaced in May."},
        {"id": "e", "text": "Replaced in May."},
    )
    assert [one.path for one in results] == ["away://c", "away://d", "away://e"]


def test_nothing_is_compared_where_nothing_was_found() -> None:
    assert results_of(compared([], QUERY), QUERY) == ()


def test_a_word_that_all_found_texts_have_counts_all_the_same() -> None:
    common: list[JsonValue] = [{"id": f"r{at}", "text": f"The harbour, number {at}."} for at in range(6)]
    first, *others = read(*common, {"id": "both", "text": "The pump of the harbour."})
    assert first.path == "away://both"
    assert first.score > others[0].score >= min(one.score for one in others) > 0.3


def test_a_name_that_no_text_has_lowers_scores_more_than_another_word() -> None:
    texts: list[JsonValue] = [{"text": "The harbour pump was replaced in May."}, {"text": "Soup."}]
    named, unnamed = (
        read(*texts, query=analyse(question))[0].score
        for question in ("Did Roberta see the pump?", "did roberta see the pump?")
    )
    assert named < unnamed
