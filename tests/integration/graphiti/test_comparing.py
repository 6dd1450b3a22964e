"""What the ledger calls stored and the graph has lost: it is named, and stored again until all is as it was."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.runtime import Memory, open_memory
from composable_memory_adapters.graphiti.database import binaries

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")
pytestmark = pytest.mark.skipif(binaries.find() is None, reason="there is no graph server for this system")

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
QUESTION = "Where does Mirela work?"
PEOPLE, PLACES = "memory/people.md", "memory/places.md"

Open = Callable[[], AbstractAsyncContextManager[Memory]]


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
    config = {"graphiti": {"enabled": True}, "embedding": {"provider": "none"}}
    return lambda: open_memory(workspace, state_dir, config, clock=lambda: NOW, long_lived=False)


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


async def shown(memory: Memory) -> str:
    statuses = await memory.status(deep=True)
    return json.dumps([status.custom for status in statuses.values()], default=str)


def journal(state_dir: Path) -> Path:
    (found,) = state_dir.glob("**/appendonlydir/*.incr.aof")
    return found


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


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
async def test_what_a_damaged_journal_lost_is_named_and_comes_back_with_its_times(
    damage: Callable[[Path], None], opened: Open, state_dir: Path
) -> None:
    before = await fill(opened)
    damage(state_dir)

    async with opened() as memory:
        reason = await told(memory)
        assert "lost" in reason, reason
        await memory.sync()
        assert await facts_of(memory) == before
        assert "lost" not in await told(memory)
    async with opened() as memory:
        assert await facts_of(memory) == before
        assert "lost" not in await told(memory)
