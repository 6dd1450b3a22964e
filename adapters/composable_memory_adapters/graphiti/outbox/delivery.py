"""Delivers the due episodes of one group to the fact store, in order, and records the outcome."""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TypeVar

from composable_memory.errors import (
    BackendGarbled,
    BackendRejected,
    BackendUnavailable,
    ComposableMemoryError,
    EmbedderUnavailable,
    EmbeddingPending,
)
from composable_memory.interfaces import Clock
from composable_memory.supervision.deadline import deadline
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID, Added, FactStore
from composable_memory_adapters.graphiti.outbox.entries import Entry
from composable_memory_adapters.graphiti.outbox.merging import REPLACES
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.settings import IngestSettings
from composable_memory_ops_logs import ErrorInfo, GraphitiIngest
from composable_memory_ops_logs.log import OpsLog
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.tracing import current_trace_id, trace

T = TypeVar("T")

FIRST_CONFIRM_S = 0.2
MAX_CONFIRM_PAUSE_S = 60.0
CONFIRM_WITHIN = timedelta(minutes=15)
"""How long a service may show nothing new before the episodes it accepted are sent again."""
CONFIRM_LIMIT = 1000

UNREADABLE_IN_A_ROW = 3
"""After this many unreadable answers in a row the model is at fault, and its group is paused."""

NOT_THEIR_FAULT = (BackendUnavailable, EmbedderUnavailable, EmbeddingPending)
"""Errors that are not the fault of an episode: it is retried without limit."""


