"""What is remembered is a fact of the graph at once, of its own workspace alone."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory

pytest.importorskip("falkordb")

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONFIG = {"memory": {"graphiti": {"enabled": True}, "embedding": {"provider": "none"}}}


@pytest.fixture
async def two(tmp_path: Path, state_dir: Path) -> AsyncIterator[tuple[Memory, Memory]]:
    """Return the memories of two workspaces that share a state folder."""
    async with AsyncExitStack() as stack:
        opened = []
        for name in ("A", "B"):
            (tmp_path / name).mkdir()
            opening = open_memory(tmp_path / name, state_dir, CONFIG, long_lived=False)
            opened.append(await stack.enter_async_context(opening))
        yield opened[0], opened[1]


async def test_a_line_is_a_fact_with_its_entities_type_and_confidence(two: tuple[Memory, Memory]) -> None:
    memory, other = two
    told = await memory.remember("Prefers short replies.", entities=["Peter"], confidence=0.8, now=NOW)
    elsewhere = await other.remember("Prefers long replies.", entities=["Peter"], confidence=0.8, now=NOW)

    (fact,) = await memory.facts_of().facts(about="Peter")
    (others,) = await other.facts_of().facts(about="Peter")

    assert (told.degraded, elsewhere.degraded) == ((), ())
    assert "Prefers short replies." in fact.text
    assert (fact.relation, fact.source, fact.confidence) == ("OPINION", "Peter", 0.8)
    assert [one.citation for one in fact.origins] == [told.citation]
    assert fact.valid_at is not None
    assert fact.valid_at.date() == NOW.date()
    assert "long" in others.text


async def test_an_opinion_ends_no_fact_of_the_world(two: tuple[Memory, Memory]) -> None:
    memory, _ = two
    await memory.remember("Alice Moreau lives in Lisbon.", now=NOW)
    await memory.remember("Alice Moreau lives in Porto.", type="opinion", confidence=0.4, now=NOW)

    facts = {one.relation: one for one in await memory.facts_of().facts(about="Alice Moreau")}

    assert facts.keys() == {"LIVES_IN", "OPINION"}
    assert facts["LIVES_IN"].invalid_at is None
    assert facts["OPINION"].confidence == 0.4


async def test_the_whole_note_can_be_ingested_after_that(two: tuple[Memory, Memory]) -> None:
    memory, _ = two
    done = await memory.remember("Alice Moreau lives in Lisbon.", now=NOW)
    text = await memory.text_of(done.path, 1, 100)
    source = WrittenSource(text=text or "", path=done.path, written_at=NOW)

    reports = await memory.ingest_source(done.path, contents_of(source))

    assert [(one.known, one.stored) for one in reports.values()] == [(1, 0)]
    assert len(await memory.facts_of().facts()) == 1


@pytest.mark.parametrize("hours", [0, 14, -12])
async def test_what_is_remembered_ends_what_a_note_without_a_date_said_on_the_same_day(
    two: tuple[Memory, Memory], hours: int
) -> None:
    memory, _ = two
    now = datetime.now(timezone(timedelta(hours=hours))) - timedelta(hours=1)
    note = WrittenSource(text="Alice Moreau works at Acme.", path="people.md", written_at=now)
    await memory.ingest_source("people.md", contents_of(note))
    for minutes, firm in enumerate(("Beacon Labs", "Harbour Ltd", "Acme Works"), start=1):
        at = now + timedelta(minutes=minutes)
        assert not (await memory.remember(f"Alice Moreau works at {firm}.", now=at)).degraded

    graph = memory.facts_of()
    told = await graph.timeline("Alice Moreau")
    (current,) = await graph.facts(about="Alice Moreau", current_only=True)
    recalled = (await memory.recall("Alice Moreau")).items
    today = await memory.query(
        "where does Alice Moreau work today?", backends=["graphiti"], now=now + timedelta(hours=1)
    )

    assert today.results[0].snippet.startswith("Alice Moreau works at Acme Works.")
    assert [one.target for one in told] == ["Acme", "Beacon Labs", "Harbour Ltd", "Acme Works"]
    assert current.target == "Acme Works"
    assert [one.content for one in recalled if not one.ended_at and one.kind != "passage"] == [current.text]


@pytest.mark.parametrize(
    "names", [("people.md", "memory/2026-03-01.md"), ("memory/2026-03-01.md", "people.md")]
)
async def test_in_which_order_notes_are_ingested_does_not_matter(
    two: tuple[Memory, Memory], names: tuple[str, str]
) -> None:
    memory, _ = two
    written = {
        "people.md": WrittenSource(text="Tom works at Acme.", path="people.md", written_at=NOW),
        "memory/2026-03-01.md": WrittenSource(
            text="Tom works at Beacon Labs.\n\n## Later\n\nTom works at Harbour Ltd.",
            path="memory/2026-03-01.md",
            written_at=NOW + timedelta(hours=1),
        ),
    }
    for name in names:
        await memory.ingest_source(name, contents_of(written[name]))

    told = await memory.facts_of().timeline("Tom")

    assert [one.target for one in told] == ["Acme", "Beacon Labs", "Harbour Ltd"]
    assert [one.target for one in told if one.invalid_at is None] == ["Harbour Ltd"]


async def test_a_fact_says_that_its_note_is_gone_wherever_it_is_shown(two: tuple[Memory, Memory]) -> None:
    memory, _ = two
    place = "people.md#L1"
    note = memory.workspace_dir / "people.md"
    note.write_text("Tom works at Acme.")
    await memory.ingest_source(
        "people.md", contents_of(WrittenSource(text=note.read_text(), path="people.md", written_at=NOW))
    )
    graph = memory.facts_of()

    for is_gone in (None, True):
        (fact,) = await graph.timeline("Tom")
        (episode,) = await graph.episodes()
        answer = await memory.query("where does Tom work?", backends=["graphiti"])
        (item,) = (await memory.recall("Tom")).items
        page = await memory.text_of(answer.results[0].path, 1, 100)
        origins = (*fact.origins, episode.origin, answer.results[0].origin)

        assert {(one.citation, one.gone) for one in origins if one} == {(place, is_gone)}
        assert (item.source, item.source_gone) == (place, is_gone)
        assert (f"{place} (gone)" in (page or "")) is bool(is_gone)
        note.unlink(missing_ok=True)


async def test_of_a_note_that_was_renamed_the_place_that_is_there_comes_first(
    two: tuple[Memory, Memory],
) -> None:
    memory, _ = two
    for name in ("a.md", "b.md"):
        (memory.workspace_dir / name).write_text("Tom works at Acme.")
        source = WrittenSource(text="Tom works at Acme.", path=name, written_at=NOW)
        await memory.ingest_source(name, contents_of(source))
    (memory.workspace_dir / "a.md").unlink()

    (fact,) = await memory.facts_of().facts()

    assert [(one.path, one.gone) for one in fact.origins] == [("b.md", None), ("a.md", True)]


async def test_the_later_sentence_of_a_section_ends_the_earlier_in_whichever_language(
    two: tuple[Memory, Memory],
) -> None:
    memory, _ = two
    text = "## 2026-02-03\nMara works at Acme.\nMara arbeitet jetzt bei Globex.\n\nTom works at Quay.\n"
    lines = contents_of(WrittenSource(text=text, path="people.md", written_at=NOW))

    await memory.ingest_source("people.md", lines)

    current = await memory.facts_of().facts(current_only=True)
    assert {(one.source, one.target) for one in current} == {("Mara", "Globex"), ("Tom", "Quay")}


async def test_a_first_name_is_the_only_full_name_that_begins_with_it(two: tuple[Memory, Memory]) -> None:
    memory, other = two
    facts = memory.facts_of()

    async def told(path: str, text: str) -> None:
        await memory.ingest_source(path, contents_of(WrittenSource(text=text, path=path, written_at=NOW)))

    async def about(name: str) -> set[str]:
        return {one.text for one in await facts.facts(about=name)}

    await told("a.md", "Tom Okafor leads Project Atlas.\n\nTom lives in Leeds.\n\nAtlas uses Redis.\n")
    await told("b.md", "Tom Okafor likes sushi.\n\nProject Atlas is finished.\n")
    both = {"Tom Okafor leads Project Atlas.", "Tom lives in Leeds.", "Tom Okafor likes sushi."}
    answer = (await memory.query("Where does Tom Okafor live?")).results[0]

    assert await about("tom okafor") == await about("Tom") == both
    assert {one.text for one in await facts.timeline("Tom")} == both
    assert "Tom lives in Leeds." in answer.text
    assert answer.score > 0.8
    assert await about("Atlas") == {"Atlas uses Redis."}  # no person

    await other.ingest_source("c.md", contents_of(WrittenSource(text="Tom Baker sings.", written_at=NOW)))
    assert await about("Tom") == both
    await told("c.md", "Tom Baker lives in York.\n")
    assert await about("Tom") == {"Tom lives in Leeds."}
    assert await about("Tom Okafor") == both - {"Tom lives in Leeds."}
