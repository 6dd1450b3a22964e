"""Finds who is called by a first name in one place and by the full name in another."""

from collections.abc import Mapping

from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, text_in
from composable_memory_adapters.graphiti.reading.dialects import dialect_of

KINDS = ("Person", "Concept", "")
"""The kinds that a person may have; the last two are of what nobody knows what it is."""

BEGINNING = """
MATCH (n:Entity) WHERE {n_in_group} AND coalesce(n.kind, '') IN $kinds
  AND (toLower(n.name) = $first OR toLower(n.name) STARTS WITH $beginning)
RETURN n.uuid AS id, n.name AS name, n.kind AS kind LIMIT 3
"""


async def spellings_of(database: CypherDatabase, group_id: str, name: str) -> Mapping[str, str]:
    """Return the first and the full name of one person by their ids, where `name` is one of the two.

    Tom is Tom Okafor as long as a group names no other Tom; else, and of things, there are none.
    """
    first = name.lower().split()[:1]
    if not first:
        return {}
    statement = BEGINNING.format(n_in_group=dialect_of(database.kind).in_group("n"))
    given = {"first": first[0], "beginning": f"{first[0]} ", "kinds": list(KINDS)}
    rows = await database.read(group_id, statement, **given)
    names = {text_in(row["name"]).lower() for row in rows}
    is_one = len(rows) == len(names) == 2 and {first[0], name.strip().lower()} <= names
    if not (is_one and any(row["kind"] == "Person" for row in rows)):
        return {}
    return {text_in(row["id"]): text_in(row["name"]) for row in rows}
