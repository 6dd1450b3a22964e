"""Answers a question with facts: finds candidates in every group, scores them alike, and keeps the best.

Rules extract a fact from a sentence only if they are sure, and a model may miss one. So episodes are also
searched by their own words: the best sentence of an episode is returned if no fact states it.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from composable_memory.content import GraphQuery, GraphQueryResult
from composable_memory.facts import Fact
from composable_memory.ingest.records import node_id
from composable_memory.interfaces import GraphAdapter
from composable_memory.supervision.tasks import all_of
from composable_memory.types import Degradation, Origin
from composable_memory_adapters.graphiti.database.cypher import (
    CypherDatabase,
    Row,
    iso,
    moment_in,
    number_in,
    text_in,
    texts_in,
)
from composable_memory_adapters.graphiti.episodes import origin_of
from composable_memory_adapters.graphiti.fact_stores import (
    BACKEND_ID,
    FactAnswer,
    Question,
    ScoredFact,
    ScoredPassage,
)
from composable_memory_adapters.graphiti.reading.dialects import dialect_of, statements_for
from composable_memory_adapters.graphiti.reading.fact_candidates import Candidates, chosen_words
from composable_memory_adapters.graphiti.reading.fact_scoring import (
    BASELINE_COSINE,
    MIN_SCORE,
    Relevance,
    best_first,
)
from composable_memory_adapters.graphiti.reading.namesakes import spellings_of
from composable_memory_adapters.graphiti.reading.question_words import QuestionWord, question_words
from composable_memory_adapters.graphiti.reading.rows import fact_in, with_origins
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_EPISODES = 16
"""The most episodes whose origins are given for one fact; the first ones count."""

DECIMALS = 6

REBUILD = "`cmem index --force` recreates its vectors"


async def search(
    database: CypherDatabase,
    graphs: Mapping[str, GraphAdapter],
    question: Question,
    vector: Sequence[float] | None,
    settings: SearchSettings,
    *,
    space: str | None = None,
) -> FactAnswer:
    """Return the facts that answer a question, best first, with their origins.

    The candidates are what the `graphs`, keyed by group, return. `vector` is that of the question, None to
    search by words alone; `space` names the embedder that made it, as the graph does. Facts that did not hold
    in the window, or that do not hold now if there is none, score lower; those that began after the window,
    and expired ones, are left out.
    """
    words = question_words(question.text)
    query = GraphQuery(
        text=question.text,
        entity_ids=tuple(map(node_id, question.entities)),
        limit=question.limit,
        vector=_direction(vector) if vector is not None and settings.vector_weight > 0 else None,
        space=space,
        window=question.window,
        window_words=question.when,
        now=question.now,
        edges_only=True,
    )
    if question.limit < 1 or not (words or query.vector):
        return FactAnswer()
    results, names = await all_of(
        all_of(*(graph.query(query) for graph in graphs.values())),
        all_of(*(_other_names(database, group, question.entities) for group in graphs)),
    )
    found = dict(zip(graphs, map(_with_numbers, results), strict=True))
    chosen = chosen_words(words, question.when, _total(one.frequencies for one in found.values()))
    scored = _scored(question, chosen, settings, found, dict(zip(graphs, names, strict=True)))
    best = best_first(scored, question.limit)
    facts = await add_origins(database, [one.fact for one in best])
    passages = await find_passages(database, question, chosen or words)
    return FactAnswer(
        facts=tuple(replace(one, fact=fact) for one, fact in zip(best, facts, strict=True)),
        passages=tuple(passages),
        degraded=tuple(_degraded(found)),
        engines=_engines(database, chosen, found.values()),
    )


async def add_origins(database: CypherDatabase, facts: Sequence[Fact]) -> list[Fact]:
    """Return the facts with their origins, in the same order."""
    episodes: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for fact in facts:
        episodes[fact.group_id].update(dict.fromkeys(fact.episodes[:MAX_EPISODES]))
    groups = {group: [*ids] for group, ids in episodes.items() if ids}
    found = await all_of(*(_origins(database, group, ids) for group, ids in groups.items()))
    by_group = dict(zip(groups, found, strict=True))
    return [with_origins(fact, by_group.get(fact.group_id, {})) for fact in facts]


def _direction(vector: Sequence[float]) -> Sequence[float] | None:
    """Return a vector normalised to six decimals, which halves its text; None if its length is zero."""
    length = math.hypot(*vector)
    return [round(value / length, DECIMALS) for value in vector] if 0 < length < math.inf else None


async def _origins(database: CypherDatabase, group_id: str, ids: Sequence[str]) -> Mapping[str, Origin]:
    statement = statements_for(database.kind, in_window=False).origins
    rows = await database.read(group_id, statement, ids=ids)
    origins = {str(row["id"]): origin_of(str(row["description"] or "")) for row in rows}
    return {episode: origin for episode, origin in origins.items() if origin is not None}


def _with_numbers(result: GraphQueryResult) -> Candidates:
    """Return a result with its group's statistics; if the graph provides none, only what the result has."""
    if isinstance(result, Candidates):
        return result
    return Candidates(nodes=result.nodes, edges=result.edges, facts=len(result.edges))


