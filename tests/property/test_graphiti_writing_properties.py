"""Laws of episodes and groups that hold for any content."""

import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.types import Origin
from composable_memory_adapters.graphiti.episodes import (
    EpisodeDraft,
    description_of,
    drafts_of,
    origin_of,
    pieces_of,
)
from composable_memory_adapters.graphiti.groups import safe_group_id
from composable_memory_adapters.graphiti.outbox.entries import draft_from_json, draft_to_json

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)
TEXTS = st.text(st.sampled_from("ab c\n\n#é"), max_size=400)
SIZES = st.integers(32, 80)
PATHS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
LINES = st.tuples(st.integers(1, 10**6), st.integers(0, 500)).map(lambda pair: (pair[0], sum(pair)))


@given(keys=st.sets(st.text(), min_size=2))
def test_different_keys_have_different_groups(keys: set[str]) -> None:
    assert len({safe_group_id(key) for key in keys}) == len(keys)


@given(key=st.text())
def test_a_group_is_safe_and_stays_what_it_is(key: str) -> None:
    name = safe_group_id(key)

    assert re.fullmatch("[A-Za-z0-9_-]+", name)
    assert safe_group_id(name) == name


@given(path=PATHS, lines=st.none() | LINES)
def test_every_origin_is_read_back_from_its_description(path: str, lines: tuple[int, int] | None) -> None:
    start, end = lines or (0, 0)
    origin = Origin(path=path, start_line=start, end_line=end)

    assert origin_of(description_of(origin)) == origin


@given(words=st.text())
def test_no_other_words_are_taken_for_an_origin(words: str) -> None:
    assert origin_of(description_of(None, words)) is None


@given(text=TEXTS, max_chars=SIZES)
def test_the_parts_of_a_text_are_all_of_it_in_order_and_none_is_too_long(text: str, max_chars: int) -> None:
    parts = list(pieces_of(text, None, max_chars))

    assert "".join("".join(part.text.split()) for part in parts) == "".join(text.split())
    assert all(part.text.strip() and len(part.text) <= max_chars for part in parts)


@given(text=TEXTS, max_chars=SIZES, first=st.integers(1, 50))
def test_each_part_is_found_in_the_lines_that_it_names(text: str, max_chars: int, first: int) -> None:
    lines = text.split("\n")
    origin = Origin(path="x.md", start_line=first, end_line=first + len(lines) - 1)

    for part in pieces_of(text, origin, max_chars):
        assert part.origin is not None
        named = lines[part.origin.start_line - first : part.origin.end_line - first + 1]
        assert "".join(part.text.split()) in "".join("".join(named).split())


def contents() -> st.SearchStrategy[MemoryContentObject]:
    times = st.none() | st.datetimes(timezones=st.none() | st.just(UTC))
    temporal = st.none() | st.builds(
        MemoryTemporalMetadata, created_at=times, observed_at=times, valid_to=times, timezone=st.just("UTC")
    )
    provenance = st.none() | st.builds(
        MemoryProvenance,
        source=st.text(),
        temporal=temporal,
        citations=st.lists(st.text(), max_size=2).map(tuple),
    )
    metadata = st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.lists(st.booleans()))
    return st.builds(
        MemoryContentObject,
        id=st.text(),
        kind=st.sampled_from(["message", "fact", "note"]),
        text=st.none() | st.text(),
        tags=st.lists(st.text(), max_size=2).map(tuple),
        metadata=metadata,
        provenance=provenance,
        temporal=temporal,
    )


def made_of(content: MemoryContentObject) -> tuple[EpisodeDraft, ...]:
    return drafts_of(content, group_id="main", now=NOW, max_chars=10)


@given(content=contents())
def test_every_episode_has_times_in_utc(content: MemoryContentObject) -> None:
    for draft in made_of(content):
        assert draft.observed_at.tzinfo is UTC
        assert draft.ingested_at.tzinfo is UTC


@given(content=contents())
def test_making_episodes_again_gives_the_same(content: MemoryContentObject) -> None:
    made = made_of(content)

    assert made == made_of(content)
    assert len({draft.id for draft in made}) == len(made)


@given(content=contents())
def test_what_the_ledger_writes_it_reads(content: MemoryContentObject) -> None:
    for draft in made_of(content):
        assert draft_from_json(draft_to_json(draft)) == draft
