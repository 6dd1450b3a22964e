"""A question is put so that QMD finds the documents with some of its words, whatever it looks like."""

import pytest

from composable_memory_adapters.qmd.settings import SearchMode
from composable_memory_adapters.qmd.transport.qmd_client import MAX_CHARACTERS, MAX_SEARCHES, request_of
from composable_memory_adapters.qmd.types import SearchRequest, SubSearch


def request(query: str, mode: SearchMode = "search", *, rerank: bool = False) -> SearchRequest:
    found = request_of(query, mode=mode, rerank=rerank, collections=["notes"], limit=40)
    assert found is not None
    return found


def lex(query: str) -> list[str]:
    return [one.text for one in request(query).searches if one.kind == "lex"]


def test_a_question_is_its_content_words_together_then_singly_then_in_pairs() -> None:
    assert lex("When did Caroline join the support group?") == [
        "Caroline join support group",
        "Caroline",
        "support",
        "group",
        "join",
        "Caroline join",
        "support group",
        "join support",
    ]


def test_all_words_of_a_long_question_are_asked_for() -> None:
    words = "one1 two2 three3 four4 five5 six6 seven7 eight8 nine9 ten10 eleven11 twelve12".split()
    together, *few = lex(" ".join(words))

    assert together == " ".join(words)
    assert len(few) == MAX_SEARCHES - 1
    assert set(" ".join(few).split()) == set(words)


def test_what_is_quoted_or_an_identifier_is_a_phrase_and_asked_for_alone() -> None:
    first, second, third, *_ = lex('the "rate limit" in foo_bar-baz of the gateway')

    assert first == '"rate limit" "foo bar baz" gateway'
    assert [second, third] == ['"rate limit"', '"foo bar baz"']


def test_chinese_is_asked_for_by_pairs_of_characters() -> None:
    assert lex("部署方案是什么？")[:4] == ["部署 署方 方案", "部署", "署方", "方案"]


def test_arabic_is_asked_for_as_it_is_written() -> None:
    assert "أحمد" in lex("أين ذهب أحمد؟")


def test_the_last_letter_of_a_spanish_word_may_differ() -> None:
    assert "director" in lex("¿Quién era la directora de la escuela?")


@pytest.mark.parametrize("query", ["", "  ", "!?", "🎉", '"', "--", "\x00\n"])
def test_there_is_nothing_to_ask_without_a_word(query: str) -> None:
    assert request_of(query, mode="query", rerank=True, collections=["notes"], limit=40) is None


def test_a_question_of_stop_words_alone_is_asked_for_as_it_is() -> None:
    assert lex("what is it")[0] == "what is it"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("-foo --bar", "foo bar"),
        ("multi-agent and real - time", "multi-agent and real - time"),
        ('an "-odd quote', "an odd quote"),
        ("two\nlines\r\nand\x00more\u2028here", "two lines and more here"),
        ("lex: hello", "lex hello"),
        ("expand : hello", "expand hello"),
        ("\ufeff-hello", "hello"),
        ("lone \ud800 half", "lone half"),
    ],
)
def test_nothing_that_is_typed_is_syntax(query: str, text: str) -> None:
    asked = request(query, "vsearch")

    assert " ".join(asked.text.split()) == text
    assert asked.searches == (SubSearch(kind="vec", text=asked.text),)


def test_a_decomposed_character_is_asked_for_composed() -> None:
    assert lex("cafe\u0301") == ["café"]


def test_a_question_is_cut() -> None:
    asked = request("word " * MAX_CHARACTERS, "query")

    assert len(asked.text) <= MAX_CHARACTERS
    assert len(asked.searches) <= MAX_SEARCHES


def test_both_ways_to_search_share_the_number_of_searches() -> None:
    asked = request("one1 two2 three3 four4 five5 six6 seven7 eight8 nine9 ten10", "query")

    assert [one.kind for one in asked.searches] == ["vec", *["lex"] * (MAX_SEARCHES - 1)]


def test_a_question_that_qmd_widens_has_no_searches() -> None:
    assert request("Where is it?", "query", rerank=True) == SearchRequest(
        text="Where is it?", collections=("notes",), limit=40, expand=True
    )


def test_words_alone_are_never_widened() -> None:
    assert not request("gateway", "search", rerank=True).expand
