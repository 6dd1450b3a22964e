"""Facts as results and as pages: what is told of their time, where they lead, and that they stay short."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from composable_memory.facts import Episode, Fact
from composable_memory.types import MAX_SNIPPET_CHARS, Origin, TimeWindow
from composable_memory_adapters.graphiti.fact_results import (
    as_result,
    episode_page,
    fact_page,
    fact_path,
    format_fact,
    ids_in,
)
from composable_memory_adapters.graphiti.fact_stores import Question, ScoredFact

NOW = datetime(2026, 11, 20, tzinfo=UTC)
MARCH, JUNE = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
NEXT_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
ASKED = Question(text="Where does Ines work?", groups=("main",), limit=6, now=NOW)
NOTE = Origin(path="memory/2026-03-01.md", start_line=3, end_line=7)


def fact(**known: object) -> Fact:
    told = {
        "id": "0b7c",
        "group_id": "main",
        "text": "Ines works at Acme.",
        "relation": "WORKS_AT",
        "source": "Ines",
        "target": "Acme",
        "episodes": ("e1",),
        "origins": (NOTE,),
    }
    return Fact(**{**told, **known})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({}, "Ines works at Acme."),
        ({"valid_at": MARCH}, "Ines works at Acme. (since 2026-03-01)"),
        (
            {"valid_at": MARCH, "invalid_at": NEXT_YEAR},
            "Ines works at Acme. (since 2026-03-01 until 2027-01-01)",
        ),
        (
            {"valid_at": MARCH, "invalid_at": JUNE},
            "Ines works at Acme. (2026-03-01 to 2026-06-01; no longer holds)",
        ),
        ({"invalid_at": JUNE}, "Ines works at Acme. (until 2026-06-01; no longer holds)"),
        (
            {"valid_at": MARCH, "expired_at": JUNE},
            "Ines works at Acme. (since 2026-03-01; no longer holds)",
        ),
        ({"valid_at": JUNE, "invalid_at": JUNE}, "Ines works at Acme. (ended 2026-06-01)"),
        ({"valid_at": NEXT_YEAR}, "Ines works at Acme. (from 2027-01-01)"),
    ],
)
def test_a_fact_is_told_with_the_time_it_holds(times: dict[str, datetime], told: str) -> None:
    assert format_fact(fact(**times), NOW) == told


def test_a_result_leads_back_to_the_note_and_keeps_the_times_apart() -> None:
    result = as_result(ScoredFact(fact=fact(valid_at=MARCH), score=0.75), ASKED)

    assert result.path == "graphiti/main/0b7c"
    assert (result.start_line, result.end_line) == (0, 0)
    assert result.origin == NOTE
    assert result.metadata["valid_at"] == "2026-03-01T00:00:00+00:00"
    assert "invalid_at" not in result.metadata
    assert (result.metadata["episode"], result.metadata["current"]) == ("e1", True)


def test_a_result_tells_what_held_at_the_time_asked_about_and_what_did_not() -> None:
    before = fact(valid_at=MARCH, invalid_at=JUNE)
    since = fact(id="0b7d", text="Ines works at Globex.", valid_at=JUNE)
    spring = replace(ASKED, window=TimeWindow(start=MARCH, end=MARCH + timedelta(days=30)))

    now = as_result(ScoredFact(fact=since, score=0.75), ASKED, [before])
    then = as_result(ScoredFact(fact=before, score=0.75), spring, [since])

    assert [(one.text, one.holds) for one in now.facts] == [(since.text, True), (before.text, False)]
    assert [(one.text, one.holds) for one in then.facts] == [(before.text, True), (since.text, False)]
    assert (now.facts[0].as_of, then.facts[0].as_of) == (NOW, MARCH + timedelta(days=30))
    assert now.outdated == then.outdated == (NOTE,)


def test_a_long_fact_is_cut_and_still_says_since_when() -> None:
    result = as_result(ScoredFact(fact=fact(text="word " * 400, valid_at=MARCH), score=0.5), ASKED)

    assert len(result.snippet) <= MAX_SNIPPET_CHARS
    assert result.snippet.endswith("… (since 2026-03-01)")


def test_a_path_leads_to_its_fact_and_no_other_text_does() -> None:
    assert ids_in(fact_path("team-1", "0b7c")) == ("team-1", "0b7c")
    for path in ("memory/a.md", "graphiti/main", "graphiti/../x", "graphiti/a/b/c", "graphiti/a b/c", ""):
        assert ids_in(path) is None


def test_a_page_shows_the_fact_its_history_and_its_sources() -> None:
    before = fact(id="0a11", text="Ines works at\nBeacon.", target="Beacon", valid_at=MARCH, invalid_at=JUNE)
    source = Episode(
        id="e1", group_id="main", content_id="c1", text="Ines works at Acme.", observed_at=JUNE, origin=NOTE
    )
    page = fact_page(fact(valid_at=JUNE), NOW, history=[before, fact(valid_at=JUNE)], sources=[source])

    assert page.startswith("# Ines works at Acme\n\nInes works at Acme. (since 2026-06-01)\n")
    assert "- Ines works at Beacon. (2026-03-01 to 2026-06-01; no longer holds) [graphiti/main/0a11]" in page
    assert "- memory/2026-03-01.md#L3-L7, 2026-06-01 [graphiti/main/e1]\n  > Ines works at Acme." in page


def test_a_page_of_an_episode_shows_its_text() -> None:
    episode = Episode(id="e1", group_id="main", content_id="c1", text="Ines is back.", source="a message")

    assert episode_page(episode, []) == "# a message\n\nInes is back.\n"


@pytest.mark.parametrize(
    ("source", "text", "told"),
    [
        ("Ines Keller", "She moved to Basel.", "Ines Keller: She moved to Basel."),
        ("Peter", "Prefers short replies.", "Peter: Prefers short replies."),
        ("Ana", "I live in Porto.", "Ana: I live in Porto."),
        ("Ines Keller", "Ines moved to Basel.", "Ines moved to Basel."),
        ("Ines", "INES' job is at Acme.", "INES' job is at Acme."),
        ("田中", "田中は東京に住んでいる。", "田中は東京に住んでいる。"),
    ],
)
def test_a_fact_is_told_with_its_subject(source: str, text: str, told: str) -> None:
    one = fact(source=source, text=text)

    assert one.statement == told
    assert as_result(ScoredFact(fact=one, score=0.5), ASKED).snippet.startswith(told)
    assert format_fact(one, NOW).startswith(told)
