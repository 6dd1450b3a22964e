"""Which times a text speaks of, and which only look like it."""

import pytest

from composable_memory.query.intent import parse_query_intent
from composable_memory.time.expressions import time_mentions
from composable_memory.types import TimeHint


def read(text: str) -> list[tuple[str, str | None, str | None]]:
    """Return relation, date and phrase of every time in `text`."""
    return [(one.hint.phrase, one.hint.date, one.hint.relation) for one in time_mentions(text)]


def test_a_named_time_is_read_with_how_the_question_stands_to_it() -> None:
    for text, phrase, date, relation in [
        ("who ran billing as of March?", "as of march", "--03", "as-of"),
        ("as of 2026-03-01 where did Ada work", "as of 2026-03-01", "2026-03-01", "as-of"),
        ("where was it at the end of March 2024", "at the end of march 2024", "2024-03", "as-of"),
        ("in March 2024 we met", "march 2024", "2024-03", None),
        ("notes of March, 2024", "march, 2024", "2024-03", None),
        ("what did we do in 2023", "in 2023", "2023", None),
        ("back in May", "back in may", "--05", None),
        ("in may", "in may", "--05", None),
        ("what we did in May and why", "in may", "--05", None),
        ("in early March", "in early march", "--03", None),
        ("before 2026-03-01", "before 2026-03-01", "2026-03-01", "before"),
        ("prior to June 2025", "prior to june 2025", "2025-06", "before"),
        ("after March", "after march", "--03", "after"),
        ("since June", "since june", "--06", "since"),
        ("since ſeptember 2024", "since ſeptember 2024", "2024-09", "since"),
        ("since APR\u0130L 2024", "since apri\u0307l 2024", "2024-04", "since"),
        ("since Apr\u0131l 2024", "since apr\u0131l 2024", "2024-04", "since"),
        ("since 2026-03", "since 2026-03", "2026-03", "since"),
        ("from March 2024 onwards", "march 2024 onwards", "2024-03", "since"),
        ("until 2025", "until 2025", "2025", "until"),
        ("on March 3, 2026", "march 3, 2026", "2026-03-03", None),
        ("on March 3rd", "march 3rd", "--03-03", None),
        ("the 3rd of March 2026", "3rd of march 2026", "2026-03-03", None),
        ("3 March 2026", "3 march 2026", "2026-03-03", None),
        ("on Jan 5", "jan 5", "--01-05", None),
        ("the Q1 2026 plan", "q1 2026", "2026-Q1", None),
        ("2026Q2", "2026q2", "2026-Q2", None),
        ("the second quarter of 2025", "second quarter of 2025", "2025-Q2", None),
        ("what happened in KW 21 2026?", "kw 21 2026", "2026-W21", None),
        ("was war in KW 3", "kw 3", "--W03", None),
        ("in week 21 of 2026", "week 21 of 2026", "2026-W21", None),
        ("la semana 21 de 2026", "semana 21 de 2026", "2026-W21", None),
        ("since 2026-W21", "since 2026-w21", "2026-W21", "since"),
        ("goals for Q3", "for q3", "--Q3", None),
        ("on Monday", "on monday", "-W-1", None),
        ("last friday", "last friday", "-W-5", None),
        ("en marzo de 2024", "marzo de 2024", "2024-03", None),
        ("el 3 de marzo de 2026", "3 de marzo de 2026", "2026-03-03", None),
        ("desde enero", "desde enero", "--01", "since"),
        ("antes de 2025", "antes de 2025", "2025", "before"),
        ("2024年3月以前", "2024年3月以前", "2024-03", "before"),
        ("截至2024年3月", "截至2024年3月", "2024-03", "as-of"),
        ("2023年", "2023年", "2023", None),
        ("2024年3月1日的会议", "2024年3月1日", "2024-03-01", None),
        ("3月以降", "3月以降", "--03", "since"),
        ("2024년 3월 1일 이후", "2024년 3월 1일 이후", "2024-03-01", "after"),
    ]:
        assert read(text) == [(phrase, date, relation)], text


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("between March and May", "--03", "--05"),
        ("where did she live in spring 2025", "2025-03", "2025-05"),
        ("what was done last winter", "--12", "--02"),
        ("im Herbst 2024", "2024-09", "2024-11"),
        ("2025年春天住在哪里", "2025-03", "2025-05"),
        ("between spring and autumn 2025", "2025-03", "2025-11"),
        ("between March 3 and May 5, 2024", "2024-03-03", "2024-05-05"),
        ("from March to May 2024", "2024-03", "2024-05"),
        ("from 2020 to 2023", "2020", "2023"),
        ("March–May 2024", "2024-03", "2024-05"),
        ("entre marzo y mayo", "--03", "--05"),
        ("3月から5月", "--03", "--05"),
        ("从2024年3月到2024年5月", "2024-03", "2024-05"),
    ],
)
def test_a_stretch_has_a_beginning_and_an_end(text: str, start: str, end: str) -> None:
    (mention,) = time_mentions(text)

    assert (mention.hint.date, mention.hint.until, mention.hint.relation) == (start, end, "during")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("5 days ago", TimeHint(phrase="5 days ago", type="day", unit="day", offset=-5, relation="during")),
        ("two weeks ago", TimeHint(phrase="two weeks ago", type="week", unit="week", offset=-2,
                                   relation="during")),
        ("a year ago", TimeHint(phrase="a year ago", type="year", unit="year", offset=-1)),
        ("last 5 days", TimeHint(phrase="last 5 days", type="day", unit="day", offset=-5)),
        ("since last week", TimeHint(phrase="since last week", type="week", unit="week", offset=-1,
                                     relation="since")),
        ("last night", TimeHint(phrase="last night", type="day", unit="day", offset=-1)),
        ("hace 5 días", TimeHint(phrase="hace 5 días", type="day", unit="day", offset=-5, relation="during")),
        ("los últimos 5 días", TimeHint(phrase="los últimos 5 días", type="day", unit="day", offset=-5)),
        ("前天", TimeHint(phrase="前天", type="day", unit="day", offset=-2, relation="during")),
        ("最近5天", TimeHint(phrase="最近5天", type="day", unit="day", offset=-5)),
        ("3个月前", TimeHint(phrase="3个月前", type="month", unit="month", offset=-3, relation="during")),
        ("今年", TimeHint(phrase="今年", type="year", unit="year", offset=0)),
    ],
)  # fmt: skip
def test_a_time_is_counted_from_now(text: str, hint: TimeHint) -> None:
    assert [one.hint for one in time_mentions(text)] == [hint]


