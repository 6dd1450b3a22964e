"""Which space the vectors of a group are in, and embedding anew what has none in the present space.

Vectors of two models must never meet in one comparison."""

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase

READ = "MATCH (m:CmemMeta {key: 'embedding'}) WHERE m.group_id = $group_id RETURN m.value AS space"
WRITE = "MERGE (m:CmemMeta {key: 'embedding', group_id: $group_id}) SET m.value = $space"
ANY_VECTOR = """
MATCH (n:Entity) WHERE n.group_id = $group_id AND n.name_embedding IS NOT NULL RETURN n.uuid AS uuid LIMIT 1
"""


async def space_of(embedder: EmbedderAdapter) -> str:
    """Return the name of the space that an embedder's vectors are in.

    Raises:
        EmbeddingError: the length of the vectors is not known yet, and the provider failed.
    """
    if not embedder.dimensions:
        await embedder.embed(EmbedderInput(text="length"))
    return f"{embedder.id}/{embedder.model}/{embedder.dimensions}"


async def stored_space(database: CypherDatabase, group_id: str) -> str | None:
    """Return the space of the vectors in a group, or None where nothing is known of any."""
    rows = await database.read(group_id, READ)
    return str(rows[0]["space"]) if rows else None


async def claim_space(database: CypherDatabase, group_id: str, space: str) -> None:
    """Write down in which space the vectors of a group are from now on."""
    await database.write(group_id, WRITE, space=space)


async def fits_space(database: CypherDatabase, group_id: str, embedder: EmbedderAdapter) -> bool:
    """Return whether an embedder's vectors fit those of a group; a group without any takes its space."""
    space, stored = await space_of(embedder), await stored_space(database, group_id)
    if stored is None and not await database.read(group_id, ANY_VECTOR):
        await claim_space(database, group_id, space)
        return True
    return stored == space


BATCH = 256

CLEAR_VECTORS = (
    "MATCH (n:Entity) WHERE n.group_id = $group_id SET n.name_embedding = NULL",
    "MATCH ()-[e:RELATES_TO]->() WHERE e.group_id = $group_id SET e.fact_embedding = NULL",
)
NAMES_WITHOUT_VECTOR = """
MATCH (n:Entity) WHERE n.group_id = $group_id AND n.name_embedding IS NULL
RETURN n.uuid AS uuid, n.name AS text
"""
FACTS_WITHOUT_VECTOR = """
MATCH ()-[e:RELATES_TO]->() WHERE e.group_id = $group_id AND e.fact_embedding IS NULL
RETURN e.uuid AS uuid, e.fact AS text
"""
SET_NAME_VECTORS = {
    "falkordb": """
UNWIND $rows AS row MATCH (n:Entity {uuid: row.uuid})
SET n.name_embedding = vecf32(row.vector)
""",
    "neo4j": """
UNWIND $rows AS row MATCH (n:Entity {uuid: row.uuid})
CALL db.create.setNodeVectorProperty(n, 'name_embedding', row.vector)
""",
}
SET_FACT_VECTORS = {
    "falkordb": """
UNWIND $rows AS row MATCH ()-[e:RELATES_TO {uuid: row.uuid}]->()
SET e.fact_embedding = vecf32(row.vector)
""",
    "neo4j": """
UNWIND $rows AS row MATCH ()-[e:RELATES_TO {uuid: row.uuid}]->()
CALL db.create.setRelationshipVectorProperty(e, 'fact_embedding', row.vector)
""",
}


async def embed_anew(database: CypherDatabase, group_id: str, embedder: EmbedderAdapter) -> int:
    """Embed what has no vector; after a change of the embedder, everything. Return how many texts.

    The vectors of another space go first, so that one comparison never meets both. What was cut off goes on
    where it was.
    """
    space = await space_of(embedder)
    if await stored_space(database, group_id) != space:
        for statement in CLEAR_VECTORS:
            await database.write(group_id, statement)
        await claim_space(database, group_id, space)
    names = await _fill(
        database,
        group_id,
        embedder,
        NAMES_WITHOUT_VECTOR,
        SET_NAME_VECTORS[database.kind],
    )
    facts = await _fill(
        database,
        group_id,
        embedder,
        FACTS_WITHOUT_VECTOR,
        SET_FACT_VECTORS[database.kind],
    )
    return names + facts


async def _fill(
    database: CypherDatabase, group_id: str, embedder: EmbedderAdapter, find: str, store: str
) -> int:
    rows = await database.read(group_id, find)
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        vectors = await embedder.embed_batch([EmbedderInput(text=str(row["text"] or "")) for row in batch])
        found = [
            {"uuid": row["uuid"], "vector": [float(value) for value in vector]}
            for row, vector in zip(batch, vectors, strict=True)
        ]
        await database.write(group_id, store, rows=found)
    return len(rows)
