"""What of a snippet matches is checked, moves along with the snippet, and is shown by lines."""

import re

from composable_memory.highlights import (
    Line,
    best_lines,
    lines_of,
    readable,
    snippet_of,
    stripped,
    whole_text,
    within,
)
from composable_memory.types import MemorySearchResult


def result(snippet: str, *words: str, text: str = "") -> MemorySearchResult:
    places = [match.span() for match in re.finditer("|".join(words) or r"\Z.", snippet)]
    return MemorySearchResult(
        path="a.md", start_line=1, end_line=9, score=0.5, snippet=snippet, highlights=tuple(places), text=text
    )


def marked(line: Line) -> list[str]:
    return [line.text[begin:end] for begin, end in line.highlights]


def test_only_spans_in_order_and_within_the_text_count() -> None:
    assert within(((0, 2), (3, 9)), 5) == ((0, 2),)
    assert within([[0, 2], [1, 3], [4, 4], [4, 5]], 5) == ((0, 2), (4, 5))
    for wrong in (None, 7, "ab", [1, 2], [(0, "x")], [(0, 1, 2)], [(True, 2)]):
        assert within(wrong, 5) == ()


def test_highlights_move_with_the_blanks_that_go() -> None:
    short = stripped(result("\n  the trolley \n", "trolley"))

    assert short.snippet == "the trolley"
    assert marked(Line(short.snippet, short.highlights)) == ["trolley"]


def test_the_lines_that_hold_most_of_the_question_are_shown() -> None:
    found = result("spare part\nthe trolley is spare\nlast", "trolley", "spare")

    assert [line.text for line in best_lines(found)] == ["the trolley is spare"]
    assert [line.text for line in best_lines(found, 2)] == ["the trolley is spare", "last"]
    assert [line.text for line in best_lines(found, 9)] == found.snippet.split("\n")
    (cut,) = best_lines(found, marks_cuts=True)
    assert (cut.text[0], cut.text[-1]) == ("…", "…")
    assert [cut.text[begin:end] for begin, end in cut.highlights] == [
        line.text[begin:end] for line in best_lines(found) for begin, end in line.highlights
    ]
    assert best_lines(found, 9, marks_cuts=True) == best_lines(found, 9)
    assert best_lines(result("")) == []


def test_the_row_of_a_table_that_answers_is_shown_rather_than_its_heading_alone() -> None:
    table = "# Ports\n| service | port |\n|---|---|\n| api | 9443 |\n| worker | 9310 |\n| metrics | 9100 |"
    found = result(table, "Ports", "port", "9310")

    assert [line.text for line in best_lines(found, 4)] == table.split("\n")[1:5]
    assert "| worker | 9310 |" in [line.text for line in best_lines(found, 2)]


def test_front_matter_is_shown_only_where_there_is_nothing_else() -> None:
    head = "---\ntitle: Trolley\ntags: [dock]\n---\n"
    text = f"{head}# Dock\nthe trolley is spare\n"

    assert [line.text for line in best_lines(result(text))] == ["# Dock"]
    best = best_lines(result(text, "(?i)trolley"))
    assert [(line.text, marked(line)) for line in best] == [("the trolley is spare", ["trolley"])]
    assert [line.text for line in best_lines(result(text), 9)] == ["# Dock", "the trolley is spare"]
    assert [line.text for line in best_lines(result("…Trolley\ntags: [dock]\n---\n# Dock…", text=text))] == [
        "# Dock…"
    ]
    assert [line.text for line in best_lines(result(head.strip(), text=text))] == ["# Dock"]
    assert [line.text for line in best_lines(result(head, "Trolley"))] == ["title: Trolley"]


def test_a_field_of_front_matter_is_shown_where_it_alone_answers() -> None:
    head = "---\ntags: [dock, plumber]\nbirthday: 1984-11-03\nborn in:\n- Ghent\n---\n"
    text = f"{head}# Miriam\nA plumber.\nTall.\n"

    for asked, most, shown in (
        ("birthday|Miriam", 1, ["birthday: 1984-11-03"]),
        ("Ghent", 1, ["- Ghent"]),
        ("dock|Miriam", 2, ["# Miriam", "A plumber."]),
        ("tags", 1, ["# Miriam"]),
        ("plumber", 1, ["A plumber."]),
    ):
        assert [line.text for line in best_lines(result(text, asked), most)] == shown


