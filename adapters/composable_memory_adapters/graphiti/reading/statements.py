"""The statements of a search, in the dialect of a database.

Those that choose facts return ids alone, best first, and only of facts that may be told at `$now` and, where
the question names a time, held from `$start` to `$end`. Facts that do not hold any more stand back by the
factor `$superseded`, so that a long history does not crowd out what is true now.
"""

from dataclasses import dataclass, fields
from functools import cache

from composable_memory_adapters.graphiti.database.cypher import DatabaseKind
from composable_memory_adapters.graphiti.reading.dialects import dialect_of
from composable_memory_adapters.graphiti.reading.rows import FACT

__all__ = ["Statements", "statements_for"]

_HOLDING = "WITH {0}, toLower({1}) AS text WITH {0}, [part IN $parts WHERE text CONTAINS part] AS held"

_AND_ORDINARY = """
UNION ALL MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} AND e.fact_embedding IS NOT NULL WITH e LIMIT $sample
RETURN null AS id, avg({cosine}) AS ordinary, count(e) AS compared
"""
"""How near facts are that nobody asked for: the first ones of the group."""

_EACH_WORD = "UNWIND $words AS asked WITH asked.word AS word, asked.weight AS weight"

_OF_NAMED = """
MATCH (n)-[e:RELATES_TO]-() WHERE {wanted}
WITH e.uuid AS id, max(score * {standing}) AS score, max(toString(e.valid_at)) AS since
RETURN id ORDER BY score DESC, since DESC, id LIMIT $count
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """What is asked of one group."""

    count: str = "MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} RETURN count(e) AS facts"
    frequencies: str = (
        "UNWIND $lookups AS word {find_facts} WHERE {e_in_group} RETURN word, count(e) AS facts"
    )
    by_words: str = f"""
{_EACH_WORD} {{find_facts}} WHERE {{wanted}} WITH e, sum(weight) AS score
RETURN e.uuid AS id ORDER BY score * {{standing}} DESC, id LIMIT $count
"""
    by_names: str = f"""
{_EACH_WORD} {{find_entities}} WHERE {{n_in_group}} WITH n, sum(weight) AS score
ORDER BY score DESC, n.uuid LIMIT $names {_OF_NAMED}
"""
    by_parts: str = f"""
MATCH ()-[e:RELATES_TO]->() WHERE {{wanted}} {_HOLDING.format("e", "e.fact")} WHERE size(held) > 0
RETURN e.uuid AS id, held ORDER BY size(held) * {{standing}} DESC, id LIMIT $count
"""
    by_parts_of_names: str = f"""
MATCH (n:Entity) WHERE {{n_in_group}} {_HOLDING.format("n", "n.name")} WHERE size(held) > 0
WITH n, size(held) AS score ORDER BY score DESC, n.uuid LIMIT $names {_OF_NAMED}
"""
    by_vector: str = f"""
MATCH ()-[e:RELATES_TO]->() WHERE e.fact_embedding IS NOT NULL AND {{wanted}}
WITH e.uuid AS id, {{cosine}} AS cosine ORDER BY cosine DESC, id LIMIT $count
RETURN id, null AS ordinary, null AS compared {_AND_ORDINARY}
"""
    by_vector_index: str = f"""
CALL db.idx.vector.queryRelationships('RELATES_TO', 'fact_embedding', $near, {{vector}})
YIELD relationship AS e, score WHERE {{wanted}} WITH e.uuid AS id, score ORDER BY score, id LIMIT $count
RETURN id, null AS ordinary, null AS compared {_AND_ORDINARY}
"""
    read: str = f"MATCH ()-[e:RELATES_TO]->() WHERE {{e_in_group}} AND e.uuid IN $ids RETURN {FACT}"
    read_with_cosine: str = f"""
MATCH ()-[e:RELATES_TO]->() WHERE {{e_in_group}} AND e.uuid IN $ids RETURN {FACT}, {{cosine}} AS cosine
"""
    origins: str = """
MATCH (p:Episodic) WHERE {p_in_group} AND p.uuid IN $ids
RETURN p.uuid AS id, p.source_description AS description
"""


@cache
def statements_for(kind: DatabaseKind, *, in_window: bool) -> Statements:
    """Return the statements for a kind of database, and for a question with or without a time."""
    dialect = dialect_of(kind)
    told = dialect.told("e")
    clauses = {
        "find_facts": dialect.find_facts,
        "find_entities": dialect.find_entities,
        "vector": dialect.vector,
        "cosine": dialect.cosine("e.fact_embedding", dialect.vector),
        "e_in_group": dialect.in_group("e"),
        "n_in_group": dialect.in_group("n"),
        "p_in_group": dialect.in_group("p"),
        "wanted": f"{told} AND {dialect.held('e')}" if in_window else told,
        "standing": "1.0"
        if in_window
        else f"(CASE WHEN {dialect.current('e')} THEN 1.0 ELSE $superseded END)",
    }
    templates = Statements()
    return Statements(
        **{one.name: getattr(templates, one.name).format_map(clauses) for one in fields(Statements)}
    )
