"""Finds people who appear under a first name in one place and under the full name in another."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row, text_in
from composable_memory_adapters.graphiti.reading.dialects import dialect_of

KINDS = ("Person", "Concept", "")
"""The kinds a person may have; the last two are for entities of unknown kind."""

BEGINNING = """
MATCH (n:Entity) WHERE {n_in_group} AND coalesce(n.kind, '') IN $kinds
  AND (toLower(n.name) = $first OR toLower(n.name) STARTS WITH $beginning)
RETURN n.uuid AS id, n.name AS name, n.kind AS kind LIMIT 3
"""


async def spellings_of(database: CypherDatabase, group_id: str, name: str) -> Mapping[str, str]:
    """Return the ids of the first and the full name of one person, if `name` is either of them.

    Tom is Tom Okafor as long as the group names no other Tom; otherwise, and for things, the result is empty.
    """
    first = name.lower().split()[:1]
    if not first:
        return {}
    statement = BEGINNING.format(n_in_group=dialect_of(database.kind).in_group("n"))
    given = {"first": first[0], "beginning": f"{first[0]} ", "kinds": list(KINDS)}
    rows = await database.read(group_id, statement, **given)
    asked = name.strip().lower()
    if not one_person(rows) or asked not in {text_in(row["name"]).lower() for row in rows}:
        return {}
    return {text_in(row["id"]): text_in(row["name"]) for row in rows}


def one_person(rows: Sequence[Row]) -> tuple[str, str] | None:
    """Return the ids of the first and the full name if entities with the same first word are one person."""
    called = sorted((text_in(row["name"]).lower(), text_in(row["id"])) for row in rows)
    if len(called) != 2 or called[0][0] != called[1][0].split()[0] or called[0][0] == called[1][0]:
        return None
    return (called[0][1], called[1][1]) if any(row["kind"] == "Person" for row in rows) else None


def by_first_name(rows: Iterable[Row]) -> Sequence[Sequence[Row]]:
    """Return the entities grouped by first word, if that names a person; each entity appears once."""
    found: defaultdict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        found[text_in(row["first"])][text_in(row["id"])] = row
    sharing = (tuple(rows.values()) for rows in found.values())
    return [rows for rows in sharing if any(row["kind"] == "Person" for row in rows)]
