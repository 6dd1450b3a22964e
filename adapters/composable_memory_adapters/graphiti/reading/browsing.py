"""Looks through the graphs of groups: facts with their history, episodes, and how much there is.

Facts whose time to be told is over (`expires_at`) are left out of every list.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from composable_memory.facts import Episode, Fact
from composable_memory.supervision.tasks import all_of
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row
from composable_memory_adapters.graphiti.reading.dialects import dialect_of
from composable_memory_adapters.graphiti.reading.entities import entities, ids_called, neighbourhood
from composable_memory_adapters.graphiti.reading.rows import (
    EPISODE,
    FACT,
    NEWEST,
    episode_of,
    fact_of,
    iso,
    number_in,
    since,
)
from composable_memory_adapters.graphiti.reading.search import add_origins
from composable_memory_adapters.graphiti.stores import Counts, EpisodeIds

__all__ = [
    "counts",
    "entities",
    "episode",
    "episode_ids",
    "episodes",
    "fact",
    "facts",
    "history",
    "neighbourhood",
    "timeline",
]

FACTS = f"MATCH ()-[e:RELATES_TO]->() WHERE {{told}} AND {{held}} WITH e {NEWEST} RETURN {FACT}"
FACTS_ABOUT = f"""
MATCH (o:Entity)-[e:RELATES_TO]-() WHERE o.uuid IN $ids AND {{told}} AND {{held}}
WITH DISTINCT e {NEWEST} RETURN {FACT}
"""
ONE_FACT = f"MATCH ()-[e:RELATES_TO]->() WHERE {{e_in_group}} AND e.uuid = $id RETURN {FACT}"
HISTORY = f"""
MATCH ()-[one:RELATES_TO]->() WHERE one.uuid = $id WITH startNode(one) AS source
MATCH (source)-[e:RELATES_TO]->() WHERE e.name = $relation AND {{told}} RETURN {FACT}
"""
EPISODES = f"""
MATCH (p:Episodic) WHERE {{p_in_group}} WITH p ORDER BY toString(p.valid_at) DESC, p.uuid LIMIT $limit
RETURN {EPISODE}
"""
ONE_EPISODE = f"MATCH (p:Episodic) WHERE {{p_in_group}} AND (p.uuid = $id OR p.name = $id) RETURN {EPISODE}"
FACTS_OF_EPISODES = """
MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} AND {told} UNWIND e.episodes AS id
WITH id, e WHERE id IN $ids RETURN id, count(e) AS facts
"""
HELD = """
MATCH (p:Episodic) WHERE {p_in_group}
RETURN p.read_at IS NOT NULL AS is_whole, p.retired_at IS NOT NULL AS is_retired, collect(p.uuid) AS uuids
"""
COUNT_FACTS = "MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} RETURN count(e) AS number"
COUNT_ENTITIES = "MATCH (n:Entity) WHERE {n_in_group} RETURN count(n) AS number"
COUNT_EPISODES = "MATCH (p:Episodic) WHERE {p_in_group} RETURN count(p) AS number"


async def fact(database: CypherDatabase, group_id: str, fact_id: str) -> Fact | None:
    """Return one fact with its origins, also one that is not to be told any more; None if it is not there."""
    rows = await database.read(group_id, _statement(database, ONE_FACT), id=fact_id)
    found = await add_origins(database, [fact_of(row, group_id) for row in rows[:1]])
    return found[0] if found else None


async def facts(
    database: CypherDatabase,
    groups: Sequence[str],
    *,
    about: str | None = None,
    as_of: datetime | None = None,
    current_at: datetime | None = None,
    limit: int,
    now: datetime,
) -> list[Fact]:
    """Return facts with their origins, the newest first.

    `about` narrows to those of the entity of this name, `as_of` to those that held in the world at that
    moment, and `current_at` to those that hold then and were not found to be over.
    """
    limit = max(0, limit)
    conditions, given = _moments(database, as_of, current_at)
    given = {"now": iso(now), "limit": limit} | given
    if about is None:
        statement = _statement(database, FACTS, held=conditions)
        read = [_facts(database, group, statement, given) for group in dict.fromkeys(groups)]
    else:
        statement = _statement(database, FACTS_ABOUT, held=conditions)
        called = await ids_called(database, groups, about)
        read = [_facts(database, group, statement, given | {"ids": ids}) for group, ids in called]
    found = [one for part in await all_of(*read) for one in part]
    kept = [one for one in found if _fits(one, as_of, current_at) and not one.is_forgotten(now)]
    kept.sort(key=lambda one: (-since(one), one.id))
    return await add_origins(database, kept[:limit])


async def timeline(
    database: CypherDatabase, groups: Sequence[str], entity: str, *, limit: int, now: datetime
) -> list[Fact]:
    """Return the facts about an entity by the time they hold from; of more than `limit`, the last."""
    return _oldest_first(await facts(database, groups, about=entity, limit=limit, now=now))


async def history(database: CypherDatabase, fact: Fact, *, now: datetime) -> list[Fact]:
    """Return all that is or was said of the same entity and relation, oldest first, with its origins."""
    rows = await database.read(
        fact.group_id, _statement(database, HISTORY), id=fact.id, relation=fact.relation, now=iso(now)
    )
    found = [fact_of(row, fact.group_id) for row in rows]
    return await add_origins(database, _oldest_first(one for one in found if not one.is_forgotten(now)))


async def episodes(
    database: CypherDatabase, groups: Sequence[str], *, limit: int, now: datetime
) -> list[Episode]:
    """Return episodes, the latest observed first; the facts of each are counted as they are told `now`."""

    async def of_group(group_id: str) -> list[Episode]:
        rows = await database.read(group_id, _statement(database, EPISODES), limit=max(0, limit))
        return await _counted(database, group_id, rows, now)

    found = await all_of(*(of_group(group) for group in dict.fromkeys(groups)))
    latest_first = sorted(
        (one for part in found for one in part),
        key=lambda one: (-(one.observed_at.timestamp() if one.observed_at else float("-inf")), one.id),
    )
    return latest_first[: max(0, limit)]


async def episode(
    database: CypherDatabase, group_id: str, episode_id: str, *, now: datetime
) -> Episode | None:
    """Return one episode, by the graph's id or else by that of its content; None if it is not there."""
    rows = await database.read(group_id, _statement(database, ONE_EPISODE), id=episode_id)
    rows = sorted(rows, key=lambda row: (row["id"] != episode_id, str(row["id"])))
    found = await _counted(database, group_id, rows[:1], now)
    return found[0] if found else None


