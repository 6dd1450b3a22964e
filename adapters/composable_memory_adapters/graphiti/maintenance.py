"""Removes episodes, adopts those of earlier versions, and backs up and restores a workspace's graph.

An episode that contains forgotten text is removed, with the facts that only it supports. The rest of its text
is enqueued again.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from composable_memory.errors import BackendRejected, ComposableMemoryError
from composable_memory.facts import Adopted, Forgotten
from composable_memory.forget.report import Forgetting, Holding
from composable_memory.forget.tombstones import INSTEAD, Tombstones
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, named_in, storable
from composable_memory_adapters.graphiti.fact_results import ids_in
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.outbox.backup import GraphBackup
from composable_memory_adapters.graphiti.outbox.entries import ACTIVE_STATES, Entry
from composable_memory_adapters.graphiti.status import GraphParts, OpenGraph

FORGET = "forget an episode"


class Maintenance(OpenGraph):
    """The part of the graph memory that changes the graph other than by ingesting."""

    async def forget(self, episode_id: str) -> Forgotten:
        """Permanently remove an episode: from the graph, with what only it supports, and from the outbox.

        Raises:
            BackendRejected: there is no such episode.
        """
        self._require_open("forget an episode")
        ids = ids_in(episode_id)
        groups = tuple(filter(self._parts.scope.may_read, ids[:1])) if ids else self._parts.scope.searched
        wanted = ids[1] if ids else storable(episode_id)
        removed: list[Forgotten] = []
        for group in groups:
            # Without the lease, an episode that is just being stored would write facts after its removal.
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

    async def adopt(self, *, everything: bool = False) -> Adopted:
        """Adopt episodes from before workspaces were distinguished, and process everything that waits.

        Without `everything`, these are only episodes whose text is in the note of this workspace that they
        name.
        """
        with self._traced("adopt episodes"):
            adopted = await self._parts.adoption.run(everything=everything)
            await self._parts.worker.work()
            await self._monitor.count_facts()
        return Adopted(episodes=adopted, left=sum(self._parts.adoption.unassigned.values()))

    async def backup(self, folder: Path) -> Mapping[str, int]:
        """Back up what this workspace wrote to a private graph; for any other graph, only count it."""
        with self._traced("back up"):
            await self._monitor.count_waiting(anew=True)
            if self._monitor.is_empty:
                return {}
            with suppress(ComposableMemoryError):  # an error shows again when the graph is copied
                await self._monitor.compare(self._parts.scope.searched)
            return await backup_of(self._parts).write(folder)

    async def restore(self, folder: Path, *, replace: bool = False) -> Mapping[str, int]:
        """Replace what this workspace wrote to the graph by a backup."""
        with self._traced("restore"):
            counts = await backup_of(self._parts).restore(folder, replace=replace)
            self._monitor.note_restored()
            with suppress(ComposableMemoryError):  # missing vectors are added by the next sync
                await self._parts.store.refresh(self._parts.scope.searched, force=False)
            await self._monitor.count_facts()
            self._parts.worker.wake()
            return counts


def backup_of(parts: GraphParts) -> GraphBackup:
    """Return the backup of a workspace's graph."""
    return GraphBackup(parts.outbox, parts.copies, parts.scope, exclusive=parts.worker.exclusive)


def _refuse_merged(entries: Sequence[Entry]) -> None:
    """Refuse to forget a merged episode: it is part of another one now, which can be forgotten as a whole."""
    for entry in entries:
        if entry.merged_into is not None:
            hint = f"it is now part of episode {entry.merged_into}; forget that one"
            raise BackendRejected(BACKEND_ID, FORGET, status="merged", body=hint)


Shown = Callable[[str], str]
"""Returns a text without its forgotten parts."""


