"""Reads facts with their history, entities with their neighbourhood, and episodes from graphs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from composable_memory.facts import Episode, Fact, GraphEntity, Neighbourhood
from composable_memory.interfaces import Clock
from composable_memory.supervision.tasks import all_of
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row, iso, number_in
from composable_memory_adapters.graphiti.fact_stores import Counts, EpisodeIds
from composable_memory_adapters.graphiti.reading.dialects import dialect_of
from composable_memory_adapters.graphiti.reading.namesakes import spellings_of
from composable_memory_adapters.graphiti.reading.rows import (
    ENTITY,
    EPISODE,
    FACT,
    NEWEST,
    entity_of,
    episode_of,
    fact_of,
)
from composable_memory_adapters.graphiti.reading.search import add_origins
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_DEPTH = 5
"""The largest distance from an entity, in facts; beyond it lies nearly everything."""

MAX_CALLED = 50
"""The most entities of a group that one name may match."""

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

FACTS = f"MATCH ()-[e:RELATES_TO]->() WHERE {{visible}} AND {{held}} WITH e {NEWEST} RETURN {FACT}"
FACTS_ABOUT = f"""
MATCH (o:Entity)-[e:RELATES_TO]-() WHERE o.uuid IN $ids AND {{visible}} AND {{held}}
WITH DISTINCT e {NEWEST} RETURN {FACT}
"""
ONE_FACT = f"MATCH ()-[e:RELATES_TO]->() WHERE {{e_in_group}} AND e.uuid = $id RETURN {FACT}"
HISTORY = f"""
MATCH ()-[one:RELATES_TO]->() WHERE one.uuid = $id WITH startNode(one) AS source
MATCH (source)-[e:RELATES_TO]->() WHERE e.name = $relation AND {{visible}} WITH e {NEWEST} RETURN {FACT}
"""
EPISODES = f"""
MATCH (p:Episodic) WHERE {{p_in_group}} AND ($place = '' OR p.source_description CONTAINS $place)
WITH p ORDER BY toString(p.valid_at) DESC, p.uuid LIMIT $limit
RETURN {EPISODE}
"""
ONE_EPISODE = f"MATCH (p:Episodic) WHERE {{p_in_group}} AND (p.uuid = $id OR p.name = $id) RETURN {EPISODE}"
FACTS_OF_EPISODES = """
MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} AND {visible} UNWIND e.episodes AS id
WITH id, e WHERE id IN $ids RETURN id, count(e) AS facts
"""
EPISODE_IDS = """
MATCH (p:Episodic) WHERE {p_in_group}
RETURN p.read_at IS NOT NULL AS is_whole, p.retired_at IS NOT NULL AS is_retired, collect(p.uuid) AS uuids
"""
MOST_HISTORY = 1000
COUNT_FACTS = "MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} RETURN count(e) AS number"
COUNT_ENTITIES = "MATCH (n:Entity) WHERE {n_in_group} RETURN count(n) AS number"
COUNT_EPISODES = "MATCH (p:Episodic) WHERE {p_in_group} RETURN count(p) AS number"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """A fact, the ids of the two entities it connects, and its distance in facts."""

    fact: Fact
    ends: tuple[str, str]
    distance: int
    said: str


class FactReader:
    """Lists and single records of a database, each with its origins.

    Expired facts (`expires_at`) are left out of every list. Entity names are compared ignoring case; if one
    matches exactly, those that merely contain the name count only in lists.
    """

    def __init__(self, database: CypherDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def entities(
        self, groups: Sequence[str], *, named: str | None = None, limit: int
    ) -> list[GraphEntity]:
        """Return entities, those with the most facts first; with `named`, exact matches before all others."""

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
        """Return each group that has entities with this name, and their ids.

        If any group has an exact match, entities that only contain the name are left out of all groups,
        except for the other name of the same person.
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
        same = await all_of(*(spellings_of(self._database, group, name) for group in different))
        called = (
            (group, [*(str(row["id"]) for row in rows if row["is_exact"] or not is_exact), *names])
            for group, rows, names in zip(different, found, same, strict=True)
        )
        return [(group, [*dict.fromkeys(ids)]) for group, ids in called if ids]

    async def neighbourhood(
        self, groups: Sequence[str], entity: str | None, *, depth: int, limit: int
    ) -> Neighbourhood:
        """Return at most `limit` facts, nearest to the entity and newest first, and their entities.

        `depth` is the largest distance in facts, at most 5; 0 returns the entity alone. Without an entity,
        return the newest facts overall.
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
        """Return the facts around entities, one fact further out per step."""
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

    async def fact(self, group_id: str, fact_id: str) -> Fact | None:
        """Return one fact, even if it has expired; None if it does not exist."""
        rows = await self._database.read(group_id, self._statement(ONE_FACT), id=fact_id)
        found = await add_origins(self._database, [fact_of(row, group_id) for row in rows[:1]])
        return found[0] if found else None

    async def facts(
        self,
        groups: Sequence[str],
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_at: datetime | None = None,
        limit: int,
    ) -> list[Fact]:
        """Return facts, the newest first.

        `about` keeps the facts of the entity with this name, `as_of` those that held in the world at that
        moment, and `current_at` those that hold at that moment and have not been found to be over.
        """
        now, limit = self._clock(), max(0, limit)
        conditions, given = _moments(self._database, as_of, current_at)
        given = {"now": iso(now), "limit": limit} | given
        if about is None:
            statement = self._statement(FACTS, held=conditions)
            reads = [self._facts(group, statement, given) for group in dict.fromkeys(groups)]
        else:
            statement = self._statement(FACTS_ABOUT, held=conditions)
            called = await self.ids_called(groups, about)
            reads = [self._facts(group, statement, given | {"ids": ids}) for group, ids in called]
        found = [one for part in await all_of(*reads) for one in part]
        newest_first = (fact for _, _, fact in sorted(found, key=itemgetter(0, 1), reverse=True))
        kept = [one for one in newest_first if _fits(one, as_of, current_at) and not one.is_forgotten(now)]
        return await add_origins(self._database, kept[:limit])

    async def history(self, fact: Fact) -> list[Fact]:
        """Return every fact ever stated of the same entity and relation, oldest first."""
        now = self._clock()
        rows = await self._database.read(
            fact.group_id,
            self._statement(HISTORY),
            id=fact.id,
            relation=fact.relation,
            now=iso(now),
            limit=MOST_HISTORY,
        )
        found = [fact_of(row, fact.group_id) for row in rows]
        visible = [one for one in reversed(found) if not one.is_forgotten(now)]
        return await add_origins(self._database, visible)

    async def episodes(self, groups: Sequence[str], *, limit: int, place: str = "") -> list[Episode]:
        """Return episodes, latest observed first; with `place`, those whose description contains it."""

        async def of_group(group_id: str) -> list[Episode]:
            statement = self._statement(EPISODES)
            rows = await self._database.read(group_id, statement, limit=max(0, limit), place=place)
            return await self._with_fact_counts(group_id, rows)

        found = await all_of(*(of_group(group) for group in dict.fromkeys(groups)))
        latest_first = sorted(
            (one for part in found for one in part),
            key=lambda one: (-(one.observed_at.timestamp() if one.observed_at else float("-inf")), one.id),
        )
        return latest_first[: max(0, limit)]

    async def episode(self, group_id: str, episode_id: str) -> Episode | None:
        """Return one episode, by its id in the graph or by its content's id; None if it does not exist."""
        rows = await self._database.read(group_id, self._statement(ONE_EPISODE), id=episode_id)
        rows = sorted(rows, key=lambda row: (row["id"] != episode_id, str(row["id"])))
        found = await self._with_fact_counts(group_id, rows[:1])
        return found[0] if found else None

    async def counts(self, groups: Sequence[str]) -> Counts:
        """Return the total number of facts, entities and episodes in the groups."""

        async def total(template: str) -> int:
            statement = self._statement(template)
            reads = (self._database.read(group, statement) for group in dict.fromkeys(groups))
            return sum(number_in(rows[0], "number") for rows in await all_of(*reads) if rows)

        facts, nodes, texts = await all_of(*map(total, (COUNT_FACTS, COUNT_ENTITIES, COUNT_EPISODES)))
        return Counts(facts=facts, entities=nodes, episodes=texts)

    async def episode_ids(self, group_id: str) -> EpisodeIds:
        """Return which episodes a group has; the database answers with at most four rows."""
        rows = await self._database.read(group_id, self._statement(EPISODE_IDS))
        sets = [(row, frozenset(ids)) for row in rows if isinstance(ids := row["uuids"], list)]
        return EpisodeIds(
            present=frozenset().union(*(ids for _, ids in sets)),
            whole=frozenset().union(*(ids for row, ids in sets if row["is_whole"])),
            retired=frozenset().union(*(ids for row, ids in sets if row["is_retired"])),
        )

    async def _facts(
        self, group_id: str, statement: str, parameters: Mapping[str, object]
    ) -> list[tuple[str, str, Fact]]:
        """Return facts, each with when it was stated and its id, the sort key across groups."""
        rows = await self._database.read(group_id, statement, **parameters)
        return [(str(row["said"]), str(row["id"]), fact_of(row, group_id)) for row in rows]

    async def _with_fact_counts(self, group_id: str, rows: Sequence[Row]) -> list[Episode]:
        """Return episodes, each with the number of facts extracted from it."""
        if not rows:
            return []
        ids = [str(row["id"]) for row in rows]
        counted = await self._database.read(
            group_id, self._statement(FACTS_OF_EPISODES), ids=ids, now=iso(self._clock())
        )
        numbers = Counter({str(row["id"]): number_in(row, "facts") for row in counted})
        return [episode_of(row, group_id, numbers[str(row["id"])]) for row in rows]


