"""What work on an SQLite file runs in, a write transaction or a snapshot, and whether others wrote since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apsw import Connection

STEPS_BETWEEN_LOOKS = 20_000
"""Steps of SQLite's machine, about a millisecond, after which a read looks if it is still wanted."""


class Job:
    """Work under way, which may be stopped.

    Not by `sqlite3_interrupt`: it is lost when it comes just before a statement begins, and then an endless
    statement keeps its thread for good.
    """

    def __init__(self) -> None:
        self.is_stopped = False

    def may_go_on(self, _cursor: object, _sql: str, _bindings: object) -> bool:
        """Return whether the next statement may begin."""
        return not self.is_stopped

    def must_end(self) -> bool:
        """Return whether the running statement has to end."""
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
        # A full disk and the like roll back on their own.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def read_transaction(connection: Connection, job: Job) -> Iterator[None]:
    """Show the block one state of the file, and end its statements once the job is stopped."""
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
    """Run the block as it is: some statements are not allowed in a transaction."""
    yield


def data_version(connection: Connection) -> int:
    """Return a number that is another one once any other connection has stored something."""
    return int(connection.pragma("data_version"))
