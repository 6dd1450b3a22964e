"""Forgets episodes, adopts those of earlier versions, and backs up and restores a workspace's graph."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from composable_memory.errors import BackendRejected, ComposableMemoryError
from composable_memory.facts import Adopted, Forgotten
from composable_memory_adapters.graphiti.episodes import named_in, storable
from composable_memory_adapters.graphiti.fact_results import ids_in
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.monitor import Monitor
from composable_memory_adapters.graphiti.outbox.backup import GraphBackup
from composable_memory_adapters.graphiti.outbox.entry import Entry
from composable_memory_adapters.graphiti.parts import GraphParts

FORGET = "forget an episode"


class Maintenance:
    """What changes the graph of one workspace beside ingesting."""

    def __init__(self, parts: GraphParts, monitor: Monitor) -> None:
        self._parts = parts
        self._monitor = monitor
        self._backup = GraphBackup(
            parts.outbox, parts.store.copies(), parts.scope, exclusive=parts.worker.exclusive
        )

    async def forget(self, episode_id: str) -> Forgotten:
        """Remove an episode for good: from the graph, with what only it supports, and from the outbox.

        Raises:
            BackendRejected: there is no such episode.
        """
        ids = ids_in(episode_id)
        groups = tuple(filter(self._parts.scope.may_read, ids[:1])) if ids else self._parts.scope.searched
        wanted = ids[1] if ids else storable(episode_id)
        removed: list[Forgotten] = []
        for group in groups:
            # Without the lease, an episode that is being stored would write facts after it is gone.
            async with self._parts.worker.exclusive(group):
                removed += await self._forget(group, wanted)
        if not removed:
            hint = f"{episode_id}; `cmem graph episodes` lists them"
            raise BackendRejected(BACKEND_ID, FORGET, status="no such episode", body=hint)
        await self._monitor.count_facts()
        return Forgotten(
            episode_id=removed[0].episode_id,
            facts=sum(one.facts for one in removed),
            entities=sum(one.entities for one in removed),
        )

    async def _forget(self, group: str, wanted: str) -> list[Forgotten]:
        entries = await self._parts.outbox.named(group, wanted)
        if not entries:
            entries = await self._parts.outbox.named(group, named_in(self._parts.scope.workspace_id, wanted))
        _refuse_merged(entries)
        removed: list[Forgotten] = []
        for episode_id in dict.fromkeys([*(entry.id for entry in entries), wanted]):
            forgotten = await self._parts.store.forget(group, episode_id)
            removed += [forgotten] if forgotten else []
        await self._parts.outbox.forget([entry.id for entry in entries])
        return removed or [Forgotten(episode_id=entry.id, facts=0, entities=0) for entry in entries]

    async def adopt(self, *, everything: bool) -> Adopted:
        """Adopt episodes that belong to no workspace, and store them with what else waits.

        Without `everything` they are those whose text is in the note of this workspace that they name.
        """
        adopted = await self._parts.adoption.run(everything=everything)
        await self._parts.worker.work()
        await self._monitor.count_facts()
        return Adopted(episodes=adopted, left=sum(self._parts.adoption.unassigned.values()))

    async def backup(self, folder: Path) -> Mapping[str, int]:
        """Copy what this workspace wrote to a private graph; of another, only count what is there."""
        await self._monitor.count_waiting(anew=True)
        if self._monitor.is_empty:
            return {}
        with suppress(ComposableMemoryError):  # it shows again when the graph is copied
            await self._monitor.compare(self._parts.scope.searched)
        return await self._backup.write(folder)

    async def restore(self, folder: Path, *, replace: bool) -> Mapping[str, int]:
        """Replace what this workspace wrote to the graph by a backup."""
        counts = await self._backup.restore(folder, replace=replace)
        self._monitor.note_restored()
        with suppress(ComposableMemoryError):  # vectors that are lacking are made with the next index
            await self._parts.store.refresh(self._parts.scope.searched, force=False)
        await self._monitor.count_facts()
        self._parts.worker.wake()
        return counts


def _refuse_merged(entries: Sequence[Entry]) -> None:
    """Refuse to forget what was merged: it is part of another text now, which can be forgotten whole."""
    for entry in entries:
        if entry.merged_into is not None:
            hint = f"it is part of episode {entry.merged_into} now; forget that one"
            raise BackendRejected(BACKEND_ID, FORGET, status="merged", body=hint)
