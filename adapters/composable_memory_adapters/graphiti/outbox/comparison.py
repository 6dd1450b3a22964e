"""Compares the outbox with the graph: what the graph has lost is stored again, what came back is removed.

A journal that was cut short, an older copy of it, or none: the outbox knows what was in it, with the texts.
What the graph has that the outbox knows nothing of stays as it is.
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
    """An episode that is done with; `is_marked` if the graph records whether it holds all of it."""

    id: str
    sequence: int
    state: EntryState
    is_marked: int
    merged_into: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What has to be done about a group: `lacking` by the state to go on from, `returned` to be forgotten."""

    lacking: dict[EntryState, list[StoredEntry]] = field(default_factory=dict)
    returned: tuple[str, ...] = ()


class Comparison:
    """Compares each group once, and records in the outbox what has to be stored again.

    From a shared graph others may have removed what is lacking: there it is only counted, in `missing`, until
    it is asked for.
    """

    def __init__(self, outbox: Outbox, store: FactStore, *, is_shared: bool) -> None:
        self._outbox = outbox
        self._store = store
        self._is_shared = is_shared
        self._compared: set[str] = set()
        self._missing: dict[str, int] = {}

    @property
    def missing(self) -> int:
        """Return how many episodes were lacking from the groups when they were compared last."""
        return sum(self._missing.values())

    async def run(self, groups: Iterable[str]) -> bool:
        """Compare groups that were not compared yet; return whether anything changed."""
        new = [group for group in dict.fromkeys(groups) if group not in self._compared]
        return any([await self._compare(group, force=False) for group in new])

    async def run_again(self, *, force: bool) -> bool:
        """Compare all groups; with `force` also have stored again what a shared graph lacks."""
        self._missing.clear()
        return any([await self._compare(group, force=force) for group in await self._outbox.groups()])

    def reset(self) -> None:
        """Compare every group once more."""
        self._compared.clear()
        self._missing.clear()

    def begin_again(self) -> None:
        """Compare every group once more; until then, what is known of it counts."""
        self._compared.clear()

    async def _compare(self, group: str, *, force: bool) -> bool:
        # In this order: what is stored or forgotten meanwhile is not taken for lost.
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
        """Bring what is lacking to the states in which it is worked on, as far as it did not change."""

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
        """Remove again what was forgotten; where somebody writes to the group just now, the next time."""
        async with self._outbox.lease(group) as is_ours:
            if not is_ours:
                self._compared.discard(group)
                return 0
            for own_id in ids:
                await self._store.forget(group, own_id)
        return len(ids)


async def stored_entries(outbox: Outbox, group: str) -> tuple[StoredEntry, ...]:
    """Return what of ours the graph should hold of a group by now, and what it should not any more."""
    values = (group, outbox.workspace)
    return await outbox.read(
        lambda connection: tuple(StoredEntry(*row) for row in connection.execute(STORED, values))
    )


def differences(stored: Sequence[StoredEntry], ids: EpisodeIds) -> Difference:
    """Return what differs (pure)."""
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
