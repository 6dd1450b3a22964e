"""An index of approximate neighbours over the vectors of facts, which FalkorDB keeps in step itself.

It pays from some thousand facts on: an exact search compares the question with each of them. The index finds
about 95 of 100 true neighbours, so more are asked for than are wanted.
"""

import asyncio
from typing import Literal

from composable_memory.errors import BackendRejected
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.reading.dialects import dialect_of
from composable_memory_adapters.graphiti.reading.rows import number_in
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

AUTO_FACTS = 5_000
"""From so many facts of a group on, `auto` wants an index."""

OVERFETCH = 4
"""How many more neighbours to ask for: some are missed, and others fall to the filters."""

MOST_LOOKS = 100
BETWEEN_LOOKS_S = 0.02
"""How often, and how far apart, it is looked whether an index that was dropped is gone."""

IndexChange = Literal["created", "dropped", "none"]

INDEXES = """
CALL db.indexes() YIELD label, types, options, status WHERE label = 'RELATES_TO'
RETURN types.fact_embedding AS types, options.fact_embedding AS options, status
"""
COUNT = "MATCH ()-[e:RELATES_TO]->() RETURN count(e) AS facts"
# An index takes its length as a literal only; it is a whole number here.
CREATE = """
CREATE VECTOR INDEX FOR ()-[e:RELATES_TO]->() ON (e.fact_embedding)
OPTIONS {{dimension: {dimensions:d}, similarityFunction: 'cosine'}}
"""
DROP = "DROP VECTOR INDEX FOR ()-[e:RELATES_TO]->() ON (e.fact_embedding)"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorIndex:
    """An index that is there: the length of its vectors, and whether it holds all facts already."""

    dimensions: int
    is_ready: bool


def wants_index(settings: SearchSettings, facts: int) -> bool:
    """Return whether a group of so many facts is to have an index."""
    return settings.vector_index == "on" or (settings.vector_index == "auto" and facts >= AUTO_FACTS)


async def indexed(database: CypherDatabase, group_id: str) -> VectorIndex | None:
    """Return the index of a group, if it has one."""
    if not dialect_of(database.kind).has_vector_index:
        return None
    for row in await database.read(group_id, INDEXES):
        options = row["options"]
        if "VECTOR" in _names(row["types"]) and isinstance(options, dict):
            return VectorIndex(
                dimensions=int(options["dimension"]), is_ready="OPERATIONAL" in str(row["status"])
            )
    return None


async def arrange(
    database: CypherDatabase, group_id: str, settings: SearchSettings, *, dimensions: int
) -> IndexChange:
    """Bring the index of a group in step with the settings and the length of its vectors.

    The database fills a new index in its own time; until then searches are exact.
    """
    dialect = dialect_of(database.kind)
    rows = await database.read(group_id, COUNT) if dialect.has_vector_index else []
    facts = number_in(rows[0], "facts") if rows else 0
    present = await indexed(database, group_id)
    wanted = bool(facts) and wants_index(settings, facts)
    if present is not None and (not wanted or present.dimensions != dimensions):
        await database.write(group_id, DROP)
        await _gone(database, group_id)
    elif present is not None or not wanted:
        return "none"
    if not wanted:
        return "dropped"
    try:
        await database.write(group_id, CREATE.format(dimensions=dimensions))
    except BackendRejected:
        if await indexed(database, group_id) is None:
            raise
        return "none"  # another process was quicker
    return "created"


async def _gone(database: CypherDatabase, group_id: str) -> None:
    """Wait until a dropped index is no longer listed: for a moment it is, and keeps a new one out."""
    for _ in range(MOST_LOOKS):
        if await indexed(database, group_id) is None:
            return
        await asyncio.sleep(BETWEEN_LOOKS_S)


def _names(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
