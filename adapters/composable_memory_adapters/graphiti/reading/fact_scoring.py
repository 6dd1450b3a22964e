"""How well a fact answers a question, as a number that means the same for every question (pure).

A fact that holds all the words of a question, and is as near to it as a sentence can be, has 1. Without
vectors, one that holds half of the words has about a half. What has less than `MIN_SCORE` is noise.

A REST service ranks by words and by meaning, but returns no scores: the nearest facts come even to a question
that the graph knows nothing about. So a rank alone is worth little there, and words decide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from math import isfinite, log

from composable_memory.facts import Fact
from composable_memory_adapters.graphiti.fact_stores import ScoredFact
from composable_memory_adapters.graphiti.reading.question_words import FactWords, QuestionWord
from composable_memory_ops_logs.quick_dataclass import dataclass

MIN_SCORE = 0.1
"""What scores lower is no answer."""

EXPECTED_WORDS = 8
"""No fact is expected to hold more content words of a question: facts are sentences."""

BASELINE_COSINE = 0.06
"""Between a question and a fact that it has nothing to do with, as WordLlama sees it (mean of 150 pairs)."""

NOISE = 0.15
"""A cosine this share of the way from an baseline one to 1 may still be chance."""

SPAN = 0.5
"""A question never is its answer: half the way from the noise to 1 is as near as they come."""


SUPERSEDED = 0.5
"""What the score of a fact is multiplied by that does not hold at the time asked about."""

ASKED_AS = {
    "LIVES_IN": "wohnt wohnen gewohnt lebt leben gelebt vive vivió",
    "WORKS_AT": "arbeitet arbeiten gearbeitet trabaja trabajó",
    "MARRIED_TO": "verheiratet geheiratet casado casada",
    "LEADS": "leitet dirige lidera",
    "USES": "nutzt nutzen verwendet usa usan",
    "REPORTS_TO": "chef chefin jefe jefa",
}
"""What German and Spanish questions call a relation, whose own words are English, however a fact puts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Scores facts for one question.

    `frequencies` tell how many of the `facts` of a graph hold a word. `baseline` is the cosine of a fact that
    does not answer; embedders differ much in it. `vector_weight` is the share of likeness, in [0, 1], and
    `holds` says whether a fact holds at the time asked about.
    """

    words: Sequence[QuestionWord]
    facts: int
    frequencies: Mapping[str, int]
    baseline: float = BASELINE_COSINE
    vector_weight: float
    holds: Callable[[Fact], bool]
    _rarities: Mapping[str, float] = field(init=False, repr=False)
    _expected: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Work out once what is the same for every fact."""
        rarities = {word.text: self._rarity(word) for word in self.words}
        object.__setattr__(self, "_rarities", rarities)
        object.__setattr__(self, "_expected", self._most_that_is_expected())

    def of(self, fact: Fact, cosine: float | None = None) -> ScoredFact:
        """Return a fact with its score; `cosine` is between its vector and the question's, if both have one.

        score = (share of words and likeness, weighed) * (0.5 + 0.5 * confidence) * (1 if it holds, else 0.5)
        """
        share, is_exact = self._words_held(fact)
        score = share
        if cosine is not None:
            score += self.vector_weight * (self.likeness(cosine) - share)
        if fact.confidence is not None:
            score *= 0.5 + 0.5 * min(1.0, max(0.0, fact.confidence))
        if not self.holds(fact):
            score *= SUPERSEDED
        return ScoredFact(fact=fact, score=min(1.0, max(0.0, score)), exact=is_exact)

    def likeness(self, cosine: float) -> float:
        """Return a cosine as a number from 0, where it may be chance, to 1, where it could hardly be more."""
        if not isfinite(cosine):
            return 0.0
        floor = self.baseline + NOISE * (1 - self.baseline)
        return min(1.0, max(0.0, (cosine - floor) / (SPAN * (1 - floor) or 1.0)))

    def _words_held(self, fact: Fact) -> tuple[float, bool]:
        """Return the share of the words that a fact holds, rarer ones counting more, and if it holds all."""
        if not self.words:
            return 0.0, False
        asked = ASKED_AS.get(fact.relation, "")
        held_words = FactWords.of((fact.text, fact.source, fact.target, fact.relation, asked))
        held = [word for word in self.words if held_words.hold(word)]
        weight = sum(self._rarities[word.text] for word in held)
        share = min(1.0, weight / self._expected) if self._expected else 0.0
        return share, len(held) == len(self.words)

    def _most_that_is_expected(self) -> float:
        """Return what the rarest words together weigh that a fact can be expected to hold.

        Words that no fact has come last: in a long question there are always some.
        """
        known = [self._rarity(word) for word in self.words if self.frequencies.get(word.text)]
        unknown = [rarity(self.facts, 1)] * (len(self.words) - len(known))
        return sum([*sorted(known, reverse=True), *unknown][:EXPECTED_WORDS])

    def _rarity(self, word: QuestionWord) -> float:
        return rarity(self.facts, max(1, self.frequencies.get(word.text, 0)))


def rarity(facts: int, frequency: int) -> float:
    """Return how much a word tells that `frequency` of the `facts` hold; above 0.

    Robertson and Sparck Jones's weight, with 1 added inside the logarithm as Lucene has it, so that a word
    that most facts hold still counts.
    """
    frequency = min(frequency, facts)
    return log(1 + (facts - frequency + 0.5) / (frequency + 0.5))


def best_first(scored: Sequence[ScoredFact], limit: int) -> tuple[ScoredFact, ...]:
    """Return the best that are not noise; of equal ones what has not ended, then the newer, then by id."""
    relevant = [one for one in scored if one.score >= MIN_SCORE]
    relevant.sort(
        key=lambda one: (
            -one.score,
            one.fact.invalid_at is not None,
            -_seconds(one.fact.valid_at),
            one.fact.id,
            one.fact.group_id,
        )
    )
    return tuple(relevant[:limit])


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment else float("-inf")


PLACE_WEIGHT = 0.4
HALF_PLACE = 10
"""The place, counted from 0, that is worth half of what the first is."""


def score_by_place(fact: Fact, place: int, words: Sequence[QuestionWord], *, holds: bool) -> ScoredFact:
    """Return a fact that a service brought with its score in [0, 1], by its place in the list, from 0.

    score = (0.4 / (1 + place / 10) + 0.6 * share of its words in the fact) * (1 if it holds, else 0.5)
    """
    held_words = FactWords.of((fact.text, fact.relation))
    held = sum(map(held_words.hold, words))
    share = held / len(words) if words else 0.0
    score = PLACE_WEIGHT / (1 + place / HALF_PLACE) + (1 - PLACE_WEIGHT) * share
    score *= 1.0 if holds else SUPERSEDED
    return ScoredFact(fact=fact, score=score, exact=bool(words) and held == len(words))
