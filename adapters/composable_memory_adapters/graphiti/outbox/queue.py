"""The queue of the outbox: which episodes were enqueued, what is due, and what was done.

Once the outbox has accepted an episode it will be stored, even if the graph is down or this process is
killed. An episode is done only after the graph has confirmed it.

A statement that names id, sequence and state changes only entries that are still as they were read: an
episode may have been changed, or may have vanished from its source, while it was processed.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from composable_memory.interfaces import Clock
from composable_memory.supervision.lease import Lease, LeaseRow
from composable_memory_adapters.graphiti.episodes import EpisodeDraft
from composable_memory_adapters.graphiti.outbox.entries import (
    DUE_STATES,
    Entry,
    EntryState,
    add,
    by_ids,
    retire_missing,
    select,
)
from composable_memory_adapters.graphiti.outbox.storage import OutboxFile
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.tracing import current_trace_id

MAX_PAUSE_S = 3600.0
ERROR_CHARS = 500

# Nothing waits longer than an hour: a later time only occurs if the clock was set back.
GROUPS_DUE = """
SELECT DISTINCT episodes.group_id FROM episodes LEFT JOIN turns USING (group_id)
WHERE workspace = :workspace AND state IN ('queued', 'retiring', 'merging', 'lost', 'sent')
  AND NOT (episodes.next_try_at > :now AND episodes.next_try_at <= :now + 3600)
  AND NOT (coalesce(turns.next_try_at, 0) > :now AND turns.next_try_at <= :now + 3600)
"""
NEXT_DUE = """
SELECT min(max(
  iif(episodes.next_try_at > :now + 3600, 0, episodes.next_try_at),
  iif(turns.next_try_at > :now + 3600, 0, coalesce(turns.next_try_at, 0))
))
FROM episodes LEFT JOIN turns USING (group_id)
WHERE workspace = :workspace AND state IN ('queued', 'retiring', 'merging', 'lost', 'sent')
"""
LEASE = "SELECT holder FROM turns WHERE group_id = ?"
SET_LEASE = """
INSERT INTO turns (group_id, holder) VALUES (?, ?)
ON CONFLICT (group_id) DO UPDATE SET holder = excluded.holder
"""
IS_PAUSED = "SELECT 1 FROM turns WHERE group_id = ?1 AND next_try_at > ?2 AND next_try_at <= ?2 + 3600"
DUE_NOW = """
group_id = ?1 AND state = ?2 AND NOT (next_try_at > ?3 AND next_try_at <= ?3 + 3600) AND workspace = ?4
"""
COMPLETE = """
UPDATE episodes SET state = :now_in, next_try_at = :next_try_at, last_error = NULL,
  since = iif(:now_in = 'retired', since, :now),
  is_marked = iif(state IN ('queued', 'merging', 'lost'), 1, is_marked)
WHERE id = :id AND sequence = :sequence AND state = :state
"""
COMPLETE_MERGED = "UPDATE episodes SET state = 'merged', since = ? WHERE merged_into = ? AND state = 'done'"
FAIL = """
UPDATE episodes SET state = 'failed', attempts = attempts + 1, last_error = :error, since = :now
WHERE id = :id AND sequence = :sequence AND state = :state
"""
POSTPONE = """
UPDATE episodes SET attempts = attempts + 1, last_error = :error,
  state = CASE state WHEN 'sent' THEN 'queued' ELSE state END,
  next_try_at = :now + min(:longest, :pause * (1 << min(attempts, 30)))
WHERE id = :id AND sequence = :sequence AND state = :state
"""
GIVE_UP = """
UPDATE episodes SET state = 'failed', since = :now
WHERE id = :id AND sequence = :sequence AND state = 'queued' AND attempts >= :most
"""
CHECK_LATER = """
UPDATE episodes SET next_try_at = :at WHERE id = :id AND sequence = :sequence AND state = :state
"""
PAUSE_GROUP = """
INSERT INTO turns (group_id, failures, next_try_at) VALUES (:group, 1, :now + :pause)
ON CONFLICT (group_id) DO UPDATE SET failures = failures + 1,
  next_try_at = :now + min(:longest, :pause * (1 << min(failures, 30)))