def _scored(
    question: Question,
    words: Sequence[QuestionWord],
    settings: SearchSettings,
    found: Mapping[str, Candidates],
    names: Mapping[str, Mapping[str, str]],
) -> list[ScoredFact]:
    """Return all candidates that have not expired, scored as if all groups were one.

    A fact about a person also counts as containing their full name; `names` maps first names to full names.
    """
    relevance = Relevance(
        words=words,
        facts=sum(one.facts for one in found.values()),
        frequencies=_total({**one.part_frequencies, **one.frequencies} for one in found.values()),
        baseline=_baseline(found.values()),
        vector_weight=settings.vector_weight,
        holds=question.is_true_of,
    )
    facts = (one for group, part in found.items() for one in _facts(group, part))
    return [
        replace(relevance.of(_with_full_names(fact, names[fact.group_id]), cosine), fact=fact)
        for fact, cosine in facts
        if _is_visible(fact, question)
    ]


async def _other_names(database: CypherDatabase, group_id: str, entities: Sequence[str]) -> Mapping[str, str]:
    """Map the first names used in a question to full names."""
    full = [name for name in entities if " " in name]
    same = await all_of(*(spellings_of(database, group_id, name) for name in full))
    return {
        short: name
        for name, names in zip(full, same, strict=True)
        for short in names.values()
        if short not in full
    }


def _with_full_names(fact: Fact, names: Mapping[str, str]) -> Fact:
    ends = {end: f"{end} {names[end]}" for end in (fact.source, fact.target) if end in names}
    return replace(fact, source=ends.get(fact.source, fact.source), target=ends.get(fact.target, fact.target))


def _facts(group_id: str, found: Candidates) -> Iterator[tuple[Fact, float | None]]:
    """Yield the facts of a group, each with the cosine between its vector and the question's."""
    labels = {node.id: node.label for node in found.nodes}
    for edge in found.edges:
        cosine = edge.properties.get("cosine")
        yield fact_in(edge, group_id, labels), cosine if isinstance(cosine, float) else None


def _is_visible(fact: Fact, question: Question) -> bool:
    """Repeat the checks of the statements: text compares like times only if it is all in one format."""
    return question.admits(fact) and not fact.is_forgotten(question.now)


