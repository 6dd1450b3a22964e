"""One set of tables in the index file, read and written only as long as its owner may."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from composable_memory_adapters.builtin.store.tables import LIVE, Tables
from composable_memory_adapters.sqlite_file import Connection, SqliteFile

__all__ = ["Guard", "TableSet"]

T = TypeVar("T")

Guard = Callable[[Connection], None]
"""Raises, within a transaction, when the tables are no longer its owner's to write."""


def _open_to_all(_connection: Connection) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSet:
    """Where a sync puts passages: the live tables, or those that a rebuild fills beside them."""

    file: SqliteFile
    tables: Tables = LIVE
    guard: Guard = _open_to_all

    async def read(self, work: Callable[[Connection, Tables], T]) -> T:
        """Run `work` on one snapshot of the file.

        Raises:
            IndexProblem: the file cannot be read.
        """
        return await self.file.read(lambda connection: work(connection, self.tables))

    async def write(self, work: Callable[[Connection, Tables], T]) -> T:
        """Run `work` in a transaction of its own, if the guard lets it.

        Raises:
            IndexProblem: the file cannot be written.
        """

        def guarded(connection: Connection) -> T:
            self.guard(connection)
            return work(connection, self.tables)

        return await self.file.write(guarded)
