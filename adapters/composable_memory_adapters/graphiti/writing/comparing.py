"""Compares the ledger with the graph: what the graph has lost is stored again, what came back is removed.

A journal that was cut short, an older copy of it, or none: the ledger knows what was in it, with the texts.
What the graph has that the ledger knows nothing of stays as it is.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from composable_memory_adapters.graphiti.stores import FactStore, Held
from composable_memory_adapters.graphiti.writing.entries import EntryState
from composable_memory_adapters.graphiti.writing.ledger import Ledger, Stored

__all__ = ["Comparison", "Difference", "differences"]

WHY = "the graph had lost it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What has to be done about a group: `lacking` by the state to go on from, `returned` to be forgotten."""

    lacking: dict[EntryState, list[Stored]] = field(default_factory=dict)
    returned: tuple[str, ...] = ()


class Comparison:
    """Compares each group once, and notes in the ledger what has to be stored again.

    From a shared graph others may have removed what is lacking: there it is only counted, in `missing`, until
    it is asked for.
    """

    def __init__(self, ledger: Ledger, store: FactStore, *, is_shared: bool) -> None:
        self._ledger = ledger
        self._store = store
        self._is_shared = is_shared
        self._compared: set[str] = set()
        self.missing = 0

    async def go(self, groups: Iterable[str]) -> bool:
        """Compare groups that were not compared yet; say whether anything came of it.

        Raises:
            BackendError: the graph or the ledger cannot be used.
        """
        new = [group for group in dict.fromkeys(groups) if group not in self._compared]
        return any([await self._compare(group, force=False) for group in new])

    async def go_anew(self, *, force: bool) -> bool:
        """Compare all groups; with `force` also have stored again what a shared graph lacks.

        Raises:
            BackendError: the graph or the ledger cannot be used.
        """
        self.missing = 0
        return any([await self._compare(group, force=force) for group in await self._ledger.groups()])

    async def _compare(self, group: str, *, force: bool) -> bool:
        # In this order: what is stored or forgotten meanwhile is not taken for lost.
        stored = await self._ledger.stored(group)
        held = await self._store.held(group) if stored else None
        found = differences(stored, held) if held is not None else Difference()
        self._compared.add(group)
        if self._is_shared and not force:
            self.missing += sum(map(len, found.lacking.values()))
            return False
        changed = await self._ledger.store_again(found.lacking, WHY)
        if found.returned and not self._is_shared:
            changed += await self._forget(group, found.returned)
        return changed > 0

    async def _forget(self, group: str, ids: Sequence[str]) -> int:
        """Remove again what was forgotten; where somebody stores in the group just now, the next time."""
        async with self._ledger.lease(group) as is_ours:
            if not is_ours:
                self._compared.discard(group)
                return 0
            for own_id in ids:
                await self._store.forget(group, own_id)
        return len(ids)


def differences(stored: Sequence[Stored], held: Held) -> Difference:
    """Return what differs (pure)."""
    merged: dict[str | None, list[Stored]] = {}
    for one in stored:
        if one.state == "merged":
            merged.setdefault(one.merged_into, []).append(one)
    found = Difference(
        returned=tuple(one.id for one in stored if one.state == "forgotten" and one.id in held.present)
    )
    for one in stored:
        for part, state in _undone(one, held, merged.get(one.id, ())):
            found.lacking.setdefault(state, []).append(part)
    return found


def _undone(one: Stored, held: Held, originals: Sequence[Stored]) -> Iterator[tuple[Stored, EntryState]]:
    is_whole = one.id in held.whole or (not one.is_marked and one.id in held.present)
    is_retired = one.id in held.retired
    if one.state == "retired":
        if not is_retired and not is_whole:
            yield one, "lost"
        elif not is_retired or not is_whole:
            yield one, "retiring"
    elif one.state == "done" and originals:
        if not is_whole:
            yield from ((part, "queued") for part in originals if part.id not in held.whole)
        if not is_whole or any(part.id in held.present for part in originals):
            yield one, "merging"
    elif one.state == "done" and (is_retired or not is_whole):
        yield one, "queued"
