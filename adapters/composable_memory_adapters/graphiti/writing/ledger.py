"""The ledger of the graph: every episode that was handed in, what became of it, and what is still to be done.

What the ledger has taken is safe: it is stored in the end, though the graph is down, or this process is
killed. An episode is done only after the graph has said so.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar, cast
from uuid import uuid4

from composable_memory.errors import BackendUnavailable, IndexDamaged, IndexProblem, IndexTooNew
from composable_memory.interfaces import Clock
from composable_memory.supervision.lease import Lease, LeaseRow
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, named_in
from composable_memory_adapters.graphiti.writing import entries, ledger_statements, schema
from composable_memory_adapters.graphiti.writing.entries import DUE, Entry, EntryState
from composable_memory_adapters.graphiti.writing.renaming import EpisodeRow
from composable_memory_adapters.graphiti.writing.salvage import check, salvage
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_ops_logs.trace import current_trace_id

__all__ = ["FILE_NAME", "Ledger", "LedgerCounts", "Stored", "Taken"]

T = TypeVar("T")

FILE_NAME = "episodes.sqlite"
MAX_PAUSE_S = 3600.0
ERROR_CHARS = 500
EMPTIED = (
    "the ledger of the graph was emptied, so nothing is known of what was handed in before; ingest again, so "
    "that none is missing (what the graph holds stays)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of episodes, by the ids that they were handed in with.

    `vanished` are the graph's ids of those that are to be retired, beside the earlier texts of `changed`.
    """

    new: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCounts:
    """How many episodes are in each state, and what went wrong last."""

    by_state: Mapping[EntryState, int] = field(default_factory=dict)
    last_error: str | None = None

    @property
    def pending(self) -> int:
        """Return how many are still to be worked on."""
        return sum(self.by_state.get(state, 0) for state in DUE)


class Stored(NamedTuple):
    """An episode that went all its way; `is_marked` if the graph tells whether it holds all of it."""

    id: str
    sequence: int
    state: EntryState
    is_marked: int
    merged_into: str | None