def _total(of_groups: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for frequencies in of_groups:
        total.update(frequencies)
    return total


def _baseline(found: Iterable[Candidates]) -> float:
    """Return the cosine of an unrelated fact; of several groups, the highest."""
    return max([BASELINE_COSINE, *(one.baseline for one in found if one.baseline is not None)])


def _degraded(found: Mapping[str, Candidates]) -> list[Degradation]:
    return [
        Degradation(
            backend_id=BACKEND_ID,
            code="keyword-only",
            reason=f"facts in {group_id} were searched by words only: {one.mismatch}; {REBUILD}",
        )
        for group_id, one in found.items()
        if one.mismatch
    ]


def _engines(
    database: CypherDatabase, words: Sequence[QuestionWord], found: Iterable[Candidates]
) -> Mapping[str, str]:
    keyword = {"keyword": dialect_of(database.kind).keyword_engine} if words else {}
    engines = {one.engine for one in found if one.engine}
    return keyword | ({"vector": max(engines)} if engines else {})  # "hnsw" if any group used it


MAX_PASSAGE_EPISODES = 64
"""The most episodes of a group whose sentences are read: those with most of the question's words."""

CONFIDENCE = 0.6
"""The weight of a sentence relative to an extracted fact."""

_SENTENCE = re.compile(r"[^\n.!?。！？]+(?:[.!?](?!\s|$)[^\n.!?。！？]*)*[.!?。！？]*")


async def find_passages(
    database: CypherDatabase, question: Question, words: Sequence[QuestionWord]
) -> list[ScoredPassage]:
    """Return sentences that contain words of the question, best first, except those that a fact states.

    Such a fact need not be among the answers: it may not have held at the time asked about.
    """
    if not words:
        return []
    groups = [*dict.fromkeys(question.groups)]
    found = await all_of(*(_of_group(database, group, question, words) for group in groups))
    relevance = Relevance(
        words=words,
        facts=sum(one.episodes for one in found),
        frequencies=_total(one.frequencies for one in found),
        vector_weight=0.0,
        holds=question.is_true_of,
    )
    best = (_best_of(row, one, relevance) for one in found for row in one.rows)
    scored = sorted(filter(None, best), key=lambda one: (-one.score, one.episode_id))
    return scored[: question.limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The episodes of a group with most of the words, their facts, and each word's episode count."""

    group_id: str
    episodes: int
    frequencies: Mapping[str, int]
    rows: Sequence[Row]
    facts: Mapping[str, Row]


async def _of_group(
    database: CypherDatabase, group_id: str, question: Question, words: Sequence[QuestionWord]
) -> _Found:
    statements = statements_for(database.kind, in_window=False)
    any_of = dialect_of(database.kind).any_of
    lookups = {any_of(word.lookups): word.text for word in words if not word.is_pair}
    parts = [word.text for word in words if word.is_pair]
    until = iso(question.window.end if question.window else question.now)
    counted, hits = await all_of(
        database.read(group_id, statements.count_episodes),
        database.read(group_id, statements.passages, lookups=[*lookups], parts=parts, until=until),
    )
    held: defaultdict[str, set[str]] = defaultdict(set)
    for hit in hits:
        held[text_in(hit["id"])].add(lookups.get(text_in(hit["held"]), text_in(hit["held"])))
    ids = sorted(held, key=lambda id_: (-len(held[id_]), id_))[:MAX_PASSAGE_EPISODES]
    rows = await database.read(group_id, statements.episodes, ids=ids) if ids else []
    of_facts = [*dict.fromkeys(one for row in rows for one in texts_in(row["facts"]))]
    facts = await database.read(group_id, statements.facts_of_episodes, ids=of_facts) if of_facts else []
    return _Found(
        group_id=group_id,
        episodes=number_in(counted[0], "episodes") if counted else 0,
        frequencies=Counter(word for words_held in held.values() for word in words_held),
        rows=rows,
        facts={text_in(one["id"]): one for one in facts},
    )


def _best_of(row: Row, found: _Found, relevance: Relevance) -> ScoredPassage | None:
    """Return the best sentence of an episode; None if it contains too little, or if a fact states it."""
    facts = [found.facts[one] for one in texts_in(row["facts"]) if one in found.facts]
    best: ScoredPassage | None = None
    for sentence in _SENTENCE.findall(text_in(row["text"])):
        words = sentence.strip(" \t-*#>|")
        if not words or any(_says(one, words) for one in facts):
            continue
        fact = Fact(
            id="",
            group_id=found.group_id,
            text=words,
            relation="",
            source="",
            target="",
            confidence=CONFIDENCE,
        )
        scored = relevance.of(fact)
        if scored.score >= MIN_SCORE and (best is None or scored.score > best.score):
            best = ScoredPassage(
                episode_id=text_in(row["id"]),
                group_id=found.group_id,
                text=words,
                observed_at=moment_in(row["observed_at"]),
                origin=origin_of(text_in(row["description"])),
                score=scored.score,
                exact=scored.exact,
            )
    return best


def _says(fact: Row, sentence: str) -> bool:
    """Return whether a fact states a sentence: it shares its words or mentions the same two entities."""
    fact_text, plain = _plain(text_in(fact["fact"])), _plain(sentence)
    ends = (_plain(text_in(fact["source"])), _plain(text_in(fact["target"])))
    return (fact_text != "" and (plain in fact_text or fact_text in plain)) or all(
        end and end in plain for end in ends
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!?。！？ ")
