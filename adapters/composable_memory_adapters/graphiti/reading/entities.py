"""Looks through the entities of groups: which there are, what they are called, and what is around one.

Names are compared without case; where an entity is called exactly so, those that only contain the name do not
count for more than a list.
"""

from collections.abc import Iterable, Sequence

from composable_memory.facts import Fact, GraphEntity, Neighbourhood
from composable_memory.interfaces import Clock
from composable_memory.supervision.tasks import all_of
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, iso
from composable_memory_adapters.graphiti.reading.dialects import dialect_of
from composable_memory_adapters.graphiti.reading.rows import (
    ENTITY,
    FACT,
    NEWEST,
    entity_of,
    fact_of,
)
from composable_memory_adapters.graphiti.reading.search import add_origins
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_DEPTH = 5
"""How many facts away from an entity one can look; further away is nearly everything."""

MAX_CALLED = 50
"""Entities of a group that one name may mean."""

CALLED = """
MATCH (n:Entity) WHERE {n_in_group} AND toLower(n.name) CONTAINS $name
WITH n, toLower(n.name) = $name AS is_exact ORDER BY is_exact DESC, n.name, n.uuid LIMIT $limit
RETURN n.uuid AS id, is_exact
"""
MOST_CONNECTED = """
MATCH (n:Entity) WHERE {n_in_group} OPTIONAL MATCH (n)-[e:RELATES_TO]-()
WITH n, count(e) AS facts ORDER BY facts DESC, n.name, n.uuid LIMIT $limit RETURN n.uuid AS id
"""
WITH_IDS = f"""
MATCH (n:Entity) WHERE {{n_in_group}} AND n.uuid IN $ids OPTIONAL MATCH (n)-[e:RELATES_TO]-()
WITH n, count(e) AS facts RETURN {ENTITY}, facts
"""
LINKS = f"""
MATCH (n)-[e:RELATES_TO]->(m) WHERE {{visible}} WITH e, n, m {NEWEST}
RETURN {FACT}, n.uuid AS source_id, m.uuid AS target_id
"""
LINKS_OF = f"""
MATCH (o:Entity)-[e:RELATES_TO]-() WHERE o.uuid IN $ids AND {{visible}}
WITH DISTINCT e, startNode(e) AS n, endNode(e) AS m {NEWEST}
RETURN {FACT}, n.uuid AS source_id, m.uuid AS target_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """A fact, the ids of the entities that it is between, and how many facts away it is."""

    fact: Fact
    ends: tuple[str, str]
    distance: int
    said: str


class EntityReader:
    """What a database says of entities."""

    def __init__(self, database: CypherDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def entities(
        self, groups: Sequence[str], *, named: str | None = None, limit: int
    ) -> list[GraphEntity]:
        """Return entities, those with most facts first; of those that contain a name, exact ones first."""

        async def of_group(group_id: str) -> list[GraphEntity]:
            parameters: dict[str, object] = {"limit": max(0, limit)}
            if named is not None:
                parameters["name"] = _lower(named)
            statement = self._statement(MOST_CONNECTED if named is None else CALLED)
            rows = await self._database.read(group_id, statement, **parameters)
            return await self._with_ids(group_id, [str(row["id"]) for row in rows])

        found = await all_of(*(of_group(group) for group in dict.fromkeys(groups)))
        return _by_facts((one for part in found for one in part), first=named)[: max(0, limit)]

    async def ids_called(self, groups: Sequence[str], name: str) -> list[tuple[str, list[str]]]:
        """Return each group that has entities of this name, with their ids.

        Where one is called exactly so, those of any group that only contain the name are left out.
        """
        statement = self._statement(CALLED)
        different = [*dict.fromkeys(groups)]
        found = await all_of(
            *(
                self._database.read(group, statement, name=_lower(name), limit=MAX_CALLED)
                for group in different
            )
        )
        is_exact = any(row["is_exact"] for rows in found for row in rows)
        called = (
            (group, [str(row["id"]) for row in rows if row["is_exact"] or not is_exact])
            for group, rows in zip(different, found, strict=True)
        )
        return [(group, ids) for group, ids in called if ids]

    async def neighbourhood(
        self, groups: Sequence[str], entity: str | None, *, depth: int, limit: int
    ) -> Neighbourhood:
        """Return at most `limit` facts, the nearest to an entity and the newest first, and their entities.

        `depth` is how many facts away they may be, at most 5; with 0 it is the entity alone. Without an
        entity, the newest facts of all.
        """
        limit = max(0, limit)
        if entity is None:
            called: Sequence[tuple[str, list[str]]] = [(group, []) for group in dict.fromkeys(groups)]
            found = await all_of(
                *(self._links(group, LINKS, {"limit": limit}, distance=0) for group, _ in called)
            )
        else:
            called = await self.ids_called(groups, entity)
            found = await all_of(
                *(self._around(group, ids, depth=min(depth, MAX_DEPTH), limit=limit) for group, ids in called)
            )
        links = _nearest(link for part in found for link in part)[:limit]
        shown = await all_of(
            *(self._with_ids(group, [*ids, *_ends_in(group, links)]) for group, ids in called)
        )
        return Neighbourhood(
            entities=tuple(_by_facts(one for part in shown for one in part)),
            facts=tuple(await add_origins(self._database, [link.fact for link in links])),
        )

    async def _around(self, group_id: str, ids: Sequence[str], *, depth: int, limit: int) -> list[_Link]:
        """Return the facts around entities, going one fact further each time."""
        links: dict[str, _Link] = {}
        seen, edge = set(ids), [*ids]
        for distance in range(depth):
            given = {"ids": edge, "limit": limit}
            found = await self._links(group_id, LINKS_OF, given, distance=distance)
            links = {link.fact.id: link for link in found} | links
            edge = [*dict.fromkeys(end for link in found for end in link.ends if end not in seen)]
            seen.update(edge)
            if not edge or len(links) >= limit:
                break
        return [*links.values()]

    async def _links(
        self, group_id: str, template: str, parameters: dict[str, object], *, distance: int
    ) -> list[_Link]:
        now = self._clock()
        rows = await self._database.read(group_id, self._statement(template), now=iso(now), **parameters)
        links = (
            _Link(
                fact=fact_of(row, group_id),
                ends=(str(row["source_id"]), str(row["target_id"])),
                distance=distance,
                said=str(row["said"]),
            )
            for row in rows
        )
        return [link for link in links if not link.fact.is_forgotten(now)]

    async def _with_ids(self, group_id: str, ids: Sequence[str]) -> list[GraphEntity]:
        if not ids:
            return []
        rows = await self._database.read(group_id, self._statement(WITH_IDS), ids=[*dict.fromkeys(ids)])
        return [entity_of(row, group_id) for row in rows]

    def _statement(self, template: str, *, held: str = "true") -> str:
        dialect = dialect_of(self._database.kind)
        return template.format(
            e_in_group=dialect.in_group("e"),
            n_in_group=dialect.in_group("n"),
            p_in_group=dialect.in_group("p"),
            visible=dialect.visible("e"),
            held=held,
        )


def _ends_in(group_id: str, links: Iterable[_Link]) -> list[str]:
    return [end for link in links if link.fact.group_id == group_id for end in link.ends]


def _nearest(links: Iterable[_Link]) -> list[_Link]:
    newest_first = sorted(links, key=lambda link: (link.said, link.fact.id), reverse=True)
    return sorted(newest_first, key=lambda link: link.distance)


def _by_facts(found: Iterable[GraphEntity], *, first: str | None = None) -> list[GraphEntity]:
    """Return entities by the number of their facts, those called `first` before all others."""
    called = None if first is None else _lower(first)
    return sorted(
        found, key=lambda one: (_lower(one.name) != called, -one.fact_count, one.name, one.group_id, one.id)
    )


def _lower(name: str) -> str:
    return name.strip().lower()