def test_what_only_looks_like_a_time_is_none() -> None:
    for text in [
            "may I ask what this is", "what may I do", "I believe in may be", "items 3 may fail",
            "what does May think", "march on Washington", "the long march", "in sum, what is left",
            "email by June", "what June said", "after June left the team", "port 2023", "after 2000 requests",
            "in 2048 bytes", "in 2024.5", "version 3.12", "ticket ABC-2024-03-01", "memory/2026-03-01.md",
            "what does 2026-03-01.md say", "2026-13-45", "February 30th", "monday is a word",
            "the mayor of Marchtown", "decade", "augment the sept", "Q5 2026", "1.2024-03", "en mayonesa",
            "3个月", "月", "日本", "",
    ]:  # fmt: skip
        assert read(text) == [], text


def test_several_times_are_read_in_their_order() -> None:
    assert [phrase for phrase, *_ in read("since March 2024, until yesterday, and on 2025-01-02")] == [
        "since march 2024",
        "until yesterday",
        "2025-01-02",
    ]


def test_a_topic_ends_where_its_time_begins() -> None:
    intent = parse_query_intent("what do we know about BetaSearch as of March 2024?")

    assert intent.topics == ("betasearch",)
    assert [hint.phrase for hint in intent.time_hints] == ["as of march 2024"]


def test_times_are_read_in_german_spanish_and_chinese() -> None:
    expected = {
        "Was war am 14. April 2026?": "2026-04-14",
        "vom 3.5.": "--05-03",
        "am 03.05.2026": "2026-05-03",
        "2026/04/14": "2026-04-14",
        "im März": "--03",
        "Mitte Mai": "--05",
        "am Montag": "-W-1",
        "el viernes": "-W-5",
        "周三": "-W-3",
        "三月": "--03",
        "十二月三十一日": "--12-31",
        "2026年三月": "2026-03",
        "notes from March": "--03",
        "a principios de mayo": "--05",
        "en avril": "--04",
        "mars 2026": "2026-03",
        "en mars": "--03",
        "depuis mars": "--03",
        "avant mai": "--05",
        "jusqu'en juin": "--06",
        "depuis lundi": "-W-1",
        "14-04-2026": "2026-04-14",
        "04/14/2026": "2026-04-14",
    }
    assert {text: read(text)[0][1] for text in expected} == expected
    for text in (
        "vor Ort",
        "chapter 14. May we begin?",
        "10.42.0.17",
        "nach Hause",
        "was steht hier",
        "life on Mars",
        "el perro",
        "三个苹果",
    ):
        assert read(text) == [], text


def test_counted_times_are_read_in_german_and_chinese() -> None:
    expected = {
        "vor drei Tagen": ("day", -3), "in den letzten zwei Wochen": ("week", -2), "gestern": ("day", -1),
        "letzte Woche": ("week", -1), "三天前": ("day", -3), "两周前": ("week", -2), "最近十天": ("day", -10),
        "大前天": ("day", -3), "hace nueve meses": ("month", -9),
    }  # fmt: skip
    hints = {text: time_mentions(text)[0].hint for text in expected}
    assert {text: (hint.unit, hint.offset) for text, hint in hints.items()} == expected
