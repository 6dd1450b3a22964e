"""Finds the sentences of episodes that answer a question, where no fact says what they say.

Rules take a fact from a sentence only where they are sure, and a model may leave one out. So what was
ingested is found by its own words too: the best sentence of an episode stands for it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from composable_memory.facts import Fact
from composable_memory.supervision.tasks import all_of
from composable_memory_adapters.graphiti.database.cypher import (
    CypherDatabase,
    Row,
    iso,
    moment_in,
    text_in,
    texts_in,
)
from composable_memory_adapters.graphiti.episodes import origin_of
from composable_memory_adapters.graphiti.fact_stores import Passage, Question, ScoredPassage
from composable_memory_adapters.graphiti.reading.dialects import dialect_of, statements_for
from composable_memory_adapters.graphiti.reading.fact_scoring import MIN_SCORE, Candidate, Relevance
from composable_memory_adapters.graphiti.reading.question_words import QuestionWord
from composable_memory_adapters.graphiti.reading.rows import number_in
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_EPISODES = 64
"""Episodes of a group whose sentences are looked at: those that hold most of the question's words."""

CONFIDENCE = 0.6
"""What a sentence is worth beside a fact that was understood."""

_SENTENCE = re.compile(r"[^\n.!?。！？]+(?:[.!?](?!\s|$)[^\n.!?。！？]*)*[.!?。！？]*")


async def find_passages(
    database: CypherDatabase, question: Question, words: Sequence[QuestionWord]
) -> list[ScoredPassage]:
    """Return the sentences that hold words of a question, best first, but none that a fact says.

    Whether such a fact is among the answers is another matter: it may not have held at the time asked about.

    Raises:
        BackendError: the database cannot be reached.
    """
    if not words:
        return []
    groups = [*dict.fromkeys(question.groups)]
    found = await all_of(*(_of_group(database, group, question, words) for group in groups))
    frequencies: Counter[str] = Counter()
    for one in found:
        frequencies.update(one.frequencies)
    relevance = Relevance(
        words=words,
        facts=sum(one.episodes for one in found),
        frequencies=frequencies,
        vector_weight=0.0,
        superseded_factor=1.0,
        holds=question.is_true_of,
    )
    best = (_best_of(row, one, relevance) for one in found for row in one.rows)
    scored = sorted(filter(None, best), key=lambda one: (-one.score, one.passage.episode_id))
    return scored[: question.limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The episodes of a group that hold most of the words, their facts, and how many hold each word."""

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
    ids = sorted(held, key=lambda id_: (-len(held[id_]), id_))[:MAX_EPISODES]
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
    """Return the best sentence of an episode; None where it holds too little, or a fact says it."""
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
        scored = relevance.of(Candidate(fact=fact))
        if scored.score >= MIN_SCORE and (best is None or scored.score > best.score):
            passage = Passage(
                episode_id=text_in(row["id"]),
                group_id=found.group_id,
                text=words,
                observed_at=moment_in(row["observed_at"]),
                origin=origin_of(text_in(row["description"])),
            )
            best = ScoredPassage(passage=passage, score=scored.score, exact=scored.exact)
    return best


def _says(fact: Row, sentence: str) -> bool:
    """Return whether a fact was taken from a sentence: it has its words, or speaks of the same two."""
    said, plain = _plain(text_in(fact["fact"])), _plain(sentence)
    ends = (_plain(text_in(fact["source"])), _plain(text_in(fact["target"])))
    return (said != "" and (plain in said or said in plain)) or all(end and end in plain for end in ends)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!?。！？ ")
