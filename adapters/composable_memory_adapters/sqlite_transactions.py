"""Transactions and snapshots in which work on an SQLite file runs, and a check for writes by others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apsw import Connection

STEPS_BETWEEN_LOOKS = 20_000
"""How many SQLite VM steps, about a millisecond, pass before a read checks whether it was stopped."""


class Job:
    """Running work that may be stopped.

    Not with `sqlite3_interrupt`, which is lost if it comes just before a statement begins; an endless
    statement would then block its thread for good.
    """

    def __init__(self) -> None:
        self.is_stopped = False

    def may_go_on(self, _cursor: object, _sql: str, _bindings: object) -> bool:
        """Return whether the next statement may begin."""
        return not self.is_stopped

    def must_end(self) -> bool:
        """Return whether the running statement must end."""
        return self.is_stopped


Transaction = Callable[["Connection", Job], AbstractContextManager[None]]


@contextmanager
def write_transaction(connection: Connection, _job: Job) -> Iterator[None]:
    """Store everything the block writes, or nothing if it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # SQLite has already rolled back after a full disk and similar errors.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def read_transaction(connection: Connection, job: Job) -> Iterator[None]:
    """Give the block one snapshot of the file, and end its statements once the job is stopped."""
    connection.exec_trace = job.may_go_on
    connection.set_progress_handler(job.must_end, STEPS_BETWEEN_LOOKS)
    try:
        connection.execute("BEGIN")
        yield
    finally:
        connection.exec_trace = None
        connection.set_progress_handler(None)
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def no_transaction(_connection: Connection, _job: Job) -> Iterator[None]:
    """Run the block without a transaction, which some statements do not allow."""
    yield


def data_version(connection: Connection) -> int:
    """Return a number that changes once another connection has committed something."""
    return int(connection.pragma("data_version"))