class Ledger:
    """The book of a workspace's episodes in one file, shared with other processes and other workspaces.

    Every method raises `BackendUnavailable` when the file cannot be used; nothing of the call was done then.
    """

    def __init__(self, file: SqliteFile, *, clock: Clock, workspace: str = "") -> None:
        self._file = file
        self._clock = clock
        self._workspace = workspace
        self.problem: str | None = None
        """What had to be done about the file to open it."""

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, *, clock: Clock, workspace: str = "") -> AsyncIterator["Ledger"]:
        """Yield the ledger of a folder; both are created where they are missing.

        Of the episodes that others have handed in, only those of `workspace` are counted and worked on. A
        ledger that is damaged is set aside, and a new one has what can be read of it.
        """
        was_emptied = await _made(folder / FILE_NAME)
        async with AsyncExitStack() as stack:
            file = await stack.enter_async_context(_file_in(folder))
            ledger = cls(file, clock=clock, workspace=workspace)
            ledger.problem = EMPTIED if was_emptied else None
            try:
                await ledger.prepare()
            except BackendUnavailable as error:
                if not isinstance(error.__cause__, IndexDamaged):
                    raise
                problem = await ledger._set_aside(error.__cause__)
                file = await stack.enter_async_context(_file_in(folder))
                ledger = cls(file, clock=clock, workspace=workspace)
                ledger.problem = problem
                await ledger.prepare()
            yield ledger

    async def prepare(self) -> None:
        """Make the tables if they are not there, and look at those that are."""

        def work(connection: Connection) -> None:
            schema.ensure(connection, self._file.path)
            check(connection)

        await self._write(work, doing="be opened")

    async def _set_aside(self, damage: IndexDamaged) -> str:
        try:
            await self._file.close()
            aside, kept = await salvage(self._file.path)
        except (IndexProblem, OSError) as cause:
            raise self._unusable(damage, "be opened") from cause
        return (
            f"the ledger of the graph was damaged; {kept} episodes of it were saved, and it was set aside as "
            f"{aside}; ingest again, so that none is missing (what the graph holds stays)"
        )

    # --- taking in ---

    async def enqueue(self, drafts: Sequence[EpisodeDraft]) -> Taken:
        """Take episodes in; of a text that was cut otherwise before, parts that are no more are retired."""
        return await self._take(drafts, source=None)

    async def replace_source(self, path: str, drafts: Sequence[EpisodeDraft], *, group_id: str) -> Taken:
        """Take in `drafts` as all that the source says now; what they leave out of it is retired."""
        return await self._take(drafts, source=(path, group_id))

    async def _take(self, drafts: Sequence[EpisodeDraft], *, source: tuple[str, str] | None) -> Taken:
        path, group = source or (None, None)
        trace_id = current_trace_id()

        def take(connection: Connection) -> Taken:
            now = self._now()
            fates: dict[entries.Fate, list[str]] = {"new": [], "known": [], "changed": []}
            for draft in drafts:
                fate = entries.add(
                    connection,
                    draft,
                    now=now,
                    workspace=self._workspace,
                    source_path=path,
                    trace_id=trace_id,
                )
                fates[fate].append(draft.id)
            vanished: list[str] = []
            for group_id in dict.fromkeys([*filter(None, [group]), *(draft.group_id for draft in drafts)]):
                here = [draft for draft in drafts if draft.group_id == group_id]
                vanished += entries.vanish(connection, here, group_id=group_id, source_path=path, now=now)
            return Taken(**{fate: tuple(ids) for fate, ids in fates.items()}, vanished=tuple(vanished))

        return await self._write(take, doing="take the episodes; none of them was taken")

    # --- what is to be done ---

    async def groups_due(self) -> tuple[str, ...]:
        """Return the groups in which there is something to do now."""
        return await self._read(
            lambda connection: tuple(
                str(row[0])
                for row in connection.execute(ledger_statements.GROUPS_DUE, self._here()).fetchall()
            )
        )

    async def next_due(self) -> datetime | None:
        """Return when there is something to do next, which may be in the past; None if there is nothing."""
        found = await self._read(
            lambda connection: connection.execute(ledger_statements.NEXT_DUE, self._here()).get
        )
        return None if found is None else datetime.fromtimestamp(found, UTC)

    def lease(self, group_id: str) -> AbstractAsyncContextManager[bool]:
        """Hold the lease of a group during the block, if it is free; yields whether it is ours.

        One worker at a time writes to a group, in this process or another: two that stored episodes at once
        would each make an entity of a new name.
        """

        def write(connection: Connection, holder: str | None) -> None:
            connection.execute(ledger_statements.SET_LEASE, (group_id, holder))

        def read(connection: Connection) -> str | None:
            holder: str | None = connection.execute(ledger_statements.LEASE, (group_id,)).get
            return holder

        return Lease(LeaseRow(read, write), self._write, name="graphiti").acquire()

    async def due(self, group_id: str, *, limit: int) -> tuple[Entry, ...]:
        """Return what is to be done next in a group: entries of one state, in the order they came.

        One that went wrong before comes alone, so that it stops nothing but itself.
        """

        def find(connection: Connection) -> tuple[Entry, ...]:
            now = self._now()
            if connection.execute(ledger_statements.IS_RESTING, (group_id, now)).fetchone():
                return ()
            for state in DUE:
                found = entries.select(
                    connection,
                    ledger_statements.DUE_NOW,
                    group_id,
                    state,
                    now,
                    self._workspace,
                    limit=limit,
                )
                if found:
                    return _until_a_tried_one(found)
            return ()

        return await self._read(find)

    # --- what was done ---

    async def complete(
        self, done: Sequence[Entry], state: EntryState = "done", *, next_try_at: datetime | None = None
    ) -> None:
        """Note what the graph has said; the group has given no trouble then."""
        extra = {"now_in": state, "next_try_at": next_try_at.timestamp() if next_try_at else 0.0}

        def note(connection: Connection) -> None:
            connection.executemany(ledger_statements.COMPLETE, self._values(done, **extra))
            connection.executemany(
                ledger_statements.GO_ON, sorted({(entry.draft.group_id,) for entry in done})
            )

        await self._write(note)

    async def complete_merge(self, merged: Entry) -> None:
        """Note that a merged episode has taken the place of its originals."""

        def note(connection: Connection) -> None:
            connection.executemany(
                ledger_statements.COMPLETE, self._values([merged], now_in="done", next_try_at=0.0)
            )
            connection.execute(ledger_statements.MERGED, (self._now(), merged.id))

        await self._write(note)

    async def fail(self, entry: Entry, error: str) -> None:
        """Note that an episode can never be stored, and why."""
        await self._change(ledger_statements.FAIL, [entry], error=error[:ERROR_CHARS])

    async def postpone(
        self,
        tried: Sequence[Entry],
        error: str,
        *,
        pause_s: float,
        max_attempts: int | None,
        groups_rest: bool = True,
    ) -> None:
        """Try these again later, twice as late each time, and leave their groups alone until then.

        Without `groups_rest` others of the groups may be tried meanwhile. After `max_attempts` they have
        failed; with None, which is for trouble that is not theirs, never.
        """
        common: dict[str, str | float] = {
            "pause": pause_s,
            "longest": MAX_PAUSE_S,
            "error": error[:ERROR_CHARS],
        }

        def note(connection: Connection) -> None:
            connection.executemany(ledger_statements.POSTPONE, self._values(tried, **common))
            if max_attempts is not None:
                connection.executemany(ledger_statements.GIVE_UP, self._values(tried, most=max_attempts))
            for group_id in sorted({entry.draft.group_id for entry in tried if groups_rest}):
                connection.execute(ledger_statements.REST, {**common, "now": self._now(), "group": group_id})

        await self._write(note)

    async def look_again(self, sent: Sequence[Entry], at: datetime) -> None:
        """Look for episodes that a service has not shown yet once more at a time."""
        await self._change(ledger_statements.LOOK_AGAIN, sent, at=at.timestamp())

    async def revive(self) -> int:
        """Try everything that failed or waits again now; return how many had failed."""

        def work(connection: Connection) -> int:
            connection.execute(ledger_statements.REVIVE, (self._now(), self._workspace))
            revived = connection.changes()
            self._hurry(connection)
            return revived

        return await self._write(work)

    async def hurry(self) -> None:
        """Try everything that waits now; what failed stays as it is."""
        await self._write(self._hurry)

    # --- looking things up ---

    async def counts(self) -> LedgerCounts:
        """Return how many episodes are in each state."""
        return await self._read(
            lambda connection: LedgerCounts(
                by_state=dict(
                    cast(
                        "list[tuple[EntryState, int]]",
                        connection.execute(ledger_statements.COUNT, (self._workspace,)).fetchall(),
                    )
                ),
                last_error=connection.execute(ledger_statements.LAST_ERROR, (self._workspace,)).get,
            )
        )

    async def entries(self, ids: Sequence[str]) -> tuple[Entry, ...]:
        """Return what is known of episodes that were handed in with these ids, of each the present text.

        Forgotten ones are left out.
        """
        return await self._read(lambda connection: entries.by_ids(connection, ids))

    async def named(self, group_id: str, name: str) -> tuple[Entry, ...]:
        """Return the episodes of a graph's id, or of a content's id with all its parts."""
        return await self._read(
            lambda connection: entries.select(connection, ledger_statements.NAMED, group_id, name)
        )

    async def originals(self, episode_id: str) -> tuple[EpisodeDraft, ...]:
        """Return the messages that were merged into an episode, word for word, in their order."""
        found = await self._read(
            lambda connection: entries.select(
                connection, "merged_into = ?", episode_id, order="observed_at, sequence"
            )
        )
        return tuple(entry.draft for entry in found)

    async def forget(self, ids: Sequence[str]) -> None:
        """Remove what was said, with what was merged into it; the same text will not be taken again."""

        def work(connection: Connection) -> None:
            now = self._now()
            connection.executemany(ledger_statements.FORGET, [(now, own_id, own_id) for own_id in ids])

        await self._write(work)

    # --- against the graph ---

    async def groups(self) -> tuple[str, ...]:
        """Return the groups that this workspace ever handed anything in for."""
        return await self._read(
            lambda connection: tuple(
                str(row[0])
                for row in connection.execute(ledger_statements.GROUPS, (self._workspace,)).fetchall()
            )
        )

    async def stored(self, group_id: str) -> tuple[Stored, ...]:
        """Return what of ours the graph should hold of a group by now, and what it should not any more."""
        return await self._read(
            lambda connection: tuple(
                Stored(*row)
                for row in connection.execute(ledger_statements.STORED, (group_id, self._workspace))
            )
        )

    async def store_again(self, lacking: Mapping[EntryState, Sequence[Stored]], why: str) -> int:
        """Bring what the graph lacks to the states in which it is worked on; return how many that are.

        What has changed since it was read is left alone.
        """

        def work(connection: Connection) -> int:
            before = connection.total_changes()
            for state, some in lacking.items():
                rows = [
                    {"id": one.id, "sequence": one.sequence, "state": one.state, "to": state, "why": why}
                    for one in some
                ]
                connection.executemany(ledger_statements.STORE_AGAIN, rows)
            return connection.total_changes() - before

        return await self._write(work) if any(lacking.values()) else 0

    # --- out of the file, and into it again ---

    async def groups_of_others(self) -> frozenset[str]:
        """Return the groups that another workspace has handed anything in for, or nobody who is known."""
        return await self._read(
            lambda connection: frozenset(
                str(row[0])
                for row in connection.execute(ledger_statements.GROUPS_OF_OTHERS, (self._workspace,))
            )
        )

    async def rows(self, groups: Collection[str]) -> list[EpisodeRow]:
        """Return all that this workspace handed in for some groups, and what became of it."""
        asked = json.dumps(sorted(groups))
        found = await self._read(
            lambda connection: connection.execute(ledger_statements.ROWS, (self._workspace, asked)).fetchall()
        )
        names = EpisodeRow.model_fields
        return [EpisodeRow.model_validate(dict(zip(names, row, strict=True))) for row in found]

    async def put_back(
        self, rows: Sequence[EpisodeRow], *, instead_of: Collection[str], staged: Mapping[str, str | None]
    ) -> None:
        """Put rows in the place of those of some groups, and note which graphs have to follow."""
        cleared = json.dumps(sorted(instead_of))

        def work(connection: Connection) -> None:
            connection.execute(ledger_statements.CLEAR, (self._workspace, cleared))
            last = connection.execute(ledger_statements.LAST_SEQUENCE).get
            values = [
                row.model_dump() | {"workspace": self._workspace, "sequence": last + number}
                for number, row in enumerate(rows, start=1)
            ]
            connection.executemany(ledger_statements.PUT_BACK, values)
            connection.executemany(ledger_statements.STAGE, list(staged.items()))

        await self._write(work)

    async def staged(self) -> dict[str, str | None]:
        """Return by group which graph has to take the place of its own; None for none."""
        return await self._read(
            lambda connection: {
                str(group): staged for group, staged in connection.execute(ledger_statements.STAGED)
            }
        )

    async def note_in_place(self, group_id: str) -> None:
        """Note that a group has the graph that it was to have."""
        await self._write(
            lambda connection: connection.execute(ledger_statements.IN_PLACE, (group_id,)).fetchall()
        )

    # --- merging ---

    async def old_messages(self, before: datetime) -> tuple[Entry, ...]:
        """Return the messages of sessions that were observed before a time and are not merged yet."""
        order = "group_id, session_key, observed_at, sequence"
        return await self._read(
            lambda connection: entries.select(
                connection, ledger_statements.OLD_MESSAGES, before.timestamp(), self._workspace, order=order
            )
        )

    async def plan_merge(self, merged: EpisodeDraft, originals: Sequence[Entry]) -> None:
        """Note that an episode is to take the place of others; which, stays the same whatever happens."""

        def note(connection: Connection) -> None:
            entries.add(connection, merged, now=self._now(), workspace=self._workspace, state="merging")
            connection.executemany(ledger_statements.MEMBER, [(merged.id, entry.id) for entry in originals])

        await self._write(note)

    # --- what was taken in before workspaces were told apart ---

    async def of_nobody(self) -> Mapping[str, int]:
        """Return how many episodes are known to be of no workspace, by group."""
        return await self._read(
            lambda connection: dict(
                cast(
                    "list[tuple[str, int]]",
                    connection.execute(ledger_statements.COUNT_OF_NOBODY).fetchall(),
                )
            )
        )

    async def entries_of_nobody(self) -> tuple[Entry, ...]:
        """Return the episodes that are known to be of no workspace, also those that were taken back."""
        return await self._read(lambda connection: entries.select(connection, ledger_statements.OF_NOBODY))

    async def claimed(self) -> frozenset[str]:
        """Return the groups that are this workspace's alone though they are not called by it."""
        return await self._read(
            lambda connection: frozenset(
                str(row[0])
                for row in connection.execute(
                    "SELECT group_id FROM claims WHERE workspace = ?", (self._workspace,)
                ).fetchall()
            )
        )

    async def inherit(self, *, shared: str | None) -> None:
        """Take all episodes of no workspace, and their groups, for this workspace's.

        In the group `shared`, which others may use as well, sources are told apart by their workspace.
        """
        values = {"workspace": self._workspace, "shared": shared, "prefix": named_in(self._workspace, "")}

        def work(connection: Connection) -> None:
            connection.execute(ledger_statements.CLAIM, {"workspace": self._workspace})
            connection.execute(ledger_statements.TAKE_ALL, values)

        await self._write(work)

    async def move(self, moved: Sequence[tuple[Entry, EpisodeDraft]], taken: Sequence[Entry]) -> None:
        """Take episodes of no workspace for this one's: `moved` anew as these drafts, `taken` as they are."""

        def work(connection: Connection) -> None:
            now = self._now()
            for entry, draft in moved:
                entries.add(
                    connection,
                    draft,
                    now=now,
                    workspace=self._workspace,
                    source_path=entry.source_path,
                    trace_id=entry.trace_id,
                )
                connection.execute(ledger_statements.MOVED, (self._workspace, now, entry.id))
            prefix = named_in(self._workspace, "")
            for entry in taken:
                connection.execute(ledger_statements.TAKE, (self._workspace, prefix, entry.id))

        await self._write(work)

    # --- the file ---

    def _here(self) -> dict[str, str | float]:
        return {"now": self._now(), "workspace": self._workspace}

    def _hurry(self, connection: Connection) -> None:
        connection.execute(ledger_statements.HURRY, (self._workspace,))
        connection.execute(ledger_statements.WAKE_GROUPS)

    async def _change(self, statement: str, of: Sequence[Entry], **extra: str | float) -> None:
        await self._write(lambda connection: connection.executemany(statement, self._values(of, **extra)).get)

    def _values(self, of: Sequence[Entry], **extra: str | float) -> list[dict[str, str | float]]:
        now = self._now()
        return [
            {"id": entry.id, "sequence": entry.sequence, "state": entry.state, "now": now, **extra}
            for entry in of
        ]

    def _now(self) -> float:
        return self._clock().timestamp()

    async def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._file.read(work)
        except IndexProblem as cause:
            raise self._unusable(cause, "be read") from cause

    async def _write(self, work: Callable[[Connection], T], *, doing: str = "be written") -> T:
        try:
            return await self._file.write(work)
        except IndexProblem as cause:
            raise self._unusable(cause, doing) from cause

    def _unusable(self, cause: IndexProblem, doing: str) -> BackendUnavailable:
        said = cause.__cause__ or cause
        missing = f"the ledger {self._file.path} could not {doing} ({said})"
        return BackendUnavailable("graphiti", missing, fix=_advice(cause), operation="keep episodes")


