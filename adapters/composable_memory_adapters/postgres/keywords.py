"""The keyword leg of the PostgreSQL memory: the server selects candidates by BM25, and we score them here."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from composable_memory.types import MemorySource
from composable_memory_adapters.builtin.search.compound_words import (
    Asked,
    CountPassages,
    LongWords,
    find_compounds,
)
from composable_memory_adapters.builtin.search.hybrid import KeywordHit
from composable_memory_adapters.builtin.search.keyword_leg import (
    ALSO_AT_ONCE,
    ALSO_WITHIN,
    COMMON_SHARE,
    ROW_BUDGET,
    KeywordAnswer,
    LookupPlan,
)
from composable_memory_adapters.builtin.search.time_matching import MOST_LISTED
from composable_memory_adapters.postgres import postings
from composable_memory_adapters.postgres.passage_tokens import NOWHERE, Sought, fts5_rarity, fts5_score
from composable_memory_adapters.postgres.server import Connection
from composable_memory_adapters.postgres.snapshot import WorkspaceState
from composable_memory_adapters.text import compounds
from composable_memory_adapters.text.forms import Stemmer
from composable_memory_adapters.text.query_terms import KeywordQuery, Lookup
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_PHRASES = 4
"""Maximum phrases of a question that are looked up: many passages may have the words apart."""

DEEPER = 4
"""Candidates to fetch per result: the order by stored weights is nearly the true one."""

BITS = 63
"""Words looked up together, with one bit of a number for each."""

RARER = 16
"""A text is looked up by its rarest word, and by words with up to this many times as many passages.

Looking up where a word is takes a twentieth of the time of reading the text of its passages.
"""

MOST_WORDS = 500
"""Maximum words looked up for a prefix."""

ASKED = "unnest($2::text[], $3::smallint[], $4::int[]) AS asked (one, its_bucket, number)"
# The number of passages that have any word of a group, or were found for it in another way.
COUNTS = f"""
SELECT number, count(*) FROM (
  SELECT number, id FROM (
    {postings.entries(ASKED, "number")}
    UNION ALL SELECT number, id, 1 FROM unnest($5::int[], $6::bigint[]) AS also (number, id)
  ) AS entry GROUP BY number, id HAVING sum(sign(weight)) > 0
) AS found GROUP BY number
"""  # noqa: S608 - our own text
# The passages that contain each of some texts: looked for where its rare words are, each of which has a bit.
BITS_OF = "unnest($2::text[], $3::smallint[], $4::bigint[]) AS asked (one, its_bucket, bit)"
HOLDING = f"""
SELECT text, passage_words.id FROM (
  SELECT id, bit_or(bit) AS bits FROM ({postings.entries(BITS_OF, "bit")}) AS entry GROUP BY id
) AS found
JOIN unnest($5::text[], $6::bigint[]) AS sought (text, needed) ON bits & needed = needed
JOIN passage_words ON passage_words.tenant = $1 AND passage_words.id = found.id
WHERE position(text IN words) > 0
"""  # noqa: S608 - our own text
WORTH = """
unnest($2::text[], $3::smallint[], $4::real[], $5::bool[]) AS asked (one, its_bucket, rarity, chooses)
"""
CANDIDATES = f"""
SELECT id, length, tokens, words FROM passage_words WHERE tenant = $1 AND id IN (
  (SELECT id FROM (
    SELECT id, sum(weight * rarity) AS score
    FROM ({postings.entries(WORTH, "rarity, chooses")}) AS entry GROUP BY id HAVING bool_or(chooses)
  ) AS found
  WHERE ($8::bigint[] IS NULL OR id IN (SELECT unnest($8::bigint[])))
    AND ($9::text IS NULL OR EXISTS (
      SELECT FROM passage_words AS its WHERE its.tenant = $1 AND its.id = found.id AND source = $9
    ))
  ORDER BY score DESC, id LIMIT $6)
  UNION ALL SELECT unnest($7::bigint[])
)
"""  # noqa: S608 - our own text
PASSAGES = "SELECT id, length, tokens, words FROM passage_words WHERE tenant = $1 AND id = ANY ($2)"
ENDING_SO = """
SELECT backwards FROM unnest($2::text[]) WITH ORDINALITY AS one (beginning, place) JOIN long_words
ON tenant = $1 AND backwards > beginning AND backwards < beginning || chr(1114111)
  AND length(backwards) >= length(beginning) + $3
