"""Where a line is broken: between words, as late as possible, and nothing of it is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory.cli.output import line_spans

TEXTS = st.text(st.sampled_from("ab -字é\t"), max_size=80)


def words_of(text: str) -> list[str]:
    """Return what is not broken: words, and single characters of Chinese."""
    return re.findall(r"字|[^\s字]+", text)


def parts(text: str, room: int | None) -> list[str]:
    return [text[begin:end] for begin, end in line_spans(text, room)]


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("one two three", 8, ["one two", "three"]),
        ("one two three", 7, ["one two", "three"]),
        ("  - one two", 7, ["  - one", "two"]),
        ("incomprehensible word", 6, ["incomprehensible", "word"]),
        ("字字 字字", 4, ["字字", "字字"]),
        ("字字字，字b字", 6, ["字字", "字，字", "b字"]),
        ("as long as it is", None, ["as long as it is"]),
        ("", 8, [""]),
    ],
)
def test_lines_end_between_words(text: str, room: int | None, expected: list[str]) -> None:
    assert parts(text, room) == expected


@given(text=TEXTS, room=st.integers(1, 30))
def test_no_word_is_lost_and_a_line_is_too_long_only_for_a_word(text: str, room: int) -> None:
    lines = parts(text, room)

    assert [word for line in lines for word in words_of(line)] == words_of(text)
    assert all(len(line) <= room for line in lines if len(words_of(line)) > 1)