async def _made(path: Path) -> bool:
    """Put a new ledger in place with its tables if there is none; tell whether one is there that is empty.

    None ever is by itself: something emptied it.
    """
    if await asyncio.to_thread(path.exists):
        return (await asyncio.to_thread(path.stat)).st_size == 0
    scratch = path.with_name(f".{path.name}.{uuid4().hex}.new")
    with suppress(IndexProblem, OSError):  # whoever opens it next says why
        try:
            async with SqliteFile.open(scratch, readers=1) as new:
                await new.write(lambda connection: schema.ensure(connection, scratch))
            await asyncio.to_thread(_link, scratch, path)
        finally:
            await asyncio.to_thread(scratch.unlink, missing_ok=True)
    return False


def _link(scratch: Path, path: Path) -> None:
    try:
        os.link(scratch, path)
    except FileExistsError:
        pass  # another process was faster
    except OSError:  # a file system without hard links
        scratch.rename(path)


def _file_in(folder: Path) -> AbstractAsyncContextManager[SqliteFile]:
    return SqliteFile.open(folder / FILE_NAME, readers=1, on_connect=_overwrite_freed)


def _overwrite_freed(connection: Connection) -> None:
    """Let nothing of what was forgotten stay in the file."""
    connection.execute("PRAGMA secure_delete = ON")


def _advice(cause: IndexProblem) -> str:
    if isinstance(cause, IndexTooNew):
        return "upgrade composable-memory"
    if isinstance(cause, IndexDamaged):
        return "move the file away and ingest again; what the graph holds stays"
    return "free some space or check the permissions of the file and its folder, then try again"


def _until_a_tried_one(found: tuple[Entry, ...]) -> tuple[Entry, ...]:
    tried = next((at for at, entry in enumerate(found) if entry.attempts), len(found))
    return found[: max(1, tried)]
