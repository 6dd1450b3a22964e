"""Adopts episodes from before entries recorded their workspace.

Such an episode certainly belongs to this workspace if its text is in the workspace file that it names.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import cast

from composable_memory.interfaces import BackendServices
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id, named_in
from composable_memory_adapters.graphiti.groups import GroupScope, is_of, safe_group_id
from composable_memory_adapters.graphiti.outbox.entries import ACTIVE_STATES, Entry, add, select
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs.redaction.redactor import redact

MAX_FILE_BYTES = 16 * 2**20

UNASSIGNED = "workspace IS NULL AND state IN ('queued', 'sent', 'done', 'failed', 'retiring', 'retired')"
COUNT_UNASSIGNED = """
SELECT group_id, count(*) FROM episodes INDEXED BY episodes_of_nobody
WHERE workspace IS NULL AND state IN ('queued', 'sent', 'done', 'failed') GROUP BY group_id
"""
CLAIM_GROUPS = """
INSERT INTO claims SELECT DISTINCT group_id, :workspace FROM episodes WHERE workspace IS NULL
ON CONFLICT DO NOTHING
"""
CLAIMED = "SELECT group_id FROM claims WHERE workspace = ?"
ASSIGN_ALL = """
UPDATE episodes SET workspace = :workspace,
  source_path = iif(group_id IS :shared, :prefix || source_path, source_path)