ORDER BY place, backwards
"""


@dataclass(frozen=True, slots=True)
class _Question:
    """The tokens for each string of a question, by group, and how many passages have each."""

    groups: Sequence[Sequence[Sought]]
    counts: Sequence[Sequence[int]]
    """For each string."""
    frequencies: Sequence[int]
    """For each group."""
    tokens: Sequence[Sequence[frozenset[str]]]
    """The words of the index that a string may match."""
    phrases: Mapping[Sought, Collection[int]]
    """The passages with the strings that consist of several tokens."""


class Keywords:
    """Looks for words in the passages of a tenant, within one transaction."""

    def __init__(self, connection: Connection, tenant: int, state: WorkspaceState) -> None:
        self._connection = connection
        self._tenant = tenant
        self._state = state
        self._stemmer = Stemmer()

    async def with_compounds(self, query: KeywordQuery) -> KeywordQuery:
        """Return `query` with the compounds of its words that occur in the workspace."""
        if query.language not in compounds.ENDINGS:
            return query
        search = find_compounds(query)
        try:
            asked = next(search)
            while True:
                asked = search.send(await self._answer(asked))
        except StopIteration as end:
            found: KeywordQuery = end.value
            return found

    async def saying(self, spellings: Iterable[str]) -> frozenset[int]:
        """Return passages with any of some word sequences."""
        sought = [self._sought(Lookup(tuple(one.split()))) for one in spellings]
        found = {id_ for ids in (await self._holding(sought)).values() for id_ in ids}
        return frozenset(sorted(found)[:MOST_LISTED])

    async def having(self, phrase: str) -> frozenset[int]:
        """Return the passages with the words of a phrase next to each other."""
        (group,) = KeywordQuery(terms=(), phrases=(phrase,)).groups
        found = await self._holding([self._sought(one) for one in group])
        return frozenset(id_ for ids in found.values() for id_ in ids)

    async def search(
        self,
        query: KeywordQuery,
        *,
        limit: int,
        reserved: MemorySource | None = None,
        among: Sequence[int] | None = None,
        also: Sequence[int] = (),
        wordless: int | None = None,
    ) -> KeywordAnswer:
        """Return the passages that match `query` best, as `keyword_leg.search` does for the index file."""
        listed = also[: limit if wordless is None else wordless]
        if not query.groups or not self._state.passages:
            return KeywordAnswer(hits=[*_unmatched(listed)], scale=1.0)
        asked = await self._question(query)
        passages = self._state.passages
        # The builtin memory stops counting where more makes no difference; its rarities come from the capped
        # counts.
        most = passages if passages <= ROW_BUDGET else int(passages * COMMON_SHARE) + 1
        frequencies = [min(one, most) for one in asked.frequencies]
        plan = LookupPlan.of(query, frequencies, passages=passages, tokens=self._state.length)
        are_many = len(also) > ALSO_AT_ONCE * limit
        depth = ALSO_WITHIN * limit if are_many else limit
        found = await self._candidates(asked, plan, depth, among=among, also=() if are_many else also)
        best = [id_ for id_, _, _ in found]
        wanted = frozenset(also)
        more = [id_ for id_ in best[:depth] if id_ in wanted][:limit] if are_many else also
        ids = {*best[:limit], *more}
        if reserved and among is None and len(ids) == limit:
            others = await self._candidates(asked, plan, limit, source=reserved)
            found += [one for one in others if one[0] not in ids]
            ids.update(one[0] for one in others)
        hits = [plan.hit(id_, length, places) for id_, length, places in found if id_ in ids]
        hits.sort(key=lambda hit: (-hit.bm25, hit.id))
        matched = {hit.id for hit in hits}
        hits += _unmatched([id_ for id_ in listed if id_ not in matched])
        return KeywordAnswer(hits=hits, scale=plan.relevance.scale, rarities=plan.rarities)

    async def _candidates(
        self,
        asked: _Question,
        plan: LookupPlan,
        depth: int,
        *,
        among: Sequence[int] | None = None,
        also: Sequence[int] = (),
        source: MemorySource | None = None,
    ) -> list[tuple[int, int, list[list[list[int]]]]]:
        """Return the best passages in FTS5's order, with their lengths and the places of the strings in them.

        Those in `also` that match at all are included.
        """
        passages = self._state.passages
        choosing = plan.asked[: plan.choosing]
        chosen = {token for at in choosing for some in asked.tokens[at] for token in some}
        if not chosen:
            return []
        worth = {
            token: fts5_rarity(passages, count)
            for at in plan.asked
            for some, count in zip(asked.tokens[at], asked.counts[at], strict=True)
            for token in some
        }
        chooses = [token in chosen for token in worth]
        strings = [one for at in plan.asked for one in asked.groups[at]]

        async def fetched(
            choosing: Sequence[bool], also: Sequence[int], among: Sequence[int] | None
        ) -> dict[int, Sequence[Any]]:
            asked_words = [*worth], postings.buckets_of(worth), [*worth.values()], choosing
            most = DEEPER * depth
            rows = await self._connection.fetch(
                CANDIDATES, self._tenant, *asked_words, most, also, among, source
            )
            return {id_: row for id_, *row in rows}

        rows = await fetched(chooses, also, among)
        if len(rows) >= DEEPER * depth:
            for one in [one for one in strings if one.is_phrase][:MOST_PHRASES]:
                holding = asked.phrases.get(one, ())
                within = [*holding] if among is None else [*{*holding}.intersection(among)]
                if len(within) <= DEEPER * depth:
                    found = await self._connection.fetch(PASSAGES, self._tenant, within)
                    rows |= {id_: row for id_, *row in found}
                else:
                    rows |= await fetched([True] * len(worth), (), within)
        # An FTS5 query repeats the selecting strings if there are others.
        twice = sum(len(asked.groups[at]) for at in choosing) if plan.choosing < len(plan.asked) else 0
        rarities = [
            fts5_rarity(passages, count) * (2 if place < twice else 1)
            for place, count in enumerate(count for at in plan.asked for count in asked.counts[at])
        ]
        average = self._state.tokens / passages
        told = [(one, worth) for one, worth in zip(strings, rarities, strict=True) if one.tokens]
        sought, worths = zip(*told, strict=True)
        scored = []
        for id_, (length, tokens, words) in rows.items():
            score = fts5_score(words, sought, worths, tokens=tokens, average=average)
            if score:
                scored.append((-score, id_, length, words))
        scored.sort()
        kept = {*also}
        return [
            (id_, length, [one.places(words) if one.text in words else NOWHERE for one in strings])
            for rank, (_, id_, length, words) in enumerate(scored)
            if rank < depth or id_ in kept
        ]

    # --- frequencies --------------------------------------------------------------------------------------

    def _sought(self, lookup: Lookup) -> Sought:
        return Sought.of(lookup, self._stemmer)

    async def _question(self, query: KeywordQuery) -> _Question:
        groups = [[self._sought(one) for one in group] for group in query.groups]
        tokens = [[await self._tokens(one) for one in group] for group in groups]
        strings = dict(zip(chain.from_iterable(groups), chain.from_iterable(tokens), strict=True))
        words = {one.tokens[0]: one for one in strings if len(one.tokens) == 1 and not one.is_open}
        in_phrases = chain.from_iterable(one.tokens for one in strings if one.is_phrase)
        known = await postings.count_words(self._connection, self._tenant, [*{*words, *in_phrases}])
        phrases = await self._holding([one for one in strings if one.is_phrase], known)
        having: dict[tuple[Sought, ...], int] = {(one,): len(ids) for one, ids in phrases.items()}
        having |= {(one,): known[word] for word, one in words.items() if word in known}
        # The index has the number of passages with one word; with several words, they are counted.
        beginnings = [(one,) for one in strings if one.is_open and not one.is_phrase]
        several = [*beginnings, *(tuple(group) for group in groups if len(group) > 1)]
        having |= zip(several, await self._count(several, strings, phrases), strict=True)
        counts = [[having.get((one,), 0) for one in group] for group in groups]
        frequencies = [having.get((*group,), 0) for group in groups]
        return _Question(groups, counts, frequencies, tokens, phrases)

    async def _tokens(self, sought: Sought) -> frozenset[str]:
        """Return the index words of which a matching passage has at least one."""
        if not sought.is_open or not sought.tokens:
            return frozenset(sought.tokens)
        *before, last = sought.tokens
        words = await postings.words_with(self._connection, self._tenant, last, MOST_WORDS)
        return frozenset([*before, *words])

    async def _count(
        self,
        groups: Sequence[Sequence[Sought]],
        tokens: Mapping[Sought, frozenset[str]],
        phrases: Mapping[Sought, Collection[int]],
    ) -> list[int]:
        """Return for each group how many passages have any of its strings."""
        asked, also = list[tuple[str, int, int]](), list[tuple[int, int]]()
        for number, group in enumerate(groups):
            for one in group:
                if one.is_phrase:
                    also += [(number, id_) for id_ in phrases.get(one, ())]
                else:
                    words = tokens[one]
                    asked += zip(words, postings.buckets_of(words), repeat(number), strict=False)
        if not asked and not also:
            return [0] * len(groups)
        columns = [*_columns(asked, 3), *_columns(also, 2)]
        counted = dict(map(tuple, await self._connection.fetch(COUNTS, self._tenant, *columns)))
        return [counted.get(number, 0) for number in range(len(groups))]

    async def _holding(
        self, strings: Iterable[Sought], counts: Mapping[str, int] | None = None
    ) -> Mapping[Sought, Collection[int]]:
        """Return the passages with each of some strings, out of those with any.

        `counts` has the number of passages for each of their words, if known.
        """
        asked = list[tuple[Sought, frozenset[str]]]()
        for one in strings:
            whole = one.tokens[:-1] if one.is_open else one.tokens
            words = [frozenset(whole[:BITS])] if whole else [frozenset([w]) for w in await self._tokens(one)]
            asked += [(one, some) for some in words]
        by_text = {one.text: one for one, _ in asked}
        if not asked:
            return {}
        if counts is None:
            every = frozenset[str]().union(*(some for _, some in asked))
            counts = await postings.count_words(self._connection, self._tenant, [*every])
        asked = [(one, _rarest(some, counts)) for one, some in asked if some <= counts.keys()]
        found: dict[Sought, set[int]] = {}
        while asked:
            bits: dict[str, int] = {}
            sought: list[tuple[str, int]] = []
            while asked and len(bits.keys() | asked[-1][1]) <= BITS:
                one, some = asked.pop()
                mask = sum(bits.setdefault(word, 1 << len(bits)) for word in some)
                sought.append((one.text, mask))
            columns = [*bits], postings.buckets_of(bits), [*bits.values()], *_columns(sought, 2)
            for text, id_ in await self._connection.fetch(HOLDING, self._tenant, *columns):
                found.setdefault(by_text[text], set()).add(id_)
        return found

    async def _answer(self, asked: Asked) -> int | Sequence[str]:
        if isinstance(asked, CountPassages):
            sought = [self._sought(one) for one in asked.lookups]
            tokens = {one: await self._tokens(one) for one in sought}
            phrases = await self._holding([one for one in sought if one.is_phrase])
            return (await self._count([sought], tokens, phrases))[0]
        assert isinstance(asked, LongWords)
        rows = await self._connection.fetch(ENDING_SO, self._tenant, [*asked.beginnings], asked.more)
        return [*dict.fromkeys(row["backwards"] for row in rows)][: asked.limit]


def _rarest(words: frozenset[str], counts: Mapping[str, int]) -> frozenset[str]:
    """Return the words by which to look up passages that have all of them."""
    most = RARER * min(counts[word] for word in words)
    return frozenset(word for word in words if counts[word] <= most)


def _unmatched(ids: Iterable[int]) -> Iterable[KeywordHit]:
    return (KeywordHit(id=id_, bm25=0.0, exact=False) for id_ in ids)


def _columns(rows: Sequence[Sequence[object]], width: int) -> Iterable[Sequence[object]]:
    return zip(*rows, strict=True) if rows else [()] * width
