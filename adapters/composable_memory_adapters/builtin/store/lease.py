"""The lease on an index: one process at a time does long work on it, such as a rebuild or an embedding."""

from composable_memory.supervision.lease import Lease, LeaseRow
from composable_memory_adapters.builtin.store.index_meta import set_value, value
from composable_memory_adapters.sqlite_file import Connection, SqliteFile

__all__ = ["is_lease_free", "lease"]

KEY = "lease"


def lease(file: SqliteFile) -> Lease[Connection]:
    """Return the lease for a long piece of work on an index; it is as shared as the index."""
    return Lease(_LEASE, file.write, name="builtin")


def is_lease_free(connection: Connection) -> bool:
    """Return whether no process is at a long piece of work."""
    return _LEASE.is_free(connection)


_LEASE: LeaseRow[Connection] = LeaseRow(
    lambda connection: value(connection, KEY),
    lambda connection, holder: set_value(connection, KEY, holder),
)
