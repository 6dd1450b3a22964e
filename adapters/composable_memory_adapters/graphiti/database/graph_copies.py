"""Exports graphs of a FalkorDB server as lines, and imports them."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from composable_memory_adapters.graphiti.database.cypher import batches
from composable_memory_adapters.graphiti.database.falkor import FalkorDatabase
from composable_memory_adapters.graphiti.fact_stores import LINES, VECTORS, LinkLine, NodeLine

T = TypeVar("T")

NODES = """
MATCH (n) WHERE id(n) > $after
RETURN id(n) AS id, labels(n) AS labels, properties(n) AS properties ORDER BY id LIMIT $limit
"""
LINKS = """
MATCH (s)-[e]->(t) WHERE id(e) > $after
RETURN id(e) AS id, type(e) AS type, labels(s)[0] AS source_label, s.uuid AS source,
  labels(t)[0] AS target_label, t.uuid AS target, properties(e) AS properties ORDER BY id LIMIT $limit
"""
ANYTHING = "MATCH (n) WHERE n.uuid IS NOT NULL RETURN n.uuid AS uuid LIMIT 1"
MAKE_NODES = "UNWIND $rows AS row CREATE (e:{labels}) SET e = row.properties"
MAKE_LINKS = """
UNWIND $rows AS row
MATCH (s:{source_label} {{uuid: row.source}}) MATCH (t:{target_label} {{uuid: row.target}})
CREATE (s)-[e:{type}]->(t) SET e = row.properties
"""
SET_VECTOR = " SET e.{name} = vecf32(row.vector)"


class FalkorCopies:
    """The graphs of groups as lines; nobody may write to a group while it is copied or replaced."""

    def __init__(self, database: FalkorDatabase) -> None:
        self._database = database

    async def has_anything(self, group: str) -> bool:
        """Return whether a group has an entity or an episode."""
        return bool(await self._database.read(group, ANYTHING))

    async def nodes(self, group: str) -> AsyncIterator[list[NodeLine]]:
        """Yield all nodes."""
        async for rows in self._pages(group, NODES):
            yield [NodeLine.model_validate({"group": group, **row}) for row in rows]

    async def links(self, group: str) -> AsyncIterator[list[LinkLine]]:
        """Yield all relationships."""
        async for rows in self._pages(group, LINKS):
            yield [LinkLine.model_validate({"group": group, **row}) for row in rows]

    async def _pages(self, group: str, statement: str) -> AsyncIterator[list[dict[str, object]]]:
        after: object = -1
        while rows := await self._database.read(group, statement, after=after, limit=LINES):
            after = rows[-1]["id"]
            yield [{name: value for name, value in row.items() if name != "id"} for row in rows]

    async def discard(self, group: str) -> None:
        """Remove a graph under construction, if it exists."""
        await self._database.drop(group)

    async def make_nodes(self, group: str, nodes: Sequence[NodeLine]) -> None:
        """Add nodes to the graph of a group."""
        for labels, some in _alike(nodes, lambda one: ":".join(one.labels)):
            rows = [{"properties": one.properties} for one in some]
            await self._make(group, MAKE_NODES.format(labels=labels), rows)

    async def make_links(self, group: str, links: Sequence[LinkLine]) -> None:
        """Add relationships between existing nodes."""
        for _, some in _alike(links, lambda one: f"{one.type} {one.source_label} {one.target_label}"):
            rows = [{"source": e.source, "target": e.target, "properties": e.properties} for e in some]
            first = some[0]
            statement = MAKE_LINKS.format(
                type=first.type, source_label=first.source_label, target_label=first.target_label
            )
            await self._make(group, statement, rows)

    async def _make(self, group: str, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        for name, some in _by_vector(rows):
            made = statement + SET_VECTOR.format(name=name) if name else statement
            for batch in batches(some, LINES):
                await self._database.write(group, made, rows=batch)

    async def put_in_place(self, group: str, staged: str | None) -> None:
        """Replace a group's graph atomically by a staged one, or remove it if None; safe to repeat."""
        if staged is None:
            await self._database.drop(group)
        else:
            await self._database.rename(staged, group)


def _alike(lines: Iterable[T], kind: Callable[[T], str]) -> list[tuple[str, list[T]]]:
    return [(name, list(some)) for name, some in groupby(sorted(lines, key=kind), key=kind)]


def _by_vector(rows: Sequence[Mapping[str, object]]) -> list[tuple[str, list[dict[str, object]]]]:
    """Group rows by the name of the vector in their properties, with the vector taken out of these."""
    found: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        properties = row["properties"]
        assert isinstance(properties, Mapping)
        name = next((one for one in VECTORS if properties.get(one) is not None), "")
        plain = {key: value for key, value in properties.items() if key not in VECTORS}
        found.setdefault(name, []).append({**row, "properties": plain, "vector": properties.get(name)})
    return list(found.items())
