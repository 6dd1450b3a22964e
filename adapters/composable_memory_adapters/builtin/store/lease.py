"""Lets one process at a time do a long piece of work on an index; one that dies is soon succeeded.

The lease is a row of the index_meta table, so it is as shared as the index. Whoever holds it renews it; a
lease that was not renewed for a while, or whose process is gone, is free.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple
from uuid import uuid4

from composable_memory.errors import IndexProblem
from composable_memory_adapters.builtin.store import index_meta
from composable_memory_adapters.process_identity import host, is_gone, start_of
from composable_memory_adapters.sqlite_file import Connection, SqliteFile

__all__ = ["is_free", "take", "turn"]

KEY = "lease"
LIFETIME_S = 45.0
RENEW_S = 10.0
POLL_S = 0.5


@asynccontextmanager
async def take(file: SqliteFile) -> AsyncIterator[bool]:
    """Hold the lease for the time of the block, if it is free; say whether it is ours.

    Raises:
        IndexProblem: the index cannot be written.
    """
    token = uuid4().hex
    try:
        # Within the block, because a write that has begun is completed though its caller is cancelled.
        if not await file.write(lambda connection: _acquire(connection, token)):
            yield False
            return
        async with _renewed(file, token):
            yield True
    finally:
        # Without a file to write, the lease runs out by itself.
        with contextlib.suppress(IndexProblem):
            await file.write(lambda connection: _release(connection, token))


@asynccontextmanager
async def turn(
    file: SqliteFile,
    *,
    is_needed: Callable[[], Awaitable[bool]],
    while_waiting: Callable[[], Awaitable[None]],
) -> AsyncIterator[bool]:
    """Hold the lease as soon as it is free; False when what it is for `is_needed` no more.

    Others who hold it may have done our work. `while_waiting` is awaited again and again until then.

    Raises:
        IndexProblem: the index cannot be written.
    """
    while True:
        async with take(file) as is_ours:
            if is_ours:
                yield await is_needed()
                return
        if not await is_needed():
            yield False
            return
        await while_waiting()
        await asyncio.sleep(POLL_S)


def is_free(connection: Connection) -> bool:
    """Say whether nobody holds the lease."""
    held = _read(connection)
    if held is None:
        return True
    # More than a lifetime is left only where the clock was set back: that may be years.
    return not 0 <= held.until - time.time() <= LIFETIME_S or is_gone(
        held.pid, on_host=held.host, started=held.started
    )


class _Held(NamedTuple):
    """Who holds the lease: a token, and a process that is named by host, process number and time of start."""

    token: str
    host: str
    pid: int
    started: str | None
    until: float


def _read(connection: Connection) -> _Held | None:
    stored = index_meta.value(connection, KEY)
    try:
        held = _Held(*json.loads(stored)) if stored else None
    except (TypeError, ValueError):
        held = None
    # What is of another shape was not written by anybody who could renew it.
    return held if held and isinstance(held.pid, int) and isinstance(held.until, float) else None


def _acquire(connection: Connection, token: str) -> bool:
    held = _read(connection)
    if not is_free(connection) and held is not None and held.token != token:
        return False
    pid = os.getpid()
    ours = _Held(token, host(), pid, start_of(pid), time.time() + LIFETIME_S)
    index_meta.set_value(connection, KEY, json.dumps(ours))
    return True


def _release(connection: Connection, token: str) -> None:
    held = _read(connection)
    if held is not None and held.token == token:
        index_meta.set_value(connection, KEY, None)


@asynccontextmanager
async def _renewed(file: SqliteFile, token: str) -> AsyncIterator[None]:
    renewal = asyncio.create_task(_renew(file, token), name="builtin-lease")
    try:
        yield
    finally:
        renewal.cancel()
        with contextlib.suppress(asyncio.CancelledError, IndexProblem):
            await renewal


async def _renew(file: SqliteFile, token: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        if not await file.write(lambda connection: _acquire(connection, token)):
            return
