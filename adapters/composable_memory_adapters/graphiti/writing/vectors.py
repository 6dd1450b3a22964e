"""Gives vectors to the names and facts of a group that have none, in the space of the present embedder."""

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.library.space import claim_space, space_of, stored_space
from composable_memory_adapters.graphiti.writing import statements
from composable_memory_adapters.graphiti.writing.group_repository import batches

__all__ = ["embed_anew"]

BATCH = 256


async def embed_anew(database: CypherDatabase, group_id: str, embedder: EmbedderAdapter) -> int:
    """Embed what has no vector; after a change of the embedder, everything. Return how many texts.

    The vectors of another space go first, so that one comparison never meets both. What was cut off goes on
    where it was.
    """
    space = await space_of(embedder)
    if await stored_space(database, group_id) != space:
        for statement in statements.CLEAR_VECTORS:
            await database.write(group_id, statement)
        await claim_space(database, group_id, space)
    names = await _fill(
        database,
        group_id,
        embedder,
        statements.NAMES_WITHOUT_VECTOR,
        statements.SET_NAME_VECTORS[database.kind],
    )
    facts = await _fill(
        database,
        group_id,
        embedder,
        statements.FACTS_WITHOUT_VECTOR,
        statements.SET_FACT_VECTORS[database.kind],
    )
    return names + facts


async def _fill(
    database: CypherDatabase, group_id: str, embedder: EmbedderAdapter, find: str, store: str
) -> int:
    rows = await database.read(group_id, find)
    for batch in batches(rows, BATCH):
        vectors = await embedder.embed_batch([EmbedderInput(text=str(row["text"] or "")) for row in batch])
        found = [
            {"uuid": row["uuid"], "vector": [float(value) for value in vector]}
            for row, vector in zip(batch, vectors, strict=True)
        ]
        await database.write(group_id, store, rows=found)
    return len(rows)
