"""Citations: where a passage stands, and who gets to see it."""

from dataclasses import replace

import pytest

from composable_memory.citations import (
    Citation,
    CitationMode,
    cite,
    format_place,
    read_citation,
    with_source_line,
)
from composable_memory.types import MemorySearchResult, Origin


def a_result(start_line: int = 3, end_line: int = 7, **fields: str) -> MemorySearchResult:
    return MemorySearchResult(
        path="memory/2026-05-03.md",
        start_line=start_line,
        end_line=end_line,
        score=0.5,
        snippet=fields.get("snippet", "the latch of dock 14"),
        citation=fields.get("citation"),
    )


def citation_of(
    result: MemorySearchResult, mode: CitationMode = "on", session: str | None = None
) -> str | None:
    (cited,) = cite([result], mode, session)
    return cited.citation


def test_a_passage_is_cited_with_its_lines() -> None:
    assert citation_of(a_result(3, 7)) == "memory/2026-05-03.md#L3-L7"


def test_a_place_in_a_note_has_lines_and_one_in_a_paged_document_has_pages() -> None:
    for path, start_char, place in (
        ("a.md", 0, "a.md:3-7"),
        ("a.PDF", 0, "a.PDF#p3-p7"),
        ("a.epub", 1280, "a.epub#p3-p7:1280"),
    ):
        shown = format_place(replace(a_result(3, 7), path=path, start_char=start_char))

        assert shown == place
        assert read_citation(shown) == Citation(path, 3, 7, start_char or None)


def test_a_single_line_is_cited_once() -> None:
    assert citation_of(a_result(3, 3)) == "memory/2026-05-03.md#L3"


def test_a_piece_of_a_line_is_cited_by_where_it_begins_and_read_back() -> None:
    cited = citation_of(replace(a_result(3, 3), start_char=1280))

    assert cited == "memory/2026-05-03.md#L3:1280"
    for printed in (cited, "memory/2026-05-03.md:3-3:1280", "memory/2026-05-03.md:3:3:1280"):
        assert read_citation(printed) == ("memory/2026-05-03.md", 3, 3, 1280)
    assert read_citation("a.md:3:7") == ("a.md", 3, 7, None)


def test_lines_in_the_wrong_order_are_the_first_of_them() -> None:
    assert read_citation("a.md#L7-L3") == read_citation("a.md:7-3") == Citation("a.md", 7, 7)


def test_a_hit_without_lines_is_cited_by_its_path() -> None:
    assert citation_of(a_result(0, 0)) == "memory/2026-05-03.md"


@pytest.mark.parametrize("mode", ["on", "always"])
def test_on_and_always_cite_in_every_session(mode: CitationMode) -> None:
    assert citation_of(a_result(), mode, "agent:main:telegram:group:42") is not None


@pytest.mark.parametrize("mode", ["off", "never"])
def test_off_and_never_remove_the_citation_of_a_backend(mode: CitationMode) -> None:
    assert citation_of(a_result(citation="elsewhere#L1"), mode) is None


@pytest.mark.parametrize(
    "session",
    [None, "", "main", "agent:main:main", "agent:main:telegram:dm:42", "agent:group:main", "agent:channel:x"],
)
def test_auto_cites_where_one_person_reads(session: str | None) -> None:
    assert citation_of(a_result(), "auto", session) is not None


@pytest.mark.parametrize(
    "session",
    ["agent:main:telegram:group:42", "agent:main:slack:channel:general", "slack:Channel:general", "group"],
)
def test_auto_does_not_cite_in_groups_and_channels(session: str) -> None:
    assert citation_of(a_result(), "auto", session) is None


def test_our_citation_replaces_that_of_a_backend() -> None:
    assert citation_of(a_result(citation="elsewhere#L1")) == "memory/2026-05-03.md#L3-L7"


def test_a_fact_is_cited_by_the_lines_that_it_is_from() -> None:
    fact = replace(a_result(0, 0), origin=Origin(path="memory/a.md", start_line=3, end_line=7))

    assert citation_of(fact) == "memory/a.md#L3-L7"


def test_a_fact_from_a_file_without_known_lines_is_cited_by_the_file() -> None:
    assert citation_of(replace(a_result(0, 0), origin=Origin(path="memory/a.md"))) == "memory/a.md"


def test_a_hit_without_lines_and_origin_keeps_the_citation_of_its_backend() -> None:
    assert citation_of(a_result(0, 0, citation="[graphiti:7]")) == "[graphiti:7]"


def test_citing_leaves_the_snippet_alone() -> None:
    (cited,) = cite([a_result(snippet="  as it stands\n")], "on")

    assert cited.snippet == "  as it stands\n"


def test_the_source_line_stands_below_the_trimmed_snippet() -> None:
    (cited,) = cite([a_result(snippet="\n- side bell, twice\n\n")], "on")

    assert with_source_line(cited).snippet == "- side bell, twice\n\nSource: memory/2026-05-03.md#L3-L7"


def test_there_is_no_source_line_without_a_citation() -> None:
    result = a_result(snippet="as it stands ")

    assert with_source_line(result) == result
