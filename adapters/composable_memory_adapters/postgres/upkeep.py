"""Postings of a large workspace: made when it has too many passages to look at each, dropped below."""

from composable_memory_adapters.postgres.server import Connection
from composable_memory_adapters.postgres.writing import LOCK, PUT_POSTINGS

SHRUNK = 0.8
"""They are dropped below this share of the limit, so that those of a workspace near it do not come and go."""

AT_ONCE = 4096
"""The words of so many passages are put into postings by one statement."""

LOOK = """
SELECT is_indexed, (SELECT count(*) FROM passages WHERE tenant = $1) FROM workspaces WHERE tenant = $1
"""
ALL_IDS = "SELECT id FROM passage_words WHERE tenant = $1 ORDER BY id"
DROP_POSTINGS = "DELETE FROM postings WHERE tenant = $1"
SET_INDEXED = "UPDATE workspaces SET is_indexed = $2 WHERE tenant = $1"


async def is_due(connection: Connection, tenant: int, *, limit: int) -> bool:
    """Return whether `keep_up` has something to do."""
    return await _wanted(connection, tenant, limit) is not None


async def keep_up(connection: Connection, tenant: int, *, limit: int) -> None:
    """Make the postings of a workspace with more than `limit` passages, or drop those of a smaller one.

    It is searched as it was meanwhile, and others are written.
    """
    await connection.execute(LOCK, tenant)
    is_wanted = await _wanted(connection, tenant, limit)
    if is_wanted is None:
        return  # somebody else was here
    await connection.execute(DROP_POSTINGS, tenant)
    if is_wanted:
        ids = [row["id"] for row in await connection.fetch(ALL_IDS, tenant)]
        for start in range(0, len(ids), AT_ONCE):
            await connection.execute(PUT_POSTINGS, tenant, ids[start : start + AT_ONCE])
    await connection.execute(SET_INDEXED, tenant, is_wanted)


async def _wanted(connection: Connection, tenant: int, limit: int) -> bool | None:
    """Return whether a workspace is to have postings; None where that is so already."""
    is_indexed, passages = await connection.fetchrow(LOOK, tenant)
    is_wanted = bool(passages > (limit * SHRUNK if is_indexed else limit))
    return None if is_wanted is is_indexed else is_wanted
