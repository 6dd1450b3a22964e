"""Headings and fenced code, as CommonMark has them, and every reader of them on long lines."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import pytest
from markdown_it import MarkdownIt

from composable_memory import markdown_lines
from composable_memory.forget.statement_matching import statements_of as statements_in_note
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.markdown_lines import CodeReader, closes_fence, heading_in, opening_fence
from composable_memory.reflect.entity_pages import own_lines, revise_page
from composable_memory.retain.retained_lines import retained_lines
from composable_memory_adapters.extractors.heuristic import statements_of
from composable_memory_adapters.text.markdown_outline import outline

LINES = (
    "# A", "## B ##", "###### C #", "####### D", "#E", "#", "##", "## ##", "# G#", "   # H", "    # I",
    "#\tJ", "### K ###  ", "# L \\#", "```", "````", "```py", "```x```", "~~~", "~~~ `x`", "   ~~~~",
    "    ```", "\t```", "``", " ``` ", "``` x", "text",
)  # fmt: skip


def test_single_lines_are_headings_and_fences_as_commonmark_has_them() -> None:
    for line in LINES:
        first = MarkdownIt().parse(line)[0]
        is_heading = first.type == "heading_open"
        heading = heading_in(line)
        assert (heading is not None) == is_heading, line
        assert heading is None or heading.level == int(first.tag[1:]), line
        assert opening_fence(line) == (first.markup if first.type == "fence" else ""), line


def test_code_ends_where_commonmark_ends_it() -> None:
    for fence in ("```", "````", "~~~"):
        for line in LINES:
            code = MarkdownIt().parse(f"{fence}\n{line}\nbelow")[0]
            assert code.type == "fence"
            assert closes_fence(line, fence) == ("below" not in code.content), (fence, line)


def test_comments_count_as_code_where_they_are_asked_for() -> None:
    lines = ["<!-- one line -->", "text", "<!--", "```", "-->", "text", "```", "<!--", "```", "  <!-- open"]
    comments, code = CodeReader(comments=True), CodeReader()
    assert [number for number, line in enumerate(lines) if comments.is_code(line)] == [0, 2, 3, 4, 6, 7, 8, 9]
    assert comments.left_open == markdown_lines.COMMENT
    assert [number for number, line in enumerate(lines) if code.is_code(line)] == [3, 4, 5, 6, 8, 9]
    assert code.left_open == "```"


def long_lines(count: int) -> list[str]:
    """Return lines with `count` of what a pattern with a choice would try again and again."""
    return [
        "#" * count, "# " + " #" * count, "# " + "\t" * count + "x", "# x" + " " * count + "#",
        " " * count + "# x", "`" * count, "```" + "`x" * count, "~" * count + "x",
        "```" + " " * count + "x", "<!--" + "-" * count,
    ]  # fmt: skip


def test_a_line_takes_the_same_number_of_steps_at_any_length() -> None:
    def steps(line: str) -> int:
        counted = 0

        def count(frame: FrameType, event: str, arg: object) -> None:
            nonlocal counted
            counted += 1

        code = CodeReader(comments=True)
        sys.setprofile(count)
        try:
            heading_in(line)
            code.is_code(line)
            code.is_code(line)
        finally:
            sys.setprofile(None)
        return counted

    # Calls of functions and of methods of `str`, each of which reads a line once; a pattern may do so often.
    assert not hasattr(markdown_lines, "re")
    # Python may tell of a step more where another thread is profiled, so each line is read a few times.
    short, long = (
        [min(steps(line) for _ in range(5)) for line in long_lines(size)] for size in (10, 100_000)
    )
    assert long == short


def contents(text: str) -> object:
    return contents_of(WrittenSource(text=text, written_at=datetime(2026, 1, 1, tzinfo=UTC)))


def statements(text: str) -> object:
    from composable_memory.content import MemoryContentObject

    return statements_of(MemoryContentObject(id="a", kind="document", text=text))


@pytest.mark.parametrize(
    "read",
    [
        outline, contents, statements, own_lines,
        lambda text: revise_page(text, [], set(), head=""),
        lambda text: [*retained_lines(text)],
        lambda text: [one.is_recognisable for one in statements_in_note(text)],
    ],
    ids=["outline", "contents", "statements", "own_lines", "revise_page", "retained", "forgettable"],
)  # fmt: skip
def test_long_lines_are_read_in_the_time_of_their_length(read: Callable[[str], Any]) -> None:
    """The second power of it would be minutes, and a power of the number of cells would never end."""
    count = 50_000
    read("\n".join(long_lines(count)[1:]))
    for text in (
        "- " + " " * count + "x", "- a" + " " * count + "^m1-0fa1x", " " * count + "- x", "# " + "[[" * count,
        "a | b\n-|" + " " * count + "x", "a | b\n| - " + "|  " * 40 + "| x |", "a | b\n-" + "|:" * 40 + "x",
    ):  # fmt: skip
        read(text)