async def counts(database: CypherDatabase, groups: Sequence[str]) -> Counts:
    """Return how many facts, entities and episodes the groups hold together."""

    async def total(template: str) -> int:
        statement = _statement(database, template)
        found = await all_of(*(database.read(group, statement) for group in dict.fromkeys(groups)))
        return sum(number_in(rows[0], "number") for rows in found if rows)

    facts, nodes, texts = await all_of(total(COUNT_FACTS), total(COUNT_ENTITIES), total(COUNT_EPISODES))
    return Counts(facts=facts, entities=nodes, episodes=texts)


async def episode_ids(database: CypherDatabase, group_id: str) -> EpisodeIds:
    """Return which episodes are in a group, by one answer of four rows at most."""
    rows = await database.read(group_id, _statement(database, HELD))
    sets = [(row, frozenset(ids)) for row in rows if isinstance(ids := row["uuids"], list)]
    return EpisodeIds(
        present=frozenset().union(*(ids for _, ids in sets)),
        whole=frozenset().union(*(ids for row, ids in sets if row["is_whole"])),
        retired=frozenset().union(*(ids for row, ids in sets if row["is_retired"])),
    )


async def _facts(
    database: CypherDatabase, group_id: str, statement: str, parameters: Mapping[str, object]
) -> list[Fact]:
    return [fact_of(row, group_id) for row in await database.read(group_id, statement, **parameters)]


async def _counted(
    database: CypherDatabase, group_id: str, rows: Sequence[Row], now: datetime
) -> list[Episode]:
    """Return episodes with the number of facts that were taken from each."""
    if not rows:
        return []
    ids = [str(row["id"]) for row in rows]
    statement = _statement(database, FACTS_OF_EPISODES)
    numbers = Counter(
        {
            str(row["id"]): number_in(row, "facts")
            for row in await database.read(group_id, statement, ids=ids, now=iso(now))
        }
    )
    return [episode_of(row, group_id, numbers[str(row["id"])]) for row in rows]


def _moments(
    database: CypherDatabase, as_of: datetime | None, current_at: datetime | None
) -> tuple[str, dict[str, object]]:
    """Return the condition that facts hold at two moments, and the parameters in it."""
    held = dialect_of(database.kind).held
    moments = {"as_of": as_of, "current_at": current_at}
    given: dict[str, object] = {name: iso(moment) for name, moment in moments.items() if moment is not None}
    conditions = [held("e", f"${name}", f"${name}") for name in given]
    if current_at is not None:
        conditions.append("e.expired_at IS NULL")
    return " AND ".join(conditions) or "true", given


def _fits(fact: Fact, as_of: datetime | None, current_at: datetime | None) -> bool:
    return (as_of is None or fact.holds_at(as_of)) and (current_at is None or fact.is_current(current_at))


def _oldest_first(found: Iterable[Fact]) -> list[Fact]:
    return sorted(found, key=lambda one: (since(one), one.id))


def _statement(database: CypherDatabase, template: str, *, held: str = "true") -> str:
    dialect = dialect_of(database.kind)
    return template.format(
        e_in_group=dialect.in_group("e"),
        n_in_group=dialect.in_group("n"),
        p_in_group=dialect.in_group("p"),
        told=dialect.told("e"),
        held=held,
    )
