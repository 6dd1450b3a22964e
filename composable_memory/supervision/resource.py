"""Resources that stay open beyond one block, opened right away or when first needed.

Task groups and cancel scopes (asyncio's and anyio's) have to be entered and left by one task. Whoever opens
something in one call and closes it in another has no such task of its own, so each resource here gets one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from pkgutil import resolve_name
from typing import Any, Generic, Protocol, TypeVar

from composable_memory.supervision.tasks import until_done

T = TypeVar("T")


class Closable(Protocol):
    """What has to be closed."""

    async def close(self) -> None:
        """Release everything."""


ClosableT = TypeVar("ClosableT", bound=Closable)


class Resource(Generic[T]):
    """What an async context manager yielded, open until `close`; made by `open_resource`."""

    def __init__(self, value: T, holder: asyncio.Task[None], release: asyncio.Event) -> None:
        self.value = value
        self._holder = holder
        self._release = release

    @property
    def is_open(self) -> bool:
        """Return whether it can be used: it was not closed and has not ended by itself."""
        return not self._release.is_set() and not self._holder.done()

    @property
    def is_closed(self) -> bool:
        """Return whether nothing of it is left; between open and closed it is closing."""
        return self._holder.done()

    async def close(self) -> None:
        """Leave the context manager; calling it again waits for the same end.

        Cancelling a call ends its wait, not the closing.

        Raises:
            Exception: whatever leaving raised, or what ended it before.
        """
        self._release.set()
        await self.wait_closed()
        if not self._holder.cancelled():
            self._holder.result()

    async def wait_closed(self) -> None:
        """Wait until it is closed, whoever closes it and whatever that raises."""
        await asyncio.wait([self._holder])


async def open_resource(
    open: Callable[[], AbstractAsyncContextManager[T]],  # noqa: A002 - it says what it is
) -> Resource[T]:
    """Enter the context manager that `open` returns, in a task of its own that will also leave it.

    The task starts in an empty context: what outlives a request does not belong to its trace. A call that is
    cancelled ends when all that was opened is closed again.

        server = await open_resource(partial(connect, url))
        server.value.ask(…)
        await server.close()  # perhaps from another task

    Raises:
        Exception: whatever opening raised.
        RuntimeError: the opening was cancelled from within.
    """
    opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    release = asyncio.Event()
    holder = asyncio.create_task(_hold(open, opened, release), name="resource", context=Context())
    either: tuple[asyncio.Task[None] | asyncio.Future[T], ...] = (holder, opened)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        release.set()  # for what swallows a cancellation and opens nevertheless
        holder.cancel()
        await until_done(holder, when_cancelled=holder.cancel)
        raise
    if opened.done():
        return Resource(opened.result(), holder, release)
    if holder.cancelled():
        raise RuntimeError("it was cancelled from within while it opened")
    holder.result()
    raise RuntimeError("the context manager did not yield")


class LazyResource(Generic[T]):
    """A resource that is opened when first needed, once for all who wait for it; open until `close`.

    A caller who stops waiting does not stop the opening, which may take `limit_s` seconds. A resource that
    was closed, or ended by itself, is opened again when it is next needed.

        store = LazyResource(partial(open_store, path), limit_s=10.0)
        (await store.get()).read(key)
    """

    def __init__(
        self,
        open: Callable[[], AbstractAsyncContextManager[T]],  # noqa: A002 - as above
        *,
        limit_s: float | None = None,
    ) -> None:
        self._open = open
        self._limit_s = limit_s
        self._resource: Resource[T] | None = None
        self._opening: asyncio.Task[T] | None = None

    @property
    def value(self) -> T | None:
        """Return it if it is open, else None."""
        return self._resource.value if self._resource is not None and self._resource.is_open else None

    @property
    def is_idle(self) -> bool:
        """Return whether it is closed and not about to open."""
        return self._opening is None and (self._resource is None or self._resource.is_closed)

    async def get(self) -> T:
        """Return it, opening it first if need be.

        Raises:
            Exception: whatever opening raised.
            TimeoutError: it did not open within the limit.
            RuntimeError: it was closed while it opened.
        """
        if self._resource is not None and self._resource.is_open:
            return self._resource.value
        if self._opening is None:
            self._opening = asyncio.create_task(self._opened(), name="open resource")
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
        if self._resource is not None:
            await self._resource.close()

    async def _opened(self) -> T:
        if self._resource is not None:  # two of one kind would get into each other's way
            await self._resource.wait_closed()
        try:
            async with asyncio.timeout(self._limit_s) as deadline:
                self._resource = await open_resource(self._open)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise TimeoutError(f"it was not open after {self._limit_s:g} s") from error
        return self._resource.value

    def _note_opened(self, opening: asyncio.Task[T]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # those who wait get it; if nobody does any more, the next attempt will tell


async def _hold(
    open: Callable[[], AbstractAsyncContextManager[T]],  # noqa: A002 - as above
    opened: asyncio.Future[T],
    release: asyncio.Event,
) -> None:
    async with open() as value:
        opened.set_result(value)
        await release.wait()


def lazy_open(name: str) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Return what opens something by a function of this name, imported in a thread when it is first opened.

    Listing backends and embedders must not load them, and an import of a second must not hold up the event
    loop.

        spec = BackendSpec(id="mine", open=lazy_open("my_backend.memory:open_memory"), …)
    """

    @asynccontextmanager
    async def opened(*given: Any) -> AsyncIterator[Any]:
        opener = await asyncio.to_thread(resolve_name, name)
        async with opener(*given) as found:
            yield found

    return opened


@asynccontextmanager
async def closing(thing: ClosableT) -> AsyncIterator[ClosableT]:
    """Yield something, and close it when the block ends."""
    try:
        yield thing
    finally:
        await thing.close()


class Once(Generic[T]):
    """Work that is done once for all who ask for it; a caller who is cancelled does not stop it.

    self._close = Once(self._release, name="close the index")
    await self._close()
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], *, name: str) -> None:
        self._work = work
        self._name = name
        self._task: asyncio.Task[T] | None = None

    @property
    def has_begun(self) -> bool:
        """Return whether anybody has asked for it."""
        return self._task is not None

    async def __call__(self) -> T:
        """Return what came of it, starting it if nobody has yet."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=self._name)
        return await asyncio.shield(self._task)
