"""How tables and nested values are printed: whole to a pipe, and never so that text steers the terminal."""

import pytest
from pydantic import JsonValue

from composable_memory.cli.render import format_value, print_details, print_table, sparkline
from composable_memory.types import FallbackStatus, SourceCount

QMD: dict[str, JsonValue] = {
    "version": "2.8.3",
    "way": None,
    "collections": [{"name": "memory-root", "files": 2}, {"name": "wiki", "files": None}],
    "index": {"file": "/state/index.sqlite", "bytes": 3_250_586},
    "problems": ["the collection `old` is gone: there is no such folder", "no model for embedding"],
}


def test_columns_hold_their_cells_apart(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([["a", "bb", ""], ["ccc", "d", "e"]], right=(1,))

    assert capsys.readouterr().out.splitlines() == ["a    bb", "ccc   d  e"]


def test_a_pipe_gets_every_word_of_a_line_and_no_escape_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    long = "word " * 60

    print_table([["[bold]a[/bold]", f"{long}\x1b[2J"]], head=["one", "two"], styles={0: "bold"})

    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["one", "two"]
    assert row.startswith(f"[bold]a[/bold]  {long}")
    assert "\x1b" not in row


def test_characters_that_are_two_columns_wide_keep_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([["镀金", "x"], ["abcd", "x"]])

    assert capsys.readouterr().out.splitlines() == ["镀金  x", "abcd  x"]


def test_what_a_backend_adds_is_shown_in_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    print_details("memory", {"custom": {"qmd": QMD, "nextTry": "soon"}})

    title, *lines = capsys.readouterr().out.splitlines()
    depths = [(len(line) - len(line.lstrip()), line.split()) for line in lines]
    assert title == "memory"
    assert depths == [
        (2, ["custom"]),
        (4, ["qmd"]),
        (6, ["version", "2.8.3"]),
        (6, ["way", "-"]),
        (6, "collections name memory-root, files 2, name wiki".split()),
        (6, ["index"]),
        (8, ["file", "/state/index.sqlite"]),
        (8, ["bytes", "3.1", "MiB"]),
        (6, "problems the collection `old` is gone: there is no such folder".split()),
        (depths[9][0], "no model for embedding".split()),
        (4, ["next", "try", "soon"]),
    ]


def test_values_of_ours_are_blocks_too(capsys: pytest.CaptureFixture[str]) -> None:
    counts = (SourceCount(source="memory", files=2, chunks=7),)

    print_details("memory", {"fallback": FallbackStatus(from_="qmd"), "source_counts": counts})

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["from", "qmd"] in lines
    assert ["reason", "-"] in lines
    assert "source counts source memory, files 2, chunks 7".split() in lines


def test_a_column_of_nothing_cuts_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([["a", "b", ""]], head=["questions", "suggested", ""])

    assert capsys.readouterr().out.split() == ["questions", "suggested", "a", "b"]


def test_a_value_of_any_kind_has_a_line() -> None:
    values: list[tuple[JsonValue, str]] = [
        ([], "-"),
        ({}, "-"),
        ("", "-"),
        (None, "-"),
        (0, "0"),
        (False, "no"),
        (0.125, "0.125"),
        (["a", "b"], "a, b"),
        ({"bytes": 12}, "bytes 12 bytes"),
        ({"bytes": 5_000_000_000_000}, "bytes 4656.6 GiB"),
        ({"a": None}, "-"),
        ({"a": False}, "a no"),
        ([["a", "b"], ["c"]], "a, b, c"),
    ]

    assert [(value, format_value(value)) for value, _ in values] == values


def test_a_sparkline_is_as_high_as_its_values_and_has_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    assert sparkline([0.0, None, 1.0, 0.5, 7.0], 0.0, 1.0) == "▁ █▅█"
