"""Changes that were heard and are not yet in the index, and how long to wait for more of them."""

import asyncio
import math
from contextlib import suppress

__all__ = ["Changes"]


class Changes:
    """Remembers that something changed, never what: a storm of changes is one.

    They are heard in any thread. Of all that are heard before a sync has seen them, the first alone costs the
    loop a call.
    """

    def __init__(self, debounce_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._debounce_s = debounce_s
        self._woken = asyncio.Event()
        self._first = self._last = -math.inf
        self.are_pending = False
        self.is_watch_ready = asyncio.Event()
        """Not set while a watch is being started: what changes then may go unheard."""
        self.is_watch_ready.set()

    def hear(self) -> None:
        """Note that something changed; may be called from any thread."""
        self._last = self._loop.time()
        if self.are_pending:
            return
        self._first = self._last
        self.are_pending = True
        with suppress(RuntimeError):  # the loop has ended, and with it all who follow
            self._loop.call_soon_threadsafe(self._woken.set)

    async def settle(self, limit_s: float) -> bool:
        """Wait until what changed has been quiet for the debounce time, or twice that time has passed.

        Returns False when nothing was heard within `limit_s`, or a sync has seen it meanwhile.
        """
        try:
            async with asyncio.timeout(limit_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        while self.are_pending and (wait_s := self._due - self._loop.time()) > 0:  # noqa: ASYNC110 - it moves on
            await asyncio.sleep(wait_s)
        return self.are_pending

    def cover(self, since: float) -> None:
        """Forget what was heard before `since`, a time of the loop at which a sync began to look."""
        self._woken.clear()
        self.are_pending = False
        # Only now, because a thread that finds something pending leaves its change to us.
        if self._last >= since:
            self._first = self._last
            self.are_pending = True
            self._woken.set()

    @property
    def _due(self) -> float:
        return min(self._last + self._debounce_s, self._first + 2 * self._debounce_s)
