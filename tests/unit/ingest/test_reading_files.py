"""How notes, talks and transcripts are cut into contents, and what is known of each."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory.content import MemoryContentObject
from composable_memory.ingest.note_reader import MAX_SECTION_CHARS, WrittenSource, contents_of

WRITTEN = datetime(2026, 5, 20, 8, 30, tzinfo=UTC)


def read(text: str, path: str | None = "MEMORY.md", **known: object) -> list[MemoryContentObject]:
    return contents_of(WrittenSource(text=text, path=path, written_at=WRITTEN, **known))  # type: ignore[arg-type]


def places(contents: list[MemoryContentObject]) -> list[str]:
    return [one.provenance.citations[0] for one in contents if one.provenance]


def days(contents: list[MemoryContentObject]) -> list[str]:
    return [
        str(one.temporal.observed_at.date()) for one in contents if one.temporal and one.temporal.observed_at
    ]


def speakers(contents: list[MemoryContentObject]) -> list[tuple[object, str | None]]:
    return [(one.metadata.get("speaker"), one.text) for one in contents]


# --- notes ------------------------------------------------------------------------------------------------


def test_a_note_is_cut_at_its_headings_and_every_section_names_its_lines() -> None:
    found = read("intro\n\n# Work\n\nAlice works at Acme.\n\n## Team\nBob leads it.\nSo he says.\n")

    assert [(one.title, one.text) for one in found] == [
        ("MEMORY", "intro"),
        ("Work", "Alice works at Acme."),
        ("Work > Team", "Bob leads it.\nSo he says."),
    ]
    assert places(found) == ["MEMORY.md#L1", "MEMORY.md#L5", "MEMORY.md#L8-L9"]


def test_a_retained_line_is_read_as_its_sentence_wherever_it_stands() -> None:
    line = "- O(c=0.9) @Peter: Prefers short replies. #style ^1xyg5am"
    first = read(f"Lunch.\n\n## Retain\n{line}\n- W: Port is 7400.\n\nA note.\n", "memory/2026-03-01.md")
    moved = read(f"# Day\n\nMore.\n\n## Retain\n\n{line}\n", "memory/2026-03-01.md")

    assert [(one.kind, one.text) for one in first] == [
        ("document", "Lunch."),
        ("fact", "Prefers short replies."),
        ("fact", "Port is 7400."),
        ("document", "A note."),
    ]
    assert first[1].id == moved[1].id == "memory/2026-03-01.md#^1xyg5am"
    assert first[1].metadata == {
        "retained": {"type": "opinion", "entities": ["Peter"], "tags": ["style"], "id": "1xyg5am"},
        "confidence": 0.9,
    }
    assert (places(first)[1], places(moved)[1]) == ("memory/2026-03-01.md#L4", "memory/2026-03-01.md#L7")
    assert days(first) == ["2026-03-01"] * 4


def test_a_heading_inside_a_code_block_is_none() -> None:
    found = read("# Setup\n```sh\n# not a heading\n```\nafter\n")

    assert [one.title for one in found] == ["Setup"]
    assert places(found) == ["MEMORY.md#L2-L5"]


def test_paragraphs_share_a_section_as_long_as_they_fit() -> None:
    text = "\n\n".join(character * 500 for character in "abc")

    found = read(text)

    assert [one.text for one in found] == ["a" * 500 + "\n\n" + "b" * 500, "c" * 500]
    assert places(found) == ["MEMORY.md#L1-L3", "MEMORY.md#L5"]


def test_a_long_line_is_cut_between_words_and_keeps_its_number() -> None:
    found = read("first\n" + "word " * 500)

    assert all(len(one.text or "") <= MAX_SECTION_CHARS for one in found)
    assert " ".join(one.text or "" for one in found).split() == ["first", *["word"] * 500]
    assert places(found)[-1] == "MEMORY.md#L2"


def test_a_section_that_only_moved_keeps_its_id() -> None:
    (alone,) = read("# Work\nAlice works at Acme.\n")

    moved = read("# New\nsomething else\n\n# Work\nAlice works at Acme.\n")

    assert moved[1].id == alone.id
    assert alone.id.startswith("MEMORY.md#")


def test_the_same_words_twice_are_two_contents() -> None:
    found = read("# Log\nfed the cat\n# Log\nfed the cat\n")

    assert found[1].id == f"{found[0].id}-2"


def test_a_file_that_is_saved_again_has_the_same_ids() -> None:
    source = WrittenSource(text="fed the cat", path="MEMORY.md", written_at=WRITTEN)

    later = contents_of(replace(source, written_at=WRITTEN.replace(month=6)))

    assert [one.id for one in later] == [one.id for one in contents_of(source)]


@pytest.mark.parametrize("text", ["", "\n\n", "# Only a heading\n", "---\ntitle: x\n---\n", "\ufeff"])
def test_a_note_without_words_has_no_contents(text: str) -> None:
    assert read(text) == []


def test_windows_line_ends_are_no_part_of_the_text() -> None:
    assert [one.text for one in read("# A\r\none\r\ntwo\r\n")] == ["one\ntwo"]


def test_a_text_that_is_in_no_file_cites_nothing() -> None:
    (one,) = read("Alice works at Acme.", None, title="Call", session_key="main")

    assert one.provenance
    assert (one.title, one.provenance.citations, one.provenance.session_key) == ("Call", (), "main")


@given(st.text(alphabet="ab #-`:\n\r.", max_size=400))
def test_every_word_of_a_note_is_in_exactly_the_lines_it_claims(text: str) -> None:
    lines = text.split("\n")

    for one in read(text):
        first, _, last = places([one])[0].removeprefix("MEMORY.md#L").partition("-L")
        claimed = "\n".join(lines[int(first) - 1 : int(last or first)])
        assert (one.text or "").split() == [*claimed.split()][-len((one.text or "").split()) :]


# --- times ------------------------------------------------------------------------------------------------


def test_the_date_of_a_heading_is_nearer_than_that_of_the_name() -> None:
    text = "# 2026-03-04\none\n## Lunch\ntwo\n# Plans\nthree\n"

    assert days(read(text, "memory/2026-03-01-trip.md")) == ["2026-03-04", "2026-03-04", "2026-03-01"]


def test_a_heading_may_name_the_time_of_day() -> None:
    (one,) = read("# Session: 2026-01-15 14:30:00 UTC\nhello\n")

    assert one.temporal
    assert one.temporal.observed_at == datetime(2026, 1, 15, 14, 30, tzinfo=UTC)


def test_a_date_that_a_heading_only_speaks_of_is_not_when_it_was_written() -> None:
    assert days(read("# Review of the 2024-01-01 incident\nbad\n")) == ["2026-05-20"]


@pytest.mark.parametrize(
    ("headings", "day"),
    [
        (["Standup 2026-03-04"], "2026-03-04"),
        (["Standup (04.03.2026)"], "2026-03-04"),
        (["March 4, 2026 - Standup"], "2026-03-04"),
        (["Mittwoch, 4. März 2026"], "2026-03-04"),
        (["2026-03-04", "Dinner, March 3"], "2026-03-03"),
        (["2025-12-30", "Party, January 2"], "2026-01-02"),
        (["Dinner, March 4"], "2026-03-04"),
        (["Dinner, December 4"], "2025-12-04"),  # the last one before the note was written
        (["Tagebuch 2024", "4. März"], "2024-03-04"),
        (["Changes since March 4"], "2026-05-20"),
        (["Deadline 2026-09-01"], "2026-05-20"),  # it is ahead
        (["Trip March 4-8"], "2026-05-20"),
        (["2026-03"], "2026-03-01"),
        (["March 2026"], "2026-03-01"),
        (["Standup, März 2026"], "2026-03-01"),
        (["Enero de 2025"], "2025-01-01"),
        (["Q1 2026"], "2026-01-01"),
        (["KW 12 2026"], "2026-03-16"),
        (["Week 12, 2026"], "2026-03-16"),
        (["2026-W12"], "2026-03-16"),
        (["Spring 2025"], "2025-03-01"),
        (["2025"], "2025-01-01"),
        (["2025", "December"], "2025-12-01"),
        (["2025", "December 4"], "2025-12-04"),
        (["2025", "KW 3"], "2025-01-13"),
        (["2026-03-20", "March 2026"], "2026-03-20"),  # the month tells no more than the day
        (["2026-03-20", "April"], "2026-03-20"),  # may be her name
        (["May"], "2026-05-20"),
        (["Goals 2026"], "2026-05-20"),
        (["Q3 2026"], "2026-05-20"),  # it is ahead
        (["Party February 30"], "2026-05-20"),
    ],
)
def test_a_heading_is_of_the_date_that_it_begins_or_ends_with(headings: list[str], day: str) -> None:
    lines = [f"{'#' * level} {heading}" for level, heading in enumerate(headings, 1)]

    assert days(read("\n".join([*lines, "one"]))) == [day]


def test_the_year_of_the_path_is_that_of_a_heading_without_one() -> None:
    assert days(read("# 4. März\none", "tagebuch/2024/fruehling.md")) == ["2024-03-04"]


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("2026-03.md", "2026-03-01"),
        ("weekly/2026-w12.md", "2026-03-16"),
        ("2026-Q1/budget.md", "2026-01-01"),
        ("2026-03/2026-04-02.md", "2026-04-02"),
        ("2026-08.md", "2026-05-20"),  # it is ahead
        ("report-2026-13.md", "2026-05-20"),
    ],
)
def test_a_path_may_name_a_month_a_week_or_a_quarter(path: str, day: str) -> None:
    assert days(read("one", path)) == [day]


def test_what_has_no_date_in_a_note_with_dates_is_older_than_these() -> None:
    text = "# Team\nzero\n## 2026-03-01\none\n## 2026-04\ntwo\n## Contacts\nthree\n"

    assert days(read(text)) == ["2026-02-28", "2026-03-01", "2026-04-01", "2026-02-28"]
    assert days(read("zero\n# 2026-09-01\none")) == ["2026-05-20", "2026-09-01"]


def test_a_retained_line_is_of_the_date_of_its_heading() -> None:
    text = "# 2026-03-01\n## Retain\n- W: Port is 7400.\n# Later\n## Retain\n- W: Port is 7401.\n"

    assert days(read(text)) == ["2026-03-01", "2026-02-28"]


def test_dates_at_the_edges_of_the_calendar_are_dates() -> None:
    at_the_end = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    found = read("zero\n# 0001-01-01\none\n# 9999-12-31\ntwo")
    (late,) = contents_of(WrittenSource(text="one", written_at=at_the_end))

    assert days(found) == ["0001-01-01", "0001-01-01", "9999-12-31"]
    assert late.temporal
    assert late.temporal.observed_at == at_the_end


def test_the_time_of_day_may_stand_at_the_end_of_a_heading() -> None:
    (one,) = read("# Standup 2026-03-04 14:30\nhello\n")

    assert one.temporal
    assert one.temporal.observed_at == datetime(2026, 3, 4, 14, 30, tzinfo=UTC)


def test_front_matter_gives_title_and_date() -> None:
    (one,) = read("---\ntitle: 'Trip'\ndate: 2026-02-03\n---\nWe went to Porto.\n", "notes/trip.md")

    assert (one.title, days([one]), places([one])) == ("Trip", ["2026-02-03"], ["notes/trip.md#L5"])


@pytest.mark.parametrize("path", ["memory/2026-02-31.md", "memory/v12026-02-011.md", "notes.md"])
def test_without_a_date_it_is_when_the_file_was_written(path: str) -> None:
    assert days(read("fed the cat", path)) == ["2026-05-20"]


def test_a_time_that_is_given_goes_before_all_dates() -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)

    assert days(read("# 2026-03-04\none", "memory/2026-03-01.md", observed_at=at)) == ["2020-01-01"]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# Work #", "Work"),
        ("## Notes on C#", "Notes on C#"),
        ("#\tWork ##  ", "Work"),
        ("### ###", "MEMORY"),
    ],
)
def test_the_marks_that_close_a_heading_are_none_of_its_words(line: str, title: str) -> None:
    (section,) = read(f"{line}\nAlice works at Acme.\n")

    assert section.title == title


def test_a_heading_of_nothing_but_blanks_takes_no_more_than_its_length() -> None:
    """Its third power would be years."""
    (section,) = read("# 2026 " + "\t" * 100_000 + "- x\nAlice works at Acme.\n")

    assert section.text == "Alice works at Acme."


# --- talks ------------------------------------------------------------------------------------------------


def test_a_talk_becomes_its_messages_with_their_speakers() -> None:
    found = read("# Call\nAna: I moved to Porto.\n  In May.\nBen: How nice for you!\nAna: Yes.\n")

    assert speakers(found) == [
        ("Ana", "I moved to Porto.\n  In May."),
        ("Ben", "How nice for you!"),
        ("Ana", "Yes."),
    ]
    assert {one.kind for one in found} == {"message"}
    assert places(found) == ["MEMORY.md#L2-L3", "MEMORY.md#L4", "MEMORY.md#L5"]


def test_a_talk_may_say_when_each_line_was_said() -> None:
    found = read("[2026-03-01 10:15] Ana: I am here now.\n[2026-03-02] Ben: And so am I.\n")

    assert days(found) == ["2026-03-01", "2026-03-02"]


@pytest.mark.parametrize(
    "text",
    [
        "Port: 8080\nHost: dock.local\n",
        "Decision: use the new controller\nReason: the old one is broken\n",
        "Ana: I moved to Porto.\n",
        "Update: Tom works at Globex now.\nCorrection: Anna lives in Oslo.\n",
        "Korrektur: Petra wohnt in Bonn.\nNachtrag: Karl wohnt in Graz.\n",
        "Some prose.\nAna: I moved.\nBen: So did I, you know.\n",
    ],
)
def test_names_with_values_are_no_talk(text: str) -> None:
    assert speakers(read(text)) == [(None, text.strip())]


# --- transcripts ------------------------------------------------------------------------------------------


def test_a_transcript_gives_a_content_for_each_message_and_its_line() -> None:
    records = [
        {"type": "session", "id": "s1"},
        {
            "type": "message",
            "timestamp": "2026-03-01T10:00:00Z",
            "message": {"role": "user", "content": "hi"},
        },
        {"type": "message", "message": {"role": "tool", "content": "output"}},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "hello"}, {"type": "image"}],
            "timestamp": 1,
        },
        {"type": "message", "message": {"role": "user", "content": "hi"}},
    ]
    text = "\n".join([*map(json.dumps, records), '{"role": broken'])

    found = read(text, "sessions/abc.jsonl")

    assert speakers(found) == [("User", "hi"), ("Assistant", "hello"), ("User", "hi")]
    assert places(found) == [f"sessions/abc.jsonl#L{line}" for line in (2, 4, 5)]
    assert days(found) == ["2026-03-01", "1970-01-01", "2026-05-20"]
    assert {one.provenance.session_key for one in found if one.provenance} == {"abc"}
    assert len({one.id for one in found}) == 3


def test_a_transcript_belongs_to_the_session_that_is_named() -> None:
    (one,) = read('{"role": "user", "content": "hi"}', "a.jsonl", session_key="agent:main:main")

    assert one.provenance
    assert one.provenance.session_key == "agent:main:main"
