"""Answers a question with facts: finds candidates in every group, scores them alike, and keeps the best."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from composable_memory.facts import Fact
from composable_memory.supervision.tasks import all_of
from composable_memory.types import Degradation, Origin
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.episodes import origin_of
from composable_memory_adapters.graphiti.reading.candidates import (
    Candidates,
    GroupSurvey,
    SearchRequest,
    find_candidates,
    survey_group,
)
from composable_memory_adapters.graphiti.reading.dialects import dialect_of, statements_for
from composable_memory_adapters.graphiti.reading.fact_scoring import BASELINE_COSINE, Relevance, best_first
from composable_memory_adapters.graphiti.reading.question_words import (
    QuestionWord,
    most_selective,
    question_words,
)
from composable_memory_adapters.graphiti.reading.rows import with_origins
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_adapters.graphiti.stores import BACKEND_ID, FactAnswer, Question, ScoredFact

__all__ = ["add_origins", "search"]

MAX_EPISODES = 16
"""Of a fact that more episodes support, the origins of the first are named."""

DECIMALS = 6

REBUILD = "`cmem index --force` makes its vectors anew"


async def search(
    database: CypherDatabase,
    question: Question,
    vector: Sequence[float] | None,
    settings: SearchSettings,
    *,
    space: str | None = None,
) -> FactAnswer:
    """Return the facts of all groups that answer a question, best first, with their origins.

    `vector` is that of the question, None to go by words alone; `space` names the embedder that made it, as
    the graph does. With a window, only facts that held within it; without, those that do not hold now score
    less. Facts that have expired are left out.

    Raises:
        BackendError: the database cannot be reached.
    """
    request = SearchRequest(
        question=question,
        words=question_words(question.text),
        vector=_direction(vector) if vector is not None and settings.vector_weight > 0 else None,
        space=space,
        settings=settings,
    )
    if question.limit < 1 or not (request.words or request.vector):
        return FactAnswer()
    surveys = await all_of(
        *(survey_group(database, request, group) for group in dict.fromkeys(question.groups))
    )
    counts = _frequencies(one.frequencies for one in surveys)
    request = replace(request, words=most_selective(_expected(request, counts), counts))
    found = await all_of(*(find_candidates(database, request, one) for one in surveys))
    best = best_first(_scored(request, surveys, found), question.limit)
    facts = await add_origins(database, [one.fact for one in best])
    return FactAnswer(
        facts=tuple(replace(one, fact=fact) for one, fact in zip(best, facts, strict=True)),
        degraded=tuple(_degraded(surveys, found)),
        engines=_engines(database, request, found),
    )


async def add_origins(database: CypherDatabase, facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts with the places that they were taken from, in the same order."""
    episodes: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for fact in facts:
        episodes[fact.group_id].update(dict.fromkeys(fact.episodes[:MAX_EPISODES]))
    groups = {group: [*ids] for group, ids in episodes.items() if ids}
    found = await all_of(*(_origins(database, group, ids) for group, ids in groups.items()))
    by_group = dict(zip(groups, found, strict=True))
    return [with_origins(fact, by_group.get(fact.group_id, {})) for fact in facts]


def _direction(vector: Sequence[float]) -> Sequence[float] | None:
    """Return a vector at length 1 with six decimals, which halves its text; None if it has no direction."""
    length = math.hypot(*vector)
    return [round(value / length, DECIMALS) for value in vector] if 0 < length < math.inf else None


async def _origins(database: CypherDatabase, group_id: str, ids: Sequence[str]) -> Mapping[str, Origin]:
    statement = statements_for(database.kind, in_window=False).origins
    rows = await database.read(group_id, statement, ids=ids)
    origins = {str(row["id"]): origin_of(str(row["description"] or "")) for row in rows}
    return {episode: origin for episode, origin in origins.items() if origin is not None}


def _expected(request: SearchRequest, counts: Mapping[str, int]) -> Sequence[QuestionWord]:
    """Return the words without those that name the window, which few facts hold that held within it."""
    when = {word.text for word in question_words(request.question.when)}
    kept = [word for word in request.words if word.is_pair or word.text not in when or counts.get(word.text)]
    return kept or request.words


def _scored(
    request: SearchRequest, surveys: Sequence[GroupSurvey], found: Sequence[Candidates]
) -> list[ScoredFact]:
    """Return all candidates that have not expired, scored as if the groups were one."""
    question = request.question
    relevance = Relevance(
        words=request.words,
        facts=sum(one.facts for one in surveys),
        frequencies=_frequencies(
            {**candidates.frequencies, **group.frequencies}
            for group, candidates in zip(surveys, found, strict=True)
        ),
        baseline=_baseline(found),
        vector_weight=request.settings.vector_weight,
        superseded_factor=request.settings.superseded_factor,
        now=question.now if question.window is None else None,
    )
    candidates = (candidate for one in found for candidate in one.candidates)
    return [relevance.of(candidate) for candidate in candidates if _is_visible(candidate.fact, question)]


def _is_visible(fact: Fact, question: Question) -> bool:
    """Check again what the statements ask for: texts compare like times only if all are in one form."""
    in_time = question.window is None or fact.holds_within(question.window)
    return in_time and not fact.is_forgotten(question.now)


def _frequencies(of_groups: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for frequencies in of_groups:
        total.update(frequencies)
    return total


def _baseline(found: Sequence[Candidates]) -> float:
    """Return the cosine of an baseline fact; of several groups, the highest."""
    return max([BASELINE_COSINE, *(one.baseline for one in found if one.baseline is not None)])


def _degraded(surveys: Sequence[GroupSurvey], found: Sequence[Candidates]) -> list[Degradation]:
    return [
        Degradation(
            backend_id=BACKEND_ID,
            code="keyword-only",
            reason=f"facts of {group.group_id} were found by words alone: {one.mismatch}; {REBUILD}",
        )
        for group, one in zip(surveys, found, strict=True)
        if one.mismatch
    ]


def _engines(
    database: CypherDatabase, request: SearchRequest, found: Sequence[Candidates]
) -> Mapping[str, str]:
    keyword = {"keyword": dialect_of(database.kind).keyword_engine} if request.words else {}
    engines = {one.engine for one in found if one.engine}
    return keyword | ({"vector": max(engines)} if engines else {})  # "hnsw" if any group was searched so
