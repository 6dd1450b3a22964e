"""The Cypher of searches, and every difference in it between FalkorDB and Neo4j.

FalkorDB has one graph per group, so its statements need not name the group. It stores times as text in UTC,
which sorts like the times; they are compared inside `coalesce`, because with a range index on a time, which
others may have created, FalkorDB compares text wrongly. Its full-text index scores a text that matches
several alternatives by only one of them, so words are searched one by one and weighted here.

Statements that choose facts return only ids, best first, and only of facts that may be returned at `$now`. If
the question names a time from `$start` to `$end`, the facts also began before its end. Facts that no longer
hold, or did not hold then, are ranked lower by the factor `$superseded`, so that a long history does not
crowd out what is true.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache

from composable_memory_adapters.graphiti.database.cypher import DatabaseKind
from composable_memory_adapters.graphiti.reading.rows import EDGE
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one database expresses conditions and calls. Times are passed as ISO strings.

    `find_facts` yields `e`, and `find_entities` yields `n`, for the text in `word`. `vector` is `$vector` as
    the database's own vector type.
    """

    keyword_engine: str
    find_facts: str
    find_entities: str
    find_episodes: str
    vector: str
    any_of: Callable[[Iterable[str]], str]
    nearly: Callable[[str, int], str]
    """Returns a pattern that matches a word despite one or two wrong letters, accents or its case."""
    in_names: Callable[[str], str]
    cosine: Callable[[str, str], str]
    in_group: Callable[[str], str]
    until: Callable[[str, str], str]
    """The condition that a time is unknown or not later than a parameter."""
    after: Callable[[str, str], str]
    """The condition that a time is unknown or later than a parameter."""

    def visible(self, relation: str) -> str:
        """Return the condition that a fact may be returned at `$now`."""
        return f"{self.in_group(relation)} AND {self.after(f'{relation}.expires_at', '$now')}"

    def held(self, relation: str, start: str = "$start", end: str = "$end") -> str:
        """Return the condition that a fact held at some moment from `start` to `end`."""
        began, ended = f"{relation}.valid_at", f"{relation}.invalid_at"
        at_all = f"coalesce({ended} <> {began}, true)"  # a fact that ended as it began never held
        return f"{self.until(began, end)} AND {self.after(ended, start)} AND {at_all}"

    def current(self, relation: str) -> str:
        """Return the condition that a fact holds at `$now`."""
        return f"{relation}.expired_at IS NULL AND {self.held(relation, '$now', '$now')}"


def dialect_of(kind: DatabaseKind) -> Dialect:
    """Return the dialect of a kind of database."""
    return _NEO4J if kind == "neo4j" else _FALKORDB


def _lucene(words: Iterable[str]) -> str:
    # Upper-case words would be operators.
    return " OR ".join(re.sub(r"[^\w*~]", " ", word).lower().strip() for word in words)


_FALKORDB = Dialect(
    keyword_engine="redisearch",
    find_facts="CALL db.idx.fulltext.queryRelationships('RELATES_TO', word) YIELD relationship AS e",
    find_entities="CALL db.idx.fulltext.queryNodes('Entity', word) YIELD node AS n",
    find_episodes="CALL db.idx.fulltext.queryNodes('Episodic', '@content:(' + word + ')') YIELD node AS p",
    vector="vecf32($vector)",
    any_of="|".join,
    nearly=lambda word, letters: f"{'%' * letters}{word}{'%' * letters}",
    in_names=lambda words: f"@name:({words})",
    cosine=lambda one, other: f"1 - vec.cosineDistance({one}, {other})",
    in_group=lambda _: "true",
    until=lambda field, moment: f"coalesce({field}, '') <= {moment}",
    after=lambda field, moment: f"coalesce({field}, '9') > {moment}",
)

_NEO4J = Dialect(
    keyword_engine="lucene",
    find_facts="CALL db.index.fulltext.queryRelationships('edge_name_and_fact', word) "
    "YIELD relationship AS e",
    find_entities="CALL db.index.fulltext.queryNodes('node_name_and_summary', word) YIELD node AS n",
    find_episodes="CALL db.index.fulltext.queryNodes('episode_content', 'content:(' + word + ')') "
    "YIELD node AS p",
    vector="$vector",
    any_of=_lucene,
    nearly=lambda word, letters: f"{word}~{letters}",
    in_names=lambda words: f"name:({words})",
    cosine=lambda one, other: f"2 * vector.similarity.cosine({one}, {other}) - 1",
    in_group=lambda field: f"{field}.group_id = $group_id",
    # graphiti-core stores its times as datetimes there; the ones we add are strings.
    until=lambda field, moment: f"({field} IS NULL OR datetime(toString({field})) <= datetime({moment}))",
    after=lambda field, moment: f"({field} IS NULL OR datetime(toString({field})) > datetime({moment}))",
)


_WITH_PARTS = "WITH {0}, toLower({1}) AS text WITH {0}, [part IN $parts WHERE text CONTAINS part] AS held"

_AND_BASELINE = """
UNION ALL MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} AND e.fact_embedding IS NOT NULL WITH e LIMIT $sample
RETURN null AS id, avg({cosine}) AS baseline, count(e) AS compared
"""
"""The similarity of facts that were not searched for: the first ones of the group."""

_EACH_WORD = "UNWIND $words AS asked WITH asked.word AS word, asked.weight AS weight"