class Erasing(OpenGraph):
    """The part of the graph memory that finds and removes episodes by their text."""

    async def holdings(self, wanted: Forgetting) -> tuple[Holding, ...]:
        """Return the episodes that contain the given lines, and how many facts were extracted from them."""
        self._require_open("say what it holds")
        entries = await self._saying(self._hiding(wanted))
        facts = 0
        for entry in (one for one in entries if one.state == "done"):
            found = await self._parts.store.episode(entry.draft.group_id, entry.id)
            facts += found.fact_count if found else 0
        return _holdings_of(entries, facts)

    async def erase(self, wanted: Forgetting) -> tuple[Holding, ...]:
        """Remove episodes that contain forgotten text, with their facts, also from the server's files."""
        with self._traced("forget"):
            return await self._erase(wanted)

    async def _erase(self, wanted: Forgetting) -> tuple[Holding, ...]:
        shown = self._hiding(wanted)
        entries = await self._saying(shown)
        facts = 0
        for group in dict.fromkeys(entry.draft.group_id for entry in entries):
            own = [one for one in entries if one.draft.group_id == group]
            facts += await self._erase_in(group, own, shown)
        holdings = list(_holdings_of(entries, facts))
        # Even if nothing is found: a run killed at this point may have removed it without scrubbing.
        stays = await self._parts.store.scrub()
        if stays and entries:
            holdings.append(Holding(store=BACKEND_ID, what="server", count=1, stays=stays))
        await self._monitor.count_facts()
        await self._parts.outbox.scrub()
        return tuple(holdings)

    def _hiding(self, wanted: Forgetting) -> Shown:
        stones = Tombstones.of(wanted.texts)
        return lambda text: self._shown(stones.hide(stones.hide(text, "memory"), "sessions"))

    async def _saying(self, shown: Shown) -> tuple[Entry, ...]:
        entries = await self._parts.outbox.all_entries()
        return await asyncio.to_thread(
            lambda: tuple(one for one in entries if shown(one.draft.text) != one.draft.text)
        )

    async def _erase_in(self, group: str, entries: Sequence[Entry], shown: Shown) -> int:
        """Remove episodes of a group, and enqueue the rest of their text; return how many facts went."""
        every = await self._parts.outbox.all_entries()
        facts = 0
        # Without the lease, an episode that is just being stored would write facts after its removal.
        async with self._parts.worker.exclusive(group):
            for source in dict.fromkeys(entry.source_path for entry in entries):
                affected = [one for one in every if _is_of(one, group, source, entries)]
                drafts = await asyncio.to_thread(_without_forgotten, affected, shown)
                if source is None:
                    await self._parts.outbox.enqueue(drafts)
                else:
                    await self._parts.outbox.replace_source(source, drafts, group_id=group)
            for own_id in dict.fromkeys(entry.merged_into or entry.id for entry in entries):
                forgotten = await self._parts.store.forget(group, own_id)
                facts += forgotten.facts if forgotten else 0
                await self._parts.outbox.forget([own_id], traceless=True)
        await self._parts.worker.work([group])
        return facts


def _without_forgotten(entries: Sequence[Entry], shown: Shown) -> list[EpisodeDraft]:
    """Return drafts as they were enqueued, without forgotten text, if anything else is left."""
    drafts = []
    for entry in entries:
        text = shown(entry.draft.text)
        if _says_something(text):
            given = entry.draft.content
            own_id = given.id if entry.id == entry.draft_id else given.id.rpartition("@")[0]
            content = replace(given, id=own_id, text=text)
            drafts.append(replace(entry.draft, id=entry.draft_id, text=text, content=content))
    return drafts


def _says_something(text: str) -> bool:
    """Return whether a text says more than who it was about; `Ann: [forgotten].` does not."""
    rests = (line.rpartition(":")[2] if INSTEAD in line else line for line in text.splitlines())
    return any(re.search(r"\w", rest.replace(INSTEAD, "")) for rest in rests)


def _is_of(one: Entry, group: str, source: str | None, entries: Sequence[Entry]) -> bool:
    """Return whether an episode must be enqueued again: all of a source, otherwise only what changes."""
    if (
        one.draft.group_id != group
        or one.source_path != source
        or one.state not in (*ACTIVE_STATES, "merged")
    ):
        return False
    merged = {entry.merged_into for entry in entries} - {None}
    return source is not None or one in entries or one.merged_into in merged


def _holdings_of(entries: Sequence[Entry], facts: int) -> tuple[Holding, ...]:
    texts = tuple(entry.draft.text for entry in entries)
    holdings = (
        Holding(store=BACKEND_ID, what="episodes", count=len(entries), examples=texts),
        Holding(store=BACKEND_ID, what="facts", count=facts),
    )
    return tuple(one for one in holdings if one.count)