"""
RESUME_GROUP = "UPDATE turns SET failures = 0, next_try_at = 0 WHERE group_id = ? AND failures > 0"
RESUME_GROUPS = "UPDATE turns SET failures = 0, next_try_at = 0"
RETRY_FAILED = """
UPDATE episodes SET state = 'queued', attempts = 0, next_try_at = 0, since = ?
WHERE state = 'failed' AND workspace = ?
"""
RETRY_NOW = """
UPDATE episodes SET next_try_at = 0
WHERE workspace = ? AND state IN ('queued', 'retiring', 'merging', 'lost', 'sent') AND next_try_at > 0
"""
COUNT = "SELECT state, count(*) FROM episodes WHERE workspace = ? GROUP BY state"
LAST_ERROR = """
SELECT last_error FROM episodes
WHERE workspace = ? AND last_error IS NOT NULL AND state IN ('queued', 'failed', 'lost', 'retiring')
ORDER BY sequence DESC LIMIT 1
"""
LAST_STORED = "SELECT max(since) FROM episodes WHERE state = 'done'"
NAMED = "group_id = ?1 AND ?2 IN (id, draft_id, content_id, part_of)"
FORGET = """
UPDATE episodes SET state = 'forgotten', draft = '', last_error = NULL, since = ?
WHERE id = ? OR merged_into = ?
"""
DROP_HASH = "UPDATE episodes SET hash = '' WHERE id = ? OR merged_into = ?"
GROUPS = "SELECT DISTINCT group_id FROM episodes WHERE workspace = :workspace AND state <> 'moved'"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxCounts:
    """The number of episodes in each state, and the latest error."""

    by_state: Mapping[EntryState, int] = field(default_factory=dict)
    last_error: str | None = None

    @property
    def pending(self) -> int:
        """Return how many episodes are still to be processed."""
        return sum(self.by_state.get(state, 0) for state in DUE_STATES)


class Outbox(OutboxFile):
    """The episodes of a workspace in one file, shared with other processes and other workspaces.

    Of the episodes enqueued by others, only those of `workspace` are counted and processed. Every method
    raises `BackendUnavailable` if the file cannot be used; the call then has had no effect.
    """

    def __init__(self, opened: OutboxFile, *, clock: Clock, workspace: str = "") -> None:
        super().__init__(opened.file, problem=opened.problem)
        self._clock = clock
        self.workspace = workspace

    @classmethod
    @asynccontextmanager
    async def of(cls, folder: Path, *, clock: Clock, workspace: str = "") -> AsyncIterator["Outbox"]:
        """Yield the outbox of a workspace in a folder; creates both if missing."""
        async with OutboxFile.open(folder) as opened:
            yield cls(opened, clock=clock, workspace=workspace)

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self._clock().timestamp()

    # --- enqueuing ---

    async def enqueue(self, drafts: Sequence[EpisodeDraft]) -> frozenset[str]:
        """Add episodes; return the ids, as enqueued, of those already known.

        If a text was previously split differently, parts that no longer exist are retired.
        """
        return await self._enqueue(drafts, source=None)

    async def replace_source(
        self, path: str, drafts: Sequence[EpisodeDraft], *, group_id: str
    ) -> frozenset[str]:
        """Add `drafts` as everything a source says now; retire what they omit."""
        return await self._enqueue(drafts, source=(path, group_id))

    async def _enqueue(
        self, drafts: Sequence[EpisodeDraft], *, source: tuple[str, str] | None
    ) -> frozenset[str]:
        path, group = source or (None, None)
        trace_id = current_trace_id()

        def work(connection: Connection) -> frozenset[str]:
            now = self.now()
            known = set[str]()
            for draft in drafts:
                is_known = add(
                    connection,
                    draft,
                    now=now,
                    workspace=self.workspace,
                    source_path=path,
                    trace_id=trace_id,
                )
                if is_known:
                    known.add(draft.id)
            for group_id in dict.fromkeys([*filter(None, [group]), *(draft.group_id for draft in drafts)]):
                of_group = [draft for draft in drafts if draft.group_id == group_id]
                retire_missing(connection, of_group, group_id=group_id, source_path=path, now=now)
            return frozenset(known)

        return await self.write(work, doing="accept the episodes; none of them was accepted")

    # --- what is due ---

    async def groups_due(self) -> tuple[str, ...]:
        """Return the groups with work due now."""
        return await self._names(GROUPS_DUE, {"now": self.now(), "workspace": self.workspace})

    async def next_due(self) -> datetime | None:
        """Return when the next work is due, which may be in the past; None if there is none."""
        values = {"now": self.now(), "workspace": self.workspace}
        found = await self.read(lambda connection: connection.execute(NEXT_DUE, values).get)
        return None if found is None else datetime.fromtimestamp(found, UTC)

    def lease(self, group_id: str) -> AbstractAsyncContextManager[bool]:
        """Hold the lease of a group during the block, if it is free; yields whether it was acquired.

        Only one worker at a time, in this process or another, writes to a group: two that stored episodes at
        once would each create an entity for a new name.
        """

        def write(connection: Connection, holder: str | None) -> None:
            connection.execute(SET_LEASE, (group_id, holder))

        def read(connection: Connection) -> str | None:
            holder: str | None = connection.execute(LEASE, (group_id,)).get
            return holder

        return Lease(LeaseRow(read, write), self.write, name="graphiti").acquire()

    async def due(self, group_id: str, *, limit: int) -> tuple[Entry, ...]:
        """Return the next work of a group: entries of one state, in order of arrival.

        An entry that failed before is returned alone, so that it delays only itself.
        """

        def find(connection: Connection) -> tuple[Entry, ...]:
            now = self.now()
            if connection.execute(IS_PAUSED, (group_id, now)).fetchone():
                return ()
            for state in DUE_STATES:
                found = select(connection, DUE_NOW, group_id, state, now, self.workspace, limit=limit)
                if found:
                    return _until_a_tried_one(found)
            return ()

        return await self.read(find)

    # --- what was done ---

    async def complete(
        self, done: Sequence[Entry], state: EntryState = "done", *, next_try_at: datetime | None = None
    ) -> None:
        """Record what the graph has confirmed; this ends a pause of the group."""
        extra = {"now_in": state, "next_try_at": next_try_at.timestamp() if next_try_at else 0.0}

        def work(connection: Connection) -> None:
            connection.executemany(COMPLETE, self._values(done, **extra))
            connection.executemany(RESUME_GROUP, sorted({(entry.draft.group_id,) for entry in done}))

        await self.write(work)

    async def complete_merge(self, merged: Entry) -> None:
        """Record that a merged episode has replaced its originals."""

        def work(connection: Connection) -> None:
            connection.executemany(COMPLETE, self._values([merged], now_in="done", next_try_at=0.0))
            connection.execute(COMPLETE_MERGED, (self.now(), merged.id))

        await self.write(work)

    async def fail(self, entry: Entry, error: str) -> None:
        """Record that an episode can never be stored, and why."""
        await self._change(FAIL, [entry], error=error[:ERROR_CHARS])

    async def postpone(
        self,
        tried: Sequence[Entry],
        error: str,
        *,
        pause_s: float,
        max_attempts: int | None,
        pause_groups: bool = True,
    ) -> None:
        """Schedule a retry, doubling the delay each time, and pause the groups until then.

        Without `pause_groups`, others of the groups may be tried meanwhile. After `max_attempts` the entries
        have failed; None, for failures that are not their fault, means never.
        """
        common: dict[str, str | float] = {
            "pause": pause_s,
            "longest": MAX_PAUSE_S,
            "error": error[:ERROR_CHARS],
        }

        def work(connection: Connection) -> None:
            connection.executemany(POSTPONE, self._values(tried, **common))
            if max_attempts is not None:
                connection.executemany(GIVE_UP, self._values(tried, most=max_attempts))
            for group_id in sorted({entry.draft.group_id for entry in tried if pause_groups}):
                connection.execute(PAUSE_GROUP, {**common, "now": self.now(), "group": group_id})

        await self.write(work)

    async def check_later(self, sent: Sequence[Entry], at: datetime) -> None:
        """Schedule another check of episodes that a service has not shown yet."""
        await self._change(CHECK_LATER, sent, at=at.timestamp())

    async def retry_now(self, *, failed: bool = False) -> None:
        """Retry now everything that waits, with `failed` also what was given up."""

        def work(connection: Connection) -> None:
            if failed:
                connection.execute(RETRY_FAILED, (self.now(), self.workspace))
            connection.execute(RETRY_NOW, (self.workspace,))
            connection.execute(RESUME_GROUPS)

        await self.write(work)

    # --- looking up ---

    async def counts(self) -> OutboxCounts:
        """Return the number of episodes in each state."""
        return await self.read(
            lambda connection: OutboxCounts(
                by_state=dict(
                    cast(
                        "list[tuple[EntryState, int]]",
                        connection.execute(COUNT, (self.workspace,)).fetchall(),
                    )
                ),
                last_error=connection.execute(LAST_ERROR, (self.workspace,)).get,
            )
        )

    async def last_stored(self) -> datetime:
        """Return when an episode was last confirmed as stored; the far past if none ever was."""
        found = await self.read(lambda connection: connection.execute(LAST_STORED).get)
        return datetime.fromtimestamp(found or 0.0, UTC)

    async def groups(self) -> tuple[str, ...]:
        """Return the groups for which this workspace ever enqueued anything."""
        return await self._names(GROUPS, {"workspace": self.workspace})

    async def entries(self, ids: Sequence[str]) -> tuple[Entry, ...]:
        """Return the episodes enqueued with these ids: the current text of each.

        Forgotten ones are left out.
        """
        return await self.read(lambda connection: by_ids(connection, ids))

    async def named(self, group_id: str, name: str) -> tuple[Entry, ...]:
        """Return the episodes with an id of the graph, or with the id of a content and all its parts."""
        return await self.read(lambda connection: select(connection, NAMED, group_id, name))

    async def originals(self, episode_id: str) -> tuple[EpisodeDraft, ...]:
        """Return the messages merged into an episode, verbatim and in order."""
        found = await self.read(
            lambda connection: select(
                connection, "merged_into = ?", episode_id, order="observed_at, sequence"
            )
        )
        return tuple(entry.draft for entry in found)

    async def all_entries(self) -> tuple[Entry, ...]:
        """Return all episodes of this workspace, without forgotten ones."""
        return await self.read(lambda connection: select(connection, "workspace = ?", self.workspace))

    async def forget(self, ids: Sequence[str], *, traceless: bool = False) -> None:
        """Remove the texts of episodes and of those merged into them; the same text is refused from now on.

        With `traceless`, not even a hash is kept, from which a short text could be guessed.
        """

        def work(connection: Connection) -> None:
            now = self.now()
            connection.executemany(FORGET, [(now, own_id, own_id) for own_id in ids])
            if traceless:
                connection.executemany(DROP_HASH, [(own_id, own_id) for own_id in ids])

        await self.write(work)

    async def _names(self, statement: str, values: Mapping[str, str | float]) -> tuple[str, ...]:
        rows = await self.read(lambda connection: connection.execute(statement, values).fetchall())
        return tuple(str(row[0]) for row in rows)

    async def _change(self, statement: str, entries: Sequence[Entry], **extra: str | float) -> None:
        values = self._values(entries, **extra)
        await self.write(lambda connection: connection.executemany(statement, values).get)

    def _values(self, entries: Sequence[Entry], **extra: str | float) -> list[dict[str, str | float]]:
        now = self.now()
        return [
            {"id": entry.id, "sequence": entry.sequence, "state": entry.state, "now": now, **extra}
            for entry in entries
        ]


def _until_a_tried_one(found: tuple[Entry, ...]) -> tuple[Entry, ...]:
    tried = next((at for at, entry in enumerate(found) if entry.attempts), len(found))
    return found[: max(1, tried)]
