"""Compares the outbox with the graph: stores again what the graph has lost, removes what has come back.

The graph's journal may have been truncated, replaced by an older copy, or deleted: the outbox still has every
episode with its text. Episodes in the graph that the outbox does not know are left alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from composable_memory_adapters.graphiti.fact_stores import EpisodeIds, FactStore
from composable_memory_adapters.graphiti.outbox.entries import EntryState
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs.quick_dataclass import dataclass

WHY = "the graph had lost it"
STORED = """
SELECT id, sequence, state, is_marked, merged_into FROM episodes
WHERE group_id = ? AND workspace = ? AND state IN ('done', 'retired', 'merged', 'forgotten')
"""
STORE_AGAIN = """
UPDATE episodes SET state = :to, attempts = 0, next_try_at = 0, last_error = :why
WHERE id = :id AND sequence = :sequence AND state = :state
"""


class StoredEntry(NamedTuple):
    """A finished episode; `is_marked` if the graph records whether it is completely stored."""

    id: str
    sequence: int
    state: EntryState
    is_marked: int
    merged_into: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a group needs: `lacking` episodes by the state to resume from, `returned` ones to be forgotten."""

    lacking: dict[EntryState, list[StoredEntry]] = field(default_factory=dict)
    returned: tuple[str, ...] = ()


class Comparison:
    """Compares each group once, and records in the outbox what must be stored again.

    Others may have removed episodes from a shared graph on purpose: there they are only counted, in
    `missing`, until a repair is requested.
    """

    def __init__(self, outbox: Outbox, store: FactStore, *, is_shared: bool) -> None:
        self._outbox = outbox
        self._store = store
        self._is_shared = is_shared
        self._compared: set[str] = set()
        self._missing: dict[str, int] = {}

    @property
    def missing(self) -> int:
        """Return how many episodes were missing from the groups when they were last compared."""
        return sum(self._missing.values())

    async def run(self, groups: Iterable[str]) -> bool:
        """Compare the groups not compared so far; return whether anything changed."""
        new = [group for group in dict.fromkeys(groups) if group not in self._compared]
        return any([await self._compare(group, force=False) for group in new])

    async def run_again(self, *, force: bool) -> bool:
        """Compare all groups; with `force`, also store again what a shared graph lacks."""
        self._missing.clear()
        return any([await self._compare(group, force=force) for group in await self._outbox.groups()])

    def reset(self) -> None:
        """Compare every group again."""
        self._compared.clear()
        self._missing.clear()

    def begin_again(self) -> None:
        """Compare every group again, but keep the current results until then."""
        self._compared.clear()

    async def _compare(self, group: str, *, force: bool) -> bool:
        # In this order, so that episodes stored or forgotten meanwhile do not count as lost.
        stored = await stored_entries(self._outbox, group)
        ids = await self._store.episode_ids(group) if stored else None
        found = differences(stored, ids) if ids is not None else Difference()
        self._compared.add(group)
        if self._is_shared and not force:
            self._missing[group] = sum(map(len, found.lacking.values()))
            return False
        changed = await self._store_again(found.lacking)
        if found.returned and not self._is_shared:
            changed += await self._forget(group, found.returned)
        return changed > 0

    async def _store_again(self, lacking: Mapping[EntryState, Sequence[StoredEntry]]) -> int:
        """Requeue what is missing, unless it has changed meanwhile."""

        def work(connection: Connection) -> int:
            before = connection.total_changes()
            for state, some in lacking.items():
                rows = [
                    {"id": one.id, "sequence": one.sequence, "state": one.state, "to": state, "why": WHY}
                    for one in some
                ]
                connection.executemany(STORE_AGAIN, rows)
            return connection.total_changes() - before

        return await self._outbox.write(work) if any(lacking.values()) else 0

    async def _forget(self, group: str, ids: Sequence[str]) -> int:
        """Remove forgotten episodes again, or next time if another process is writing to the group."""
        async with self._outbox.lease(group) as is_ours:
            if not is_ours:
                self._compared.discard(group)
                return 0
            for own_id in ids:
                await self._store.forget(group, own_id)
        return len(ids)


async def stored_entries(outbox: Outbox, group: str) -> tuple[StoredEntry, ...]:
    """Return which of our episodes the graph should have in a group, and which it no longer should."""
    values = (group, outbox.workspace)
    return await outbox.read(
        lambda connection: tuple(StoredEntry(*row) for row in connection.execute(STORED, values))
    )


def differences(stored: Sequence[StoredEntry], ids: EpisodeIds) -> Difference:
    """Return the differences between outbox and graph (pure)."""
    merged: dict[str | None, list[StoredEntry]] = {}
    for one in stored:
        if one.state == "merged":
            merged.setdefault(one.merged_into, []).append(one)
    found = Difference(
        returned=tuple(one.id for one in stored if one.state == "forgotten" and one.id in ids.present)
    )
    for one in stored:
        for part, state in _undone(one, ids, merged.get(one.id, ())):
            found.lacking.setdefault(state, []).append(part)
    return found


def _undone(
    one: StoredEntry, ids: EpisodeIds, originals: Sequence[StoredEntry]
) -> Iterator[tuple[StoredEntry, EntryState]]:
    is_whole = one.id in ids.whole or (not one.is_marked and one.id in ids.present)
    is_retired = one.id in ids.retired
    if one.state == "retired":
        if not is_retired and not is_whole:
            yield one, "lost"
        elif not is_retired or not is_whole:
            yield one, "retiring"
    elif one.state == "done" and originals:
        if not is_whole:
            yield from ((part, "queued") for part in originals if part.id not in ids.whole)
        if not is_whole or any(part.id in ids.present for part in originals):
            yield one, "merging"
    elif one.state == "done" and (is_retired or not is_whole):
        yield one, "queued"
