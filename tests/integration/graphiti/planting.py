"""Plants facts in a graph as the writing side does, but with plain statements."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.episodes import graph_id

__all__ = ["NOW", "Planted", "day", "plant", "plant_episode"]

NOW = datetime(2026, 6, 1, tzinfo=UTC)

PLANT = """
UNWIND $rows AS row
MERGE (s:Entity {uuid: row.source_id}) SET s.name = row.source, s.group_id = $group
MERGE (t:Entity {uuid: row.target_id}) SET t.name = row.target, t.group_id = $group
CREATE (s)-[e:RELATES_TO {uuid: row.id}]->(t)
SET e += row.properties
"""
EMBED = """
UNWIND $rows AS row MATCH ()-[e:RELATES_TO]->() WHERE e.uuid = row.id
SET e.fact_embedding = vecf32(row.embedding)
"""
PLANT_EPISODE = """
CREATE (p:Episodic {uuid: $id, name: $name, content: $text, source_description: $description, source: 'text',
  valid_at: $at, created_at: $at, group_id: $group})
"""
UNFINISHED = "CALL db.indexes() YIELD status WHERE status <> 'OPERATIONAL' RETURN status"
SPACE = "MERGE (m:CmemMeta {key: 'embedding', group_id: $group}) SET m.value = $space"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fact to be planted."""

    text: str
    id: str | None = None
    source: str = "Nobody"
    target: str = "Nothing"
    relation: str = "KNOWS"
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    expired_at: datetime | None = None
    expires_at: datetime | None = None
    created_at: datetime = NOW
    confidence: float | None = None
    episodes: Sequence[str] = ()
    embedding: Sequence[float] | None = None

    @property
    def own_id(self) -> str:
        return self.id or f"fact:{self.text}"

    def row(self, group_id: str) -> dict[str, object]:
        properties = {
            "name": self.relation,
            "fact": self.text,
            "group_id": group_id,
            "episodes": [*self.episodes],
            "created_at": self.created_at,
            "valid_at": self.valid_at,
            "invalid_at": self.invalid_at,
            "expired_at": self.expired_at,
            "expires_at": self.expires_at,
            "confidence": self.confidence,
        }
        return {
            "id": graph_id(group_id, self.own_id),
            "source": self.source,
            "source_id": graph_id(group_id, f"entity:{self.source}"),
            "target": self.target,
            "target_id": graph_id(group_id, f"entity:{self.target}"),
            "properties": {name: value for name, value in properties.items() if value is not None},
        }


async def plant(
    database: CypherDatabase, group_id: str, *facts: Planted | str, space: str | None = None
) -> None:
    await _indexes_ready(database, group_id)
    planted = [Planted(text=one) if isinstance(one, str) else one for one in facts]
    rows = [one.row(group_id) for one in planted]
    await database.write(group_id, PLANT, rows=rows, group=group_id)
    embedded = [
        {"id": row["id"], "embedding": [*one.embedding]}
        for row, one in zip(rows, planted, strict=True)
        if one.embedding
    ]
    if embedded:
        await database.write(group_id, EMBED, rows=embedded)
    if space:
        await database.write(group_id, SPACE, space=space, group=group_id)


async def _indexes_ready(database: CypherDatabase, group_id: str) -> None:
    """Wait for the indexes of a new graph: what is written while they come to be may be missing in them."""
    await database.write(group_id, "RETURN 1 AS one")
    async with asyncio.timeout(20):
        while await database.read(group_id, UNFINISHED):
            pass


async def plant_episode(
    database: CypherDatabase, group_id: str, name: str, *, description: str = "", at: datetime = NOW
) -> str:
    """Plant an episode of this name; return its id."""
    id_ = graph_id(group_id, name)
    await database.write(
        group_id,
        PLANT_EPISODE,
        id=id_,
        name=name,
        text=f"The text of {name}",
        description=description,
        at=at,
        group=group_id,
    )
    return id_


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
