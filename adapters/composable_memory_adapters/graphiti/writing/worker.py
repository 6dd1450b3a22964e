"""Carries what the ledger holds to where the facts are kept: groups side by side, again where needed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass

from composable_memory.errors import BackendTimeout, ComposableMemoryError
from composable_memory.interfaces import Clock
from composable_memory_adapters.graphiti.settings import IngestSettings
from composable_memory_adapters.graphiti.stores import FactStore
from composable_memory_adapters.graphiti.writing.ledger import Ledger
from composable_memory_adapters.graphiti.writing.merging import plan_merges
from composable_memory_adapters.graphiti.writing.rounds import Rounds, Tally
from composable_memory_ops_logs.log import OpsLog

__all__ = ["Outcome", "Worker"]

BACKEND = "graphiti"
GROUPS_AT_ONCE = 4
POLL_S = 0.1
"""How often to ask whether a group is free that another worker holds."""
MIN_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done with episodes: each that was tried is in one of the first five counts.

    `sent` were taken by a service that has not shown them yet. `problems` says why something failed or has
    to be tried again.
    """

    stored: int = 0
    sent: int = 0
    retired: int = 0
    failed: int = 0
    postponed: int = 0
    entities: int = 0
    facts: int = 0
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, tally: Tally) -> "Outcome":
        """Return what was counted."""
        return cls(
            stored=tally.stored,
            sent=tally.sent,
            retired=tally.retired,
            failed=tally.failed,
            postponed=tally.postponed,
            entities=tally.entities,
            facts=tally.facts,
            problems=tuple(tally.problems),
        )


class Worker:
    """Works through the ledger, when asked and, from `start` to `stop`, by itself.

    `batch_size` is how many episodes the store is handed at once: one where a model reads them.
    """

    def __init__(
        self,
        ledger: Ledger,
        store: FactStore,
        settings: IngestSettings,
        *,
        ops_log: OpsLog,
        clock: Clock,
        batch_size: int = 50,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._rounds = Rounds(
            ledger=ledger,
            store=store,
            settings=settings,
            ops_log=ops_log,
            clock=clock,
            batch_size=batch_size,
        )
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._spoken_for: Counter[str] = Counter()
        self._wanted: Counter[str] = Counter()
        self.problem: str | None = None
        """Why nothing is done in the background; None as long as it goes well."""

    # --- when asked ---

    async def work(self, groups: Sequence[str] | None = None, *, deadline: float | None = None) -> Outcome:
        """Do what is due, in some groups or all, and say what was done.

        A group that another worker holds is waited for. Nothing new is begun after `deadline`, a time of the
        loop. Cancelling, and `stop`, leave what is under way to be done again.

        Raises:
            BackendUnavailable: the ledger cannot be used.
        """
        due = [group for group in await self._ledger.groups_due() if groups is None or group in groups]
        return await self._go_through(due, deadline)

    @contextmanager
    def leaving(self, groups: Sequence[str]) -> Iterator[None]:
        """Begin nothing in these groups by itself meanwhile: who asks for them is to learn what was done."""
        self._spoken_for.update(groups)
        try:
            yield
        finally:
            self._spoken_for.subtract(groups)

    @asynccontextmanager
    async def alone(self, group: str) -> AsyncIterator[None]:
        """Hold the lease of a group during the block, so that nobody stores anything in it.

        What is under way in the group is waited for, as long as one episode may take.

        Raises:
            BackendTimeout: another process does not come to an end.
            BackendUnavailable: the ledger cannot be used.
        """
        loop = asyncio.get_running_loop()
        began, limit_s = loop.time(), self._settings.timeout_ms / 1000
        self._wanted[group] += 1
        try:
            while True:
                async with self._ledger.lease(group) as is_ours:
                    if is_ours:
                        yield
                        return
                if (elapsed_s := loop.time() - began) > limit_s:
                    operation = f"wait for what is stored in group {group}"
                    raise BackendTimeout(BACKEND, operation, limit_s=limit_s, elapsed_s=elapsed_s)
                await asyncio.sleep(POLL_S)
        finally:
            self._wanted[group] -= 1

    def _is_over(self, group: str, deadline: float | None) -> bool:
        return bool(self._wanted[group]) or _is_past(deadline)

    async def _go_through(self, due: Sequence[str], deadline: float | None = None) -> Outcome:
        tally = Tally()
        free = asyncio.Semaphore(GROUPS_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in due if not self._is_closed else ():
                    task = tasks.create_task(self._work_with_lease(group, tally, free, deadline))
                    self._under_way.add(task)
                    task.add_done_callback(self._under_way.discard)
        except ExceptionGroup as errors:  # only the ledger's; one says it all
            raise errors.exceptions[0] from errors
        return Outcome.of(tally)

    async def _work_with_lease(
        self, group: str, tally: Tally, free: asyncio.Semaphore, deadline: float | None
    ) -> None:
        async with free:
            while not _is_past(deadline):
                if not self._wanted[group]:
                    async with self._ledger.lease(group) as is_ours:
                        if is_ours:
                            await self._rounds.go(group, tally, lambda: self._is_over(group, deadline))
                            if not self._wanted[group]:
                                return
                if group not in await self._ledger.groups_due():
                    return
                await asyncio.sleep(POLL_S)

    # --- by itself ---

    def start(self) -> None:
        """Begin to work in the background, with what was left from the last time."""
        # In a context of its own, so that not all work to come belongs to the trace in which this is called.
        self._task = asyncio.create_task(self._run(), name="graphiti-worker", context=Context())
        self._task.add_done_callback(self._end)

    def wake(self) -> None:
        """Say that there is something new to do."""
        self._woken.set()

    async def stop(self) -> None:
        """End the work in the background, and that for callers; calling it again does nothing."""
        ending = [*self._under_way, *filter(None, [self._task])]
        for task in ending:
            task.cancel()
        if ending:  # the leases of groups are given back as long as there is a ledger
            await asyncio.wait(ending)
        self._task = None

    async def close(self) -> None:
        """End all work, and begin none any more."""
        self._is_closed = True
        await self.stop()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            pause_s = await self._work_and_look_ahead()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()

    async def _work_and_look_ahead(self) -> float | None:
        """Do what is due; return after how many seconds there is more, None if that takes somebody's word."""
        try:
            await plan_merges(self._ledger, self._settings, now=self._clock())
            groups = await self._ledger.groups_due()
            await self._go_through([group for group in groups if not self._spoken_for[group]])
            due = await self._ledger.next_due()
        except ComposableMemoryError as error:
            self.problem = str(error)
            return self._settings.retry_after_ms / 1000
        self.problem = None
        return None if due is None else max(MIN_PAUSE_S, (due - self._clock()).total_seconds())

    def _end(self, task: asyncio.Task[None]) -> None:
        """A defect must be seen in the status."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.problem = f"working in the background ended: {error!r}"


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and asyncio.get_running_loop().time() >= deadline