@dataclass(slots=True, kw_only=True)
class WorkReport:
    """Counts the outcomes of episodes; retries are only in `problems`.

    `sent` episodes were accepted by a service that has not shown them yet. `problems` has each distinct
    reason for a failure or retry once. `unreadable` counts consecutive episodes for which the model gave no
    usable answer.
    """

    stored: int = 0
    sent: int = 0
    retired: int = 0
    failed: int = 0
    entities: int = 0
    facts: int = 0
    problems: list[str] = field(default_factory=list)
    unreadable: int = field(default=0, compare=False)

    def add_problem(self, error: ComposableMemoryError) -> None:
        """Record why something failed."""
        if (problem := str(error)) not in self.problems:
            self.problems.append(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Processes groups whose lease the caller holds.

    At most `batch_size` episodes are delivered at once; one at a time if a model reads them.
    """

    outbox: Outbox
    store: FactStore
    settings: IngestSettings
    ops_log: OpsLog
    clock: Clock
    batch_size: int

    async def work(self, group: str, report: WorkReport) -> bool:
        """Do what is due next in a group; return False if nothing is, or if the group must wait."""
        entries = await self.outbox.due(group, limit=self.batch_size)
        if not entries:
            return False
        with trace(current_trace_id() or entries[0].trace_id):
            return await self._do(group, entries, report)

    async def _do(self, group: str, entries: Sequence[Entry], report: WorkReport) -> bool:
        """Process entries of one state; return False if the group must be left alone for now."""
        match entries[0].state:
            case "queued":
                return await self._add(group, entries, report)
            case "retiring":
                return await self._retire(group, entries, report)
            case "merging":
                return await self._merge(group, entries[0], report)
            case "lost":
                return await self._store_and_retire(group, entries, report)
            case _:
                return await self._confirm(group, entries, report)

    # --- storing ---

    async def _add(self, group: str, entries: Sequence[Entry], report: WorkReport) -> bool:
        """Store episodes; if a batch is refused, find the episode at fault by bisection."""
        parts = deque([entries])
        while parts:
            part = parts.popleft()
            answer = await self._hand_over(group, part)
            if isinstance(answer, Added):
                await self._note_added(part, answer, report)
            elif isinstance(answer, BackendGarbled) and len(part) == 1:
                report.unreadable += 1
                is_their_fault = report.unreadable < UNREADABLE_IN_A_ROW
                await self._postpone(part, answer, report, pause_groups=not is_their_fault)
                if not is_their_fault:
                    return False
            elif not isinstance(answer, BackendRejected):
                await self._postpone(part, answer, report)
                return False
            elif len(part) == 1:
                await self.outbox.fail(part[0], str(answer))
                report.failed += 1
                report.add_problem(answer)
            else:
                middle = len(part) // 2
                parts.extendleft((part[middle:], part[:middle]))
        return True

    async def _hand_over(self, group: str, entries: Sequence[Entry]) -> Added | ComposableMemoryError:
        drafts = [entry.draft for entry in entries]
        began = time.perf_counter()
        answer = await self._within_limit("add", lambda: self.store.add(group, drafts))
        self._log(entries, answer, duration_ms=(time.perf_counter() - began) * 1000)
        return answer

    async def _note_added(self, entries: Sequence[Entry], added: Added, report: WorkReport) -> None:
        report.unreadable = 0
        report.entities += added.entities
        report.facts += added.facts
        if added.certain:
            await self.outbox.complete(entries)
            report.stored += len(entries)
        else:
            soon = self.clock() + timedelta(seconds=FIRST_CONFIRM_S)
            await self.outbox.complete(entries, "sent", next_try_at=soon)
            report.sent += len(entries)

    # --- retiring and merging ---

    async def _retire(self, group: str, entries: Sequence[Entry], report: WorkReport) -> bool:
        """Retire episodes, as of the time when their source stopped saying so."""
        for at, together in groupby(entries, key=lambda entry: entry.since):
            retired = list(together)
            answer = await self._within_limit("retire", partial(self._retire_at, group, retired, at))
            if isinstance(answer, ComposableMemoryError):
                await self._postpone(retired, answer, report)
                return False
            await self.outbox.complete(retired, "retired")
            report.retired += len(retired)
        return True

    async def _store_and_retire(self, group: str, entries: Sequence[Entry], report: WorkReport) -> bool:
        """Restore episodes that were valid once and then retired, so that the history is complete again."""
        answer = await self._hand_over(group, entries)
        if isinstance(answer, ComposableMemoryError):
            await self._postpone(entries, answer, report)
            return False
        return await self._retire(group, entries, report)

    async def _retire_at(self, group: str, entries: Sequence[Entry], at: datetime) -> int:
        return await self.store.retire(group, [entry.id for entry in entries], at=at)

    async def _merge(self, group: str, entry: Entry, report: WorkReport) -> bool:
        ids = [draft.id for draft in await self.outbox.originals(entry.id)]
        if isinstance(replaced := entry.draft.content.metadata.get(REPLACES), str):
            ids.append(replaced)
        answer = await self._within_limit("merge", lambda: self.store.merge(group, entry.draft, ids))
        if isinstance(answer, ComposableMemoryError):
            await self._postpone([entry], answer, report)
            return False
        await self.outbox.complete_merge(entry)
        return True

    # --- confirming ---

    async def _confirm(self, group: str, entries: Sequence[Entry], report: WorkReport) -> bool:
        """Check which episodes a service shows by now; those it never shows are sent again."""
        answer = await self._within_limit(
            "list episodes", lambda: self.store.episodes((group,), limit=CONFIRM_LIMIT)
        )
        if isinstance(answer, ComposableMemoryError):
            # They stay `sent`: sending them again would store them twice.
            pause = timedelta(milliseconds=self.settings.retry_after_ms)
            await self.outbox.check_later(entries, self.clock() + pause)
            report.add_problem(answer)
            return False
        shown = {name for episode in answer for name in (episode.id, episode.content_id)}
        stored = [entry for entry in entries if not shown.isdisjoint((entry.id, entry.draft.content.id))]
        await self.outbox.complete(stored)
        report.stored += len(stored)
        return await self._wait_for([entry for entry in entries if entry not in stored], report)

    async def _wait_for(self, entries: Sequence[Entry], report: WorkReport) -> bool:
        now = self.clock()
        latest = await self.outbox.last_stored()  # while it shows others, it just has not got this far
        lost = [entry for entry in entries if now - max(entry.since, latest) > CONFIRM_WITHIN]
        for entry in entries:
            if entry not in lost:
                await self.outbox.check_later([entry], _next_check(entry, now))
        if lost:
            await self._postpone(lost, _NotShown(), report)
        return not lost

    # --- shared by all calls ---

    async def _within_limit(
        self, operation: str, call: Callable[[], Awaitable[T]]
    ) -> T | ComposableMemoryError:
        try:
            async with deadline(BACKEND_ID, operation, self.settings.timeout_ms / 1000):
                return await call()
        except ComposableMemoryError as error:
            return error

    async def _postpone(
        self,
        entries: Sequence[Entry],
        error: ComposableMemoryError,
        report: WorkReport,
        *,
        pause_groups: bool = True,
    ) -> None:
        await self.outbox.postpone(
            entries,
            str(error),
            pause_s=self.settings.retry_after_ms / 1000,
            max_attempts=None if isinstance(error, NOT_THEIR_FAULT) else self.settings.max_attempts,
            pause_groups=pause_groups,
        )
        report.add_problem(error)

    def _log(
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
            backend=BACKEND_ID,
            duration_ms=duration_ms,
        )


class _NotShown(ComposableMemoryError):
    def __init__(self) -> None:
        minutes = CONFIRM_WITHIN.total_seconds() / 60
        super().__init__(
            f"the service took episodes and did not show them within {minutes:g} minutes, nor any others; "
            f"its worker has probably stopped: restart it, and they are sent again"
        )


def _next_check(entry: Entry, now: datetime) -> datetime:
    """Return when to check again: after the same time as it has waited so far, within bounds."""
    waited_s = (now - entry.since).total_seconds()
    return now + timedelta(seconds=min(MAX_CONFIRM_PAUSE_S, max(FIRST_CONFIRM_S, waited_s)))
