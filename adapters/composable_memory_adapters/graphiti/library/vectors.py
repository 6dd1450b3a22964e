"""The vectors of a group: which embedder made them, adding missing ones, and the index over those of facts.

Vectors of two models must never be compared.
"""

import asyncio

from composable_memory.content import EmbedderInput
from composable_memory.errors import BackendRejected
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, batches, number_in, texts_in
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

READ = "MATCH (m:CmemMeta {key: 'embedding'}) WHERE m.group_id = $group_id RETURN m.value AS space"
WRITE = "MERGE (m:CmemMeta {key: 'embedding', group_id: $group_id}) SET m.value = $space"
ANY_VECTOR = """
MATCH (n:Entity) WHERE n.group_id = $group_id AND n.name_embedding IS NOT NULL RETURN n.uuid AS uuid LIMIT 1
"""


async def space_of(embedder: EmbedderAdapter) -> str:
    """Return the name of an embedder's vector space.

    Raises:
        EmbeddingError: the vector length is not known yet, and the provider failed.
    """
    if not embedder.dimensions:
        await embedder.embed(EmbedderInput(text="length"))
    return f"{embedder.id}/{embedder.model}/{embedder.dimensions}"


async def stored_space(database: CypherDatabase, group_id: str) -> str | None:
    """Return the space of the vectors in a group, or None if unknown."""
    rows = await database.read(group_id, READ)
    return str(rows[0]["space"]) if rows else None


async def claim_space(database: CypherDatabase, group_id: str, space: str) -> None:
    """Record the space of a group's vectors."""
    await database.write(group_id, WRITE, space=space)


async def fits_space(database: CypherDatabase, group_id: str, embedder: EmbedderAdapter) -> bool:
    """Return whether an embedder's vectors fit those of a group; a group without vectors takes its space."""
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


async def embed_anew(database: CypherDatabase, group_id: str, embedder: EmbedderAdapter) -> None:
    """Embed what has no vector; after a change of the embedder, everything.

    Vectors of another space are removed first, so that a comparison never mixes both. Interrupted work
    resumes where it stopped.
    """
    space = await space_of(embedder)
    if await stored_space(database, group_id) != space:
        for statement in CLEAR_VECTORS:
            await database.write(group_id, statement)
        await claim_space(database, group_id, space)
    await _fill(database, group_id, embedder, NAMES_WITHOUT_VECTOR, SET_NAME_VECTORS[database.kind])
    await _fill(database, group_id, embedder, FACTS_WITHOUT_VECTOR, SET_FACT_VECTORS[database.kind])


async def _fill(
    database: CypherDatabase, group_id: str, embedder: EmbedderAdapter, find: str, store: str
) -> None:
    rows = await database.read(group_id, find)
    for batch in batches(rows, BATCH):
        vectors = await embedder.embed_batch([EmbedderInput(text=str(row["text"] or "")) for row in batch])
        found = [
            {"uuid": row["uuid"], "vector": [float(value) for value in vector]}
            for row, vector in zip(batch, vectors, strict=True)
        ]
        await database.write(group_id, store, rows=found)


# --- the index over the vectors of facts, which FalkorDB updates itself -------------------------------------

# It pays off from a few thousand facts: an exact search compares the question with each of them. The index
# finds about 95 of 100 true neighbours, so we request more than we need.

AUTO_FACTS = 5_000
"""The number of facts in a group from which `auto` uses an index."""

OVERFETCH = 4
"""How many times more neighbours to request: some are missed, and filters drop others."""

MOST_LOOKS = 100
BETWEEN_LOOKS_S = 0.02
"""How many checks whether a dropped index is gone, and the pause between them, in seconds."""

INDEXES = """
CALL db.indexes() YIELD label, types, options, status WHERE label = 'RELATES_TO'
RETURN types.fact_embedding AS types, options.fact_embedding AS options, status
"""
COUNT = "MATCH ()-[e:RELATES_TO]->() RETURN count(e) AS facts"
# An index takes its vector length only as a literal; this is an integer.
CREATE = """
CREATE VECTOR INDEX FOR ()-[e:RELATES_TO]->() ON (e.fact_embedding)
OPTIONS {{dimension: {dimensions:d}, similarityFunction: 'cosine'}}
"""
DROP = "DROP VECTOR INDEX FOR ()-[e:RELATES_TO]->() ON (e.fact_embedding)"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorIndex:
    """An existing index: the length of its vectors, and whether it covers all facts already."""

    dimensions: int
    is_ready: bool


def wants_index(settings: SearchSettings, facts: int) -> bool:
    """Return whether a group with this many facts should have an index."""
    return settings.vector_index == "on" or (settings.vector_index == "auto" and facts >= AUTO_FACTS)


async def indexed(database: CypherDatabase, group_id: str) -> VectorIndex | None:
    """Return the index of a group, if any."""
    if database.kind != "falkordb":
        return None
    for row in await database.read(group_id, INDEXES):
        options = row["options"]
        if "VECTOR" in texts_in(row["types"]) and isinstance(options, dict):
            return VectorIndex(
                dimensions=int(options["dimension"]), is_ready="OPERATIONAL" in str(row["status"])
            )
    return None


async def arrange(
    database: CypherDatabase, group_id: str, settings: SearchSettings, *, dimensions: int
) -> None:
    """Update the index of a group to match the settings and the length of its vectors.

    The database fills a new index in the background; until then searches are exact.
    """
    rows = await database.read(group_id, COUNT) if database.kind == "falkordb" else []
    facts = number_in(rows[0], "facts") if rows else 0
    present = await indexed(database, group_id)
    wanted = bool(facts) and wants_index(settings, facts)
    if present is not None:
        if wanted and present.dimensions == dimensions:
            return
        await database.write(group_id, DROP)
        await _gone(database, group_id)
    if not wanted:
        return
    try:
        await database.write(group_id, CREATE.format(dimensions=dimensions))
    except BackendRejected:
        if await indexed(database, group_id) is None:
            raise  # otherwise another process was faster


async def _gone(database: CypherDatabase, group_id: str) -> None:
    """Wait until a dropped index is no longer listed: it lingers for a moment and blocks a new one."""
    for _ in range(MOST_LOOKS):
        if await indexed(database, group_id) is None:
            return
        await asyncio.sleep(BETWEEN_LOOKS_S)
