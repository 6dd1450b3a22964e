"""The structure that is read from a Markdown text."""

from composable_memory_adapters.text.markdown_outline import heading_text, outline


def blocks(*lines: str) -> list[tuple[int, int, str]]:
    return [(one.start, one.end, one.kind) for one in outline("\n".join(lines)).blocks]


def headings(*lines: str) -> list[tuple[int, int, str]]:
    return [(one.line, one.level, one.text) for one in outline("\n".join(lines)).headings]


def test_what_belongs_together_is_one_block() -> None:
    for lines, expected in (
        (["One", "two", "", "Three"], [(0, 2, "paragraph"), (3, 4, "paragraph")]),
        (["# A", "one", "## B", "two"], [(0, 1, "heading"), (1, 2, "paragraph"),
                                         (2, 3, "heading"), (3, 4, "paragraph")]),
        (["- a", "  more of a", "", "- b", "1. c", "", "End"], [(0, 5, "list"), (6, 7, "paragraph")]),
        (["Do:", "- a", "- b"], [(0, 1, "paragraph"), (1, 3, "list")]),
        (["```sh", "# no heading", "", "- no item", "```", "End"], [(0, 5, "whole"), (5, 6, "paragraph")]),
        (["~~~", "```", "~~~", "End"], [(0, 3, "whole"), (3, 4, "paragraph")]),
        (["```", "never closed", "", "x"], [(0, 4, "whole")]),
        (["| a | b |", "|---|---|", "| 1 | 2 |", "", "End"], [(0, 3, "whole"), (4, 5, "paragraph")]),
        (["Prose", "a | b", "--- | ---", "1 | 2"], [(0, 1, "paragraph"), (1, 4, "whole")]),
        (["---", "title: x", "---", "Text"], [(0, 3, "whole"), (3, 4, "paragraph")]),
        (["- a", "", "    # no heading", "", "  - b"], [(0, 5, "list")]),
        ([], []), (["", " ", "\t"], []),
    ):  # fmt: skip
        assert blocks(*lines) == expected, lines


def test_headings_are_read_as_they_are_written() -> None:
    for lines, expected in (
        (["# One #", "## Notes on C#", "#no", "####### no"], [(0, 1, "One"), (1, 2, "Notes on C#")]),
        (["Title", "=====", "", "Part", "---"], [(0, 1, "Title"), (3, 2, "Part")]),
        (["One", "two", "---", "***"], []),
        (["# **Bold** `code` [link](http://x.y) [[page|shown]]"], [(0, 1, "Bold code link shown")]),
        (["```", "# a comment", "```", "# Real"], [(3, 1, "Real")]),
        (["#", "# "], []),
    ):
        assert headings(*lines) == expected, lines


def test_a_line_knows_the_headings_above_it() -> None:
    found = outline("intro\n# Title\ntext\n## A\n### B\ntext\n## C\ntext\n# Other\ntext")
    paths = found.paths()

    assert found.title == "Title"
    assert [paths.at(line) for line in (0, 2, 5, 7, 9)] == [(), (), ("A", "B"), ("C",), ("Other",)]


def test_a_long_heading_is_cut() -> None:
    assert len(heading_text("word " * 100)) <= 120
    assert heading_text("word " * 100).endswith("…")
