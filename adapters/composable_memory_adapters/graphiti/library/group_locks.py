"""One at a time in each group: what is read, changed and written back must not overlap within a process."""

import asyncio

__all__ = ["GroupLocks"]


class GroupLocks:
    """A lock for each group, shared by all that write to a database. Belongs to one event loop."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    def of(self, group_id: str) -> asyncio.Lock:
        """Return the lock of a group."""
        return self._locks.setdefault(group_id, asyncio.Lock())