def _moments(
    database: CypherDatabase, as_of: datetime | None, current_at: datetime | None
) -> tuple[str, dict[str, object]]:
    """Return the condition that facts hold at two moments, and its parameters."""
    held = dialect_of(database.kind).held
    moments = {"as_of": as_of, "current_at": current_at}
    given: dict[str, object] = {name: iso(moment) for name, moment in moments.items() if moment is not None}
    conditions = [held("e", f"${name}", f"${name}") for name in given]
    if current_at is not None:
        conditions.append("e.expired_at IS NULL")
    return " AND ".join(conditions) or "true", given


def _fits(fact: Fact, as_of: datetime | None, current_at: datetime | None) -> bool:
    return (as_of is None or fact.holds_at(as_of)) and (current_at is None or fact.is_current(current_at))


def _ends_in(group_id: str, links: Iterable[_Link]) -> list[str]:
    return [end for link in links if link.fact.group_id == group_id for end in link.ends]


def _nearest(links: Iterable[_Link]) -> list[_Link]:
    newest_first = sorted(links, key=lambda link: (link.said, link.fact.id), reverse=True)
    return sorted(newest_first, key=lambda link: link.distance)


def _by_facts(found: Iterable[GraphEntity], *, first: str | None = None) -> list[GraphEntity]:
    """Return entities ordered by number of facts, those named `first` before all others."""
    called = None if first is None else _lower(first)
    return sorted(
        found, key=lambda one: (_lower(one.name) != called, -one.fact_count, one.name, one.group_id, one.id)
    )


def _lower(name: str) -> str:
    return name.strip().lower()
