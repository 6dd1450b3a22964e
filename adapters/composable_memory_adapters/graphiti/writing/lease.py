"""Lets one worker at a time write to a group; one whose process has ended is soon succeeded.

Two that write to one group at once would each make an entity of a new name. A turn is a row of the ledger,
so it holds between processes. Whoever holds it renews it; one that was not renewed for a while is over.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol, TypeVar
from uuid import uuid4

from composable_memory.errors import BackendError
from composable_memory_adapters.process_identity import host, is_gone, start_of
from composable_memory_adapters.sqlite_file import Connection

__all__ = ["Write", "turn"]

T = TypeVar("T")

LIFETIME_S = 45.0
RENEW_S = 10.0
READ = "SELECT holder FROM turns WHERE group_id = ?"
WRITE = """
INSERT INTO turns (group_id, holder) VALUES (?, ?)
ON CONFLICT (group_id) DO UPDATE SET holder = excluded.holder
"""


class Write(Protocol):
    """Runs work on the ledger's file in a transaction of its own."""

    def __call__(self, work: Callable[[Connection], T], /) -> Awaitable[T]:
        """Do it.

        Raises:
            BackendError: the ledger cannot be written.
        """
        ...


@asynccontextmanager
async def turn(write: Write, group_id: str) -> AsyncIterator[bool]:
    """Hold the turn of a group for the time of the block, if it is free; say whether it is ours.

    Raises:
        BackendError: the ledger cannot be written.
    """
    token = uuid4().hex
    try:
        # Within the block, because a write that has begun is completed though its caller is cancelled.
        if not await write(lambda connection: _take(connection, group_id, token)):
            yield False
            return
        async with _renewed(write, group_id, token):
            yield True
    finally:
        # Without a file to write, the turn runs out by itself.
        with contextlib.suppress(BackendError):
            await write(lambda connection: _give_back(connection, group_id, token))


class _Holder(NamedTuple):
    """Whose turn it is: a token, and a process by host, process number and time of start."""

    token: str
    host: str
    pid: int
    started: str | None
    until: float


def _take(connection: Connection, group_id: str, token: str) -> bool:
    held = _holder(connection, group_id)
    if held is not None and held.token != token and not _is_over(held):
        return False
    pid = os.getpid()
    ours = _Holder(token, host(), pid, start_of(pid), time.time() + LIFETIME_S)
    connection.execute(WRITE, (group_id, json.dumps(ours)))
    return True


def _give_back(connection: Connection, group_id: str, token: str) -> None:
    held = _holder(connection, group_id)
    if held is not None and held.token == token:
        connection.execute(WRITE, (group_id, None))


def _holder(connection: Connection, group_id: str) -> _Holder | None:
    stored = connection.execute(READ, (group_id,)).get
    try:
        held = _Holder(*json.loads(stored)) if stored else None
    except (TypeError, ValueError):
        held = None
    # What is of another shape was not written by anybody who could renew it.
    return held if held and isinstance(held.pid, int) and isinstance(held.until, float) else None


def _is_over(held: _Holder) -> bool:
    # More than a lifetime is left only where the clock was set back: that may be years.
    return not 0 <= held.until - time.time() <= LIFETIME_S or is_gone(
        held.pid, on_host=held.host, started=held.started
    )


@asynccontextmanager
async def _renewed(write: Write, group_id: str, token: str) -> AsyncIterator[None]:
    renewal = asyncio.create_task(_renew(write, group_id, token), name="graphiti-turn")
    try:
        yield
    finally:
        renewal.cancel()
        with contextlib.suppress(asyncio.CancelledError, BackendError):
            await renewal


async def _renew(write: Write, group_id: str, token: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        if not await write(lambda connection: _take(connection, group_id, token)):
            return
