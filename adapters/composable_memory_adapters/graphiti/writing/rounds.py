"""Does what is due in one group, in order, and notes in the ledger what the place of the facts says to it."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TypeVar

from composable_memory.errors import (
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
    ComposableMemoryError,
    EmbedderUnavailable,
    EmbeddingPending,
)
from composable_memory.interfaces import Clock
from composable_memory_adapters.graphiti.settings import IngestSettings
from composable_memory_adapters.graphiti.stores import Added, FactStore
from composable_memory_adapters.graphiti.writing.entries import Entry
from composable_memory_adapters.graphiti.writing.ledger import Ledger
from composable_memory_ops_logs.events import ErrorInfo, GraphitiIngest
from composable_memory_ops_logs.log import OpsLog
from composable_memory_ops_logs.trace import current_trace_id, trace

__all__ = ["Rounds", "Tally"]

T = TypeVar("T")

BACKEND = "graphiti"
CONFIRM_S = 0.2
MAX_CONFIRM_PAUSE_S = 60.0
CONFIRM_WITHIN = timedelta(minutes=15)
"""How long a service may take to show an episode; then it is sent again."""
CONFIRM_LIMIT = 1000

UNREADABLE_IN_A_ROW = 3
"""After so many episodes that a model makes nothing of, the fault is the model's, and it is left alone."""

