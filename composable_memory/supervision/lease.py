"""A lease in a shared table: one process at a time does some work, and another soon takes over if it dies.

The lease is a text in a database that the processes share. The holder renews it; a lease that was not renewed
for a while, or whose process is gone, is free. A file lock (`file_lock`) needs no renewal, but only works on
one machine and needs a file for each thing to lock.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from composable_memory.errors import ComposableMemoryError
from composable_memory.supervision.process_identity import host, is_gone, start_of
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")
Connection = TypeVar("Connection")
Connection_co = TypeVar("Connection_co", covariant=True)

LIFETIME_S = 45.0
RENEW_S = 10.0
POLL_S = 0.5
"""Seconds between attempts to get a lease that another process holds."""


class Transact(Protocol[Connection_co]):
    """Runs a function on a database in its own write transaction."""

    def __call__(self, work: Callable[[Connection_co], T], /) -> Awaitable[T]:
        """Return what the function returns.

        Raises:
            ComposableMemoryError: the database cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class LeaseRow(Generic[Connection]):
    """Where a lease is stored: how to read and write its text; None means that there is no lease."""

    read: Callable[[Connection], str | None]
    write: Callable[[Connection, str | None], object]

    def is_free(self, connection: Connection) -> bool:
        """Return whether nobody holds the lease."""
        held = self.holder(connection)
        return held is None or held.is_over()

    def holder(self, connection: Connection) -> "Holder | None":
        """Return who holds the lease, or last held it without releasing it."""
        stored = self.read(connection)
        try:
            held = Holder(*json.loads(stored)) if stored else None
        except (TypeError, ValueError):
            held = None
        # Anything else was not written by a process that could renew it.
        return held if held and isinstance(held.pid, int) and isinstance(held.until, float) else None


class Holder(NamedTuple):
    """Who holds a lease: a token, and a process by host, PID and start time; stored as a JSON list."""

    token: str
    host: str
    pid: int
    started: str | None
    until: float

    @classmethod
    def now(cls, token: str) -> "Holder":
        """Return this process as holder for one lifetime from now on."""
        pid = os.getpid()
        return cls(token, host(), pid, start_of(pid), time.time() + LIFETIME_S)

    def is_over(self) -> bool:
        """Return whether the lease was not renewed in time, or its holder is certainly gone."""
        # More than a lifetime is left only if the clock was set back, perhaps by years.
        return not 0 <= self.until - time.time() <= LIFETIME_S or is_gone(
            self.pid, on_host=self.host, started=self.started
        )


class Lease(Generic[Connection]):
    """A lease on one thing; any number of `Lease`s may use the same row.

    async with Lease(row, file.write, name="rebuild").acquire() as is_ours:
        if is_ours:
            await rebuild()
    """

    def __init__(self, row: LeaseRow[Connection], transact: Transact[Connection], *, name: str) -> None:
        """Create a lease on `row` in the database that `transact` writes; `name` is for the renewing task."""
        self._row = row
        self._transact = transact
        self._name = name

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[bool]:
        """Hold the lease during the block if it is free; yields whether we have it.

        Raises:
            ComposableMemoryError: the database cannot be written.
        """
        token = uuid4().hex
        try:
            # Inside the block, because a write that has begun is completed even if its caller is cancelled.
            if not await self._transact(lambda connection: self._take(connection, token)):
                yield False
                return
            async with self._renewed(token):
                yield True
        finally:
            # If the database cannot be written now, the lease expires by itself.
            with contextlib.suppress(ComposableMemoryError):
                await self._transact(lambda connection: self._release(connection, token))

    def _take(self, connection: Connection, token: str) -> bool:
        held = self._row.holder(connection)
        if held is not None and held.token != token and not held.is_over():
            return False
        self._row.write(connection, json.dumps(Holder.now(token)))
        return True

    def _release(self, connection: Connection, token: str) -> None:
        held = self._row.holder(connection)
        if held is not None and held.token == token:
            self._row.write(connection, None)

    @asynccontextmanager
    async def _renewed(self, token: str) -> AsyncIterator[None]:
        renewal = asyncio.create_task(self._renew(token), name=f"{self._name} lease")
        try:
            yield
        finally:
            renewal.cancel()
            with contextlib.suppress(asyncio.CancelledError, ComposableMemoryError):
                await renewal

    async def _renew(self, token: str) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            if not await self._transact(lambda connection: self._take(connection, token)):
                return
