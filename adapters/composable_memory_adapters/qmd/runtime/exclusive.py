"""Lets one process at a time do a thing; one that dies, by whatever signal, gives the lock back by that."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.qmd.values import BACKEND_ID

__all__ = ["exclusive"]

POLL_S = 0.05


@asynccontextmanager
async def exclusive(lock_file: Path, *, patience_s: float) -> AsyncIterator[bool]:
    """Hold a lock for the time of the block; say whether it is ours after at most `patience_s`.

    The lock is not handed on to processes that are started meanwhile, nor is its file ever removed.

    Raises:
        BackendUnavailable: the file cannot be opened, or the disk knows no locks.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while (lock := await _attempt(lock_file)) is None and loop.time() < deadline:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(min(POLL_S, deadline - loop.time()))
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


async def _attempt(lock_file: Path) -> int | None:
    """Return the descriptor that holds the lock, or None if somebody else has it."""
    attempt = asyncio.get_running_loop().run_in_executor(None, _take, lock_file)
    try:
        return await asyncio.shield(attempt)
    except asyncio.CancelledError:
        attempt.add_done_callback(_drop)  # the thread goes on, and may take what nobody wants any more
        raise


def _take(lock_file: Path) -> int | None:
    try:
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _no_lock(lock_file, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise _no_lock(lock_file, error) from error
    return descriptor


def _drop(attempt: asyncio.Future[int | None]) -> None:
    if not attempt.cancelled() and attempt.exception() is None and (lock := attempt.result()) is not None:
        os.close(lock)


def _no_lock(lock_file: Path, error: OSError) -> BackendUnavailable:
    return BackendUnavailable(
        BACKEND_ID,
        f"{lock_file} cannot be locked ({error.strerror})",
        fix="put the state folder where this user may write, on a disk that knows locks",
        operation="wait for its turn",
    )
