"""Backs up what a workspace wrote to its graph, with all facts and times, and restores it.

A backup is a folder of three files: `format.json` records the naming scheme of the memory, `episodes.jsonl`
has the rows of the outbox, and `graph.jsonl` the nodes and relationships, group by group, nodes first.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from composable_memory.errors import BackendRejected
from composable_memory_adapters.graphiti.database.graph_copies import FalkorCopies
from composable_memory_adapters.graphiti.episodes import named_in
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID, LINES, LinkLine, NodeLine
from composable_memory_adapters.graphiti.groups import GroupScope, group_of, safe_group_id
from composable_memory_adapters.graphiti.outbox.entries import ACTIVE_STATES, EntryRow, draft_from_json
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.outbox.renaming import Renaming
from composable_memory_adapters.sqlite_file import Connection

FORMAT, EPISODES, GRAPH = "format.json", "episodes.jsonl", "graph.jsonl"
STAGED = "~restored"
"""The suffix of a graph that is being built for a group; no group name ends with it."""
FACT = "RELATES_TO"
OF_GROUPS = """
FROM episodes WHERE workspace = ? AND state <> 'moved' AND group_id IN (SELECT value FROM json_each(?))
"""
COLUMNS = tuple(EntryRow.model_fields)
SELECT_ROWS = f"SELECT {', '.join(COLUMNS)} {OF_GROUPS} ORDER BY sequence"
DELETE_ROWS = f"DELETE {OF_GROUPS}"
INSERT_ROW = "INSERT INTO episodes ({names}, workspace) VALUES ({places}, :workspace)"
GROUPS_OF_OTHERS = "SELECT DISTINCT group_id FROM episodes WHERE workspace IS NOT ?"
STAGE = "INSERT OR REPLACE INTO restored (group_id, staged) VALUES (?, ?)"
STAGED_GROUPS = "SELECT group_id, staged FROM restored"
DONE = "DELETE FROM restored WHERE group_id = ?"

LINE: Final[TypeAdapter[NodeLine | LinkLine]] = TypeAdapter(NodeLine | LinkLine)

Exclusive = Callable[[str], AbstractAsyncContextManager[None]]


class _Format(BaseModel):
    """The naming scheme of a memory's groups and ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    base: str
    """The prefix of its group names."""
    group_by: Literal["agent", "user", "session"]
    prefix: str
    """The prefix of its ids in a group that others may share."""
    groups: tuple[str, ...]


