"""Finds the facts of a group that may answer a question: by words, names, parts of words, and vectors.

First the group is surveyed: its number of facts, how many of them hold each word, and whose vectors it has.
Then all searches run at once and return ids only; what they named is read in one statement."""

from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from composable_memory.errors import BackendRejected
from composable_memory.supervision.tasks import all_of
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, Row
from composable_memory_adapters.graphiti.library.vector_space import stored_space
from composable_memory_adapters.graphiti.reading.dialects import Statements, dialect_of, statements_for
from composable_memory_adapters.graphiti.reading.fact_scoring import Candidate, rarity
from composable_memory_adapters.graphiti.reading.question_words import QuestionWord
from composable_memory_adapters.graphiti.reading.rows import fact_of, iso, number_in
from composable_memory_adapters.graphiti.reading.vector_index import (
    OVERFETCH,
    VectorIndex,
    indexed,
    wants_index,
)
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_adapters.graphiti.stores import Question

__all__ = ["Candidates", "GroupSurvey", "SearchRequest", "find_candidates", "survey_group"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A question as a database is asked it; `space` names the space that `vector` is in, if that is known."""

    question: Question
    words: Sequence[QuestionWord]
    vector: Sequence[float] | None
    space: str | None
    settings: SearchSettings

    def statements(self, database: CypherDatabase) -> Statements:
        """Return the statements for this question."""
        return statements_for(database.kind, in_window=self.question.window is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    """What is known of a group: its number of facts, and how many of them hold each word.

    `engine` finds the facts that are near to the question, "exact" or "hnsw"; None without a vector, and
    where those of the group are another model's: then `mismatch` says whose.
    """

    group_id: str
    facts: int
    frequencies: Mapping[str, int]
    engine: str | None = None
    mismatch: str | None = None


async def survey_group(database: CypherDatabase, request: SearchRequest, group_id: str) -> GroupSurvey:
    """Count the facts of a group and those that hold each word, and look whose vectors it has.

    Raises:
        BackendError: the database cannot be reached.
    """
    facts, words, (stored, index) = await all_of(
        _count_facts(database, request, group_id),
        _count_words(database, request, group_id),
        _vectors(database, request, group_id),
    )
    found = GroupSurvey(group_id=group_id, facts=facts, frequencies=words)
    if request.vector is None:
        return found
    if stored is not None and stored != request.space:
        return replace(
            found, mismatch=f"its vectors were made by {stored}, the question's by {request.space}"
        )
    is_usable = index is not None and index.is_ready and index.dimensions == len(request.vector)
    return replace(found, engine="hnsw" if is_usable and wants_index(request.settings, facts) else "exact")


async def _count_facts(database: CypherDatabase, request: SearchRequest, group_id: str) -> int:
    rows = await database.read(group_id, request.statements(database).count)
    return number_in(rows[0], "facts") if rows else 0


async def _count_words(database: CypherDatabase, request: SearchRequest, group_id: str) -> Mapping[str, int]:
    any_of = dialect_of(database.kind).any_of
    texts = {any_of(word.lookups): word.text for word in request.words if not word.is_pair}
    if not texts:
        return {}
    rows = await database.read(group_id, request.statements(database).frequencies, lookups=[*texts])
    return {texts[str(row["word"])]: number_in(row, "facts") for row in rows}


async def _vectors(
    database: CypherDatabase, request: SearchRequest, group_id: str
) -> tuple[str | None, VectorIndex | None]:
    """Return the space of the vectors of a group, and their index, as far as it matters."""
    if request.vector is None:
        return None, None
    stored = await stored_space(database, group_id) if request.space else None
    return stored, await indexed(database, group_id) if request.settings.vector_index != "off" else None


MIN_CANDIDATES = 48
CANDIDATES_PER_RESULT = 2
"""Facts to take from each way. Usual limits take the same number, so that a larger one changes no order.

With 4, which takes a quarter longer, the same facts were found (349 questions)."""

MAX_NAMES = 16
"""Entities whose facts are looked at since the question names them."""

ROW_BUDGET = 4_000
"""Facts that words may choose from, about 2 ms; in larger groups the commonest words only add to scores."""

SCAN_FACTS = 5_000
"""In a larger group, words that the index does not know are not looked for as parts of others (12 ms)."""

FUZZY_LETTERS = 4
"""Words of so many letters that the index does not know are found though a letter or accent is wrong."""


SAMPLE = 64
MIN_COMPARED = 32
"""Among fewer facts a mean tells nothing."""

INCOMPARABLE = "its vectors, or some of them, are not as long as the question's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The candidates of a group; `frequencies` are of what only a scan can count, by word.

    `engine` compared vectors, if one did; else `mismatch` may tell why not. `baseline` is the mean cosine of
    some facts, where there are enough of them.
    """

    candidates: tuple[Candidate, ...] = ()
    frequencies: Mapping[str, int] = field(default_factory=dict)
    engine: str | None = None
    mismatch: str | None = None
    baseline: float | None = None


async def find_candidates(
    database: CypherDatabase, request: SearchRequest, survey: GroupSurvey
) -> Candidates:
    """Return the candidates of a group that was surveyed for this question.

    Raises:
        BackendError: the database cannot be reached.
    """
    return (
        await _Search(database, request, survey).run()
        if survey.facts
        else Candidates(mismatch=survey.mismatch)
    )


class _Search:
    """The search of one group for one question."""

    def __init__(self, database: CypherDatabase, request: SearchRequest, survey: GroupSurvey) -> None:
        self._database = database
        self._request = request
        self._survey = survey
        self._dialect = dialect_of(database.kind)
        self._statements = request.statements(database)
        self._found = Candidates(mismatch=survey.mismatch)

    async def run(self) -> Candidates:
        ways = await all_of(*self._ways())
        ids = [*dict.fromkeys(str(row["id"]) for rows in ways for row in rows)]
        rows = await self._read(ids) if ids else []
        return replace(
            self._found,
            candidates=tuple(map(self._candidate, rows)),
            frequencies=self._part_frequencies(ways),
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
        if parts := [*self._parts(unknown)]:
            yield self._ask(self._statements.by_parts, parts=parts)
            yield self._ask(self._statements.by_parts_of_names, parts=parts, names=MAX_NAMES)
        if self._survey.engine is not None:
            yield self._by_vector()

    def _rarest(self, known: Sequence[QuestionWord]) -> Iterator[QuestionWord]:
        """Yield the words that fewest facts hold, as far as the budget goes; at least one."""
        rows = 0
        for at, word in enumerate(sorted(known, key=lambda word: self._survey.frequencies[word.text])):
            rows += self._survey.frequencies[word.text]
            if at and rows > ROW_BUDGET:
                return
            yield word

    def _weighed(self, word: QuestionWord, *, in_names: bool = False) -> Mapping[str, object]:
        """Return a word as the full-text index is asked for it, with what it is worth."""
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
        """Yield what to look for within words: pairs, and in a small group what its index does not know."""
        yield from (_part(word) for word in self._request.words if word.is_pair)
        if self._survey.facts <= SCAN_FACTS:
            yield from map(_part, unknown)

    async def _by_vector(self) -> list[Row]:
        """Return the facts that are nearest, and note what is baseline."""
        is_exact = self._survey.engine == "exact"
        statement = self._statements.by_vector if is_exact else self._statements.by_vector_index
        given = {"sample": SAMPLE} | ({} if is_exact else {"near": OVERFETCH * self._count()})
        try:
            *rows, sample = await self._ask(statement, vector=self._request.vector, **given)
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
        """Return the facts with these ids, with their cosines as far as vectors can be compared."""
        group, statements = self._survey.group_id, self._statements
        if self._found.engine is not None:
            try:
                return await self._database.read(
                    group, statements.read_with_cosine, ids=ids, vector=self._request.vector
                )
            except BackendRejected:  # an index names no vectors of another length, but words may
                self._found = replace(self._found, engine=None, mismatch=INCOMPARABLE)
        return await self._database.read(group, statements.read, ids=ids)

    async def _ask(self, statement: str, **parameters: object) -> list[Row]:
        question = self._request.question
        given = {"now": iso(question.now), "count": self._count()} | parameters
        if question.window is None:
            given["superseded"] = self._request.settings.superseded_factor
        else:
            given |= {"start": iso(question.window.start), "end": iso(question.window.end)}
        return await self._database.read(self._survey.group_id, statement, **given)

    def _count(self) -> int:
        return max(MIN_CANDIDATES, CANDIDATES_PER_RESULT * self._request.question.limit)

    def _candidate(self, row: Row) -> Candidate:
        cosine = row.get("cosine")
        return Candidate(
            fact=fact_of(row, self._survey.group_id), cosine=cosine if isinstance(cosine, float) else None
        )

    def _part_frequencies(self, ways: Sequence[Sequence[Row]]) -> Mapping[str, int]:
        """Return how many facts hold each part that was looked for, by the word."""
        parts = (part for rows in ways for row in rows for part in _parts_in(row))
        counts = Counter(parts)
        words = {_part(word): word.text for word in self._request.words}
        return {words[part]: count for part, count in counts.items()}


def _parts_in(row: Row) -> Sequence[str]:
    held = row.get("held")
    return [str(part) for part in held] if isinstance(held, list) else ()


def _part(word: QuestionWord) -> str:
    """Return what a text in lower case contains if it holds the word."""
    if word.is_pair:
        return word.text
    return word.lookups[0][: len(word.beginning)] if word.is_open else word.lookups[0]
