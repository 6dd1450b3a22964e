"""Resources that stay open longer than one block, opened at once or when first needed.

A task group or cancel scope (asyncio's or anyio's) has to be entered and left by the same task. Code that
opens a resource in one call and closes it in another has no such task, so each resource here gets its own.
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
    """Something that has to be closed."""

    async def close(self) -> None:
        """Release everything."""


ClosableT = TypeVar("ClosableT", bound=Closable)


class Resource(Generic[T]):
    """The value of an async context manager, open until `close`; created by `open_resource`."""

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
        """Return whether it is fully closed; after `close` was called it may still be closing."""
        return self._holder.done()

    async def close(self) -> None:
        """Exit the context manager; further calls wait for the same exit.

        Cancelling a call stops the waiting, not the closing.

        Raises:
            Exception: whatever the exit raised, or what ended the resource before.
        """
        self._release.set()
        await self.wait_closed()
        if not self._holder.cancelled():
            self._holder.result()

    async def wait_closed(self) -> None:
        """Wait until it is closed by anyone, without raising what closing raised."""
        await asyncio.wait([self._holder])


async def open_resource(
    open: Callable[[], AbstractAsyncContextManager[T]],  # noqa: A002 - it says what it is
) -> Resource[T]:
    """Enter the context manager that `open` returns, in its own task, which will also exit it.

    The task starts in an empty context: what outlives a request does not belong to its trace. If the call is
    cancelled, it ends once everything it opened is closed again.

        server = await open_resource(partial(connect, url))
        server.value.ask(…)
        await server.close()  # perhaps from another task

    Raises:
        Exception: whatever opening raised.
        RuntimeError: the opening was cancelled from inside.
    """
    opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    release = asyncio.Event()
    holder = asyncio.create_task(_hold(open, opened, release), name="resource", context=Context())
    either: tuple[asyncio.Task[None] | asyncio.Future[T], ...] = (holder, opened)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        release.set()  # for code that swallows the cancellation and opens anyway
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
    """A resource that is opened when first needed, once for all waiting callers; open until `close`.

    A caller that stops waiting does not stop the opening, which may take up to `limit_s` seconds. A resource
    that was closed, or ended by itself, is opened again when next needed.

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
        """Return the value if it is open, else None."""
        return self._resource.value if self._resource is not None and self._resource.is_open else None

    @property
    def is_idle(self) -> bool:
        """Return whether it is closed and not opening."""
        return self._opening is None and (self._resource is None or self._resource.is_closed)

    async def get(self) -> T:
        """Return the value, opening the resource first if needed.

        Raises:
            Exception: whatever opening raised.
            TimeoutError: it did not open within the limit.
            RuntimeError: it was closed while opening.
        """
        if self._resource is not None and self._resource.is_open:
            return self._resource.value
        if self._opening is None:
            self._opening = asyncio.create_task(self._open_once(), name="open resource")
            self._opening.add_done_callback(self._opening_ended)
        opening = self._opening
        await asyncio.wait([opening])
        if opening.cancelled():
            raise RuntimeError("it was closed while it opened")
        return opening.result()

    async def close(self) -> None:
        """Close it if it is open, or stop opening it.

        Raises:
            Exception: whatever closing raised.
        """
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._resource is not None:
            await self._resource.close()

    async def _open_once(self) -> T:
        if self._resource is not None:  # two of a kind would get in each other's way
            await self._resource.wait_closed()
        try:
            async with asyncio.timeout(self._limit_s) as deadline:
                self._resource = await open_resource(self._open)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise TimeoutError(f"it was not open after {self._limit_s:g} s") from error
        return self._resource.value

    def _opening_ended(self, opening: asyncio.Task[T]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # mark as retrieved: nobody may be waiting any more


async def _hold(
    open: Callable[[], AbstractAsyncContextManager[T]],  # noqa: A002 - as above
    opened: asyncio.Future[T],
    release: asyncio.Event,
) -> None:
    async with open() as value:
        opened.set_result(value)
        await release.wait()


def lazy_open(name: str) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Return a function that imports the named opener in a thread when first called, and calls it.

    Listing backends and embedders must not import them, and an import that takes a second must not block the
    event loop.

        spec = BackendSpec(id="mine", open=lazy_open("my_backend.memory:open_memory"), …)
    """

    @asynccontextmanager
    async def opened(*given: Any) -> AsyncIterator[Any]:
        opener = await asyncio.to_thread(resolve_name, name)
        async with opener(*given) as found:
            yield found

    return opened


def lazy_call(name: str) -> Callable[..., Any]:
    """Return a function that imports the named one when it is called, and calls it."""
    return lambda *given: resolve_name(name)(*given)


@asynccontextmanager
async def closing(thing: ClosableT) -> AsyncIterator[ClosableT]:
    """Yield `thing`, and close it when the block ends."""
    try:
        yield thing
    finally:
        await thing.close()


class Once(Generic[T]):
    """Work that is done once for all callers; cancelling one of them does not stop it.

    self._close = Once(self._release, name="close the index")
    await self._close()
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], *, name: str) -> None:
        self._work = work
        self._name = name
        self._task: asyncio.Task[T] | None = None

    @property
    def has_begun(self) -> bool:
        """Return whether it was called."""
        return self._task is not None

    async def __call__(self) -> T:
        """Return the result, starting the work if this is the first call."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=self._name)
        return await asyncio.shield(self._task)