def test_long_lines_are_cut_between_words_and_keep_their_marks() -> None:
    lines = lines_of(Line("one two three fourteen", ((4, 7), (14, 22))), width=9)

    assert [line.text for line in lines] == ["one two", "three", "fourteen"]
    assert [marked(line) for line in lines] == [["two"], [], ["fourteen"]]
    assert [line.text for line in lines_of(Line("日本日本"), width=3)] == ["日本日", "本"]


def test_the_whole_passage_is_marked_where_the_snippet_is() -> None:
    text = "before it\nthe trolley stands\nbehind it"

    assert marked(whole_text(result("…the trolley stands…", "trolley", text=text))) == ["trolley"]
    assert whole_text(result("…the trolley…", "trolley")).text == "…the trolley…"
    assert whole_text(result("something else", text=text)) == Line(text)


def test_links_of_a_wiki_read_as_text_and_what_matches_stays_marked() -> None:
    text = "Ask [[People/Tomasz Wolski|Tomek]] about ![[Boat licence]], [[A\\|b]] and [[ ]] or [[x|y|z]]."
    for word, expected in {
        "Ask": "Ask Tomek about Boat licence, b and [[ ]] or [[x|y|z]].",
        "Tomek": "Ask Tomek about Boat licence, b and [[ ]] or [[x|y|z]].",
        "Wolski": "Ask People/Tomasz Wolski (Tomek) about Boat licence, b and [[ ]] or [[x|y|z]].",
        "licence": "Ask Tomek about Boat licence, b and [[ ]] or [[x|y|z]].",
        "[[x": "Ask Tomek about Boat licence, b and [[ ]] or [[x|y|z]].",
    }.items():
        begin = text.index(word)
        shown = readable(Line(text, ((begin, begin + len(word)),)))
        assert shown.text == expected
        assert [shown.text[start:end] for start, end in shown.highlights] == [word]
    across = readable(Line("see [[Boat]] now", ((0, 10),)))
    assert (across.text, across.text[slice(*across.highlights[0])]) == ("see Boat now", "see Boat")
    assert readable(Line("no links")) == Line("no links")


def test_code_is_no_link_of_a_wiki() -> None:
    for text in (
        "run `if [[ -f /etc/harbour.conf ]]; then` or ``[[Boat]] ` ``",
        "if [[ -f /etc/harbour.conf ]]; then",
        "[[ Boat]] and [[Boat ]] and [[Boat |licence]]",
        "${x[[1]]} and a[[i|j]] and $[[i]] and {[[i]]} and [[[i]]]",
        r"as \[[nolink]] says",
        "```sh\n[[Boat]]\n\n[[Boat|licence]]\n```",
        "- ~~~\n  [[Boat]]\n  ~~~",
    ):
        assert [readable(line).text for line in lines_of(Line(text))] == [
            one for one in text.split("\n") if one
        ]
    for text, shown in (
        ("`a` [[Boat]] `b` ([[x|y]])", "`a` Boat `b` (y)"),
        ("`a [[Boat]]\n\n`[[x]]`", "`a Boat\n`[[x]]`"),
        ("```\n[[a]]\n```\n![[Boat]]", "```\n[[a]]\n```\nBoat"),
        ("see [[Boat|the `x`]]; 見[[x|y]]", "see the `x`; 見y"),
    ):
        assert [readable(line).text for line in lines_of(Line(text))] == shown.split("\n")


def test_a_snippet_within_a_block_of_code_is_code() -> None:
    text = "See [[Boat]].\n```sh\nfirst [[a]]\nsecond [[a]] trolley\n```\nSee [[Boat]]."
    for snippet in ("second [[a]] trolley", "…[[a]]\nsecond [[a]] trolley…"):
        found = result(snippet, "trolley", text=text)
        assert [readable(one) for one in best_lines(found, 9)] == best_lines(found, 9)
        assert [readable(one) for one in lines_of(snippet_of(found))] == lines_of(snippet_of(found))
    assert readable(lines_of(snippet_of(result("See [[Boat]].", text=text)))[0]).text == "See Boat."
