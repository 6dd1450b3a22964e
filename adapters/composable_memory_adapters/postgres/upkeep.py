"""Postings of a large workspace: made when it has too many passages to look at each, dropped below.

Both go by steps, a transaction each, so that others write in between. Passages get their ids in the order in
which they are written: those up to `indexed_to` have postings already, later ones get them by a later step.
"""

from composable_memory_adapters.postgres.server import Connection
from composable_memory_adapters.postgres.writing import LOCK, PUT_POSTINGS

SHRUNK = 0.8
"""They are dropped below this share of the limit, so that those of a workspace near it do not come and go."""

AT_ONCE = 4096
"""The words of so many passages are put into postings by one step."""

ROWS_AT_ONCE = 50_000
"""So many postings are dropped by one step."""

LOOK = """
SELECT is_indexed, indexed_to, (SELECT count(*) FROM passages WHERE tenant = $1) AS passages,
  EXISTS (SELECT FROM postings WHERE tenant = $1) AS has_postings
FROM workspace_states WHERE tenant = $1
"""
NEXT_IDS = "SELECT id FROM passage_words WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3"
DROP_POSTINGS = """
DELETE FROM postings USING (
  SELECT word, block FROM postings WHERE tenant = $1 ORDER BY word, block LIMIT $2
) AS gone
WHERE postings.tenant = $1 AND postings.word = gone.word AND postings.block = gone.block
"""
SET_INDEXED = "UPDATE workspace_states SET is_indexed = $2, indexed_to = $3 WHERE tenant = $1"


async def is_due(connection: Connection, tenant: int, *, limit: int) -> bool:
    """Return whether `keep_up` has something to do."""
    found = await connection.fetchrow(LOOK, tenant)
    if found is None:  # nothing was ever written
        return False
    is_indexed, _, passages, has_postings = found
    is_wanted = _is_wanted(passages, limit, is_indexed)
    return is_wanted is not is_indexed or (has_postings and not is_wanted)


async def keep_up(connection: Connection, tenant: int, *, limit: int) -> bool:
    """Make some postings of a workspace with more than `limit` passages, or drop some of a smaller one.

    Returns whether more is to be done. It is searched as it was until all are made.
    """
    await connection.execute(LOCK, tenant)
    is_indexed, indexed_to, passages, has_postings = await connection.fetchrow(LOOK, tenant)
    is_wanted = _is_wanted(passages, limit, is_indexed)
    if is_wanted and is_indexed:
        return False  # somebody else was here
    if has_postings and not (is_wanted and indexed_to):
        await connection.execute(SET_INDEXED, tenant, False, 0)
        await connection.execute(DROP_POSTINGS, tenant, ROWS_AT_ONCE)
        return True
    if not is_wanted:
        await connection.execute(SET_INDEXED, tenant, False, 0)
        return False
    ids = [row["id"] for row in await connection.fetch(NEXT_IDS, tenant, indexed_to, AT_ONCE)]
    await connection.execute(PUT_POSTINGS, tenant, ids)
    is_done = len(ids) < AT_ONCE
    await connection.execute(SET_INDEXED, tenant, is_done, ids[-1] if ids else indexed_to)
    return not is_done


def _is_wanted(passages: int, limit: int, is_indexed: bool) -> bool:
    return passages > (limit * SHRUNK if is_indexed else limit)
