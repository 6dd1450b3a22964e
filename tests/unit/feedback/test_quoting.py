"""Which results an answer quotes: by runs of words, by citations, by rare names; and by nothing less."""

import pytest

from composable_memory_feedback.quoting import ShownText, quoted_places
from composable_memory_ops_logs import TakenFrom

BACKUP = "The nightly backup of the NAS runs at three o'clock and keeps fourteen copies on the shelf."
GARDEN = "Tomatoes want water every morning; the greenhouse door stays open until the evening."


def shown(text: str, path: str = "notes/a.md", first: int = 3, last: int = 5) -> ShownText:
    return ShownText(TakenFrom(path, first, last), text)


def quotes(answer: str, text: str = BACKUP, *, question: str = "") -> bool:
    return bool(quoted_places(answer, [shown(text)], question=question))


def test_the_places_come_in_the_order_in_which_they_were_shown() -> None:
    results = [shown(GARDEN, "b.md"), shown("nothing", "c.md"), shown(BACKUP, "a.md")]

    assert quoted_places(f"{BACKUP} {GARDEN}", results) == [TakenFrom("b.md", 3, 5), TakenFrom("a.md", 3, 5)]


def test_eight_words_in_a_row_are_a_quotation_and_seven_are_not() -> None:
    words = BACKUP.split()

    assert quotes("You noted: " + " ".join(words[3:11]))
    assert not quotes("You noted: " + " ".join(words[3:9]))


def test_case_punctuation_and_markup_do_not_matter() -> None:
    assert quotes("> the **nightly** BACKUP, of the [[NAS]] -- runs: at\nthree o\u2019clock")


def test_the_same_words_in_another_order_are_no_quotation() -> None:
    assert not quotes(" ".join(reversed(BACKUP.split())))


def test_scripts_without_spaces_are_compared_by_characters() -> None:
    text = "备份每天凌晨三点开始运行，一共保留十四份副本，全部放在书房的架子上。"

    assert quotes("笔记说：备份每天凌晨三点开始运行一共保留十四份副本，全部放在书房", text)
    assert not quotes("笔记说：备份每天凌晨三点开始运行", text)


def test_thai_is_compared_by_characters() -> None:
    assert quotes("ตอบ: สำรองข้อมูลทุกคืนตอนตีสามเสมอ", "สำรองข้อมูลทุกคืนตอนตีสามเสมอ และเก็บไว้")


@pytest.mark.parametrize(
    "answer",
    [
        "See notes/a.md#L3-L5.",
        "See `notes/a.md#L4`",
        "(notes/a.md:5)",
        "notes/a.md:1-3",
        "./notes/a.md#L2-9",
    ],
)
def test_a_citation_of_its_lines_quotes_a_result(answer: str) -> None:
    assert quotes(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "See notes/a.md.",
        "notes/a.md#L6",
        "notes/a.md#L33",
        "old/notes/a.md#L3",
        "notes/a.md#L99999999999999999999999",
        "notes/b.md#L3",
        "notesXaYmd#L3",
    ],
)
def test_other_lines_other_files_and_a_file_alone_do_not(answer: str) -> None:
    assert not quotes(answer)


def test_a_citation_of_a_piece_of_a_line_quotes_that_piece_alone() -> None:
    places = (TakenFrom("notes/a.md", 3, 3, at) for at in (None, 1280))
    pieces = [ShownText(place, text) for place, text in zip(places, (BACKUP, GARDEN), strict=True)]

    assert quoted_places("see notes/a.md#L3:1280", pieces) == [pieces[1].place]
    assert quoted_places("see notes/a.md:3-3:1280.", pieces) == [pieces[1].place]
    assert quoted_places("see notes/a.md#L3", pieces) == [one.place for one in pieces]
    assert quotes("see notes/a.md:3:1280"), "a line and a column, as editors write it"


def test_a_result_without_lines_is_cited_by_its_path() -> None:
    fact = shown("x", "graphiti/f1", 0, 0)

    assert quoted_places("as graphiti/f1 says", [fact]) == [TakenFrom("graphiti/f1", 0, 0)]
    assert quoted_places("as graphiti/f12 says", [fact]) == []


@pytest.mark.parametrize(
    "name",
    ["ERR_4711", "v1.4.2-rc1", "a8f3c2d9", "maxResults", "anna@example.org", "4930901820", "max_results"],
)
def test_a_rare_name_quotes_the_only_result_that_has_it(name: str) -> None:
    results = [shown(f"it was {name}, then", "a.md"), shown("it was something else", "b.md")]

    assert quoted_places(f"It is {name.upper()}.", results) == [TakenFrom("a.md", 3, 5)]


@pytest.mark.parametrize("name", ["greenhouse", "well-known", "2024", "and/or", "2024-01-03", "a1"])
def test_ordinary_words_and_numbers_are_not_rare_names(name: str) -> None:
    assert not quotes(f"It is {name}.", f"it was {name}, then")


def test_a_name_that_several_results_have_tells_nothing() -> None:
    results = [shown("first ERR_4711", "a.md"), shown("then ERR_4711", "b.md")]

    assert quoted_places("It is ERR_4711.", results) == []


def test_a_name_from_the_question_tells_nothing() -> None:
    assert not quotes("I found nothing on ERR_4711.", "see ERR_4711", question="what is err_4711?")


@pytest.mark.parametrize("text", ["", " ", "\n", "#L3", "\x00"])
def test_empty_texts_quote_nothing_and_are_not_quoted(text: str) -> None:
    assert quoted_places(text, [shown(BACKUP)]) == []
    assert quoted_places(BACKUP, [shown(text)]) == []
    assert quoted_places(text, [shown(text, "")]) == []


def test_only_the_beginning_of_an_endless_answer_is_looked_at() -> None:
    assert not quotes("la " * 70_000 + BACKUP)
