"""Looks through the entities of groups: which there are, what they are called, and what is around one.

Names are compared without case; where an entity is called exactly so, those that only contain the name do not
count for more than a list.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from composable_memory.facts import Fact, GraphEntity, Neighbourhood
from composable_memory.supervision.tasks import all_of
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, iso
from composable_memory_adapters.graphiti.reading.dialects import dialect_of
from composable_memory_adapters.graphiti.reading.rows import (
    ENTITY,
    FACT,
    NEWEST,
    entity_of,
    fact_of,
    since,
)
from composable_memory_adapters.graphiti.reading.search import add_origins
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_DEPTH = 5
"""How many facts away from an entity one can look; further away is nearly everything."""

MAX_CALLED = 50
"""Entities of a group that one name may mean."""

CALLED = """
MATCH (n:Entity) WHERE {in_group} AND toLower(n.name) CONTAINS $name
WITH n, toLower(n.name) = $name AS is_exact ORDER BY is_exact DESC, n.name, n.uuid LIMIT $limit
RETURN n.uuid AS id, is_exact
"""
MOST_CONNECTED = """
MATCH (n:Entity) WHERE {in_group} OPTIONAL MATCH (n)-[e:RELATES_TO]-()
WITH n, count(e) AS facts ORDER BY facts DESC, n.name, n.uuid LIMIT $limit RETURN n.uuid AS id
"""
WITH_IDS = f"""
MATCH (n:Entity) WHERE {{in_group}} AND n.uuid IN $ids OPTIONAL MATCH (n)-[e:RELATES_TO]-()
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


async def entities(
    database: CypherDatabase, groups: Sequence[str], *, named: str | None = None, limit: int
) -> list[GraphEntity]:
    """Return entities, those with most facts first; with a name, those that contain it, exact ones first."""

    async def of_group(group_id: str) -> list[GraphEntity]:
        parameters: dict[str, object] = {"limit": max(0, limit)}
        if named is not None:
            parameters["name"] = _lower(named)
        statement = _statement(database, MOST_CONNECTED if named is None else CALLED)
        rows = await database.read(group_id, statement, **parameters)
        return await _with_ids(database, group_id, [str(row["id"]) for row in rows])

    found = await all_of(*(of_group(group) for group in dict.fromkeys(groups)))
    return _by_facts((one for part in found for one in part), first=named)[: max(0, limit)]


async def ids_called(
    database: CypherDatabase, groups: Sequence[str], name: str
) -> list[tuple[str, list[str]]]:
    """Return each group that has entities of this name, with their ids.

    Where one is called exactly so, those of any group that only contain the name are left out.
    """
    statement = _statement(database, CALLED)
    different = [*dict.fromkeys(groups)]
    found = await all_of(
        *(database.read(group, statement, name=_lower(name), limit=MAX_CALLED) for group in different)
    )
    is_exact = any(row["is_exact"] for rows in found for row in rows)
    called = (
        (group, [str(row["id"]) for row in rows if row["is_exact"] or not is_exact])
        for group, rows in zip(different, found, strict=True)
    )
    return [(group, ids) for group, ids in called if ids]


async def neighbourhood(
    database: CypherDatabase,
    groups: Sequence[str],
    entity: str | None,
    *,
    depth: int,
    limit: int,
    now: datetime,
) -> Neighbourhood:
    """Return at most `limit` facts, the nearest to an entity and the newest first, and what they are between.

    `depth` is how many facts away they may be, at most 5; with 0 it is the entity alone. Without an entity,
    the newest facts of all.
    """
    limit = max(0, limit)
    if entity is None:
        called: Sequence[tuple[str, list[str]]] = [(group, []) for group in dict.fromkeys(groups)]
        found = await all_of(*(_newest(database, group, limit=limit, now=now) for group, _ in called))
    else:
        called = await ids_called(database, groups, entity)
        found = await all_of(
            *(
                _around(database, group, ids, depth=min(depth, MAX_DEPTH), limit=limit, now=now)
                for group, ids in called
            )
        )
    links = sorted((link for part in found for link in part), key=_nearest)[:limit]
    shown = await all_of(
        *(_with_ids(database, group, [*ids, *_ends_in(group, links)]) for group, ids in called)
    )
    return Neighbourhood(
        entities=tuple(_by_facts(one for part in shown for one in part)),
        facts=tuple(await add_origins(database, [link.fact for link in links])),
    )


async def _newest(database: CypherDatabase, group_id: str, *, limit: int, now: datetime) -> list[_Link]:
    return await _links(database, group_id, LINKS, {"limit": limit}, now=now, distance=0)


async def _around(
    database: CypherDatabase, group_id: str, ids: Sequence[str], *, depth: int, limit: int, now: datetime
) -> list[_Link]:
    """Return the facts around entities, going one fact further each time."""
    links: dict[str, _Link] = {}
    seen, edge = set(ids), [*ids]
    for distance in range(depth):
        given = {"ids": edge, "limit": limit}
        found = await _links(database, group_id, LINKS_OF, given, now=now, distance=distance)
        links = {link.fact.id: link for link in found} | links
        edge = [*dict.fromkeys(end for link in found for end in link.ends if end not in seen)]
        seen.update(edge)
        if not edge or len(links) >= limit:
            break
    return [*links.values()]


async def _links(
    database: CypherDatabase,
    group_id: str,
    statement: str,
    parameters: dict[str, object],
    *,
    now: datetime,
    distance: int,
) -> list[_Link]:
    rows = await database.read(group_id, _statement(database, statement), now=iso(now), **parameters)
    links = (
        _Link(
            fact=fact_of(row, group_id),
            ends=(str(row["source_id"]), str(row["target_id"])),
            distance=distance,
        )
        for row in rows
    )
    return [link for link in links if not link.fact.is_forgotten(now)]


async def _with_ids(database: CypherDatabase, group_id: str, ids: Sequence[str]) -> list[GraphEntity]:
    if not ids:
        return []
    rows = await database.read(group_id, _statement(database, WITH_IDS), ids=[*dict.fromkeys(ids)])
    return [entity_of(row, group_id) for row in rows]


def _statement(database: CypherDatabase, template: str) -> str:
    dialect = dialect_of(database.kind)
    return template.format(in_group=dialect.in_group("n"), visible=dialect.visible("e"))


def _ends_in(group_id: str, links: Iterable[_Link]) -> list[str]:
    return [end for link in links if link.fact.group_id == group_id for end in link.ends]


def _nearest(link: _Link) -> tuple[int, float, str]:
    return link.distance, -since(link.fact), link.fact.id


def _by_facts(found: Iterable[GraphEntity], *, first: str | None = None) -> list[GraphEntity]:
    """Return entities by the number of their facts, those called `first` before all others."""
    called = None if first is None else _lower(first)
    return sorted(
        found, key=lambda one: (_lower(one.name) != called, -one.fact_count, one.name, one.group_id, one.id)
    )


def _lower(name: str) -> str:
    return name.strip().lower()
