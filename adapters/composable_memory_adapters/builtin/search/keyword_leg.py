"""Search by words: finds candidates with the keyword index and says how relevant each is.

A word counts where it is in the text of a passage, and by a weight of their own where it is in the names of
its note, the headings above it or the tags.

SQLite scores every passage that has any of the words, at about a microsecond each. In a large index a common
word therefore only counts in passages that also have a rarer one, and a very common one not at all.
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
"""Where each string of a query begins in a passage: token numbers by column."""

ROW_BUDGET = 8_000
"""About 8 ms. An index that has no more passages is searched without any shortcut."""

COMMON_SHARE = 0.25
"""Where the budget does not suffice, a word in more passages than this is not looked up."""

FIELD_WEIGHTS = (1.0, 2.0, 1.0, 1.0)
"""What a word counts in the text, the names, the headings and the tags of a passage."""

FIELD_DISTANCE = 1_000_000
"""The distance assumed between words in different fields, so that they never count as near each other."""

PHRASE_SHARE = 0.25
"""What a phrase adds to its words, which count already, and count more for standing together."""

SORTED_WHOLE = 400
"""Of no more passages the best are handed over by the statement that finds them: it then sorts them all."""

ALSO_AT_ONCE = 2
"""If more than this many times the limit must be scored, only those with the most words of the query are."""

ALSO_WITHIN = 10
"""These are looked for among so many times the limit: a second scan would take as long as the first."""

RESERVED_WITHIN = 6
ALL_WITHIN = 20
"""Those of one source are looked for among so many times the limit, or among all if these are few: to look
up the source of each passage that matches takes six times as long as to score it. If that is too few, the
source is rare, and its passages are listed."""

COMPOUND_SHARE = 0.3
"""What a word that ends in one of the question counts: a Speisekarte is a Karte, but seldom the one meant."""

COLLECTION = "SELECT collection_size(chunks_fts) FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT 1"
SIZES: WeakKeyDictionary[Connection, tuple[tuple[int, int], tuple[int, int]]] = WeakKeyDictionary()
"""How many passages and tokens an index has, at the version of it that a connection has seen last."""

FREQUENCIES = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH value LIMIT ?2))
FROM json_each(?1) ORDER BY key
"""
# Ordering by the value of bm25() keeps only the best rows while scanning; by `rank` it sorts them all.
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
# The ids are looked up as they stand in the list, until there are enough.
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
# The plus keeps SQLite from opening the index anew for each id, which takes ten times as long.
MATCHED = """
SELECT hand_over(chunks_fts) FROM chunks_fts
WHERE chunks_fts MATCH ? AND +rowid IN (SELECT value FROM json_each(?)) LIMIT ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordAnswer:
    """The passages that words were found in, best first, and the relevance that a good answer has.

    `rarities` belong to the terms of the question, 0 for one that no passage has.
    """

    hits: Sequence[KeywordHit]
    scale: float
    rarities: Sequence[float] = ()


class _Receiver:
    """Hands the rows of a statement over to a function: cheaper than telling in JSON what is in them."""

    take: Callable[["FTS5ExtensionApi"], None]

    def __call__(self, row: "FTS5ExtensionApi", /, *_: object) -> None:
        self.take(row)


RECEIVERS: WeakKeyDictionary[Connection, _Receiver] = WeakKeyDictionary()
"""That of each connection that was prepared."""


def prepare(connection: Connection) -> None:
    """Teach a connection the two SQL functions that `search` needs, once: SQLite would keep them all."""
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
    """Return the `limit` passages with the most of `query`; runs within the caller's transaction.

    With `among`, only those passages are looked for; `also` are looked at in any case, and the first
    `wordless` of them (None: `limit`) returned even if they have no word of it. With `reserved`, the `limit`
    passages of that source that have the most of it are returned as well, so that another source does not
    crowd it out. `row_budget` is how many passages SQLite may score, unless the rarest word alone is in more.
    With `by_word` hits say what each word gave.
    """
    match_any = query.match_any()
    size = _size_of(connection, match_any) if match_any else None
    listed = also[: limit if wordless is None else wordless]
    if size is None:
        return KeywordAnswer(hits=tuple(_unmatched(listed)), scale=1.0)
    passages, tokens = size
    # From this frequency on it makes no difference how common a word is.
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
    """Return how many passages and tokens an index has; None if no passage matches, unless that is known."""
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
    """Return the passages to be scored."""
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
    """Which lookups of a question to make, and what each is worth. Numbers are places in its `groups`.

    A passage is a candidate if it has one of the first `choosing` of those `asked`; the others only add to
    its score.
    """

    asked: Sequence[int]
    choosing: int
    widths: Sequence[int]
    """Of each of those looked up, how many strings stand for it."""
    needed: Sequence[int] | None
    """What an exact hit has to have, as places in `asked`; None if no passage can."""
    terms: frozenset[int]
    """All terms of the question; nothing if some are not looked up."""
    relevance: Relevance
    rarities: Sequence[float]
    """Of each term of the question, also of those that are not looked up."""

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
        """Return the plan for an index of so many passages, whose texts have so many tokens.

        `frequencies` say of each of the `groups` how many passages have it.
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
        """Return what a passage is worth whose text has so many tokens.

        With the `words` of the terms it says what each of them gave.
        """
        places: list[list[int]] = []
        counts: list[float] = []
        in_names: set[int] = set()
        for columns in strings if len(strings) == len(self.widths) else self._of_lookups(strings):
            text, names, headings, tags = columns
            count: float = len(text)
            if names or headings or tags:
                # However long the text is: its length is held against words in the text alone.
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
    """Return column by column where any of several strings begins; one word may be what two look for."""
    there = [columns for columns in strings if any(columns)]
    if len(there) < 2:
        return there[0] if there else strings[0]
    return [sorted({at for one in column for at in one}) for column in zip(*there, strict=True)]


def _weight_of_fields(*fields: list[int]) -> float:
    return sum(weight for weight, places in zip(FIELD_WEIGHTS[1:], fields, strict=True) if places)


def _in_line(columns: Sequence[list[int]]) -> list[int]:
    """Return the places in all columns as if each began far behind the one before."""
    return [at + number * FIELD_DISTANCE for number, places in enumerate(columns) for at in places]


def _choose(frequencies: Sequence[int], *, row_budget: int, common: float) -> tuple[list[int], list[int]]:
    """Return the lookups that choose the passages, rarest first, and those that only add to the score."""
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
    """Return the FTS5 query; its first strings are `scored`, then `counted`, whatever it repeats after."""
    any_scored = " OR ".join(scored)
    return f"({any_scored}) AND ({' OR '.join([*counted, any_scored])})" if counted else any_scored


def _json(numbers: Sequence[object]) -> str:
    return orjson.dumps(numbers).decode()


def _collection_size(row: "FTS5ExtensionApi", /, *_: object) -> str:
    return _json((row.row_count, row.column_total_size(0)))
