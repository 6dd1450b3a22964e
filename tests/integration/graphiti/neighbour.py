"""A second workspace in the state folder of a test: its contents have the same ids and say other things."""

import asyncio
import shutil
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.testing import FIXED_NOW, SEED_NOTES

WORD = "Neighbour"
EVERYTHING = 10_000
CONFIG = {"graphiti": {"enabled": True}, "embedding": {"provider": "none"}}
NOTES = (
    *SEED_NOTES,
    *(f"memory/{name}.md" for name in ("people", "places", "jobs", "homes", "2026-01-05", "2026-03-01")),
)


@dataclass(frozen=True, kw_only=True)
class SettledNeighbour:
    """A workspace whose facts are in the graph of a state folder, which tests begin with a copy of."""

    workspace: Path
    state_dir: Path
    known: list[str]

    def move_in(self, state_dir: Path) -> None:
        """Let a state folder hold the facts of the neighbour."""
        unwanted = shutil.ignore_patterns("ops-logs", "server.*")
        shutil.copytree(self.state_dir, state_dir, ignore=unwanted, dirs_exist_ok=True)

    async def assert_apart(self, workspace: Path, state_dir: Path) -> None:
        """Check that the neighbour has all its facts, and that the workspace sees none, nor loses any.

        The neighbour says all again and takes one of its notes back, of a name that both may have.
        """
        async with _open(self.workspace, state_dir) as beside:
            await beside.sync()  # which brings back what the test has damaged
            assert await _shown(beside) == self.known
            async with _open(workspace, state_dir) as memory:
                ours = await _shown(memory)
                answer = await memory.query(f"Who works at {WORD} Mills?", backends=["graphiti"])
                assert not [
                    text for text in (*ours, *(one.snippet for one in answer.results)) if WORD in text
                ]
                for number, path in enumerate(NOTES):
                    await beside.ingest_source(path, [_said(number, path)] if number else [])
                assert await _shown(memory) == ours


async def settle(folder: Path) -> SettledNeighbour:
    """Return a neighbour with facts of the notes, and under the ids, that most tests use."""
    workspace, state_dir = folder / "workspace", folder / "state"
    for made in (workspace, state_dir):
        await asyncio.to_thread(made.mkdir)
    async with _open(workspace, state_dir) as memory:
        for number, path in enumerate(NOTES):
            assert (await memory.ingest_source(path, [_said(number, path)]))["graphiti"].stored == 1
        await memory.ingest(
            [MemoryContentObject(id="m1", kind="message", text=f"Ingrid lives in {WORD}ton.")]
        )
        return SettledNeighbour(workspace=workspace, state_dir=state_dir, known=await _shown(memory))


def _said(number: int, path: str) -> MemoryContentObject:
    return MemoryContentObject(
        id=f"c{number}",
        kind="document",
        text=f"Nerea{number} works at {WORD} Mills{number}.",
        provenance=MemoryProvenance(source="note", source_id=path, citations=(f"{path}#L1",)),
        temporal=MemoryTemporalMetadata(observed_at=FIXED_NOW - timedelta(days=number)),
    )


def _open(workspace: Path, state_dir: Path) -> AbstractAsyncContextManager[Memory]:
    return open_memory(workspace, state_dir, CONFIG, environ={}, long_lived=False)


async def _shown(memory: Memory) -> list[str]:
    """Return all that a workspace knows of its graph: texts, the time in which they hold, origins."""
    graph = memory.facts_of()
    facts = await graph.facts(limit=EVERYTHING)
    episodes = await graph.episodes(limit=EVERYTHING)
    told = [f"{one.text} {one.valid_at} {one.invalid_at} {one.origins}" for one in facts]
    return sorted([*told, *(f"{one.content_id} {one.text}" for one in episodes)])