NOT_THEIRS = (BackendUnavailable, EmbedderUnavailable, EmbeddingPending)
"""Trouble that says nothing about the episodes: they are tried again for as long as it takes."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts what is done with episodes, over several groups; `unreadable` are those in a row until now."""

    stored: int = 0
    sent: int = 0
    retired: int = 0
    failed: int = 0
    postponed: int = 0
    unreadable: int = 0
    entities: int = 0
    facts: int = 0
    problems: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Works on groups whose turn the caller holds; at most `batch_size` episodes are handed over at once."""

    ledger: Ledger
    store: FactStore
    settings: IngestSettings
    ops_log: OpsLog
    clock: Clock
    batch_size: int

    async def go(self, group: str, tally: Tally, is_over: Callable[[], bool]) -> None:
        """Do all that is due in a group, until it gives trouble or `is_over` says so.

        Raises:
            BackendUnavailable: the ledger cannot be used.
        """
        went_well = True
        while went_well and not is_over():
            entries = await self.ledger.due(group, limit=self.batch_size)
            if not entries:
                return
            with trace(current_trace_id() or entries[0].trace_id):
                went_well = await self._do(group, entries, tally)

    async def _do(self, group: str, entries: Sequence[Entry], tally: Tally) -> bool:
        """Do what is due with entries of one state; False when the group has to be left alone for now."""
        match entries[0].state:
            case "queued":
                return await self._add(group, entries, tally)
            case "retiring":
                return await self._retire(group, entries, tally)
            case "merging":
                return await self._merge(group, entries[0], tally)
            case "lost":
                return await self._store_and_retire(group, entries, tally)
            case _:
                return await self._confirm(group, entries, tally)

    # --- storing ---

    async def _add(self, group: str, entries: Sequence[Entry], tally: Tally) -> bool:
        """Hand episodes over; of some that are refused together, find the one that is."""
        parts = deque([entries])
        while parts:
            part = parts.popleft()
            answer = await self._hand_over(group, part)
            if isinstance(answer, Added):
                await self._note_added(part, answer, tally)
            elif isinstance(answer, BackendGarbled) and len(part) == 1:
                tally.unreadable += 1
                is_their_fault = tally.unreadable < UNREADABLE_IN_A_ROW
                await self._postpone(part, answer, tally, groups_rest=not is_their_fault)
                if not is_their_fault:
                    return False
            elif not isinstance(answer, BackendRejected):
                await self._postpone(part, answer, tally)
                return False
            elif len(part) == 1:
                await self.ledger.fail(part[0], str(answer))
                tally.failed += 1
                tally.problems[str(answer)] = None
            else:
                middle = len(part) // 2
                parts.extendleft((part[middle:], part[:middle]))
        return True

    async def _hand_over(self, group: str, entries: Sequence[Entry]) -> Added | ComposableMemoryError:
        drafts = [entry.draft for entry in entries]
        began = time.perf_counter()
        answer = await self._within_limit("add", lambda: self.store.add(group, drafts))
        self._tell(entries, answer, duration_ms=(time.perf_counter() - began) * 1000)
        return answer

    async def _note_added(self, entries: Sequence[Entry], added: Added, tally: Tally) -> None:
        tally.unreadable = 0
        tally.entities += added.entities
        tally.facts += added.facts
        if added.certain:
            await self.ledger.complete(entries)
            tally.stored += len(entries)
        else:
            soon = self.clock() + timedelta(seconds=CONFIRM_S)
            await self.ledger.complete(entries, "sent", next_try_at=soon)
            tally.sent += len(entries)

    # --- retiring and merging ---

    async def _retire(self, group: str, entries: Sequence[Entry], tally: Tally) -> bool:
        """Say that episodes hold no more, from when that was found."""
        for at, together in groupby(entries, key=lambda entry: entry.since):
            gone = list(together)
            answer = await self._within_limit("retire", partial(self._say_no_more, group, gone, at))
            if isinstance(answer, ComposableMemoryError):
                await self._postpone(gone, answer, tally)
                return False
            await self.ledger.complete(gone, "retired")
            tally.retired += len(gone)
        return True

    async def _store_and_retire(self, group: str, entries: Sequence[Entry], tally: Tally) -> bool:
        """Bring back what held once and was retired, so that the history is as it was."""
        answer = await self._hand_over(group, entries)
        if isinstance(answer, ComposableMemoryError):
            await self._postpone(entries, answer, tally)
            return False
        return await self._retire(group, entries, tally)

    async def _say_no_more(self, group: str, gone: Sequence[Entry], at: datetime) -> int:
        return await self.store.retire(group, [entry.id for entry in gone], at=at)

    async def _merge(self, group: str, entry: Entry, tally: Tally) -> bool:
        ids = [draft.id for draft in await self.ledger.originals(entry.id)]
        answer = await self._within_limit("merge", lambda: self.store.merge(group, entry.draft, ids))
        if isinstance(answer, ComposableMemoryError):
            await self._postpone([entry], answer, tally)
            return False
        await self.ledger.complete_merge(entry)
        return True

    # --- confirming ---

    async def _confirm(self, group: str, entries: Sequence[Entry], tally: Tally) -> bool:
        """See which episodes a service shows by now; what it never shows is sent again."""
        answer = await self._within_limit(
            "list episodes", lambda: self.store.episodes((group,), limit=CONFIRM_LIMIT)
        )
        if isinstance(answer, ComposableMemoryError):
            # They stay sent: sent once more, they would be there twice.
            pause = timedelta(milliseconds=self.settings.retry_after_ms)
            await self.ledger.look_again(entries, self.clock() + pause)
            tally.problems[str(answer)] = None
            return False
        shown = {name for episode in answer for name in (episode.id, episode.content_id)}
        there = [entry for entry in entries if not shown.isdisjoint((entry.id, entry.draft.content.id))]
        await self.ledger.complete(there)
        tally.stored += len(there)
        return await self._wait_for([entry for entry in entries if entry not in there], tally)

    async def _wait_for(self, entries: Sequence[Entry], tally: Tally) -> bool:
        now = self.clock()
        lost = [entry for entry in entries if now - entry.since > CONFIRM_WITHIN]
        for entry in entries:
            if entry not in lost:
                await self.ledger.look_again([entry], _next_look(entry, now))
        if lost:
            await self._postpone(lost, _NotShown(), tally)
        return not lost

    # --- what all calls have in common ---

    async def _within_limit(
        self, operation: str, call: Callable[[], Awaitable[T]]
    ) -> T | ComposableMemoryError:
        limit_s = self.settings.timeout_ms / 1000
        began = time.perf_counter()
        try:
            async with asyncio.timeout(limit_s):
                return await call()
        except ComposableMemoryError as error:
            return error
        except TimeoutError:
            elapsed_s = time.perf_counter() - began
            return BackendTimeout(BACKEND, operation, limit_s=limit_s, elapsed_s=elapsed_s)

    async def _postpone(
        self,
        entries: Sequence[Entry],
        error: ComposableMemoryError,
        tally: Tally,
        *,
        groups_rest: bool = True,
    ) -> None:
        await self.ledger.postpone(
            entries,
            str(error),
            pause_s=self.settings.retry_after_ms / 1000,
            max_attempts=None if isinstance(error, NOT_THEIRS) else self.settings.max_attempts,
            groups_rest=groups_rest,
        )
        tally.postponed += len(entries)
        tally.problems[str(error)] = None

    def _tell(
        self, entries: Sequence[Entry], answer: Added | ComposableMemoryError, *, duration_ms: float
    ) -> None:
        error = answer if isinstance(answer, ComposableMemoryError) else None
        added = answer if isinstance(answer, Added) else Added()
        self.ops_log.emit(
            GraphitiIngest(
                episode_count=len(entries),
                node_count=added.entities,
                edge_count=added.facts,
                episode_ids=[entry.id for entry in entries],
                warnings=[warning.message for entry in entries for warning in entry.draft.warnings],
                error=ErrorInfo.of(error) if error else None,
            ),
            status="failure" if error else "success",
            backend=BACKEND,
            duration_ms=duration_ms,
        )


class _NotShown(ComposableMemoryError):
    def __init__(self) -> None:
        minutes = CONFIRM_WITHIN.total_seconds() / 60
        super().__init__(
            f"the service took episodes and did not show them within {minutes:g} minutes; "
            "they are sent again; look at its log"
        )


def _next_look(entry: Entry, now: datetime) -> datetime:
    """Wait as long again as it was waited for, within bounds."""
    waited_s = (now - entry.since).total_seconds()
    return now + timedelta(seconds=min(MAX_CONFIRM_PAUSE_S, max(CONFIRM_S, waited_s)))
