"""A second workspace in the state folder of a test: its contents have the same ids and say other things."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from composable_memory.content import MemoryContentObject
from composable_memory.interfaces import Clock
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory

WORD = "Neighbour"
EVERYTHING = 10_000


@asynccontextmanager
async def beside_a_neighbour(
    memory: Memory,
    contents: Sequence[MemoryContentObject],
    config: Mapping[str, object],
    *,
    root: Path,
    clock: Clock,
) -> AsyncIterator[None]:
    """Have the neighbour say its own under the same ids; check at the end that nobody saw the other."""
    folder = root / "neighbour"
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    theirs = [
        replace(one, text=f"Nerea{number} works at {WORD} Mills{number}.")
        for number, one in enumerate(contents)
    ]
    async with open_memory(folder, memory.state_dir, config, clock=clock, long_lived=False) as beside:
        report = (await beside.ingest(theirs))["graphiti"]
        assert report.stored + report.known == len(theirs), report
        before = await _shown(beside)
        yield
        assert await _shown(beside) == before
        assert not [text for text in await _shown(memory) if WORD in text]


async def _shown(memory: Memory) -> list[str]:
    """Return all that a workspace knows of its graph: texts, the time in which they hold, origins."""
    graph = memory.facts_of()
    facts = await graph.facts(limit=EVERYTHING)
    episodes = await graph.episodes(limit=EVERYTHING)
    told = [f"{one.text} {one.valid_at} {one.invalid_at} {one.origins}" for one in facts]
    return sorted([*told, *(f"{one.content_id} {one.text}" for one in episodes)])
