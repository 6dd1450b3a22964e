"""The keyword leg of the PostgreSQL memory: BM25 chooses in the server, what was chosen is scored here."""

import re
from collections.abc import Iterable, Sequence

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
from composable_memory_adapters.postgres.passage_tokens import Fields, Sought, fts5_rarity, fts5_score, sparse
from composable_memory_adapters.postgres.server import Connection
from composable_memory_adapters.postgres.snapshot import WorkspaceState
from composable_memory_adapters.text import compounds
from composable_memory_adapters.text.forms import Stemmer
from composable_memory_adapters.text.query_terms import KeywordQuery, Lookup
from composable_memory_ops_logs.quick_dataclass import dataclass

PHRASE = """
SELECT id, words FROM passage_words
WHERE tenant = $1 AND {has_any} AND position($5 IN words) > 0
  AND ($6::bigint[] IS NULL OR id = ANY ($6)) AND ($7::text IS NULL OR source = $7)
ORDER BY weights <#> $3, id LIMIT $4
"""
MOST_PHRASES = 4
"""So many phrases of a question are looked for as such: the words of one may stand apart in many passages."""

DEEPER = 4
"""So many times the candidates are fetched: their order by the stored weights is nearly the true one."""

MOST_WORDS = 500
"""Of a beginning that more words have, so many are looked up."""

BEGINNING = (
    "SELECT word FROM vocabulary WHERE tenant = $1 AND word >= $2 AND word < $2 || chr(1114111)"
    " ORDER BY word LIMIT $3"
)
WORDS = "SELECT word, passages FROM vocabulary WHERE tenant = $1 AND word = ANY ($2)"
CANDIDATES = """
SELECT id, words FROM passage_words
WHERE tenant = $1 AND ({has_any_or_also}) AND ($6::bigint[] IS NULL OR id = ANY ($6))
  AND ($7::text IS NULL OR source = $7)
ORDER BY id = ANY ($5) DESC, weights <#> $3, id LIMIT $4
"""
SAYING = """
SELECT id FROM passage_words WHERE tenant = $1 AND {has_any} AND words ~ $3 ORDER BY id LIMIT $4
"""
BY_WEIGHT = "(weights <#> ${number}) < 0"
BY_POSTING = "id IN (SELECT unnest(ids) FROM postings WHERE tenant = $1 AND word = ANY (${number}::text[]))"
OR_ALSO = " OR id = ANY ($5)"
POSTED_OR_ALSO = """id IN (
  SELECT unnest(ids) FROM postings WHERE tenant = $1 AND word = ANY ($2::text[])
  UNION ALL SELECT unnest($5::bigint[])
)"""
ENDING_SO = """
SELECT backwards FROM unnest($2::text[]) WITH ORDINALITY AS one (beginning, place) JOIN long_words
ON tenant = $1 AND backwards > beginning AND backwards < beginning || chr(1114111)
  AND length(backwards) >= length(beginning) + $3
ORDER BY place, backwards
"""


@dataclass(frozen=True, slots=True)
class _Question:
    """The tokens behind each string of a question, group by group, and how many passages have each."""

    groups: Sequence[Sequence[Sought]]
    counts: Sequence[Sequence[int]]
    """Of each string."""
    frequencies: Sequence[int]
    """Of each group."""
    tokens: Sequence[Sequence[frozenset[str]]]
    """The words of the index that a string may stand for."""