class GraphBackup:
    """Backs up one workspace's part of a graph: the groups that nobody else has written to.

    Content of other groups, or of a database that is not private (`copies` is None), is only counted; backing
    it up is up to whoever runs that database. `exclusive` locks a group against other writers.
    """

    def __init__(
        self,
        outbox: Outbox,
        copies: FalkorCopies | None,
        scope: GroupScope,
        *,
        exclusive: Exclusive,
    ) -> None:
        self._outbox = outbox
        self._copies = copies
        self._settings = scope.settings
        self._exclusive = exclusive
        self._base = scope.base
        self._prefix = named_in(scope.workspace_id, "")

    async def write(self, folder: Path) -> Mapping[str, int]:
        """Write a consistent backup; return counts of its content and of the episodes that are `elsewhere`.

        Raises:
            BackendError: the graph or the outbox cannot be read, or another process does not stop writing.
        """
        own, others = await self._groups()
        elsewhere = _counted(await self._rows(others if self._copies else own | others))
        counts = {"elsewhere": elsewhere} if elsewhere else {}
        if self._copies is None:
            return counts
        async with AsyncExitStack() as stack:
            for group in sorted(own):
                await stack.enter_async_context(self._exclusive(group))
            rows = await self._rows(own)
            await asyncio.to_thread(_append, folder / EPISODES, rows)
            nodes, facts = await self._copy_graphs(self._copies, own, folder / GRAPH)
        naming = _Format(
            base=self._base,
            group_by=self._settings.ingest.group_by,
            prefix=self._prefix,
            groups=tuple(sorted(own)),
        )
        await asyncio.to_thread((folder / FORMAT).write_text, naming.model_dump_json(indent=1), "utf-8")
        return {"episodes": _counted(rows), "entities": nodes, "facts": facts, **counts}

    async def _copy_graphs(
        self, copies: FalkorCopies, groups: Collection[str], file: Path
    ) -> tuple[int, int]:
        entities = facts = 0
        for group in sorted(groups):
            async for nodes in copies.nodes(group):
                entities += sum("Entity" in one.labels for one in nodes)
                await asyncio.to_thread(_append, file, nodes)
            async for links in copies.links(group):
                facts += sum(one.type == FACT for one in links)
                await asyncio.to_thread(_append, file, links)
        return entities, facts

    async def restore(self, folder: Path, *, replace: bool) -> Mapping[str, int]:
        """Replace what this workspace wrote to its graph by a backup of any workspace; return counts.

        The new graphs are built beside the existing ones and replace them once the outbox has recorded the
        restore.

        Raises:
            BackendRejected: the backup cannot be read, others would lose facts, or facts exist and
                `replace` is false.
        """
        if self._copies is None:
            raise _refused("a graph that is not private", "restore it with its own server's tools")
        naming, rows = await asyncio.to_thread(_read, folder)
        groups = self._new_groups(naming, rows)
        own, others = await self._groups()
        if taken := sorted(set(groups.values()) & others):
            raise _refused("facts of others", f"other workspaces use {', '.join(taken)} too; name another")
        if not replace and await self._holds(self._copies, own):
            raise _refused(
                "facts already", "this memory already holds facts; nothing was changed; --force replaces them"
            )
        after = self._prefix if self._settings.group else ""
        renaming = Renaming(groups, before=naming.prefix, after=after)
        rows = [row for row in rows if row.group_id in groups]
        graph = folder / GRAPH
        await asyncio.to_thread(_learn, renaming, chain(rows, _lines(graph, groups)))
        async with AsyncExitStack() as stack:
            for group in sorted({*own, *groups.values()}):
                await stack.enter_async_context(self._exclusive(group))
            for group in groups.values():
                await self._copies.discard(group + STAGED)
            counts = {"episodes": _counted(rows), "entities": 0, "facts": 0}
            made = await self._make(self._copies, renaming, _lines(graph, groups), counts)
            staged = dict.fromkeys(own) | {group: group + STAGED for group in made}
            renamed = await asyncio.to_thread(lambda: [renaming.row(row) for row in rows])
            await self._replace_rows(renamed, instead_of=own, staged=staged)
            for group, instead in staged.items():
                await self._put_in_place(self._copies, group, instead)
        return counts

    async def _make(
        self,
        copies: FalkorCopies,
        renaming: Renaming,
        lines: Iterator[NodeLine | LinkLine],
        counts: dict[str, int],
    ) -> set[str]:
        """Build the new graphs beside the existing ones; return their groups."""
        made: set[str] = set()
        while batch := await asyncio.to_thread(lambda: list(islice(lines, LINES))):
            nodes = [renaming.node(one) for one in batch if isinstance(one, NodeLine)]
            links = [renaming.link(one) for one in batch if isinstance(one, LinkLine)]
            for group in dict.fromkeys([*(one.group for one in nodes), *(one.group for one in links)]):
                await copies.make_nodes(group + STAGED, [one for one in nodes if one.group == group])
                await copies.make_links(group + STAGED, [one for one in links if one.group == group])
                made.add(group)
            counts["entities"] += sum("Entity" in one.labels for one in nodes)
            counts["facts"] += sum(one.type == FACT for one in links)
        return made

    async def finish(self) -> None:
        """Complete a restore that was interrupted after the outbox recorded it."""
        if self._copies is None:
            return
        for group in await self._staged():
            async with self._exclusive(group):
                left = await self._staged()  # another process may have completed it meanwhile
                if group in left:
                    await self._put_in_place(self._copies, group, left[group])

    async def _put_in_place(self, copies: FalkorCopies, group: str, staged: str | None) -> None:
        await copies.put_in_place(group, staged)
        await self._outbox.write(lambda connection: connection.execute(DONE, (group,)).fetchall())

    async def _groups(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the groups that only this workspace uses, and those that others use too."""
        mine = {safe_group_id(self._base), *await self._outbox.groups()}
        values = (self._outbox.workspace,)
        rows = await self._outbox.read(
            lambda connection: connection.execute(GROUPS_OF_OTHERS, values).fetchall()
        )
        others = frozenset(str(row[0]) for row in rows)
        return frozenset(mine - others), others

    async def _rows(self, groups: Collection[str]) -> list[EntryRow]:
        """Return all entries of this workspace in the given groups."""
        values = (self._outbox.workspace, json.dumps(sorted(groups)))
        found = await self._outbox.read(lambda connection: connection.execute(SELECT_ROWS, values).fetchall())
        return [EntryRow.model_validate(dict(zip(COLUMNS, row, strict=True))) for row in found]

    async def _replace_rows(
        self, rows: Sequence[EntryRow], *, instead_of: Collection[str], staged: Mapping[str, str | None]
    ) -> None:
        """Replace the rows of some groups, and record which graphs must be swapped in."""
        workspace, cleared = self._outbox.workspace, json.dumps(sorted(instead_of))

        def work(connection: Connection) -> None:
            connection.execute(DELETE_ROWS, (workspace, cleared))
            last = connection.execute("SELECT coalesce(max(sequence), 0) FROM episodes").get
            values = [
                row.model_dump() | {"workspace": workspace, "sequence": last + number}
                for number, row in enumerate(rows, start=1)
            ]
            statement = INSERT_ROW.format(
                names=", ".join(COLUMNS), places=", ".join(f":{name}" for name in COLUMNS)
            )
            connection.executemany(statement, values)
            connection.executemany(STAGE, list(staged.items()))

        await self._outbox.write(work)

    async def _staged(self) -> dict[str, str | None]:
        """Return by group the graph that must replace its current one; None to leave none."""
        return await self._outbox.read(
            lambda connection: {str(group): staged for group, staged in connection.execute(STAGED_GROUPS)}
        )

    async def _holds(self, copies: FalkorCopies, groups: Collection[str]) -> bool:
        return bool(await self._rows(groups)) or any(
            [await copies.has_anything(group) for group in sorted(groups)]
        )

    def _new_groups(self, naming: _Format, rows: Iterable[EntryRow]) -> dict[str, str]:
        """Return the new name of each group of a backup, without groups that are empty now."""
        if naming.base == self._base:
            return {group: group for group in naming.groups}
        old, new = safe_group_id(naming.base), safe_group_id(self._base)
        found = {old: new} if old in naming.groups else {}
        ingest = self._settings.ingest.model_copy(update={"group_by": naming.group_by})
        settings = self._settings.model_copy(update={"group": None, "ingest": ingest})
        for row in rows:
            if row.group_id not in found and row.draft:
                provenance = draft_from_json(row.draft).content.provenance
                found[row.group_id] = group_of(settings, self._base, provenance)
        return found


def _refused(status: str, body: str) -> BackendRejected:
    return BackendRejected(BACKEND_ID, "restore", status=status, body=body)


def _counted(rows: Iterable[EntryRow]) -> int:
    return sum(row.state in ACTIVE_STATES for row in rows)


def _append(file: Path, lines: Iterable[BaseModel]) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(f"{line.model_dump_json()}\n" for line in lines)


def _read(folder: Path) -> tuple[_Format, list[EntryRow]]:
    """Read everything but the graph, and check that every line of the graph can be read."""
    try:
        naming = _Format.model_validate_json((folder / FORMAT).read_bytes())
        with (folder / EPISODES).open("rb") as file:
            rows = [EntryRow.model_validate_json(line) for line in file]
        for row in rows:
            _ = row.draft and draft_from_json(row.draft)
        for _line in _lines(folder / GRAPH, naming.groups):
            pass
    except OSError as error:
        problem = f"{Path(error.filename or folder).name}: {error.strerror}"
        raise _refused("not a backup of a graph", problem) from error
    except ValueError as error:
        raise _refused("not a backup of a graph that this version can read", str(error)) from error
    return naming, rows


def _lines(file: Path, groups: Collection[str]) -> Iterator[NodeLine | LinkLine]:
    if not file.exists():
        return
    with file.open("rb") as opened:
        for text in opened:
            line = LINE.validate_json(text)
            if line.group in groups:
                yield line


def _learn(renaming: Renaming, lines: Iterable[EntryRow | NodeLine | LinkLine]) -> None:
    for line in lines:
        renaming.learn(line)
