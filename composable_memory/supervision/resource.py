"""Keeps what an async context manager opens beyond one block, and closes it in the task that opened it.

Task groups and cancel scopes have to be entered and left by one task. Whoever opens something in one call and
closes it in another has no such task of its own, so each thing kept here gets one.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from typing import Generic, TypeVar

__all__ = ["Kept", "OnDemand", "keep"]

T = TypeVar("T")


class Kept(Generic[T]):
    """What an async context manager yielded, open until `close`; made by `keep`."""

    def __init__(self, value: T, holder: asyncio.Task[None], release: asyncio.Event) -> None:
        self.value = value
        self._holder = holder
        self._release = release

    @property
    def is_open(self) -> bool:
        """Say whether it can be used: nobody has closed it, and it has not ended by itself."""
        return not self._release.is_set() and not self._holder.done()

    @property
    def is_closed(self) -> bool:
        """Say whether nothing of it is left; between open and closed it is closing."""
        return self._holder.done()

    async def close(self) -> None:
        """Leave the context manager; calling it again waits for the same end.

        A call that is cancelled waits no longer, and it is closed all the same.

        Raises:
            Exception: whatever leaving raised, or what ended it before.
        """
        self._release.set()
        await self.wait_closed()
        if not self._holder.cancelled():
            self._holder.result()

    async def wait_closed(self) -> None:
        """Wait until it is closed, by whomever and with whatever outcome."""
        await asyncio.wait([self._holder])


async def keep(open: Callable[[], AbstractAsyncContextManager[T]]) -> Kept[T]:  # noqa: A002 - it says what it is
    """Enter the context manager that `open` returns, in a task of its own that will also leave it.

    The task starts in an empty context: what outlives a request does not belong to its trace. A call that is
    cancelled ends when all that was opened is closed again.

    Raises:
        Exception: whatever opening raised.
        RuntimeError: the opening was cancelled from within.
    """
    opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    release = asyncio.Event()
    holder = asyncio.create_task(_hold(open, opened, release), name="keep", context=Context())
    either: tuple[asyncio.Task[None] | asyncio.Future[T], ...] = (holder, opened)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        release.set()  # for what swallows a cancellation and opens nevertheless
        await _cancelled(holder)
        raise
    if opened.done():
        return Kept(opened.result(), holder, release)
    if holder.cancelled():
        raise RuntimeError("it was cancelled from within while it opened")
    holder.result()
    raise RuntimeError("the context manager did not yield")


class OnDemand(Generic[T]):
    """Something that is opened when it is needed, once for all who wait for it, and kept open until `close`.

    Who stops waiting does not stop the opening, which may take `limit_s` seconds. What was closed, or ended
    by itself, is opened anew for whoever needs it next.
    """

    def __init__(
        self,
        open: Callable[[], AbstractAsyncContextManager[T]],  # noqa: A002 - as in `keep`
        *,
        limit_s: float | None = None,
    ) -> None:
        self._open = open
        self._limit_s = limit_s
        self._kept: Kept[T] | None = None
        self._opening: asyncio.Task[T] | None = None

    @property
    def value(self) -> T | None:
        """Return it if it is open, else None."""
        return self._kept.value if self._kept is not None and self._kept.is_open else None

    @property
    def is_idle(self) -> bool:
        """Say whether it is neither open nor on the way to or from it."""
        return self._opening is None and (self._kept is None or self._kept.is_closed)

    async def get(self) -> T:
        """Return it, opening it first if need be.

        Raises:
            Exception: whatever opening raised.
            TimeoutError: it did not open within the limit.
            RuntimeError: it was closed while it opened.
        """
        if self._kept is not None and self._kept.is_open:
            return self._kept.value
        if self._opening is None:
            self._opening = asyncio.create_task(self._opened(), name="open on demand")
            self._opening.add_done_callback(self._note_opened)
        opening = self._opening
        await asyncio.wait([opening])
        if opening.cancelled():
            raise RuntimeError("it was closed while it opened")
        return opening.result()

    async def close(self) -> None:
        """Close it if it is open, stop its opening if it is not yet.

        Raises:
            Exception: whatever closing raised.
        """
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._kept is not None:
            await self._kept.close()

    async def _opened(self) -> T:
        if self._kept is not None:  # two of one kind would get into each other's way
            await self._kept.wait_closed()
        try:
            async with asyncio.timeout(self._limit_s) as deadline:
                self._kept = await keep(self._open)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise TimeoutError(f"it was not open after {self._limit_s:g} s") from error
        return self._kept.value

    def _note_opened(self, opening: asyncio.Task[T]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # told to those who wait; if nobody does any more, the next attempt tells


async def _hold(
    open: Callable[[], AbstractAsyncContextManager[T]],  # noqa: A002 - as in `keep`
    opened: asyncio.Future[T],
    release: asyncio.Event,
) -> None:
    async with open() as value:
        opened.set_result(value)
        await release.wait()


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended; who is cancelled meanwhile passes that on to it."""
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
