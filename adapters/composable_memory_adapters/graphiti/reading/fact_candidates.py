"""Finds the facts of a group that may answer a question: by words, names, parts of words, and vectors.

A survey of the group comes first: its number of facts, how many of them contain each word, and which embedder
its vectors come from. Then all searches run at once and return only ids; one statement reads the facts they
found.
"""

from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

from composable_memory.content import GraphQuery, GraphQueryResult
from composable_memory.errors import BackendRejected
from composable_memory.supervision.tasks import all_of
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row, iso, number_in
from composable_memory_adapters.graphiti.episodes import graph_id
from composable_memory_adapters.graphiti.library.vectors import (
    OVERFETCH,
    VectorIndex,
    indexed,
    stored_space,
    wants_index,
)
from composable_memory_adapters.graphiti.reading.dialects import Statements, dialect_of, statements_for
from composable_memory_adapters.graphiti.reading.fact_scoring import SUPERSEDED, rarity
from composable_memory_adapters.graphiti.reading.question_words import (
    QuestionWord,
    most_selective,
    question_words,
)
from composable_memory_adapters.graphiti.reading.rows import edge_of
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates(GraphQueryResult):
    """The facts of a group that may answer, as edges without nodes, and statistics of the whole group.

    `facts` is the number of facts in the group; `frequencies` has how many of them contain each word, and
    `part_frequencies` the same for words that only a scan can count. `engine` is "exact" or "hnsw" if vectors
    were compared; otherwise `mismatch` may say why not. `baseline` is the mean cosine of some facts, if there
    are enough of them.
    """

    facts: int = 0
    frequencies: Mapping[str, int] = field(default_factory=dict)
    part_frequencies: Mapping[str, int] = field(default_factory=dict)
    engine: str | None = None
    mismatch: str | None = None
    baseline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A query for one group, with its time resolved."""

    database: CypherDatabase
    group_id: str
    query: GraphQuery
    words: Sequence[QuestionWord]
    settings: SearchSettings
    now: datetime

    @property
    def statements(self) -> Statements:
        """Return the statements for this query."""
        return statements_for(self.database.kind, in_window=self.query.window is not None)

    async def read(self, statement: str, **parameters: object) -> list[Row]:
        """Run a statement on the group."""
        return await self.database.read(self.group_id, statement, **parameters)


async def find_candidates(
    database: CypherDatabase, group_id: str, query: GraphQuery, settings: SearchSettings, *, now: datetime
) -> Candidates:
    """Return the facts of a group that may answer a query and that began during or before its time."""
    words = question_words(query.text or "")
    if query.limit < 1 or not (words or query.vector or query.entity_ids):
        return Candidates()
    request = _Request(
        database=database, group_id=group_id, query=query, words=words, settings=settings, now=now
    )
    survey = await _survey(request)
    if not survey.facts:
        return replace(survey, engine=None)
    chosen = chosen_words(words, query.window_words, survey.frequencies)
    return await _Search(replace(request, words=chosen), survey).run()


def chosen_words(
    words: Sequence[QuestionWord], window_words: str, frequencies: Mapping[str, int]
) -> tuple[QuestionWord, ...]:
    """Return the words to search for, leaving out those that name a window unless facts contain them."""
    when = {word.text for word in question_words(window_words)}
    kept = [word for word in words if word.is_pair or word.text not in when or frequencies.get(word.text)]
    return most_selective(kept or words, frequencies)


async def _survey(request: _Request) -> Candidates:
    """Count the facts of a group and those that contain each word, and find out whose vectors it has."""
    facts, words, (stored, index) = await all_of(
        _count_facts(request), _count_words(request), _vectors(request)
    )
    found = Candidates(facts=facts, frequencies=words)
    vector, space = request.query.vector, request.query.space
    if vector is None:
        return found
    if stored is not None and stored != space:
        return replace(found, mismatch=f"its vectors are from {stored}, the question's from {space}")
    is_usable = index is not None and index.is_ready and index.dimensions == len(vector)
    return replace(found, engine="hnsw" if is_usable and wants_index(request.settings, facts) else "exact")


async def _count_facts(request: _Request) -> int:
    rows = await request.read(request.statements.count)
    return number_in(rows[0], "facts") if rows else 0


async def _count_words(request: _Request) -> Mapping[str, int]:
    any_of = dialect_of(request.database.kind).any_of
    texts = {any_of(word.lookups): word.text for word in request.words if not word.is_pair}
    if not texts:
        return {}
    rows = await request.read(request.statements.frequencies, lookups=[*texts])
    return {texts[str(row["word"])]: number_in(row, "facts") for row in rows}


async def _vectors(request: _Request) -> tuple[str | None, VectorIndex | None]:
    """Return the vector space of a group and its index, if the query needs them."""
    database, group_id = request.database, request.group_id
    if request.query.vector is None:
        return None, None
    stored = await stored_space(database, group_id) if request.query.space else None
    return stored, await indexed(database, group_id) if request.settings.vector_index != "off" else None


MIN_CANDIDATES = 48
CANDIDATES_PER_RESULT = 2
"""Facts taken from each search, as a multiple of the limit; usual limits all take `MIN_CANDIDATES`.

