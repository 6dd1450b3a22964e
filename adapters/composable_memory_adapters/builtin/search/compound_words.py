"""Finds the compounds of a question's words in the index, and the parts of its own compounds.

The index keeps long words backwards: those that end in `pumpe` are neighbours in `long_words`.
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
"""Of an end that more words have, so many are looked up."""

ENOUGH = 10
"""A word that more passages have is looked up without its compounds: they would add noise, and take time."""

FREQUENCY = "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
# The order of the join is fixed: for each end, a stretch of the table.
ENDING_SO = """
SELECT DISTINCT backwards FROM json_each(?1) CROSS JOIN long_words
WHERE backwards > value AND backwards < value || char(1114111) AND length(backwards) >= length(value) + ?2
LIMIT ?3
"""


@dataclass(frozen=True, slots=True)
class CountPassages:
    """Asks how many passages have any of some lookups; more than `limit` need not be told apart."""

    lookups: Sequence[Lookup]
    limit: int


@dataclass(frozen=True, slots=True)
class LongWords:
    """Asks for the first `limit` long words, backwards, that go on after one of some beginnings.

    They are longer by at least `more` characters, and come in the order of the beginnings, then their own.
    """

    beginnings: Sequence[str]
    more: int = compounds.MIN_PART
    limit: int = MOST_COMPOUNDS


Asked: TypeAlias = CountPassages | LongWords
T = TypeVar("T")
Search: TypeAlias = Generator[Asked, "int | Sequence[str]", T]
"""Yields what it has to know of an index, is sent the answers, and returns a result.

So it does not matter how an index is asked, and whether that is awaited.
"""


def with_compounds(connection: Connection, query: KeywordQuery) -> KeywordQuery:
    """Return `query` with the compounds of its words, as the index file has them."""
    search = find_compounds(query)
    try:
        asked = next(search)
        while True:
            asked = search.send(_answer(connection, asked))
    except StopIteration as end:
        found: KeywordQuery = end.value
        return found


def find_compounds(query: KeywordQuery) -> Search[KeywordQuery]:
    """Return `query` with the compounds of its words; one that no passage has is replaced by its parts."""
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
    """What the index knows of the words of one question."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._frequencies: dict[str, int] = {}

    def frequency(self, term: str) -> Search[int]:
        """Return how many passages have a word in any form, at most one more than enough."""
        if term not in self._frequencies:
            query = KeywordQuery(terms=(term,), phrases=(), language=self._language)
            self._frequencies[term] = yield from _count(query.groups[0], ENOUGH + 1)
        return self._frequencies[term]

    def ending_in(self, term: str) -> Search[Sequence[str]]:
        """Return words that end in `term` in any form."""
        found = yield LongWords([end[::-1] for end in compounds.ends(term, self._language)])
        assert not isinstance(found, int)
        return [backwards[::-1] for backwards in found]

    def parts(self, term: str) -> Search[Sequence[str]]:
        """Return the two parts of a compound that the index does not know, else the term itself."""
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
