"""What the ledger calls stored and the graph has lost is named, and stored again until all is as it was."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from typer.testing import CliRunner

from composable_memory.cli import app
from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.interfaces import Capability, SupportsSync
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory_adapters.graphiti.database import requirements
from composable_memory_adapters.graphiti.database.falkor import FalkorDatabase
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from tests.integration.graphiti.conftest import TcpServer
from tests.variants import variants

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")
pytestmark = [
    pytest.mark.usefixtures("neighbour"),
    pytest.mark.skipif(
        requirements.find_binaries() is None, reason="there is no graph server for this system"
    ),
]

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PATIENCE_S = 30.0
QUESTION = "Where does Mirela work?"
PEOPLE, PLACES = "memory/people.md", "memory/places.md"

TO_VERSION_1 = """
DROP TABLE claims; DROP TABLE restored; DROP INDEX episodes_of_nobody;
ALTER TABLE episodes DROP COLUMN workspace; ALTER TABLE episodes DROP COLUMN is_marked;
PRAGMA user_version = 1
"""

Open = Callable[..., AbstractAsyncContextManager[Memory]]


class Known(NamedTuple):
    """What a memory tells of a fact."""

    text: str
    since: datetime | None
    until: datetime | None
    episodes: tuple[str, ...]


def said(path: str, text: str, day: str) -> MemoryContentObject:
    return MemoryContentObject(
        id=f"{path}#{text}",
        kind="document",
        text=text,
        provenance=MemoryProvenance(source="note", source_id=path, citations=(f"{path}#L1",)),
        temporal=MemoryTemporalMetadata(observed_at=datetime.fromisoformat(day).replace(tzinfo=UTC)),
    )


JOBS = (
    said(PEOPLE, "Mirela works at Beacon Labs.", "2026-01-10"),
    said(PEOPLE, "Mirela works at Acme Robotics.", "2026-06-01"),
    said(PEOPLE, "Mirela works at Beacon Labs now.", "2026-09-01"),
)
HOMES = tuple(
    said(PLACES, f"Person{number} lives in Town{number}.", f"2026-02-{number:02}") for number in range(1, 7)
)


@pytest.fixture
def opened(workspace: Path, state_dir: Path) -> Open:
    def open_it(
        now: datetime = NOW, *, long_lived: bool = False, **graphiti: object
    ) -> AbstractAsyncContextManager[Memory]:
        config = {"graphiti": {"enabled": True, **graphiti}, "embedding": {"provider": "none"}}
        return open_memory(workspace, state_dir, config, clock=lambda: now, long_lived=long_lived)

    return open_it


async def fill(opened: Open) -> set[Known]:
    """Ingest facts that superseded others, some that their source says no more; return what is known then."""
    async with opened() as memory:
        await memory.ingest_source(PEOPLE, JOBS)
        await memory.ingest_source(PLACES, HOMES)
    async with opened() as memory:
        await memory.ingest_source(PLACES, HOMES[2:])
        known = await facts_of(memory)
    assert len(known) >= len(HOMES) + 2
    assert sum(one.until is not None for one in known) >= 3
    return known


async def facts_of(memory: Memory) -> set[Known]:
    facts = await memory.facts_of().facts(limit=1000)
    return {Known(one.text, one.valid_at, one.invalid_at, tuple(sorted(one.episodes))) for one in facts}


async def told(memory: Memory) -> str:
    response = await memory.query(QUESTION, backends=["graphiti"])
    return "; ".join(one.reason for one in response.degraded)


def journal(state_dir: Path) -> Path:
    (found,) = state_dir.glob("**/appendonlydir/*.incr.aof")
    return found


def ledgers(state_dir: Path) -> list[Path]:
    return [*state_dir.glob("**/episodes.sqlite")]


def cut(fraction: float) -> Callable[[Path], None]:
    def work(state_dir: Path) -> None:
        file = journal(state_dir)
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * fraction)])

    return work


def remove(state_dir: Path) -> None:
    shutil.rmtree(journal(state_dir).parent)


DAMAGES = {
    "a tenth is left": cut(0.1),
    "a third is left": cut(1 / 3),
    "half is left": cut(0.5),
    "two thirds are left": cut(2 / 3),
    "nine tenths are left": cut(0.9),
    "the last bytes are missing": cut(0.99),
    "nothing is left": cut(0),
    "the journal is gone": remove,
}


@pytest.mark.parametrize("damage", variants(DAMAGES, "half is left"))
async def test_what_a_damaged_journal_lost_is_named_and_comes_back_with_its_times(
    damage: str, opened: Open, state_dir: Path
) -> None:
    before = await fill(opened)
    DAMAGES[damage](state_dir)

    async with opened() as memory:
        reason = await told(memory)
        assert "lost" in reason, reason
        await memory.sync()
        assert await facts_of(memory) == before
        assert "lost" not in await told(memory)
    async with opened() as memory:
        assert await facts_of(memory) == before
        assert "lost" not in await told(memory)


async def test_a_text_without_a_time_holds_from_when_it_came_in_though_it_is_stored_later(
    opened: Open, state_dir: Path
) -> None:
    async with opened() as memory:
        await memory.ingest([MemoryContentObject(id="m2", kind="message", text="Ingrid lives in Porto.")])
    remove(state_dir)

    async with opened(NOW + timedelta(days=9)) as memory:
        await memory.sync()
        assert [(one.text, one.since) for one in await facts_of(memory)] == [("Ingrid lives in Porto.", NOW)]


async def test_status_and_the_commands_of_the_graph_say_that_facts_are_missing(
    opened: Open, workspace: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(opened)
    cut(1 / 2)(state_dir)
    monkeypatch.setenv("COMPOSABLE_MEMORY__GRAPHITI__ENABLED", "true")
    monkeypatch.setenv("COMPOSABLE_MEMORY__EMBEDDING__PROVIDER", "none")
    place = ["--workspace", str(workspace), "--state-dir", str(state_dir)]

    looked = await asyncio.to_thread(CliRunner().invoke, app, ["status", "--deep", *place])
    listed = await asyncio.to_thread(CliRunner().invoke, app, ["graph", "facts", *place])

    assert "lost" in looked.stdout
    assert listed.exit_code == 0
    assert "stale" in listed.stderr


@pytest.mark.thorough
async def test_a_memory_that_stays_open_stores_again_by_itself(opened: Open, state_dir: Path) -> None:
    before = await fill(opened)
    cut(1 / 2)(state_dir)

    async with opened(long_lived=True) as memory:
        await told(memory)
        async with asyncio.timeout(PATIENCE_S):
            while await facts_of(memory) != before:
                pass  # a call that asks the graph lets others go on


@pytest.mark.thorough
async def test_what_the_graph_has_and_the_ledger_does_not_know_stays(opened: Open, state_dir: Path) -> None:
    before = await fill(opened)
    for file in ledgers(state_dir):
        file.unlink()
    async with opened() as memory:
        await memory.ingest([said("memory/new.md", "Zora lives in Lisbon.", "2026-03-01")])
    cut(0.99)(state_dir)

    async with opened() as memory:
        await memory.sync()
        facts = await facts_of(memory)
    assert before < facts
    assert {one.text for one in facts - before} == {"Zora lives in Lisbon."}


async def test_what_was_forgotten_does_not_come_back_with_an_older_journal(
    opened: Open, state_dir: Path
) -> None:
    await fill(opened)
    older = journal(state_dir).read_bytes()
    async with opened() as memory:
        await memory.facts_of().forget(HOMES[3].id)
        before = await facts_of(memory)
    journal(state_dir).write_bytes(older)

    async with opened() as memory:
        assert await facts_of(memory) == before


@pytest.mark.thorough
async def test_messages_that_were_merged_come_back_merged(opened: Open, state_dir: Path) -> None:
    day = datetime(2026, 3, 1, 9, tzinfo=UTC)
    messages = [
        MemoryContentObject(
            id=f"message-{number}",
            kind="message",
            text=f"Person{number} lives in Town{number}.",
            provenance=MemoryProvenance(source="session", session_key="agent:main:main"),
            temporal=MemoryTemporalMetadata(observed_at=day.replace(minute=number)),
        )
        for number in range(4)
    ]
    async with opened(now=day) as memory:
        await memory.ingest(messages)
    async with opened() as memory:
        await memory.sync()
        before = await facts_of(memory)
        texts = [one.text for one in await memory.facts_of().episodes()]
    assert (len(before), len(texts)) == (4, 1)
    for fraction in (0.2, 0.6, 0.8, 0.95):
        cut(fraction)(state_dir)
        async with opened() as memory:
            await memory.sync()
            assert await facts_of(memory) == before
            assert [one.text for one in await memory.facts_of().episodes()] == texts


async def test_a_ledger_of_an_earlier_version_is_taken_as_it_is(opened: Open, state_dir: Path) -> None:
    before = await fill(opened)
    (ledger,) = ledgers(state_dir)
    with closing(sqlite3.connect(ledger)) as file:
        file.executescript(TO_VERSION_1)
    with closing(sqlite3.connect(state_dir / "workspaces.sqlite")) as registry, registry:
        registry.execute("UPDATE workspaces SET inherits = 1")
    async with open_database(GraphitiSettings(), data_dir=ledger.parent) as database:
        for group in await database.groups():
            await database.write(group, "MATCH (p:Episodic) SET p.read_at = NULL")

    async with opened() as memory:
        assert "lost" not in await told(memory)
        report = await cast("SupportsSync", memory.manager.backends_with(Capability.SYNC)["graphiti"]).sync()
        assert report is not None
        assert report.files_indexed == 0
        assert await facts_of(memory) == before


async def test_of_a_shared_graph_what_is_missing_is_told_and_stored_again_when_asked_for(
    opened: Open, tcp_server: TcpServer, group_id: str
) -> None:
    shared = {"url": tcp_server.url, "password": tcp_server.password, "group": group_id}
    async with opened(**shared) as memory:
        await memory.ingest(HOMES)
        before = await facts_of(memory)
    settings = GraphitiSettings.model_validate(shared)
    async with open_database(settings, data_dir=Path("unused")) as database:
        assert isinstance(database, FalkorDatabase)
        await database.drop(group_id)

    async with opened(**shared) as memory:
        assert "cmem index --force" in await told(memory)
        await memory.sync()
        assert await facts_of(memory) == set()
        await memory.sync(force=True)
        assert await facts_of(memory) == before
        assert "cmem index --force" not in await told(memory)