So a larger limit does not change the order. With 4, which takes a quarter longer, the same facts were found
(349 questions).
"""

MAX_NAMES = 16
"""The most entities named in the question whose facts are read."""

ROW_BUDGET = 4_000
"""The most facts that words may choose from, about 2 ms; in larger groups common words only add to scores."""

SCAN_FACTS = 5_000
"""In a larger group, words missing from the index are not searched for inside other words (12 ms)."""

FUZZY_LETTERS = 4
"""Words of at least this many letters that the index lacks are matched despite a wrong letter or accent."""


SAMPLE = 64
MIN_COMPARED = 32
"""Over fewer facts the mean says nothing."""

INCOMPARABLE = "its vectors, or some of them, are not as long as the question's"


class _Search:
    """The search of one group for one query, after its survey."""

    def __init__(self, request: _Request, survey: Candidates) -> None:
        self._request = request
        self._survey = survey
        self._dialect = dialect_of(request.database.kind)
        self._statements = request.statements
        self._found = replace(survey, engine=None)

    async def run(self) -> Candidates:
        ways = await all_of(*self._ways())
        ids = [*dict.fromkeys(str(row["id"]) for rows in ways for row in rows)]
        rows = await self._read(ids) if ids else []
        return replace(
            self._found, edges=tuple(map(edge_of, rows)), part_frequencies=self._part_frequencies(ways)
        )

    def _ways(self) -> Iterator[Coroutine[object, object, list[Row]]]:
        words = [word for word in self._request.words if not word.is_pair]
        known = [word for word in words if self._survey.frequencies.get(word.text)]
        unknown = [word for word in words if word not in known]
        if asked := [*map(self._weighed, self._rarest(known)), *self._nearly(unknown)]:
            yield self._ask(self._statements.by_words, words=asked)
        if words:
            named = [self._weighed(word, in_names=True) for word in words]
            yield self._ask(self._statements.by_names, words=named, names=MAX_NAMES)
        if entities := self._request.query.entity_ids:
            uuids = [graph_id(self._request.group_id, one) for one in entities]
            yield self._ask(self._statements.by_entities, uuids=uuids)
        if parts := [*self._parts(unknown)]:
            yield self._ask(self._statements.by_parts, parts=parts)
            yield self._ask(self._statements.by_parts_of_names, parts=parts, names=MAX_NAMES)
        if self._survey.engine is not None:
            yield self._by_vector()

    def _rarest(self, known: Sequence[QuestionWord]) -> Iterator[QuestionWord]:
        """Yield the words that the fewest facts contain, within the row budget; at least one."""
        rows = 0
        for at, word in enumerate(sorted(known, key=lambda word: self._survey.frequencies[word.text])):
            rows += self._survey.frequencies[word.text]
            if at and rows > ROW_BUDGET:
                return
            yield word

    def _weighed(self, word: QuestionWord, *, in_names: bool = False) -> Mapping[str, object]:
        """Return a word as a query for the full-text index, with its weight."""
        forms = self._dialect.any_of(word.lookups)
        frequency = self._survey.frequencies.get(word.text, 1)
        return {
            "word": self._dialect.in_names(forms) if in_names else forms,
            "weight": rarity(self._survey.facts, frequency),
        }

    def _nearly(self, unknown: Sequence[QuestionWord]) -> Iterator[Mapping[str, object]]:
        for word in unknown:
            if word.text.isalpha() and len(word.text) >= FUZZY_LETTERS:
                form = self._dialect.nearly(word.lookups[0], 2 if word.is_open else 1)
                yield {"word": form, "weight": rarity(self._survey.facts, 1)}

    def _parts(self, unknown: Sequence[QuestionWord]) -> Iterator[str]:
        """Yield what to search for inside words: character pairs and, in a small group, unindexed words."""
        yield from (_part(word) for word in self._request.words if word.is_pair)
        if self._survey.facts <= SCAN_FACTS:
            yield from map(_part, unknown)

    async def _by_vector(self) -> list[Row]:
        """Return the nearest facts, and record the baseline cosine."""
        is_exact = self._survey.engine == "exact"
        statement = self._statements.by_vector if is_exact else self._statements.by_vector_index
        given = {"sample": SAMPLE} | ({} if is_exact else {"near": OVERFETCH * self._count()})
        try:
            *rows, sample = await self._ask(statement, vector=self._request.query.vector, **given)
        except BackendRejected:
            self._found = replace(self._found, mismatch=INCOMPARABLE)
            return []
        compared, cosine = number_in(sample, "compared"), sample["baseline"]
        if compared:
            self._found = replace(self._found, engine=self._survey.engine)
        if compared >= MIN_COMPARED and isinstance(cosine, float):
            self._found = replace(self._found, baseline=cosine)
        return rows

    async def _read(self, ids: Sequence[str]) -> list[Row]:
        """Return the facts with these ids, with their cosines if the vectors are comparable."""
        if self._found.engine is not None:
            try:
                return await self._request.read(
                    self._statements.read_with_cosine, ids=ids, vector=self._request.query.vector
                )
            except BackendRejected:  # facts found by words may have vectors of another length
                self._found = replace(self._found, engine=None, mismatch=INCOMPARABLE)
        return await self._request.read(self._statements.read, ids=ids)

    async def _ask(self, statement: str, **parameters: object) -> list[Row]:
        window = self._request.query.window
        given = {"now": iso(self._request.now), "count": self._count(), "superseded": SUPERSEDED}
        times = {"start": iso(window.start), "end": iso(window.end)} if window else {}
        return await self._request.read(statement, **given, **times, **parameters)

    def _count(self) -> int:
        return max(MIN_CANDIDATES, CANDIDATES_PER_RESULT * self._request.query.limit)

    def _part_frequencies(self, ways: Sequence[Sequence[Row]]) -> Mapping[str, int]:
        """Return for each word how many facts contain the part that was searched for."""
        parts = (part for rows in ways for row in rows for part in _parts_in(row))
        counts = Counter(parts)
        words = {_part(word): word.text for word in self._request.words}
        return {words[part]: count for part, count in counts.items()}


def _parts_in(row: Row) -> Sequence[str]:
    held = row.get("held")
    return [str(part) for part in held] if isinstance(held, list) else ()


def _part(word: QuestionWord) -> str:
    """Return the lower-case text to search for inside other words."""
    if word.is_pair:
        return word.text
    return word.lookups[0][: len(word.beginning)] if word.is_open else word.lookups[0]
