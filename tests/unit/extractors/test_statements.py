"""A content is cut into sentences that are free of markup and know who says them."""

from typing import Any

from composable_memory.content import MemoryContentObject, MemoryProvenance
from composable_memory_adapters.extractors.heuristic import MAX_SENTENCE_CHARS, statements_of


def content(text: str, *, kind: str = "document", **fields: Any) -> MemoryContentObject:
    return MemoryContentObject(id="c", kind=kind, text=text, **fields)


def texts(text: str, **fields: Any) -> list[str]:
    return [one.text for one in statements_of(content(text, **fields))]


def test_sentences_end_where_they_end() -> None:
    cases: list[tuple[str, list[str]]] = [
        ("One thing. Another thing! A third?", ["One thing.", "Another thing!", "A third?"]),
        (
            "Dr. Weber met Mr. J. Smith, e.g. at 3.5 p.m. today.",
            ["Dr. Weber met Mr. J. Smith, e.g. at 3.5 p.m. today."],
        ),
        ('She said "Stop." Then she left.', ['She said "Stop."', "Then she left."]),
        ("Der Termin ist am 3. Mai in Bonn.", ["Der Termin ist am 3. Mai in Bonn."]),
        ("我住在上海。你呢？她很好！", ["我住在上海。", "你呢？", "她很好！"]),
        ("Wait… what is it?", ["Wait… what is it?"]),
        ("", []),
    ]
    for text, sentences in cases:
        assert texts(text) == sentences


def test_markdown_is_read_as_it_is_meant() -> None:
    note = (
        "---\ntitle: x\n---\n# Boat\n\nThe **hull** is\npainted `green`.\n\n"
        "- [x] see [the yard](https://x.y)\n* _second_ item\n\n```python\ncode = 1\n```\n\n"
        "| Part | Number |\n|---|---|\n| relay | QX-1 |\n\n> quoted\n\n---\n"
    )

    assert texts(note) == [
        "The hull is painted green.",
        "see the yard",
        "second item",
        "quoted",
    ]


def test_lines_with_a_name_before_a_colon_are_talk_if_the_name_recurs() -> None:
    found = statements_of(content("Ann: The sea is wild.\nBo: Yes.\nAnn: It is cold."))

    assert [(one.speaker, one.text) for one in found] == [
        ("Ann", "The sea is wild."),
        ("Bo", "Yes."),
        ("Ann", "It is cold."),
    ]


def test_who_speaks_of_himself_speaks() -> None:
    assert statements_of(content("Maria Lopez: I went home."))[0].speaker == "Maria Lopez"


def test_a_label_is_nobody_who_speaks() -> None:
    cases: list[str] = ["Status: open", "Owner: Anna", "Decision: we stay", "Port: 8080"]
    for line in cases:
        assert {one.speaker for one in statements_of(content(f"{line}\n{line}"))} == {None}


def test_a_message_is_said_by_whom_its_metadata_or_its_provenance_names() -> None:
    by_metadata = content("Hello there.", metadata={"speaker": "Ann"})
    by_actor = content("Hello there.", provenance=MemoryProvenance(source="chat", actor_id="Bo"))

    assert [statements_of(one)[0].speaker for one in (by_metadata, by_actor)] == ["Ann", "Bo"]


def test_a_pasted_log_is_cut() -> None:
    (sentence,) = texts("word " * 2_000)

    assert len(sentence) <= MAX_SENTENCE_CHARS


def test_a_long_line_of_marks_takes_no_more_than_its_length() -> None:
    """The square of it would be hours."""
    cases: list[str] = ["..." * 200_000 + "X", "!?" * 200_000 + "a", "# " * 200_000 + "X"]
    for text in cases:
        assert len(texts(f"Anna lives in Oslo.\n\n{text}")) <= 2
