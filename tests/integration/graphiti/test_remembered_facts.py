"""What is remembered is a fact of the graph at once, of its own workspace alone."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
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
