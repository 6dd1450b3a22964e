"""Decides when the index looks at the notes while a memory stays open: as they change, and at an interval.

Watching costs no look at the notes. Still a search looks at them when its time has come (`recheck_s`): what
other machines write to a network file system, no watch hears.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from composable_memory.supervision.backoff import backoff_s
from composable_memory_adapters.builtin.settings import SyncSettings
from composable_memory_adapters.builtin.sync.debounce import Changes
from composable_memory_ops_logs.events import BackendDegraded
from composable_memory_ops_logs.log import OpsLog

__all__ = ["FolderWatch", "SyncScheduler", "WatchFound", "WatchStatus"]

FOLDERS_S = 5.0
"""How often to see whether the watched folders are still those: where one is replaced, no event comes."""
RETRY_S = 1.0
MAX_RETRY_S = 60.0
"""How long to wait after a sync that failed, at first and at most; twice as long each time."""
MAX_SESSIONS = 1000


class WatchFound(Protocol):
    """What a look at the watched folders found."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders that are watched; what is in a tree goes without saying."""
        ...

    @property
    def is_new(self) -> bool:
        """Return whether one of them was not watched until now."""
        ...

    @property
    def problem(self) -> str | None:
        """Return why something is not watched, None if everything is."""
        ...


class FolderWatch(Protocol):
    """Watches the folders of the notes; its methods block."""

    def keep_up(self) -> WatchFound:
        """Watch the folders that are there now."""
        ...

    def stop(self) -> None:
        """Stop watching for good."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """How the notes are watched: `partial` and `failed` have a reason."""

    state: Literal["off", "starting", "active", "partial", "failed"] = "off"
    folders: tuple[str, ...] = ()
    reason: str | None = None

    @classmethod
    def of(cls, found: WatchFound) -> "WatchStatus":
        """Return the status after a look at the folders."""
        if found.problem is None:
            return cls(state="active", folders=found.folders)
        return cls(
            state="partial" if found.folders else "failed", folders=found.folders, reason=found.problem
        )


class SyncScheduler:
    """Follows the notes from `start` to `stop`.

    `changes` is what the watch has heard of; whoever syncs has them covered. `open_watch` is called in a
    thread, with what to call when something changes. `sync` brings the index up to date for a reason, returns
    whether that went well, and never raises.
    """

    def __init__(
        self,
        settings: SyncSettings,
        changes: Changes,
        *,
        open_watch: Callable[[Callable[[], None]], FolderWatch],
        sync: Callable[[str], Awaitable[bool]],
        ops_log: OpsLog,
    ) -> None:
        self._settings = settings
        self._open_watch = open_watch
        self._sync = sync
        self._ops_log = ops_log
        self._changes = changes
        self._watch: FolderWatch | None = None
        self._task: asyncio.Task[None] | None = None
        self._sessions: OrderedDict[str, None] = OrderedDict()
        self.status = WatchStatus()

    @property
    def is_following(self) -> bool:
        """Return whether it was started and not stopped."""
        return self._task is not None

    @property
    def recheck_s(self) -> float:
        """Return how long a search may take the notes for unchanged after they were looked at.

        What was heard of and is not in the index yet makes that as short as the debounce time.
        """
        recheck_s = self._settings.recheck_s
        return (
            min(recheck_s, self._settings.watch_debounce_ms / 1000)
            if self._changes.are_pending
            else recheck_s
        )

    @property
    def blindness(self) -> str | None:
        """Return why changes reach the index only when somebody asks for a sync, None if they reach it."""
        by_other_means = self._settings.on_search or self._settings.interval_minutes
        return None if by_other_means else self.status.reason

    def start(self) -> None:
        """Begin to follow; what that takes is made ready behind the caller's back."""
        if self._settings.watch:
            self.status = WatchStatus(state="starting")
        self._changes.is_watch_ready.clear()
        # In a context of its own, so that not all syncs to come belong to the trace in which this is called.
        self._task = asyncio.create_task(self._follow(), name="builtin-follow", context=Context())
        self._task.add_done_callback(self._end)

    async def stop(self) -> None:
        """Follow no longer, and release what that took; calling it again does nothing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._watch is not None:
            await asyncio.to_thread(self._watch.stop)
        self._task = self._watch = None

    def is_new_session(self, key: str | None) -> bool:
        """Return whether a conversation asks for the first time; always no if that is no reason to look."""
        if not key or self._task is None or not self._settings.on_session_start:
            return False
        is_new = key not in self._sessions
        self._sessions[key] = None
        self._sessions.move_to_end(key)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return is_new

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            if self._settings.watch:
                tasks.create_task(self._follow_changes())
            else:
                self._changes.is_watch_ready.set()
            if self._settings.interval_minutes:
                tasks.create_task(self._keep_interval())

    def _end(self, task: asyncio.Task[None]) -> None:
        """Leave nobody waiting, whatever ended the task; a defect must be seen in the status."""
        self._changes.is_watch_ready.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.status = replace(self.status, state="failed", reason=f"following ended: {error!r}")

    async def _follow_changes(self) -> None:
        self._watch = await asyncio.to_thread(self._open_watch, self._changes.hear)
        await self._mind_folders(self._watch)
        self._changes.is_watch_ready.set()
        while True:
            has_changed = await self._changes.settle(FOLDERS_S)
            # In a folder that is new here, something may have been written before it was watched.
            is_new = await self._mind_folders(self._watch)
            if has_changed or is_new:
                await self._sync_at_last()

    async def _mind_folders(self, watch: FolderWatch) -> bool:
        """Watch the folders that are there now; say whether one is new."""
        found = await asyncio.to_thread(watch.keep_up)
        before, self.status = self.status, WatchStatus.of(found)
        if self.status.reason is not None and self.status.reason != before.reason:
            self._ops_log.emit(
                BackendDegraded(what="watch", level=self.status.state, reason=self.status.reason),
                status="partial",
                backend="builtin",
            )
        return found.is_new

    async def _sync_at_last(self) -> None:
        """Sync; where that fails try again, so that a change is not forgotten before it is in the index."""
        failures = 0
        while not await self._sync("watch"):
            failures += 1
            await asyncio.sleep(backoff_s(failures, first_s=RETRY_S, cap_s=MAX_RETRY_S))

    async def _keep_interval(self) -> None:
        while True:
            await asyncio.sleep(self._settings.interval_minutes * 60)
            await self._sync("interval")
