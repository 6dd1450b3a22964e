"""Small helpers for several tasks at once, strict about cancellation.

anyio's cancel scopes wait forever for a call that swallows its cancellation, and its task groups, too, raise
an `ExceptionGroup`; so these build on asyncio's own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
T = TypeVar("T")


@overload
async def all_of(one: Coroutine[Any, Any, A], two: Coroutine[Any, Any, B], /) -> tuple[A, B]: ...
@overload
async def all_of(
    one: Coroutine[Any, Any, A], two: Coroutine[Any, Any, B], three: Coroutine[Any, Any, C], /
) -> tuple[A, B, C]: ...
@overload
async def all_of(*calls: Coroutine[Any, Any, T]) -> tuple[T, ...]: ...
async def all_of(*calls: Coroutine[Any, Any, Any]) -> tuple[Any, ...]:
    """Run calls concurrently and return their results in order; the first error cancels the others.

    Unlike with `asyncio.gather`, nothing is left running; unlike with a `TaskGroup`, the error comes bare.

        texts, vectors = await all_of(read(path), embed(query))
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    return tuple(task.result() for task in tasks)


async def comes_first(awaited: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object]) -> bool:
    """Wait for the first of two calls and return whether it was `awaited`; cancel the other."""
    tasks = [asyncio.create_task(one, name="comes first") for one in (awaited, other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_done(
    work: asyncio.Future[T], *, when_cancelled: Callable[[], object] = lambda: None
) -> asyncio.CancelledError | None:
    """Wait until work is done even when cancelled; return the cancellation, for the caller to raise.

    `when_cancelled` is called at each cancellation, for instance to make the work end sooner.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
            when_cancelled()
    return cancelled


async def to_the_end(work: Awaitable[T]) -> T:
    """Await work to completion even when cancelled, and only then raise the cancellation: a thread runs on.

    lines = await to_the_end(asyncio.to_thread(write, folder))  # then nothing writes to the folder any more
    """
    task = asyncio.ensure_future(work)
    cancelled = await until_done(task)
    if cancelled is not None and task.exception() is None:
        raise cancelled
    return task.result()
