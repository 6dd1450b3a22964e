"""In which space the vectors of a group are: those of two models must never meet in one comparison."""

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase

__all__ = ["claim_space", "fits_space", "space_of", "stored_space"]

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
    """Say whether an embedder's vectors may be stored beside those of a group; one without any is claimed."""
    space, stored = await space_of(embedder), await stored_space(database, group_id)
    if stored is None and not await database.read(group_id, ANY_VECTOR):
        await claim_space(database, group_id, space)
        return True
    return stored == space
