"""Delivers what is due in the outbox, several groups at once, on request and in the background."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context

from composable_memory.errors import BackendTimeout, ComposableMemoryError
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.outbox.delivery import Delivery, WorkReport
from composable_memory_adapters.graphiti.outbox.merging import plan_merges

GROUPS_AT_ONCE = 4
POLL_S = 0.1
"""How often to check whether the lease of a group is free, in seconds."""
MIN_PAUSE_S = 1.0


class Worker:
    """Processes the outbox, on request and, between `start` and `stop`, in the background."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._outbox = delivery.outbox
        self._settings = delivery.settings
        self._clock = delivery.clock
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._reserved: Counter[str] = Counter()
        self._wanted: Counter[str] = Counter()
        self.problem: str | None = None
        """Why the background work has stopped; None while it runs."""

    # --- on request ---

    async def work(self, groups: Sequence[str] | None = None) -> WorkReport:
        """Do what is due in the given groups, or all, and report the outcome.

        Waits for a group whose lease another worker holds. Cancelled work, including by `stop`, is resumed
        later.
        """
        due = [group for group in await self._outbox.groups_due() if groups is None or group in groups]
        return await self._run_groups(due)

    @contextmanager
    def reserve(self, groups: Sequence[str]) -> Iterator[None]:
        """Keep the background work out of these groups, so that the caller gets the report of them."""
        self._reserved.update(groups)
        try:
            yield
        finally:
            self._reserved.subtract(groups)

    @asynccontextmanager
    async def exclusive(self, group: str) -> AsyncIterator[None]:
        """Hold the lease of a group during the block, so that nobody else writes to it.

        Waits for work in progress in the group, as long as one episode may take.

        Raises:
            BackendTimeout: another process does not finish.
        """
        loop = asyncio.get_running_loop()
        began, limit_s = loop.time(), self._settings.timeout_ms / 1000
        self._wanted[group] += 1
        try:
            while True:
                async with self._outbox.lease(group) as is_ours:
                    if is_ours:
                        yield
                        return
                if (elapsed_s := loop.time() - began) > limit_s:
                    operation = f"wait for what is stored in group {group}"
                    raise BackendTimeout(BACKEND_ID, operation, limit_s=limit_s, elapsed_s=elapsed_s)
                await asyncio.sleep(POLL_S)
        finally:
            self._wanted[group] -= 1

    async def _run_groups(self, due: Sequence[str]) -> WorkReport:
        report = WorkReport()
        free = asyncio.Semaphore(GROUPS_AT_ONCE)
        try:
            async with asyncio.TaskGroup() as tasks:
                for group in due if not self._is_closed else ():
                    task = tasks.create_task(self._work_with_lease(group, report, free))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
        except ExceptionGroup as errors:  # only errors of the outbox, of which one is enough
            raise errors.exceptions[0] from errors
        return report

    async def _work_with_lease(self, group: str, report: WorkReport, free: asyncio.Semaphore) -> None:
        async with free:
            while True:
                if not self._wanted[group]:
                    async with self._outbox.lease(group) as is_ours:
                        if is_ours:
                            while not self._wanted[group]:
                                if not await self._delivery.work(group, report):
                                    return
                if group not in await self._outbox.groups_due():
                    return
                await asyncio.sleep(POLL_S)

    # --- in the background ---

    def start(self) -> None:
        """Start working in the background, beginning with what is left from last time."""
        # In its own context, so that later work does not all belong to the trace of this call.
        self._task = asyncio.create_task(self._run(), name="graphiti-worker", context=Context())
        self._task.add_done_callback(self._end)

    def wake(self) -> None:
        """Look for new work immediately."""
        self._woken.set()

    async def stop(self) -> None:
        """Cancel the background work and that for callers; calling it again does nothing."""
        ending = [*self._running, *filter(None, [self._task])]
        for task in ending:
            task.cancel()
        if ending:  # release the leases of groups while the outbox is still open
            await asyncio.wait(ending)
        self._task = None

    async def close(self) -> None:
        """Stop all work permanently."""
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
        """Do what is due; return the seconds until more is due, None if nothing waits."""
        try:
            await plan_merges(self._outbox, self._settings, now=self._clock())
            groups = await self._outbox.groups_due()
            await self._run_groups([group for group in groups if not self._reserved[group]])
            due = await self._outbox.next_due()
        except ComposableMemoryError as error:
            self.problem = str(error)
            return self._settings.retry_after_ms / 1000
        self.problem = None
        return None if due is None else max(MIN_PAUSE_S, (due - self._clock()).total_seconds())

    def _end(self, task: asyncio.Task[None]) -> None:
        """Show a defect in the status."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.problem = f"working in the background ended: {error!r}"
