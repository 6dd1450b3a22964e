"""A place for facts that has the faults that tests need: it is down, refuses, hangs, is slow, or not certain.

It keeps episodes in a file of its own, so that several processes may use it and be killed.
"""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from composable_memory.content import MemoryContentObject, MemoryProvenance
from composable_memory.errors import BackendRejected, BackendUnavailable
from composable_memory.facts import Episode
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.fact_stores import Added

__all__ = ["FactShelf", "draft", "message"]

TABLES = """
CREATE TABLE IF NOT EXISTS stored (id TEXT PRIMARY KEY, text TEXT, times INTEGER, place INTEGER);
CREATE TABLE IF NOT EXISTS called (number INTEGER PRIMARY KEY, what TEXT);
CREATE TABLE IF NOT EXISTS at_work (group_id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS clash (group_id TEXT);
"""
ADD = """
INSERT INTO stored VALUES (?, ?, 1, (SELECT count(*) FROM stored))
ON CONFLICT (id) DO UPDATE SET text = excluded.text, times = times + 1
"""


def draft(
    number: int | str, text: str = "", *, group: str = "main", at: datetime | None = None
) -> EpisodeDraft:
    """Return an episode with a number."""
    moment = at or datetime.fromisoformat("2026-03-01T08:00:00+00:00")
    said = text or f"Fact number {number}."
    return EpisodeDraft(
        id=graph_id(group, str(number)),
        group_id=group,
        content=MemoryContentObject(id=str(number), kind="fact", text=said),
        text=said,
        observed_at=moment,
        ingested_at=moment,
    )


def message(number: int, at: datetime, *, session: str = "s1", text: str = "") -> EpisodeDraft:
    """Return an episode that is a message of a session."""
    made = draft(f"m{number}", text, at=at)
    content = MemoryContentObject(
        id=made.content.id,
        kind="message",
        text=made.text,
        provenance=MemoryProvenance(source="chat", session_key=session, actor_id="anna"),
    )
    return EpisodeDraft(
        id=made.id,
        group_id=made.group_id,
        content=content,
        text=made.text,
        observed_at=at,
        ingested_at=at,
        source="message",
    )


@dataclass
class FactShelf:
    """The part of a `FactStore` that takes episodes; what is set makes it fail."""

    path: Path
    is_down: bool = False
    refused: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    certain: bool = True
    hidden: set[str] = field(default_factory=set)
    gate: asyncio.Event | None = None
    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def add(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> Added:
        await self._enter(f"add {' '.join(draft.content.id for draft in drafts)}")
        if any(draft.content.id in self.hanging for draft in drafts):
            await asyncio.Event().wait()
        if any(draft.content.id in self.refused for draft in drafts):
            raise BackendRejected("graphiti", "add", status="400", body="the model refuses")
        await self._run(
            "INSERT OR IGNORE INTO clash SELECT group_id FROM at_work WHERE group_id = ?", group_id
        )
        await self._run("INSERT OR IGNORE INTO at_work VALUES (?)", group_id)
        for one in drafts:
            await self._run(ADD, one.id, one.text)
        await self._run("DELETE FROM at_work WHERE group_id = ?", group_id)
        return Added(entities=len(drafts), facts=2 * len(drafts), certain=self.certain)

    async def retire(self, group_id: str, episode_ids: Sequence[str], *, at: datetime) -> int:
        await self._enter(f"retire {len(episode_ids)}")
        return 0

    async def merge(self, group_id: str, merged: EpisodeDraft, episode_ids: Sequence[str]) -> None:
        await self._enter(f"merge {len(episode_ids)}")
        for own_id in episode_ids:
            await self._run("DELETE FROM stored WHERE id = ?", own_id)
        await self._run(ADD, merged.id, merged.text)

    async def episodes(self, groups: Sequence[str], *, limit: int, place: str = "") -> Sequence[Episode]:
        await self._enter("episodes")
        rows = await self._run("SELECT id FROM stored")
        return [
            Episode(id=row[0], group_id=groups[0], content_id="") for row in rows if row[0] not in self.hidden
        ]

    async def texts(self) -> dict[str, str]:
        """Return what is stored."""
        return dict(await self._run("SELECT id, text FROM stored ORDER BY place"))

    async def calls(self) -> list[str]:
        """Return what was asked of it, in order."""
        return [row[0] for row in await self._run("SELECT what FROM called ORDER BY number")]

    async def clashes(self) -> int:
        """Return how often two wrote to a group at once."""
        return len(await self._run("SELECT * FROM clash"))

    async def _enter(self, what: str) -> None:
        await self._run("INSERT INTO called (what) VALUES (?)", what)
        self.entered.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.is_down:
            raise BackendUnavailable("graphiti", "nobody answers", fix="start it", operation="add")

    async def _run(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self._run_here, statement, values)

    def _run_here(self, statement: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
        with closing(apsw.Connection(str(self.path))) as connection:
            connection.set_busy_timeout(10_000)
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(TABLES)
            return connection.execute(statement, values).fetchall()