WHERE workspace IS NULL
"""
ASSIGN = "UPDATE episodes SET workspace = ?, source_path = ? || source_path WHERE id = ?"
SET_MOVED = "UPDATE episodes SET state = 'moved', workspace = ?, since = ? WHERE id = ?"


class Adoption:
    """Assigns episodes without a workspace to this one.

    `unassigned` counts the remaining ones by group. `scope` has the groups that now belong to this workspace.
    """

    def __init__(
        self, outbox: Outbox, settings: GraphitiSettings, services: BackendServices, scope: GroupScope
    ) -> None:
        self._outbox = outbox
        self._settings = settings
        self._services = services
        self.scope = scope
        self.unassigned: Mapping[str, int] = {}

    async def run_at_opening(self) -> None:
        """Adopt what certainly belongs to this workspace, without having a model read anything again.

        If the workspace inherits the state of earlier versions, this is everything in a private graph.
        """
        await self._count()
        is_private = not (self._settings.service_url or self._settings.url)
        if self.unassigned and self._services.inherits and is_private:
            await self._assign_all()
        elif self._services.is_long_lived or not (await self._outbox.counts()).by_state:
            await self.run_without_model()
        await self._count()
        self.scope = replace(self.scope, claimed=await claimed_groups(self._outbox))

    async def run_without_model(self) -> None:
        """Adopt what a model need not read again; the rest waits until the owner requests it."""
        if self.unassigned:
            needs_no_model = not (self._settings.uses_llm or self._settings.service_url)
            await self.run(everything=self._services.inherits, again=needs_no_model)

    async def run(self, *, everything: bool, again: bool = True) -> int:
        """Adopt what this workspace's files contain, or everything; return the number of episodes.

        With `again`, also adopt episodes that have to be enqueued again for another group.
        """
        found = await unassigned_entries(self._outbox)
        # An episode retired by another workspace, from a note of the same name, is still valid if our note
        # says it.
        ours = {one.id for one in await asyncio.to_thread(_proven, found, self._services.workspace_dir)}
        entries = [one for one in found if one.id in ours or (everything and one.state in ACTIVE_STATES)]
        staying = [entry for entry in entries if self._may_stay(entry)]
        moving = [(entry, draft) for entry in entries if again and (draft := self._moved_to_our_group(entry))]
        await assign(self._outbox, staying=staying, moving=moving)
        await self._count()
        return len(staying) + len(moving)

    def _may_stay(self, entry: Entry) -> bool:
        """Return whether an episode is in the group that the settings name and may stay there as it is."""
        group = self._settings.group
        return group is not None and is_of(safe_group_id(group), entry.draft.group_id)

    def _moved_to_our_group(self, entry: Entry) -> EpisodeDraft | None:
        """Return an episode of the agent's former group as one of ours; None if it is from another group.

        Nothing is moved to a group that the settings name, as others may read it there.
        """
        if self._settings.group is not None or not is_of(self._services.agent_id, entry.draft.group_id):
            return None
        content = entry.draft.content
        if entry.id != entry.draft_id:  # a later text with the same id, which ends in a hash
            content = replace(content, id=content.id.rpartition("@")[0])
        group = self.scope.group_of(content.provenance)
        return replace(entry.draft, id=graph_id(group, content.id), group_id=group, content=content)

    async def _count(self) -> None:
        self.unassigned = await count_unassigned(self._outbox)

    async def _assign_all(self) -> None:
        """Assign all episodes and their groups to this workspace.

        In a group that the settings name, which others may use too, paths name their workspace.
        """
        workspace = self._outbox.workspace
        shared = safe_group_id(self._settings.group) if self._settings.group else None
        values = {"workspace": workspace, "shared": shared, "prefix": named_in(workspace, "")}

        def work(connection: Connection) -> None:
            connection.execute(CLAIM_GROUPS, {"workspace": workspace})
            connection.execute(ASSIGN_ALL, values)

        await self._outbox.write(work)


async def count_unassigned(outbox: Outbox) -> Mapping[str, int]:
    """Return the number of episodes without a workspace, by group."""
    rows = await outbox.read(lambda connection: connection.execute(COUNT_UNASSIGNED).fetchall())
    return dict(cast("list[tuple[str, int]]", rows))


async def unassigned_entries(outbox: Outbox) -> tuple[Entry, ...]:
    """Return the episodes without a workspace, including retired ones."""
    return await outbox.read(lambda connection: select(connection, UNASSIGNED))


async def claimed_groups(outbox: Outbox) -> frozenset[str]:
    """Return the groups that belong only to this workspace although they are not named after it."""
    values = (outbox.workspace,)
    rows = await outbox.read(lambda connection: connection.execute(CLAIMED, values).fetchall())
    return frozenset(str(row[0]) for row in rows)


async def assign(
    outbox: Outbox, *, staying: Sequence[Entry] = (), moving: Sequence[tuple[Entry, EpisodeDraft]] = ()
) -> None:
    """Assign episodes to the workspace; those in `moving` are enqueued again as the given drafts."""

    def work(connection: Connection) -> None:
        now = outbox.now()
        for entry, draft in moving:
            add(
                connection,
                draft,
                now=now,
                workspace=outbox.workspace,
                source_path=entry.source_path,
                trace_id=entry.trace_id,
            )
            connection.execute(SET_MOVED, (outbox.workspace, now, entry.id))
        prefix = named_in(outbox.workspace, "")
        connection.executemany(ASSIGN, [(outbox.workspace, prefix, entry.id) for entry in staying])

    await outbox.write(work)


def _proven(entries: Sequence[Entry], workspace: Path) -> tuple[Entry, ...]:
    """Return the episodes whose text is in the workspace file that they name; reads files."""
    by_path = sorted(entries, key=_path_of)
    return tuple(
        entry
        for path, of_path in groupby(by_path, key=_path_of)
        for entry in _contained_in(workspace, path, of_path)
    )


def _path_of(entry: Entry) -> str:
    return entry.draft.origin.path if entry.draft.origin else ""


def _contained_in(workspace: Path, path: str, entries: Iterator[Entry]) -> Iterator[Entry]:
    text = _text_of(workspace, path) if path else ""
    masked: str | None = None
    for entry in entries:
        wanted = " ".join(entry.draft.text.split())
        if not wanted or not text:
            continue
        if wanted not in text and masked is None:
            masked = " ".join(redact(text).split())
        if wanted in text or (masked is not None and wanted in masked):
            yield entry


def _text_of(workspace: Path, path: str) -> str:
    """Return the text of a workspace file with white space collapsed; empty for a file outside."""
    try:
        file = (workspace / path).resolve()
        is_inside = not Path(path).is_absolute() and file.is_relative_to(workspace.resolve())
        if not is_inside or file.stat().st_size > MAX_FILE_BYTES:
            return ""
        return " ".join(file.read_text(encoding="utf-8", errors="replace").split())
    except (OSError, ValueError):  # it is gone, or not a valid file name
        return ""
