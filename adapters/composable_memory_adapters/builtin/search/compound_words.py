"""Finds compounds in the index that contain a query's words, and splits the query's own compounds.

The index stores long words reversed, so that those ending in `pumpe` are neighbours in `long_words`.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import orjson

from composable_memory_adapters.sqlite_file import Connection
from composable_memory_adapters.text import compounds
from composable_memory_adapters.text.query_terms import KeywordQuery, Lookup
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_COMPOUNDS = 12
"""How many compounds to look up per ending, if the index has more."""

ENOUGH = 10
"""A word in more passages than this is searched without its compounds: they would add noise and cost time."""

FREQUENCY = "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
# CROSS JOIN fixes the join order: one range scan of `long_words` per ending.
ENDING_SO = """
SELECT DISTINCT backwards FROM json_each(?1) CROSS JOIN long_words
WHERE backwards > value AND backwards < value || char(1114111) AND length(backwards) >= length(value) + ?2
LIMIT ?3
"""


@dataclass(frozen=True, slots=True)
class CountPassages:
    """Asks how many passages match any of some lookups; counting may stop at `limit`."""

    lookups: Sequence[Lookup]
    limit: int


@dataclass(frozen=True, slots=True)
class LongWords:
    """Asks for up to `limit` reversed long words that start with one of `beginnings`.

    Each is longer than its beginning by at least `more` characters. They are ordered by beginning, then
    alphabetically.
    """

    beginnings: Sequence[str]
    more: int = compounds.MIN_PART
    limit: int = MOST_COMPOUNDS


Asked: TypeAlias = CountPassages | LongWords
T = TypeVar("T")
Search: TypeAlias = Generator[Asked, "int | Sequence[str]", T]
"""A generator that yields questions about an index, is sent the answers, and returns a result.

So the logic does not depend on how an index is queried, nor on whether that is awaited.
"""


def with_compounds(connection: Connection, query: KeywordQuery) -> KeywordQuery:
    """Return `query` with the compounds of its words that the index has."""
    search = find_compounds(query)
    try:
        asked = next(search)
        while True:
            asked = search.send(_answer(connection, asked))
    except StopIteration as end:
        found: KeywordQuery = end.value
        return found


def find_compounds(query: KeywordQuery) -> Search[KeywordQuery]:
    """Return `query` with the compounds of its words; unknown compounds of its own are split into parts."""
    index = _Index(query.language)
    parts: list[str] = []
    for term in query.terms:
        parts += yield from index.parts(term)
    terms = [*dict.fromkeys(parts)]
    ending = {}
    for term in compounds.may_end_compounds(terms, query.language):
        if (yield from index.frequency(term)) <= ENOUGH and (words := (yield from index.ending_in(term))):
            ending[term] = words
    unknown = set()
    for term in ending:
        if not (yield from index.frequency(term)):
            unknown.add(term)
    return replace(query, terms=tuple(terms), compounds=ending, unknown=frozenset(unknown))


class _Index:
    """What the index knows of one query's words."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._frequencies: dict[str, int] = {}

    def frequency(self, term: str) -> Search[int]:
        """Return how many passages have a word in any form, counting no further than `ENOUGH + 1`."""
        if term not in self._frequencies:
            query = KeywordQuery(terms=(term,), phrases=(), language=self._language)
            self._frequencies[term] = yield from _count(query.groups[0], ENOUGH + 1)
        return self._frequencies[term]

    def ending_in(self, term: str) -> Search[Sequence[str]]:
        """Return indexed words that end in any form of `term`."""
        found = yield LongWords([end[::-1] for end in compounds.ends(term, self._language)])
        assert not isinstance(found, int)
        return [backwards[::-1] for backwards in found]

    def parts(self, term: str) -> Search[Sequence[str]]:
        """Return the two known parts of a compound that the index does not have, else the term itself."""
        may_be_one = len(term) >= compounds.MIN_COMPOUND and term.isalpha()
        if may_be_one and not (yield from self._is_known(term)):
            for firsts, last in compounds.splits(term, self._language):
                if (yield from self._is_known(last)):
                    for first in firsts:
                        if (yield from _count((Lookup((first,)),), 1)):
                            return (first, last)
        return (term,)

    def _is_known(self, term: str) -> Search[bool]:
        return bool((yield from self.frequency(term)) or (yield from self.ending_in(term)))


def _count(lookups: Sequence[Lookup], limit: int) -> Search[int]:
    found = yield CountPassages(lookups, limit)
    assert isinstance(found, int)
    return found


def _answer(connection: Connection, asked: Asked) -> int | Sequence[str]:
    if isinstance(asked, CountPassages):
        match = " OR ".join(lookup.fts5 for lookup in asked.lookups)
        count: int = connection.execute(FREQUENCY, (match, asked.limit)).get
        return count
    beginnings = orjson.dumps(asked.beginnings).decode()
    rows = connection.execute(ENDING_SO, (beginnings, asked.more, asked.limit))
    return [backwards for (backwards,) in rows]
