"""Schedules syncs while a memory is open: once changed notes have settled, and at an interval.

A watch does not see what other machines write to a network file system, and not every system can tell when
all events have arrived. In these cases a search still checks the notes if that was not done for `recheck_s`.
"""

import asyncio
import math
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from typing import Literal, Protocol

from composable_memory.supervision.backoff import backoff_s
from composable_memory.types import JsonValue
from composable_memory_adapters.builtin.settings import SyncSettings
from composable_memory_adapters.builtin.sync.watch_scope import WatchReport
from composable_memory_ops_logs.events import BackendDegraded
from composable_memory_ops_logs.log import OpsLog
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_PATHS = 1000


class Debounce:
    """Records what changed since the last sync, merging a burst of changes into one.

    Changes may be noted from any thread. Only the first one since the last sync wakes the event loop.
    """

    def __init__(self, debounce_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._debounce_s = debounce_s
        self._woken = asyncio.Event()
        self._first = self._last = -math.inf
        self._paths: dict[str, float] = {}
        self._anywhere_at = -math.inf
        self._guard = threading.Lock()
        self.is_pending = False
        self.is_watch_ready = asyncio.Event()
        """Cleared while a watch is starting: until it is set, changes may go unnoticed."""
        self.is_watch_ready.set()

    def note_change(self, path: str | None = None) -> None:
        """Record that `path` changed (None: anything may have); may be called from any thread."""
        with self._guard:
            now = self._loop.time()
            if path is None or len(self._paths) >= MOST_PATHS:
                self._anywhere_at = now
            else:
                self._paths[path] = now
            self._last = now
        if self.is_pending:
            return
        self._first = self._last
        self.is_pending = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait_until_quiet(self, limit_s: float) -> bool:
        """Wait for a change, then until none has come for the debounce time, but at most twice that time.

        Returns False if there was no change within `limit_s`, or a sync has handled it meanwhile.
        """
        try:
            async with asyncio.timeout(limit_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        while self.is_pending and (wait_s := self._due - self._loop.time()) > 0:  # noqa: ASYNC110 - it moves on
            await asyncio.sleep(wait_s)
        return self.is_pending

    def lose_track(self) -> None:
        """Record that more may have changed than was reported; does not trigger a sync."""
        with self._guard:
            self._anywhere_at = self._loop.time()

    @property
    def paths(self) -> Set[str] | None:
        """Return all paths changed since the last sync; None if anything may have changed."""
        with self._guard:
            return None if self._anywhere_at > -math.inf else frozenset(self._paths)

    def forget_before(self, since: float) -> None:
        """Drop changes before `since`, the loop time at which a sync began to look at the notes."""
        with self._guard:
            self._paths = {path: at for path, at in self._paths.items() if at >= since}
            if self._anywhere_at < since:
                self._anywhere_at = -math.inf
        self._woken.clear()
        self.is_pending = False
        # Checked last: a thread that saw a pending change only set `_last`, and relies on this check.
        if self._last >= since:
            self._first = self._last
            self.is_pending = True
            self._woken.set()

    @property
    def _due(self) -> float:
        return min(self._last + self._debounce_s, self._first + 2 * self._debounce_s)


FOLDERS_S = 5.0
"""How often to check that the watched folders still exist: replacing one raises no event."""
RETRY_S = 1.0
MAX_RETRY_S = 60.0
"""The pause after a failed sync, at first and at most; it doubles each time."""
MAX_SESSIONS = 1000


class FolderWatch(Protocol):
    """Watches the folders of the notes; its methods block."""

    @property
    def is_outdated(self) -> bool:
        """Return whether folders have appeared or disappeared since the last update; does not block."""
        ...

    @property
    def misses_nothing(self) -> bool:
        """Return whether it reports every change, and can tell when all have arrived; does not block."""
        ...

    def has_heard_all(self) -> bool:
        """Return whether every change up to now has been reported."""
        ...

    def update(self) -> WatchReport:
        """Start watching the folders that exist now."""
        ...

    def stop(self) -> None:
        """Stop watching for good."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """The state of the watch; `partial` and `failed` come with a reason."""

    state: Literal["off", "starting", "active", "partial", "failed"] = "off"
    folders: tuple[str, ...] = ()
    reason: str | None = None

    @classmethod
    def of(cls, found: WatchReport) -> "WatchStatus":
        """Build the status from a report of the watch."""
        if found.problem is None:
            return cls(state="active", folders=found.folders)
        return cls(
            state="partial" if found.folders else "failed", folders=found.folders, reason=found.problem
        )

    def document(self, interval_minutes: int) -> dict[str, JsonValue]:
        """Return this as `MemoryProviderStatus.watch` shows it."""
        told: dict[str, JsonValue] = {"state": self.state, "roots": list(self.folders)}
        if self.reason is not None:
            told["reason"] = self.reason
        if interval_minutes:
            told["intervalMinutes"] = interval_minutes
        return told


class SyncScheduler:
    """Watches the notes and starts syncs, from `start` to `stop`.

    `open_watch` is called in a thread with the callback for changes. `sync` brings the index up to date for a
    given reason and returns whether it succeeded; it never raises, and calls `debounce.forget_before` when
    done.
    """

    def __init__(
        self,
        settings: SyncSettings,
        debounce: Debounce,
        *,
        open_watch: Callable[[Callable[[str | None], None]], FolderWatch],
        sync: Callable[[str], Awaitable[bool]],
        ops_log: OpsLog,
        backend_id: str,
    ) -> None:
        self._settings = settings
        self._backend_id = backend_id
        self._open_watch = open_watch
        self._sync = sync
        self._ops_log = ops_log
        self._debounce = debounce
        self._watch: FolderWatch | None = None
        self._task: asyncio.Task[None] | None = None
        self._sessions: OrderedDict[str, None] = OrderedDict()
        self._is_listening = False
        self._updating = asyncio.Lock()
        self.status = WatchStatus()

    @property
    def is_running(self) -> bool:
        """Return whether it schedules syncs: started, not stopped, and not just listening."""
        return self._task is not None and not self._is_listening

    @property
    def recheck_s(self) -> float:
        """Return for how many seconds after a check a search may assume that the notes are unchanged.

        While a change is waiting to be indexed, at most the debounce time.
        """
        recheck_s = self._settings.recheck_s
        return (
            min(recheck_s, self._settings.watch_debounce_ms / 1000)
            if self._debounce.is_pending
            else recheck_s
        )

    @property
    def misses_nothing(self) -> bool:
        """Return whether the watch reports every change."""
        return self._watch is not None and self.status.state == "active" and self._watch.misses_nothing

    async def changed(self) -> Set[str] | None:
        """Return all paths changed since the last sync; None if anything may have changed."""
        for _ in range(2):
            if self._watch is None or not self.misses_nothing:
                break
            if await asyncio.to_thread(self._watch.has_heard_all) and not self._updating.locked():
                return self._debounce.paths
            if self._watch.is_outdated:
                await self._update_watch(self._watch)
        return None

    @property
    def unwatched_reason(self) -> str | None:
        """Return why changes are indexed only on request; None if they are indexed automatically."""
        by_other_means = self._settings.on_search or self._settings.interval_minutes
        return None if by_other_means else self.status.reason

    def start(self) -> None:
        """Start watching in the background."""
        if self._settings.watch:
            self.status = WatchStatus(state="starting")
        self._debounce.is_watch_ready.clear()
        # In an empty context, so that later syncs do not join the trace of this call.
        self._task = asyncio.create_task(self._follow(), name=f"{self._backend_id}-follow", context=Context())
        self._task.add_done_callback(self._end)

    def listen(self) -> None:
        """Start watching, if configured, without starting syncs: searches will ask what has changed."""
        if self._task is None and self._settings.watch and self._settings.on_search:
            self._is_listening = True
            self.start()

    async def stop(self) -> None:
        """Stop watching; idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._watch is not None:
            await asyncio.to_thread(self._watch.stop)
        self._task = self._watch = None

    def is_new_session(self, key: str | None) -> bool:
        """Return whether a session makes its first query; always False if that starts no sync."""
        if not key or not self.is_running or not self._settings.on_session_start:
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
                self._debounce.is_watch_ready.set()
            if self._settings.interval_minutes and not self._is_listening:
                tasks.create_task(self._keep_interval())

    def _end(self, task: asyncio.Task[None]) -> None:
        """Release those waiting for the watch; show an unexpected error in the status."""
        self._debounce.is_watch_ready.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.status = replace(self.status, state="failed", reason=f"watching ended: {error!r}")

    async def _follow_changes(self) -> None:
        self._watch = await asyncio.to_thread(self._open_watch, self._debounce.note_change)
        await self._update_watch(self._watch)
        self._debounce.is_watch_ready.set()
        time = asyncio.get_running_loop().time
        updated_at = time()
        while self._is_listening:
            await asyncio.sleep(FOLDERS_S)
            await self._update_watch(self._watch)
        while True:
            has_changed = await self._debounce.wait_until_quiet(FOLDERS_S)
            is_new, now = False, time()
            if not has_changed or self._watch.is_outdated or now - updated_at >= FOLDERS_S:
                is_new, updated_at = await self._update_watch(self._watch), now
            if self.status.state == "partial":
                self._debounce.lose_track()
            if has_changed or is_new:
                await self._sync_until_done()

    async def _update_watch(self, watch: FolderWatch) -> bool:
        """Watch the folders that exist now; return whether one of them is new."""
        async with self._updating:
            found = await asyncio.to_thread(watch.update)
            if found.is_new:  # files may have been added to it before it was watched
                self._debounce.lose_track()
        before, self.status = self.status, WatchStatus.of(found)
        if self.status.reason is not None and self.status.reason != before.reason:
            self._ops_log.emit(
                BackendDegraded(what="watch", level=self.status.state, reason=self.status.reason),
                status="partial",
                backend=self._backend_id,
            )
        return found.is_new

    async def _sync_until_done(self) -> None:
        """Sync, retrying until it succeeds, so that no change is lost."""
        failures = 0
        while not await self._sync("watch"):
            failures += 1
            await asyncio.sleep(backoff_s(failures, first_s=RETRY_S, cap_s=MAX_RETRY_S))

    async def _keep_interval(self) -> None:
        while True:
            await asyncio.sleep(self._settings.interval_minutes * 60)
            await self._sync("interval")
