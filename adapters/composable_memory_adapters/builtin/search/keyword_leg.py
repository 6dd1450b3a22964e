"""Keyword search: finds candidates in the keyword index and scores their relevance.

A word counts if it occurs in a passage's text, and with a separate weight in its note's names, the headings
above it or the tags.

SQLite scores every passage that has any of the words, at about a microsecond each. In a large index a common
word therefore only counts in passages that also have a rarer one, and a very common one is ignored.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import orjson

from composable_memory.types import MemorySource
from composable_memory_adapters.builtin.search.hybrid import CANDIDATES, KeywordHit
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_adapters.sqlite_transactions import data_version
from composable_memory_adapters.text.query_terms import KeywordQuery
from composable_memory_adapters.text.relevance import Relevance, missing_words, rarity
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from apsw import FTS5ExtensionApi

Places = Sequence[Sequence[list[int]]]
"""Where each string of a query occurs in a passage: token numbers by column."""

ROW_BUDGET = 8_000
"""About 8 ms. An index with no more passages than this is searched without any shortcut."""

COMMON_SHARE = 0.25
"""If the budget is exceeded, a word in a larger share of passages than this is not looked up."""

FIELD_WEIGHTS = (1.0, 2.0, 1.0, 1.0)
"""The weight of a word in the text, the names, the headings and the tags of a passage."""

FIELD_DISTANCE = 1_000_000
"""The distance assumed between words in different fields, so that they never count as near each other."""

PHRASE_SHARE = 0.25
"""The weight of a phrase on top of its words, which already count, and count more if adjacent."""

SORTED_WHOLE = 400
"""Up to this many matches, one statement both finds and returns the best: it then sorts them all."""

ALSO_AT_ONCE = 2
"""If `also` exceeds this many times the limit, only those with the most query words are scored."""

ALSO_WITHIN = 10
"""They are taken from the best of this many times the limit: a second scan would double the cost."""

RESERVED_WITHIN = 6
ALL_WITHIN = 20
"""Passages of the reserved source are looked for among the best of `RESERVED_WITHIN` times the limit, or
among all matches if there are few: looking up the source of each match takes six times as long as scoring it.
If that finds too few, the source is rare, and its passages are listed instead."""

COMPOUND_SHARE = 0.3
"""The weight of a word that ends in a query word: a Speisekarte is a Karte, but seldom the one meant."""

COLLECTION = "SELECT collection_size(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT 1"
SIZES: WeakKeyDictionary[Connection, tuple[tuple[int, int], tuple[int, int]]] = WeakKeyDictionary()
"""The numbers of passages and tokens, with the version of the index in which a connection counted them."""

FREQUENCIES = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH value LIMIT ?2))
FROM json_each(?1) ORDER BY key
"""
# ORDER BY bm25(…) keeps only the best rows while scanning; ORDER BY rank would sort them all.
CANDIDATES_BY_BM25 = """
SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY bm25(chunks_fts, ?, ?, ?, ?), rowid LIMIT ?
"""
CANDIDATES_OF_SOURCE = """
SELECT rowid FROM chunks_fts
WHERE chunks_fts MATCH ? AND +rowid IN (
  SELECT chunks.id FROM files CROSS JOIN chunks USING (path, source) WHERE files.source = ?
)
ORDER BY bm25(chunks_fts, ?, ?, ?, ?), rowid LIMIT ?
"""
# The ids are looked up in list order, until there are enough.
FIRST_OF_SOURCE = """
SELECT value FROM json_each(?) CROSS JOIN chunks ON chunks.id = value WHERE source = ? LIMIT ?
"""
CANDIDATES_AMONG = """
SELECT rowid FROM chunks_fts
WHERE chunks_fts MATCH ? AND +rowid IN (SELECT value FROM json_each(?))
ORDER BY bm25(chunks_fts, ?, ?, ?, ?), rowid LIMIT ?
"""
ALL = "SELECT hand_over(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ?"
BEST = """
SELECT hand_over(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? AND rank MATCH ? ORDER BY rank LIMIT ?
"""
RANK = f"bm25{FIELD_WEIGHTS}"
# The unary plus keeps SQLite from reopening the index for each id, which takes ten times as long.
MATCHED = """
SELECT hand_over(chunks_fts) FROM chunks_fts
WHERE chunks_fts MATCH ? AND +rowid IN (SELECT value FROM json_each(?)) LIMIT ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordAnswer:
    """The passages that matched, best first, and the relevance of a good answer (`scale`).

    `rarities` are those of the query's terms, 0 for a term that no passage has.
    """

    hits: Sequence[KeywordHit]
    scale: float
    rarities: Sequence[float] = ()


class _Receiver:
    """Passes the rows of a statement to a function: cheaper than encoding them as JSON."""

    take: Callable[["FTS5ExtensionApi"], None]

    def __call__(self, row: "FTS5ExtensionApi", /, *_: object) -> None:
        self.take(row)


RECEIVERS: WeakKeyDictionary[Connection, _Receiver] = WeakKeyDictionary()
"""The receiver of each prepared connection."""


def prepare(connection: Connection) -> None:
    """Register the SQL functions that `search` needs; once per connection, as SQLite never frees them."""
    if connection not in RECEIVERS:
        receiver = _Receiver()
        connection.register_fts5_function("collection_size", _collection_size)
        connection.register_fts5_function("hand_over", receiver)
        RECEIVERS[connection] = receiver


def search(
    connection: Connection,
    query: KeywordQuery,
    *,
    limit: int = CANDIDATES,
    reserved: MemorySource | None = None,
    among: Sequence[int] | None = None,
    also: Sequence[int] = (),
    wordless: int | None = None,
    row_budget: int = ROW_BUDGET,
    by_word: bool = False,
) -> KeywordAnswer:
    """Return the `limit` passages that match `query` best; runs within the caller's transaction.

    With `among`, only those passages are searched. `also` names passages to score in any case; the first
    `wordless` of them (None: `limit`) are returned even if they match no word. With `reserved`, the best
    `limit` passages of that source are returned as well, so that another source does not crowd it out.
    `row_budget` limits how many passages SQLite scores, unless the rarest word alone is in more. With
    `by_word`, hits list each word's contribution.
    """
    match_any = query.match_any()
    size = _size_of(connection, match_any) if match_any else None
    listed = also[: limit if wordless is None else wordless]
    if size is None:
        return KeywordAnswer(hits=tuple(_unmatched(listed)), scale=1.0)
    passages, tokens = size
    # Counting stops here: beyond this frequency, the exact number makes no difference.
    most = passages if passages <= row_budget else max(SORTED_WHOLE, int(passages * COMMON_SHARE)) + 1
    lookups = query.lookups
    matches = _json([" OR ".join(one) for one in lookups])
    frequencies = [row[0] for row in connection.execute(FREQUENCIES, (matches, most))]
    if not any(frequencies):
        return KeywordAnswer(hits=tuple(_unmatched(listed)), scale=1.0)
    plan = LookupPlan.of(query, frequencies, passages=passages, tokens=tokens, row_budget=row_budget)
    scored, counted = plan.asked[: plan.choosing], plan.asked[plan.choosing :]
    match = _match(_flat(lookups, scored), _flat(lookups, counted))
    words = query.terms if by_word else ()
    numbers = range(sum(plan.widths))
    hits: list[KeywordHit] = []

    def add(row: "FTS5ExtensionApi") -> None:
        strings = [*map(row.phrase_locations, numbers)]
        hits.append(plan.hit(row.rowid, row.column_size(0), strings, words))

    RECEIVERS[connection].take = add
    most_found = sum(frequencies[at] for at in scored)
    if among is None and most_found <= limit:
        connection.execute(ALL, (match,)).fetchall()
    elif most_found <= SORTED_WHOLE and among is None and not (also or reserved):
        connection.execute(BEST, (match, RANK, limit)).fetchall()
    else:
        kept = None if among is not None else reserved
        ids = _best(connection, match, most_found, limit=limit, reserved=kept, among=among, also=also)
        connection.execute(MATCHED, (match, _json(ids), len(ids))).fetchall()
    hits.sort(key=lambda hit: (-hit.bm25, hit.id))
    if also:
        matched = {hit.id for hit in hits}
        hits += _unmatched([id_ for id_ in listed if id_ not in matched])
    return KeywordAnswer(hits=hits, scale=plan.relevance.scale, rarities=plan.rarities)


def _size_of(connection: Connection, match_any: str) -> tuple[int, int] | None:
    """Return the numbers of passages and tokens; None if they are not cached and no passage matches."""
    version = data_version(connection), connection.total_changes()
    known = SIZES.get(connection)
    if known is not None and known[0] == version:
        return known[1]
    found = connection.execute(COLLECTION, (match_any,)).get
    if found is None:
        return None
    passages, tokens = orjson.loads(found)
    SIZES[connection] = version, (passages, tokens)
    return passages, tokens


def _best(
    connection: Connection,
    match: str,
    most_found: int,
    *,
    limit: int,
    reserved: MemorySource | None,
    among: Sequence[int] | None,
    also: Sequence[int],
) -> list[int]:
    """Return the ids of the passages to score."""
    are_many = len(also) > ALSO_AT_ONCE * limit
    depth = ALSO_WITHIN * limit if are_many else limit
    if reserved:
        depth = max(depth, limit * (ALL_WITHIN if most_found <= ALL_WITHIN * limit else RESERVED_WITHIN))
    if among is None:
        found = connection.execute(CANDIDATES_BY_BM25, (match, *FIELD_WEIGHTS, depth))
    else:
        found = connection.execute(CANDIDATES_AMONG, (match, _json(among), *FIELD_WEIGHTS, depth))
    best = [row[0] for row in found]
    wanted = frozenset(also)
    more = [id_ for id_ in best if id_ in wanted][:limit] if are_many else also
    ids = [*dict.fromkeys([*best[:limit], *more])]
    if reserved and len(ids) == limit:
        of_source = [*connection.execute(FIRST_OF_SOURCE, (_json(best), reserved, limit))]
        if len(of_source) < limit and len(best) == depth:
            rows = connection.execute(CANDIDATES_OF_SOURCE, (match, reserved, *FIELD_WEIGHTS, limit))
            of_source = rows.fetchall()
        ids = [*dict.fromkeys([*ids, *(row[0] for row in of_source)])]
    return ids


def _unmatched(ids: Sequence[int]) -> list[KeywordHit]:
    return [KeywordHit(id=id_, bm25=0.0, exact=False) for id_ in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPlan:
    """Which lookups of a query to make, and what each is worth. Numbers are indices into its `groups`.

    A passage is a candidate if it matches one of the first `choosing` of `asked`; the others only add to its
    score.
    """

    asked: Sequence[int]
    choosing: int
    widths: Sequence[int]
    """For each lookup in `asked`, how many strings stand for it."""
    needed: Sequence[int] | None
    """What an exact hit must match, as indices into `asked`; None if no passage can."""
    terms: frozenset[int]
    """All terms of the query; empty if some of them are not looked up."""
    relevance: Relevance
    rarities: Sequence[float]
    """The rarity of each term of the query, including those not looked up."""

    @classmethod
    def of(
        cls,
        query: KeywordQuery,
        frequencies: Sequence[int],
        *,
        passages: int,
        tokens: int,
        row_budget: int = ROW_BUDGET,
    ) -> "LookupPlan":
        """Plan a query for an index with this many passages, whose texts have this many tokens.

        `frequencies` gives the number of matching passages for each of the query's `groups`.
        """
        lookups = query.groups
        scored, counted = _choose(frequencies, row_budget=row_budget, common=passages * COMMON_SHARE)
        asked = [*scored, *counted]
        first_phrase = len(query.terms)
        first_compound = first_phrase + len(query.phrases)
        shares = [1.0] * first_phrase + [PHRASE_SHARE] * len(query.phrases)
        shares += [COMPOUND_SHARE] * (len(lookups) - first_compound)
        relevance = Relevance(
            rarities=[rarity(passages, frequencies[at]) * shares[at] for at in asked],
            missing=missing_words(query, frequencies) * rarity(passages, 0),
            average_length=max(1.0, tokens / passages),
        )
        exact = range(first_phrase if query.phrases else 0, first_compound)
        return cls(
            asked=asked,
            choosing=len(scored),
            widths=[len(lookups[at]) for at in asked],
            needed=[place for place, at in enumerate(asked) if at in exact]
            if all(frequencies[at] for at in exact)
            else None,
            terms=frozenset(range(first_phrase)) if {*range(first_phrase)} <= {*asked} else frozenset(),
            relevance=relevance,
            rarities=[rarity(passages, count) if count else 0.0 for count in frequencies[:first_phrase]],
        )

    def hit(self, passage_id: int, length: int, strings: Places, words: Sequence[str] = ()) -> KeywordHit:
        """Return a passage's hit; `length` is the number of tokens of its text.

        With `words`, the query's terms, it lists how much each contributed.
        """
        places: list[list[int]] = []
        counts: list[float] = []
        in_names: set[int] = set()
        for columns in strings if len(strings) == len(self.widths) else self._of_lookups(strings):
            text, names, headings, tags = columns
            count: float = len(text)
            if names or headings or tags:
                # Undo the length norm: only words in the text are penalised for its length.
                count += self.relevance.length_norm(length) * _weight_of_fields(names, headings, tags)
                text = _in_line(columns)
                if names or headings:
                    in_names.add(self.asked[len(places)])
            places.append(text)
            counts.append(count)
        return KeywordHit(
            id=passage_id,
            bm25=self.relevance.of(places, length=length, counts=counts),
            words=self._by_word(places, length, counts, words) if words else None,
            exact=self.needed is not None and all(map(places.__getitem__, self.needed)),
            named=bool(in_names) and bool(self.terms) and self.terms <= in_names,
        )

    def _of_lookups(self, strings: Places) -> Iterator[Sequence[list[int]]]:
        begin = 0
        for width in self.widths:
            yield _by_column(strings[begin : begin + width])
            begin += width

    def _by_word(
        self, places: Sequence[list[int]], length: int, counts: Sequence[float], words: Sequence[str]
    ) -> dict[str, float]:
        values = self.relevance.by_term(places, length=length, counts=counts)
        given = zip(self.asked, values, strict=True)
        return {words[at]: value for at, value in given if at < len(words) and value}


def _flat(lookups: Sequence[Sequence[str]], numbers: Sequence[int]) -> list[str]:
    return [one for at in numbers for one in lookups[at]]


def _by_column(strings: Sequence[Sequence[list[int]]]) -> Sequence[list[int]]:
    """Merge the positions of several strings, column by column; two strings may match the same word."""
    there = [columns for columns in strings if any(columns)]
    if len(there) < 2:
        return there[0] if there else strings[0]
    return [sorted({at for one in column for at in one}) for column in zip(*there, strict=True)]


def _weight_of_fields(*fields: list[int]) -> float:
    return sum(weight for weight, places in zip(FIELD_WEIGHTS[1:], fields, strict=True) if places)


def _in_line(columns: Sequence[list[int]]) -> list[int]:
    """Return the positions in all columns as one sequence, with each column far behind the one before."""
    return [at + number * FIELD_DISTANCE for number, places in enumerate(columns) for at in places]


def _choose(frequencies: Sequence[int], *, row_budget: int, common: float) -> tuple[list[int], list[int]]:
    """Return the lookups that select candidates, rarest first, and those that only add to the score."""
    present = sorted((count, at) for at, count in enumerate(frequencies) if count)
    scored: list[int] = []
    rows = 0
    for count, at in present:
        rows += count
        if scored and rows > row_budget:
            break
        scored.append(at)
    return scored, [at for count, at in present[len(scored) :] if count <= common]


def _match(scored: Sequence[str], counted: Sequence[str]) -> str:
    """Return the FTS5 query; its strings start with `scored`, then `counted`; any repeats come after."""
    any_scored = " OR ".join(scored)
    return f"({any_scored}) AND ({' OR '.join([*counted, any_scored])})" if counted else any_scored


def _json(numbers: Sequence[object]) -> str:
    return orjson.dumps(numbers).decode()


def _collection_size(row: "FTS5ExtensionApi", /, *_: object) -> str:
    return _json((row.row_count, row.column_total_size(0)))
