"""Contents become episodes: with times in UTC, an origin, no secrets, and a word about what is odd."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from composable_memory.content import (
    MemoryArtifact,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
)
from composable_memory.types import Origin
from composable_memory_adapters.graphiti.episodes import (
    PART_OF,
    EpisodeDraft,
    description_of,
    drafts_of,
    graph_id,
    no_text,
    origin_of,
)
from composable_memory_adapters.graphiti.outbox.entries import draft_to_json

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)
SPRING = datetime(2026, 3, 1, 8, tzinfo=UTC)
WINTER = datetime(2026, 1, 5, 8, tzinfo=UTC)
PASSWORD = "password=" + "Tr0ub4dor-and-three"


def content(text: str | None = "The ferry is late.", **fields: Any) -> MemoryContentObject:
    return MemoryContentObject(**{"id": "c1", "kind": "document", "text": text, **fields})


def drafts(of: MemoryContentObject, max_chars: int = 4000) -> tuple[EpisodeDraft, ...]:
    return drafts_of(of, group_id="main", now=NOW, max_chars=max_chars)


def draft(of: MemoryContentObject) -> EpisodeDraft:
    (only,) = drafts(of)
    return only


def codes(of: EpisodeDraft) -> list[str]:
    return [warning.code for warning in of.warnings]


def test_an_episode_has_the_id_that_its_group_and_content_give() -> None:
    assert draft(content()).id == graph_id("main", "c1")
    assert graph_id("main", "c1") != graph_id("other", "c1")


# --- times ---


def test_what_was_observed_goes_before_what_was_created() -> None:
    both = MemoryTemporalMetadata(observed_at=SPRING, created_at=WINTER)

    assert draft(content(temporal=both)).observed_at == SPRING
    assert draft(content(temporal=MemoryTemporalMetadata(created_at=WINTER))).observed_at == WINTER


def test_a_content_is_ingested_when_it_was_updated_or_now() -> None:
    updated = MemoryTemporalMetadata(observed_at=WINTER, updated_at=SPRING)

    assert draft(content(temporal=updated)).ingested_at == SPRING
    assert draft(content(temporal=MemoryTemporalMetadata(observed_at=WINTER))).ingested_at == NOW


def test_each_time_that_the_content_lacks_is_taken_from_its_provenance() -> None:
    inherited = MemoryProvenance(
        source="notes", temporal=MemoryTemporalMetadata(observed_at=WINTER, updated_at=SPRING)
    )
    own = MemoryTemporalMetadata(observed_at=SPRING, valid_from=WINTER)

    made = draft(content(temporal=own, provenance=inherited))

    assert (made.observed_at, made.ingested_at) == (SPRING, SPRING)
    assert made.content.temporal == MemoryTemporalMetadata(
        created_at=SPRING, observed_at=SPRING, valid_from=WINTER, updated_at=SPRING
    )


def test_a_content_without_any_time_is_observed_when_it_comes_in_and_that_is_said() -> None:
    made = draft(content())

    assert (made.observed_at, made.ingested_at) == (NOW, NOW)
    assert codes(made) == ["graphiti.missing_temporal"]


def test_a_content_with_a_time_raises_no_warning() -> None:
    assert codes(draft(content(temporal=MemoryTemporalMetadata(created_at=WINTER)))) == []


@pytest.mark.parametrize("key", ["observedAt", "observed_at"])
def test_metadata_may_say_when_it_was_observed(key: str) -> None:
    made = draft(content(metadata={key: "2026-03-01T09:00:00+01:00"}))

    assert made.observed_at == SPRING
    assert codes(made) == []


def test_a_date_that_is_none_is_named_and_the_time_of_coming_in_is_taken() -> None:
    made = draft(content(metadata={"observedAt": "last Tuesday"}))

    assert made.observed_at == NOW
    assert codes(made) == ["graphiti.invalid_observed_at"]
    assert made.warnings[0].details == {"id": "c1", "value": "last Tuesday"}


def test_a_time_without_a_zone_is_utc_and_that_is_said() -> None:
    made = draft(content(temporal=MemoryTemporalMetadata(observed_at=datetime(2026, 3, 1, 8))))  # noqa: DTZ001 - that is the case

    assert made.observed_at == SPRING
    assert codes(made) == ["graphiti.naive_time"]


def test_times_of_other_zones_become_utc() -> None:
    there = SPRING.astimezone(timezone(timedelta(hours=9)))

    made = draft(content(temporal=MemoryTemporalMetadata(observed_at=there, valid_to=there)))

    assert made.observed_at.tzinfo is UTC
    assert made.content.temporal is not None
    assert made.content.temporal.valid_to == SPRING
    assert made.content.temporal.valid_to.tzinfo is UTC


@pytest.mark.parametrize("year", [1, 1899, 2200])
def test_an_unlikely_year_is_used_and_named(year: int) -> None:
    made = draft(content(temporal=MemoryTemporalMetadata(observed_at=SPRING.replace(year=year))))

    assert made.observed_at.year == year
    assert codes(made) == ["graphiti.unlikely_time"]


def test_a_time_outside_of_the_calendar_in_utc_is_invalid() -> None:
    first = datetime.min.replace(tzinfo=timezone(timedelta(hours=9)))

    assert codes(draft(content(temporal=MemoryTemporalMetadata(observed_at=first)))) == [
        "graphiti.invalid_observed_at"
    ]


# --- texts ---


@pytest.mark.parametrize("text", [None, "", " \n\t "])
def test_a_blank_text_becomes_nothing_and_there_is_a_warning_for_it(text: str | None) -> None:
    blank = content(text)

    assert drafts(blank) == ()
    assert no_text(blank).code == "graphiti.no_text"


def test_secrets_are_masked_wherever_they_stand() -> None:
    secret = content(
        f"She wrote {PASSWORD} down.",
        title=PASSWORD,
        tags=(PASSWORD,),
        metadata={"note": PASSWORD},
        artifacts=(MemoryArtifact(id="a", kind="link", description=PASSWORD),),
    )

    assert "Tr0ub4dor-and-three" not in repr(draft(secret))


def test_what_no_database_can_store_is_replaced() -> None:
    made = draft(content("a\0b \ud800", id="c\ud800"))

    assert made.text == "a b ?"
    assert made.id == graph_id("main", "c?")


def test_messages_are_told_from_texts_and_data() -> None:
    sources = [
        draft(content(kind="message")).source,
        draft(content(kind="fact")).source,
        draft(content('{"a": 1}', language="json")).source,
    ]

    assert sources == ["message", "text", "json"]


def test_a_long_text_is_cut_between_paragraphs_and_each_part_knows_its_lines() -> None:
    text = "\n".join(["first " * 20, "more " * 10, "", "second " * 20, "", "third " * 20])
    cited = MemoryProvenance(source="notes", citations=("memory/x.md#L11-L16",))

    parts = drafts(content(text, provenance=cited), max_chars=200)

    assert [part.content.id for part in parts] == ["c1", "c1#2", "c1#3"]
    assert [part.text.split()[0] for part in parts] == ["first", "second", "third"]
    assert [part.description for part in parts] == [
        "memory/x.md#L11-L12",
        "memory/x.md#L14",
        "memory/x.md#L16",
    ]
    assert {part.content.metadata[PART_OF] for part in parts} == {"c1"}


def test_parts_of_a_text_that_is_not_what_the_lines_say_name_all_of_them() -> None:
    cited = MemoryProvenance(source="notes", citations=("memory/x.md#L1-L2",))

    parts = drafts(content("word " * 100, provenance=cited), max_chars=200)

    assert {part.description for part in parts} == {"memory/x.md#L1-L2"}


def test_warnings_are_said_once_for_all_parts() -> None:
    parts = drafts(content("word " * 100), max_chars=200)

    assert [len(part.warnings) for part in parts] == [1, 0, 0]


# --- origins ---


def test_the_origin_is_the_first_citation() -> None:
    cited = MemoryProvenance(source="notes", citations=("memory/x.md#L3-L7", "memory/y.md"))

    made = draft(content(provenance=cited, metadata={"path": "memory/z.md"}))

    assert made.origin == Origin(path="memory/x.md", start_line=3, end_line=7)
    assert made.description == "memory/x.md#L3-L7"


def test_without_a_citation_the_metadata_may_say_where_it_was_taken_from() -> None:
    made = draft(content(metadata={"path": "memory/z.md", "start_line": 2, "end_line": 4}))

    assert made.origin == Origin(path="memory/z.md", start_line=2, end_line=4)


def test_a_content_from_nowhere_is_described_by_its_source() -> None:
    made = draft(content(provenance=MemoryProvenance(source="telegram")))

    assert (made.origin, made.description) == (None, "telegram")


@pytest.mark.parametrize(
    ("origin", "description"),
    [
        (Origin(path="memory/x.md", start_line=3, end_line=7), "memory/x.md#L3-L7"),
        (Origin(path="memory/x.md", start_line=3, end_line=3), "memory/x.md#L3"),
        (Origin(path="memory/x.md"), "memory/x.md"),
        (Origin(path="MEMORY.md"), "MEMORY.md"),
        (Origin(path="my notes/größe.md"), "my notes/größe.md#"),
        (Origin(path="memory/a#L3.md", start_line=1, end_line=2), "memory/a%23L3.md#L1-L2"),
    ],
)
def test_a_description_reads_well_and_leads_back(origin: Origin, description: str) -> None:
    assert description_of(origin) == description
    assert origin_of(description) == origin


@pytest.mark.parametrize("words", ["telegram", "memory.ingest", "chat #L3", "a/b", "", "two words"])
def test_other_words_are_no_origin(words: str) -> None:
    assert origin_of(description_of(None, words)) is None


# --- what cannot be stored, and what nobody may say ---


def test_half_a_character_is_replaced_wherever_it_stands() -> None:
    half = "\ud800"
    made = draft(
        content(
            id=half,
            tags=(half,),
            metadata={half: [half, {"deep": half}]},
            provenance=MemoryProvenance(source=half, session_key=half, actor_id=half, citations=(half,)),
        )
    )

    assert "?" in draft_to_json(made)
    assert "ud800" not in draft_to_json(made)


def test_who_hands_a_content_in_cannot_make_it_a_part_of_another() -> None:
    made = draft(content(metadata={PART_OF: "somebody's", "partOf": "a thread"}))

    assert made.content.metadata == {"partOf": "a thread"}


def test_a_long_description_without_a_path_takes_no_more_than_its_length() -> None:
    assert origin_of("x/" * 200_000 + "\n") is None
