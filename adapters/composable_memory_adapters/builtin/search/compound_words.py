"""Finds the compounds of a question's words in the index, and the parts of its own compounds.

The index keeps long words backwards: those that end in `pumpe` are neighbours in `long_words`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import orjson

from composable_memory_adapters.sqlite_file import Connection
from composable_memory_adapters.text import compounds
from composable_memory_adapters.text.query_terms import KeywordQuery

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


def with_compounds(connection: Connection, query: KeywordQuery) -> KeywordQuery:
    """Return `query` with the compounds of its words; one that no passage has is replaced by its parts."""
    index = _Index(connection, query.language)
    terms = [*dict.fromkeys(part for term in query.terms for part in index.parts(term))]
    rare = [
        term for term in compounds.may_end_compounds(terms, query.language) if index.frequency(term) <= ENOUGH
    ]
    ending = {term: words for term in rare if (words := index.ending_in(term))}
    unknown = frozenset(term for term in ending if not index.frequency(term))
    return replace(query, terms=tuple(terms), compounds=ending, unknown=unknown)


class _Index:
    """What the index knows of the words of one question."""

    def __init__(self, connection: Connection, language: str) -> None:
        self._connection = connection
        self._language = language
        self._frequencies: dict[str, int] = {}

    def frequency(self, term: str) -> int:
        """Return how many passages have a word in any form, at most one more than enough."""
        if term not in self._frequencies:
            query = KeywordQuery(terms=(term,), phrases=(), language=self._language)
            self._frequencies[term] = self._count(query.match_any(), ENOUGH + 1)
        return self._frequencies[term]

    def ending_in(self, term: str) -> Sequence[str]:
        """Return words that end in `term` in any form."""
        ends = orjson.dumps([end[::-1] for end in compounds.ends(term, self._language)]).decode()
        rows = self._connection.execute(ENDING_SO, (ends, compounds.MIN_PART, MOST_COMPOUNDS))
        return [backwards[::-1] for (backwards,) in rows]

    def parts(self, term: str) -> Sequence[str]:
        """Return the two parts of a compound that the index does not know, else the term itself."""
        may_be_one = len(term) >= compounds.MIN_COMPOUND and term.isalpha()
        if not may_be_one or self.frequency(term) or self.ending_in(term):
            return (term,)
        return next(self._known_splits(term), (term,))

    def _known_splits(self, term: str) -> Iterator[Sequence[str]]:
        for firsts, last in compounds.splits(term, self._language):
            if self.frequency(last) or self.ending_in(last):
                yield from ((first, last) for first in firsts if self._count(f'"{first}"', 1))

    def _count(self, match: str | None, limit: int) -> int:
        found: int = self._connection.execute(FREQUENCY, (match, limit)).get
        return found
