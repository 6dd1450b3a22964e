"""A lease in a shared table: one process at a time does a piece of work, and a dead one is soon succeeded.

The lease is a text in a database that all processes share. The holder renews it; a lease that has not been
renewed for a while, or whose process is gone, is free. A file lock (`file_lock`) needs no renewal, but holds
only on one machine and needs a file for each thing to be locked.
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
"""How long to wait before asking again for a lease that another process holds."""


class Transact(Protocol[Connection_co]):
    """Runs work on a database in a write transaction of its own."""

    def __call__(self, work: Callable[[Connection_co], T], /) -> Awaitable[T]:
        """Return what the work returns.

        Raises:
            ComposableMemoryError: the database cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True)
class LeaseRow(Generic[Connection]):
    """Where a lease is kept: how to read its text, and how to write it; None stands for no lease."""

    read: Callable[[Connection], str | None]
    write: Callable[[Connection, str | None], object]

    def is_free(self, connection: Connection) -> bool:
        """Return whether nobody holds the lease."""
        held = self.holder(connection)
        return held is None or held.is_over()

    def holder(self, connection: Connection) -> "Holder | None":
        """Return who holds the lease, or held it last and never released it."""
        stored = self.read(connection)
        try:
            held = Holder(*json.loads(stored)) if stored else None
        except (TypeError, ValueError):
            held = None
        # What is of another shape was not written by anybody who could renew it.
        return held if held and isinstance(held.pid, int) and isinstance(held.until, float) else None


class Holder(NamedTuple):
    """Who holds a lease: a token, and a process by host, process number and start; stored as a JSON list."""

    token: str
    host: str
    pid: int
    started: str | None
    until: float

    @classmethod
    def now(cls, token: str) -> "Holder":
        """Return this process as a holder, for a lifetime from now on."""
        pid = os.getpid()
        return cls(token, host(), pid, start_of(pid), time.time() + LIFETIME_S)

    def is_over(self) -> bool:
        """Return whether the lease was not renewed in time, or its holder is certainly gone."""
        # More than a lifetime is left only where the clock was set back: that may be years.
        return not 0 <= self.until - time.time() <= LIFETIME_S or is_gone(
            self.pid, on_host=self.host, started=self.started
        )


class Lease(Generic[Connection]):
    """A lease on one thing; as many `Lease`s as you like may name the same row.

    async with Lease(row, file.write, name="rebuild").acquire() as is_ours:
        if is_ours:
            await rebuild()
    """

    def __init__(self, row: LeaseRow[Connection], transact: Transact[Connection], *, name: str) -> None:
        """Make a lease on `row` of what `transact` writes to; `name` is for the task that renews it."""
        self._row = row
        self._transact = transact
        self._name = name

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[bool]:
        """Hold the lease during the block if it is free; yields whether it is ours.

        Raises:
            ComposableMemoryError: the database cannot be written.
        """
        token = uuid4().hex
        try:
            # Within the block, because a write that has begun is completed though its caller is cancelled.
            if not await self._transact(lambda connection: self._take(connection, token)):
                yield False
                return
            async with self._renewed(token):
                yield True
        finally:
            # If the database cannot be written now, the lease runs out by itself.
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
