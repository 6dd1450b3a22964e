"""Collects changes of the notes until they have been quiet for a while."""

import asyncio
import math
import threading
from collections.abc import Set
from contextlib import suppress

MOST_PATHS = 1000


class Debounce:
    """Records what changed since the last sync; a burst of changes counts as one.

    Changes may be noted from any thread. Only the first since the last sync costs the event loop a call.
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
        """Cleared while a watch is being started: changes may go unnoticed until it is set."""
        self.is_watch_ready.set()

    def note_change(self, path: str | None = None) -> None:
        """Note that `path` changed, None for anything; may be called from any thread."""
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
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait_until_quiet(self, limit_s: float) -> bool:
        """Wait for a change, then until there was none for the debounce time; at most twice that time.

        Returns False if there was no change within `limit_s`, or a sync has covered it meanwhile.
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
        """Note that more may have changed than was heard of; no sync is due for that."""
        with self._guard:
            self._anywhere_at = self._loop.time()

    @property
    def paths(self) -> Set[str] | None:
        """Return all that changed since the last sync; None if that may be anything."""
        with self._guard:
            return None if self._anywhere_at > -math.inf else frozenset(self._paths)

    def forget_before(self, since: float) -> None:
        """Forget changes before `since`, the loop time at which a sync began to look at the notes."""
        with self._guard:
            self._paths = {path: at for path, at in self._paths.items() if at >= since}
            if self._anywhere_at < since:
                self._anywhere_at = -math.inf
        self._woken.clear()
        self.is_pending = False
        # Checked last: a thread that saw a pending change only set `_last`, and relies on us to notice.
        if self._last >= since:
            self._first = self._last
            self.is_pending = True
            self._woken.set()

    @property
    def _due(self) -> float:
        return min(self._last + self._debounce_s, self._first + 2 * self._debounce_s)
