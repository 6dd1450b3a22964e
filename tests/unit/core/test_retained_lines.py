"""Retained lines: what people and agents write in a day's note is read as it was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory.retain.retained_lines import (
    MEMORY_TYPES,
    RetainedLine,
    format_retained_line,
    read_retained_line,
    retained_lines,
)

_WORDS = st.lists(
    st.sampled_from(["moved", "to", "Köln", "in", "2025,", "a:b", "@home", "#1", "搬到"]), min_size=1
)


def test_a_line_is_read_with_all_it_says() -> None:
    text = "- O(c=0.95) @Peter @[[Ellen Smith]]: Prefers short replies. #style #work/mail ^m4k29x"
    assert read_retained_line(text) == RetainedLine(
        type="opinion",
        text="Prefers short replies.",
        entities=("Peter", "Ellen Smith"),
        confidence=0.95,
        tags=("style", "work/mail"),
        id="m4k29x",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- B: Fixed the crash.", RetainedLine(type="experience", text="Fixed the crash.")),
        (
            "* W @warelay：端口是 18789",
            RetainedLine(type="world", text="端口是 18789", entities=("warelay",)),
        ),
        ("- S: Closed #12", RetainedLine(type="observation", text="Closed #12")),
        ("- O(c=1): Sure.", RetainedLine(type="opinion", text="Sure.", confidence=1.0)),
    ],
)
def test_what_is_missing_stays_unknown(text: str, expected: RetainedLine) -> None:
    assert read_retained_line(text) == expected


def test_other_lines_are_no_retained_lines() -> None:
    others = (
        "- What we did",
        "- W",
        "- W:",
        "W: text",
        "- X: text",
        "- O(c=7): no",
        "- O(c=x): no",
        "- W @: no",
        "",
    )
    assert [text for text in others if read_retained_line(text)] == []


@given(
    st.sampled_from(MEMORY_TYPES),
    _WORDS,
    st.lists(st.sampled_from(["Peter", "Ellen Smith", "a:b", "李雷"]), unique=True),
    st.none() | st.integers(0, 100).map(lambda percent: percent / 100),
    st.lists(st.sampled_from(["style", "work/mail", "köln"]), unique=True),
)
def test_what_was_written_is_read_again(
    kind: str, words: list[str], entities: list[str], confidence: float | None, tags: list[str]
) -> None:
    line = RetainedLine(
        type=next(one for one in MEMORY_TYPES if one == kind),
        text=" ".join(words),
        entities=tuple(entities),
        confidence=confidence,
        tags=tuple(tags),
        id="x1",
    )
    assert read_retained_line(format_retained_line(line)) == line


def test_only_items_below_the_heading_count_and_keep_their_places() -> None:
    note = (
        "# Tuesday\n- W: before\n## Retain\n- W @Ann: One.\n  It goes on. ^a1\n```\n- W: code\n```\n"
        "### More\n- B: Two.\n- plain\n## Plans\n- W: after\n"
    )
    found = [(line.text, line.start_line, line.end_line) for line in retained_lines(note)]
    assert found == [("One. It goes on.", 4, 5), ("Two.", 10, 10)]
    assert [line.text for line in retained_lines(note, everywhere=True)] == [
        "before",
        "One. It goes on.",
        "Two.",
        "after",
    ]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("# 2026 " + "\t" * 100_000 + "x", 0),
        ("# Retain\n- W @Ana: moved" + "\t" * 100_000 + "home", 1),
        ("# Retain\n- W @Ana: moved\n  home" + " " * 100_000 + "x", 1),
        ("# Retain\n- W @Ana: moved" + " #home" * 100_000 + " x", 1),
        ("# Retain\n- W @Ana: moved\n" + " " * 300_000 + "\nx", 1),
    ],
    ids=["heading", "sentence", "continued", "tags", "blank"],
)
def test_a_line_of_any_length_is_read_in_the_time_of_its_length(line: str, count: int) -> None:
    """The second power of it would be minutes."""
    assert len([*retained_lines(line)]) == count
