"""Whatever is handed in or asked for, nothing is lost, left over, shown to others, or thrown from below."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.errors import BackendRejected
from composable_memory.interfaces import Capability
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.types import SearchOptions
from composable_memory_adapters.graphiti.database import requirements
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from tests.integration.graphiti.planting import plant_episode

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")
pytestmark = [
    pytest.mark.usefixtures("neighbour"),
    pytest.mark.security,
    pytest.mark.skipif(
        requirements.find_binaries() is None, reason="there is no graph server for this system"
    ),
]

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HALF = "\ud800"
SAID = "Ines works at Harbour. The code of the safe is kestrel."
HOSTILE = (
    '"}) MATCH (n) DETACH DELETE n //',
    "\\",
    '\\"',
    "`x`",
    "$group_id",
    "@name:(*) | %%x%% -y ~z",
    "graphiti/../main/x",
    "\0a\x1b[2J",
    HALF,
    "\u202etxt.\u202c",
    "e\u0301" * 40,
    "🧭" * 40,
)


def said(own_id: str, text: str, **fields: object) -> MemoryContentObject:
    return MemoryContentObject(id=own_id, kind="message", text=text, **fields)  # type: ignore[arg-type]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path


@asynccontextmanager
async def opened(folder: Path, agent: str = "main", **graphiti: object) -> AsyncIterator[Memory]:
    config = {
        "agent_id": agent,
        "graphiti": {"enabled": True, **graphiti},
        "builtin": {"enabled": False},
        "embedding": {"provider": "none"},
    }
    async with open_memory(folder, folder / "state", config, clock=lambda: NOW, long_lived=False) as memory:
        yield memory


# --- what is handed in --------------------------------------------------------------------------------------


def about(words: str) -> MemoryContentObject:
    return said(
        words,
        f'Bob met "{words}" in Oslo. {words} Smith works at {words} Ltd. Eve lives in Oslo.',
        title=words,
        tags=(words,),
        metadata={words: words, "speaker": words, "partOf": words},
        provenance=MemoryProvenance(source=words, session_key=words, actor_id=words, citations=(words,)),
    )


async def test_words_are_words_wherever_they_stand(tmp_path: Path) -> None:
    """Statements, queries and paths are made of them; they never become a part of any."""
    async with opened(tmp_path) as memory:
        await memory.ingest([said("before", SAID)])
        facts = memory.facts_of()
        for words in HOSTILE:
            report = (await memory.ingest([about(words)]))["graphiti"]
            assert (report.stored, report.problems) == (1, ()), words
            await memory.ingest_source(words, [said(f"of {words}", f"Bob works at {words} Ltd.")])
            await facts.facts(about=words)
            await facts.entities(named=words)
            await facts.neighbourhood(words)
            await memory.query(words)
        found = await memory.query("Ines Harbour")
        gone = [await facts.forget(words) for words in HOSTILE]
        left = await facts.episodes(limit=100)

    assert any("Harbour" in one.snippet for one in found.results)
    assert all(one and one.facts for one in gone)
    assert len(left) == len(HOSTILE) + 1


async def test_a_thread_that_a_message_is_part_of_is_not_what_it_was_cut_from(tmp_path: Path) -> None:
    async with opened(tmp_path) as memory:
        for number in range(3):
            text = f"Person{number} works at Harbour."
            await memory.ingest([said(f"m{number}", text, metadata={"partOf": "a thread"})])
        held = await memory.facts_of().facts(current_only=True)

    assert len(held) == 3


MOMENTS = (
    datetime(1, 1, 1),  # noqa: DTZ001 - without a zone
    datetime(2026, 10, 25, 2, 30),  # noqa: DTZ001
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-12))),
)


async def test_every_time_of_a_calendar_can_be_stated_and_asked_for(tmp_path: Path) -> None:
    kinds = ("observed_at", "valid_from", "valid_to", "expires_at", "created_at")
    async with opened(tmp_path) as memory:
        for moment in MOMENTS:
            contents = [
                said(f"{kind} {moment}", SAID, temporal=MemoryTemporalMetadata(**cast("Any", {kind: moment})))
                for kind in kinds
            ]
            report = (await memory.ingest(contents))["graphiti"]
            assert (report.stored, report.problems) == (len(kinds), ()), moment
            await memory.facts_of().facts(as_of=moment)
            await memory.query(f"Who worked at Harbour as of {moment.date()}?")


async def test_a_number_that_no_database_takes_is_no_number_of_results(tmp_path: Path) -> None:
    async with opened(tmp_path) as memory:
        await memory.ingest([said("a", SAID)])
        graph = memory.manager.backends_with(Capability.FACTS)["graphiti"]
        found = await graph.search("Ines Harbour", SearchOptions(max_results=10**30))

    assert found


# --- whose it is --------------------------------------------------------------------------------------------


async def test_an_agent_can_neither_read_nor_forget_what_another_remembers(tmp_path: Path) -> None:
    async with opened(tmp_path, "anna") as anna:
        await anna.ingest([said("a-note", SAID)])
        (fact, *_) = await anna.facts_of().facts()
        (episode,) = await anna.facts_of().episodes()
    paths = [f"graphiti/{fact.group_id}/{one}" for one in (fact.id, episode.id, "a-note")]

    async with opened(tmp_path, "bob") as bob:
        await bob.ingest([said("own", "Bob works at Quay.")])
        read = [(await bob.read_file(path)).text for path in paths]
        for path in paths:
            with pytest.raises(BackendRejected, match="no such episode"):
                await bob.facts_of().forget(path)
        found = await bob.query("Ines Harbour kestrel")
    async with opened(tmp_path, "bob", also_search=[fact.group_id]) as bob:
        shared = (await bob.read_file(paths[0])).text

    assert read == ["", "", ""]
    assert found.results == ()
    assert "Harbour" in shared


async def test_what_others_have_written_of_a_page_is_read_whatever_its_address(tmp_path: Path) -> None:
    """An address may be escaped by rules that are not ours."""
    addresses = ("https://example.org/wiki/Caf%C3%A9", "https://example.org/ferry#times", "notes/100%#1.md")
    async with opened(tmp_path) as memory:
        await memory.ingest([said("own", SAID)])
    (ledger,) = (tmp_path / "state").rglob("episodes.sqlite")
    async with open_database(GraphitiSettings(), data_dir=ledger.parent) as database:
        for address in addresses:
            await plant_episode(database, "others", address, description=address)
    async with opened(tmp_path, also_search=["others"]) as memory:
        read = [(await memory.read_file(f"graphiti/others/{address}")).text for address in addresses]

    assert read == [f"The text of {address}" for address in addresses]


async def test_nobody_else_can_read_what_is_kept(tmp_path: Path) -> None:
    """In whatever folder: only some of them are closed."""
    kept = tmp_path / "shared"
    kept.mkdir(mode=0o755)
    async with opened(tmp_path, private={"dir": str(kept)}) as memory:
        await memory.ingest([said("a", SAID)])
        graphs = [path for path in kept.rglob("*") if "appendonly" in path.name or path.suffix == ".sqlite"]
        modes = {path.name: path.stat().st_mode & 0o077 for path in graphs}

    assert modes
    assert set(modes.values()) == {0}


# --- what is forgotten --------------------------------------------------------------------------------------


@pytest.mark.thorough
async def test_what_is_forgotten_while_it_is_stored_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as one, opened(tmp_path) as other:
        for turn in range(4):
            contents = [said(f"x{n}", f"Zora{n} works at Harbour{turn} Ltd.") for n in range(8)]
            forgetting = [one.facts_of().forget(content.id) for content in contents]
            await asyncio.gather(
                one.ingest(contents), other.ingest(contents), *forgetting, return_exceptions=True
            )
        for content in contents:
            await asyncio.gather(one.facts_of().forget(content.id), return_exceptions=True)
        await one.sync()
        left = await one.facts_of().facts(limit=100), await one.facts_of().entities(limit=100)

    assert left == ([], [])


async def test_half_a_character_names_no_episode(tmp_path: Path) -> None:
    async with opened(tmp_path) as memory:
        await memory.ingest([said("a", SAID)])
        with pytest.raises(BackendRejected, match="no such episode"):
            await memory.facts_of().forget(HALF)


async def test_a_fact_holds_no_more_when_the_last_that_still_said_so_is_forgotten(tmp_path: Path) -> None:
    text = "Ines really likes Erlang very much."
    async with opened(tmp_path) as memory:
        await memory.ingest_source("notes.md", [said("note", text)])
        await memory.ingest([said("message", text)])
        await memory.ingest_source("notes.md", [])
        before = await memory.facts_of().facts(current_only=True)
        await memory.facts_of().forget("message")
        after = await memory.facts_of().facts(current_only=True)
        history = await memory.facts_of().facts()

    assert (len(before), len(after), len(history)) == (1, 0, 1)


async def test_what_holds_again_in_every_respect_loses_nothing_else(tmp_path: Path) -> None:
    """Three times of a fact become unknown at once, which a database may do to the wrong ones."""
    january, february = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    lyon = said("lyon", "Ines lives in Lyon.", temporal=MemoryTemporalMetadata(observed_at=january))
    oslo = said("oslo", "Ines lives in Oslo.", temporal=MemoryTemporalMetadata(observed_at=february))
    async with opened(tmp_path) as memory:
        await memory.ingest([oslo])
        await memory.ingest_source("notes.md", [lyon])
        (before,) = [one for one in await memory.facts_of().facts() if one.target == "Lyon"]
        await memory.ingest_source("notes.md", [])
        await memory.facts_of().forget("oslo")
        await memory.ingest_source("notes.md", [lyon])
        (after,) = await memory.facts_of().facts()

    assert not before.is_current(NOW)
    assert after == replace(before, invalid_at=None, expired_at=None)
