"""A file lock between processes, released when its holder dies, however that happens.

Not by the filelock package: when it releases a lock, a child that inherited the lock loses it too, and the
graph server holds its lock in just this way for as long as it lives.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from composable_memory.errors import BackendUnavailable

POLL_S = 0.05


@asynccontextmanager
async def file_lock(path: Path, *, owner: str, patience_s: float) -> AsyncIterator[bool]:
    """Hold a lock during the block; yields whether we have it, after waiting at most `patience_s` seconds.

    `path` is a file, created if missing and never removed, or an existing folder. Processes started meanwhile
    do not inherit the lock.

        async with file_lock(home / "export.lock", owner="qmd", patience_s=5.0) as is_ours:
            if is_ours:
                await export()

    Raises:
        BackendUnavailable: the file cannot be opened, or its disk does not support locks; it names `owner`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    try:
        while (lock := await _attempt(path)) is None and loop.time() < deadline:  # noqa: ASYNC110 - no event
            await asyncio.sleep(min(POLL_S, deadline - loop.time()))
    except OSError as error:
        raise BackendUnavailable(
            owner,
            f"{path} cannot be locked ({error.strerror})",
            fix="put the state folder where this user may write, on a disk that supports locks",
            operation="wait for its turn",
        ) from error
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def hold_lock(path: Path) -> Iterator[int | None]:
    """Hold a lock during the block, and longer if a child inherits it. Blocks, but never waits.

    Yields the descriptor, or None if another process holds the lock.

    Raises:
        OSError: the file cannot be opened, or its disk does not support locks.
    """
    lock = _take(path)
    try:
        yield lock
    finally:
        if lock is not None:
            os.close(lock)  # not LOCK_UN, which would take the lock from a child as well


async def _attempt(path: Path) -> int | None:
    attempt = asyncio.get_running_loop().run_in_executor(None, _take, path)
    try:
        return await asyncio.shield(attempt)
    except asyncio.CancelledError:
        attempt.add_done_callback(_drop)  # the thread runs on, and may take a lock that is no longer wanted
        raise


def _take(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None if another process has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except IsADirectoryError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _drop(attempt: asyncio.Future[int | None]) -> None:
    if not attempt.cancelled() and attempt.exception() is None and (lock := attempt.result()) is not None:
        os.close(lock)