class Keywords:
    """Looks for words in the passages of a tenant, within one transaction."""

    def __init__(self, connection: Connection, tenant: int, state: WorkspaceState) -> None:
        self._connection = connection
        self._tenant = tenant
        self._state = state
        self._stemmer = Stemmer()
        self._is_indexed = state.is_indexed

    async def with_compounds(self, query: KeywordQuery) -> KeywordQuery:
        """Return `query` with the compounds of its words that the workspace has."""
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
        """Return passages with any of some sequences of words."""
        sought = [self._sought(Lookup(tuple(one.split()))) for one in spellings]
        tokens = {token for one in sought for token in one.tokens}
        if not tokens:
            return frozenset()
        pattern = "|".join(re.escape(one.text) for one in sought)
        query = SAYING.format(has_any=self._has_any_of(2))
        rows = await self._connection.fetch(query, self._tenant, self._given(tokens), pattern, MOST_LISTED)
        return frozenset(row["id"] for row in rows)

    async def having(self, phrase: str) -> frozenset[int]:
        """Return the passages with the words of a phrase beside each other."""
        (group,) = KeywordQuery(terms=(), phrases=(phrase,)).groups
        sought = [self._sought(one) for one in group]
        values: list[object] = [self._tenant]
        either = self._has_any(sought, [await self._tokens(one) for one in sought], values)
        query = f"SELECT id FROM passage_words WHERE tenant = $1 AND ({either})"  # noqa: S608
        return frozenset(row["id"] for row in await self._connection.fetch(query, *values))

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
        """Return the passages with the most of `query`, as `keyword_leg.search` does from the index file."""
        listed = also[: limit if wordless is None else wordless]
        if not query.groups or not self._state.passages:
            return KeywordAnswer(hits=[*_unmatched(listed)], scale=1.0)
        asked = await self._question(query)
        passages = self._state.passages
        # The builtin memory counts no further where it makes no difference, which its rarities show.
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
        hits = [plan.hit(id_, fields.length, places) for id_, fields, places in found if id_ in ids]
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
    ) -> list[tuple[int, Fields, list[list[list[int]]]]]:
        """Return the best passages in FTS5's order with their words and where the strings are in them.

        Those of `also` that have any are among them.
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
        rows = await self._connection.fetch(
            CANDIDATES.format(
                has_any_or_also=POSTED_OR_ALSO if self._is_indexed else self._has_any_of(2) + OR_ALSO
            ),
            self._tenant,
            self._given(chosen),
            sparse(worth),
            DEEPER * depth + len(also),
            also,
            among,
            source,
        )
        strings = [one for at in plan.asked for one in asked.groups[at]]
        if len(rows) >= DEEPER * depth:
            texts = dict(map(tuple, rows))
            for one in [one for one in strings if len(one.tokens) > 1][:MOST_PHRASES]:
                more = await self._connection.fetch(
                    PHRASE.format(has_any=self._has_any_of(2)),
                    self._tenant,
                    self._given(one.tokens[: -1 if one.is_open else None]),
                    sparse(worth),
                    DEEPER * depth,
                    one.text,
                    among,
                    source,
                )
                texts |= dict(map(tuple, more))
            rows = [*texts.items()]
        # In a query of FTS5 those that choose stand twice where there are others.
        twice = sum(len(asked.groups[at]) for at in choosing) if plan.choosing < len(plan.asked) else 0
        rarities = [
            fts5_rarity(passages, count) * (2 if place < twice else 1)
            for place, count in enumerate(count for at in plan.asked for count in asked.counts[at])
        ]
        average = self._state.tokens / passages
        scored = []
        for id_, words in rows:
            fields = Fields(words)
            places = [fields.places(one) for one in strings]
            if any(any(columns) for columns in places):
                score = fts5_score(places, rarities, tokens=fields.tokens, average=average)
                scored.append((-score, id_, fields, places))
        scored.sort(key=lambda one: one[:2])
        kept = {*also}
        return [
            (id_, fields, places)
            for rank, (_, id_, fields, places) in enumerate(scored)
            if rank < depth or id_ in kept
        ]

    # --- frequencies --------------------------------------------------------------------------------------

    def _sought(self, lookup: Lookup) -> Sought:
        return Sought.of(lookup, self._stemmer)

    async def _question(self, query: KeywordQuery) -> _Question:
        groups = [[self._sought(one) for one in group] for group in query.groups]
        tokens = [[await self._tokens(one) for one in group] for group in groups]
        words = [*{token for group in groups for one in group if one.is_word for token in one.tokens}]
        known = dict(await self._connection.fetch(WORDS, self._tenant, words))
        counts: list[list[int]] = []
        frequencies: list[int] = []
        for group, some in zip(groups, tokens, strict=True):
            each = [
                known.get(one.tokens[0], 0) if one.is_word else await self._count([one], [own])
                for one, own in zip(group, some, strict=True)
            ]
            counts.append(each)
            there = [at for at, count in enumerate(each) if count]
            if len(there) > 1:
                frequencies.append(await self._count([group[at] for at in there], [some[at] for at in there]))
            else:
                frequencies.append(sum(each))
        return _Question(groups, counts, frequencies, tokens)

    async def _tokens(self, sought: Sought) -> frozenset[str]:
        """Return the words of the index of which a passage with this has at least one."""
        if not sought.is_open or not sought.tokens:
            return frozenset(sought.tokens)
        *before, last = sought.tokens
        rows = await self._connection.fetch(BEGINNING, self._tenant, last, MOST_WORDS)
        return frozenset([*before, *(row["word"] for row in rows)])

    async def _count(self, strings: Sequence[Sought], tokens: Sequence[frozenset[str]]) -> int:
        """Return how many passages have any of some strings."""
        values: list[object] = [self._tenant]
        either = self._has_any(strings, tokens, values)
        query = f"SELECT count(*) FROM passage_words WHERE tenant = $1 AND ({either})"  # noqa: S608
        return int(await self._connection.fetchval(query, *values))

    def _has_any_of(self, number: int) -> str:
        """Return the condition that a passage has one of the tokens that a parameter holds."""
        return (BY_POSTING if self._is_indexed else BY_WEIGHT).format(number=number)

    def _given(self, tokens: Iterable[str]) -> object:
        """Return tokens as such a parameter."""
        return [*tokens] if self._is_indexed else sparse(dict.fromkeys(tokens, 1.0))

    def _has_any(
        self, strings: Sequence[Sought], tokens: Sequence[frozenset[str]], values: list[object]
    ) -> str:
        """Return the condition that a passage has one of some strings; what is compared joins `values`."""
        either = []
        for one, some in zip(strings, tokens, strict=True):
            if not some:
                continue
            values.append(self._given(some))
            has_any = self._has_any_of(len(values))
            if len(one.tokens) > 1:
                values.append(one.text)
                has_any = f"({has_any} AND position(${len(values)} IN words) > 0)"
            either.append(has_any)
        if self._is_indexed and len(either) > 1:  # which no index serves at once
            values.append([*{token for some in tokens for token in some}])
            return f"{self._has_any_of(len(values))} AND ({' OR '.join(either)})"
        return " OR ".join(either) or "false"

    async def _answer(self, asked: Asked) -> int | Sequence[str]:
        if isinstance(asked, CountPassages):
            sought = [self._sought(one) for one in asked.lookups]
            return await self._count(sought, [await self._tokens(one) for one in sought])
        assert isinstance(asked, LongWords)
        rows = await self._connection.fetch(ENDING_SO, self._tenant, [*asked.beginnings], asked.more)
        return [*dict.fromkeys(row["backwards"] for row in rows)][: asked.limit]


def _unmatched(ids: Iterable[int]) -> Iterable[KeywordHit]:
    return (KeywordHit(id=id_, bm25=0.0, exact=False) for id_ in ids)
