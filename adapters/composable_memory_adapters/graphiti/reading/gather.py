"""Asks a database several things at once."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

__all__ = ["all_of", "at_once"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


async def all_of(calls: Iterable[Coroutine[object, object, A]]) -> list[A]:
    """Return what all of them return, in their order; the first error ends the others and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def at_once(
    one: Coroutine[object, object, A],
    other: Coroutine[object, object, B],
    third: Coroutine[object, object, C],
) -> tuple[A, B, C]:
    """Return what three different calls return; the first error ends the others, and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = group.create_task(one), group.create_task(other), group.create_task(third)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return tasks[0].result(), tasks[1].result(), tasks[2].result()
