"""What is looked up of a question, and when a fact holds it."""

import pytest

from composable_memory_adapters.graphiti.reading.question_words import (
    MAX_WORDS,
    FactWords,
    most_selective,
    question_words,
)


def texts(question: str) -> list[str]:
    return [word.text for word in question_words(question)]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Where does Ann work?", ["ann", "work"]),
        ("Ann's boss’s dog", ["ann", "boss", "dog"]),
        ("who is she", ["who", "is", "she"]),
        ("Wo wohnt die Anna?", ["wohnt", "anna"]),
        ("¿Dónde vive la hermana de Ana?", ["vive", "hermana", "ana"]),
        ("Où habite la sœur de Jean ?", ["habite", "sœur", "jean"]),
        ("Где живет Анна?", ["живет", "анна"]),
        ("tea TEA Tea", ["tea"]),
        ("Zürich", ["zurich"]),
        ("安娜住在哪里", ["安娜", "娜住", "住在"]),
        ("🎉 ?!", []),
        ("", []),
    ],
)
def test_content_words_are_what_is_looked_up(question: str, words: list[str]) -> None:
    assert texts(question) == words


def test_pairs_are_no_words_of_a_full_text_index() -> None:
    ann, *pairs = question_words("Ann 東京都")

    assert not ann.is_pair
    assert [(pair.text, pair.is_pair) for pair in pairs] == [("東京", True), ("京都", True)]


def test_a_word_is_looked_up_in_every_case_an_index_may_keep() -> None:
    (munich,) = question_words("münchen")

    assert {"münchen", "München", "MÜNCHEN", "münch*"} <= {*munich.lookups}


def test_nothing_in_a_lookup_is_an_operator() -> None:
    odd = "a|b -c (d) {e} \"f\" 'g' @h:i %j% k* ~l $m \\n =>[KNN] o.p/q:r;s #t ^u !v &w +x ?y <z>"

    assert all(form.replace("_", "").isalnum() for word in question_words(odd) for form in word.lookups)


def test_a_long_question_keeps_what_the_graph_knows() -> None:
    page = " ".join(f"filler{number}" for number in range(90))
    words = question_words(f"{page} Bob prefers tea")

    kept = most_selective(words, {"bob": 3, "prefers": 1, "tea": 50})

    assert len(kept) == MAX_WORDS
    assert {"bob", "prefers", "tea"} <= {word.text for word in kept}
    assert [word.text for word in kept][-3:] == ["bob", "prefers", "tea"]


def test_of_very_many_words_names_and_numbers_are_read() -> None:
    words = texts(
        " ".join(f"the{'x' * (number % 20)}w{chr(97 + number % 26)}" for number in range(900)) + " Bob"
    )

    assert 0 < len(words) <= 128
    assert "bob" in words


@pytest.mark.parametrize(
    ("word", "fact"),
    [
        ("moving", "Ann moved to Oslo"),
        ("lives", "Ann lived here"),
        ("cities", "the city of Oslo"),
        ("running", "Ann runs"),
        ("works", "WORKS_AT"),
        ("munchen", "Anna wohnt in München"),
        ("ＡＢＣ", "abc"),
        ("Москве", "город Москва"),
        ("東京", "彼は東京に住む"),
        ("京", "彼は東京に住む"),
    ],
)
def test_a_fact_holds_a_word_in_other_forms(word: str, fact: str) -> None:
    (wanted,) = question_words(word)

    assert FactWords.of([fact]).hold(wanted)


@pytest.mark.parametrize(
    ("word", "fact"),
    [("Ann", "Anna and Annabel"), ("car", "the care of"), ("tea", "team")],
)
def test_a_fact_does_not_hold_what_only_begins_alike(word: str, fact: str) -> None:
    (wanted,) = question_words(word)

    assert not FactWords.of([fact]).hold(wanted)