_FACTS_OF_ENTITIES = """
MATCH (n)-[e:RELATES_TO]-() WHERE {wanted}
WITH e.uuid AS id, max(score * {rank_factor}) AS score, max(toString(e.valid_at)) AS since
RETURN id ORDER BY score DESC, since DESC, id LIMIT $count
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The search statements for one group."""

    count: str = "MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} RETURN count(e) AS facts"
    frequencies: str = (
        "UNWIND $lookups AS word {find_facts} WHERE {e_in_group} RETURN word, count(e) AS facts"
    )
    by_words: str = f"""
{_EACH_WORD} {{find_facts}} WHERE {{wanted}} WITH e, sum(weight) AS score
RETURN e.uuid AS id ORDER BY score * {{rank_factor}} DESC, id LIMIT $count
"""
    by_names: str = f"""
{_EACH_WORD} {{find_entities}} WHERE {{n_in_group}} WITH n, sum(weight) AS score
ORDER BY score DESC, n.uuid LIMIT $names {_FACTS_OF_ENTITIES}
"""
    by_entities: str = f"""
MATCH (n:Entity) WHERE {{n_in_group}} AND n.uuid IN $uuids WITH n, 1.0 AS score {_FACTS_OF_ENTITIES}
"""
    by_parts: str = f"""
MATCH ()-[e:RELATES_TO]->() WHERE {{wanted}} {_WITH_PARTS.format("e", "e.fact")} WHERE size(held) > 0
RETURN e.uuid AS id, held ORDER BY size(held) * {{rank_factor}} DESC, id LIMIT $count
"""
    by_parts_of_names: str = f"""
MATCH (n:Entity) WHERE {{n_in_group}} {_WITH_PARTS.format("n", "n.name")} WHERE size(held) > 0
WITH n, size(held) AS score ORDER BY score DESC, n.uuid LIMIT $names {_FACTS_OF_ENTITIES}
"""
    by_vector: str = f"""
MATCH ()-[e:RELATES_TO]->() WHERE e.fact_embedding IS NOT NULL AND {{wanted}}
WITH e.uuid AS id, {{cosine}} AS cosine ORDER BY cosine DESC, id LIMIT $count
RETURN id, null AS baseline, null AS compared {_AND_BASELINE}
"""
    by_vector_index: str = f"""
CALL db.idx.vector.queryRelationships('RELATES_TO', 'fact_embedding', $near, {{vector}})
YIELD relationship AS e, score WHERE {{wanted}} WITH e.uuid AS id, score ORDER BY score, id LIMIT $count
RETURN id, null AS baseline, null AS compared {_AND_BASELINE}
"""
    read: str = f"MATCH ()-[e:RELATES_TO]->() WHERE {{e_in_group}} AND e.uuid IN $ids RETURN {EDGE}"
    read_with_cosine: str = f"""
MATCH ()-[e:RELATES_TO]->() WHERE {{e_in_group}} AND e.uuid IN $ids RETURN {EDGE}, {{cosine}} AS cosine
"""
    passages: str = f"""
UNWIND $lookups AS word {{find_episodes}} WHERE {{episode}} RETURN p.uuid AS id, word AS held
UNION ALL
MATCH (p:Episodic) WHERE size($parts) > 0 AND {{episode}}
{_WITH_PARTS.format("p", "p.content")} UNWIND held AS one RETURN p.uuid AS id, one AS held
"""
    origins: str = """
MATCH (p:Episodic) WHERE {p_in_group} AND p.uuid IN $ids
RETURN p.uuid AS id, p.source_description AS description
"""
    episodes: str = """
MATCH (p:Episodic) WHERE {p_in_group} AND p.uuid IN $ids
RETURN p.uuid AS id, p.content AS text, p.valid_at AS observed_at, p.source_description AS description,
  p.entity_edges AS facts
"""
    facts_of_episodes: str = """
MATCH ()-[e:RELATES_TO]->() WHERE {e_in_group} AND e.uuid IN $ids
RETURN e.uuid AS id, e.fact AS fact, startNode(e).name AS source, endNode(e).name AS target
"""
    count_episodes: str = "MATCH (p:Episodic) WHERE {p_in_group} RETURN count(p) AS episodes"


@cache
def statements_for(kind: DatabaseKind, *, in_window: bool) -> Statements:
    """Return the statements for a kind of database, for questions with or without a time."""
    dialect = dialect_of(kind)
    visible = dialect.visible("e")
    holds = dialect.held("e") if in_window else dialect.current("e")
    clauses = {
        "find_facts": dialect.find_facts,
        "find_entities": dialect.find_entities,
        "find_episodes": dialect.find_episodes,
        "episode": f"{dialect.in_group('p')} AND p.retired_at IS NULL"
        f" AND {dialect.until('p.valid_at', '$until')}",
        "vector": dialect.vector,
        "cosine": dialect.cosine("e.fact_embedding", dialect.vector),
        "e_in_group": dialect.in_group("e"),
        "n_in_group": dialect.in_group("n"),
        "p_in_group": dialect.in_group("p"),
        "wanted": f"{visible} AND {dialect.until('e.valid_at', '$end')}" if in_window else visible,
        "rank_factor": f"(CASE WHEN {holds} THEN 1.0 ELSE $superseded END)",
    }
    templates = Statements()
    return Statements(
        **{one.name: getattr(templates, one.name).format_map(clauses) for one in fields(Statements)}
    )
