"""All in which FalkorDB and Neo4j differ when facts are looked for.

FalkorDB has a graph for each group, so that its statements need not name the group. It holds times as texts
in UTC, which sort like the times; they are compared inside `coalesce`, since with a range index on a time,
which others may have made, it compares texts wrongly. Its full-text index scores a text that matches several
of some alternatives by one of them alone; so words are asked for one by one, and weighed by us.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from composable_memory_adapters.graphiti.database.cypher import DatabaseKind

__all__ = ["Dialect", "dialect_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One database's way to say things. Times are given as ISO texts.

    `find_facts` yields `e`, and `find_entities` yields `n`, for the text in `word`. `vector` is `$vector` as
    the database's own type.
    """

    keyword_engine: str
    find_facts: str
    find_entities: str
    vector: str
    has_vector_index: bool
    any_of: Callable[[Iterable[str]], str]
    nearly: Callable[[str, int], str]
    """What finds a word though one or two letters of it, or their accents or case, are others."""
    in_names: Callable[[str], str]
    cosine: Callable[[str, str], str]
    in_group: Callable[[str], str]
    until: Callable[[str, str], str]
    """The condition that a time is unknown or not after a parameter."""
    after: Callable[[str, str], str]
    """The condition that a time is unknown or after a parameter."""

    def told(self, relation: str) -> str:
        """Return the condition that a fact may still be told at `$now`."""
        return f"{self.in_group(relation)} AND {self.after(f'{relation}.expires_at', '$now')}"

    def held(self, relation: str, start: str = "$start", end: str = "$end") -> str:
        """Return the condition that a fact held at some moment from `start` to `end`."""
        began = self.until(f"{relation}.valid_at", end)
        return f"{began} AND {self.after(f'{relation}.invalid_at', start)}"

    def current(self, relation: str) -> str:
        """Return the condition that a fact holds at `$now`."""
        return f"{relation}.expired_at IS NULL AND {self.held(relation, '$now', '$now')}"


def dialect_of(kind: DatabaseKind) -> Dialect:
    """Return the dialect of a kind of database."""
    return _NEO4J if kind == "neo4j" else _FALKORDB


def _lucene(words: Iterable[str]) -> str:
    # Capitals would be operators.
    return " OR ".join(re.sub(r"[^\w*~]", " ", word).lower().strip() for word in words)


_FALKORDB = Dialect(
    keyword_engine="redisearch",
    find_facts="CALL db.idx.fulltext.queryRelationships('RELATES_TO', word) YIELD relationship AS e",
    find_entities="CALL db.idx.fulltext.queryNodes('Entity', word) YIELD node AS n",
    vector="vecf32($vector)",
    has_vector_index=True,
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
    vector="$vector",
    has_vector_index=False,
    any_of=_lucene,
    nearly=lambda word, letters: f"{word}~{letters}",
    in_names=lambda words: f"name:({words})",
    cosine=lambda one, other: f"2 * vector.similarity.cosine({one}, {other}) - 1",
    in_group=lambda field: f"{field}.group_id = $group_id",
    # graphiti-core keeps times there as such, and what else we keep are texts.
    until=lambda field, moment: f"({field} IS NULL OR datetime(toString({field})) <= datetime({moment}))",
    after=lambda field, moment: f"({field} IS NULL OR datetime(toString({field})) > datetime({moment}))",
)
