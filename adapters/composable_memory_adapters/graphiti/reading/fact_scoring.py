"""Scores how well a fact answers a question, on a scale that is the same for every question (pure).

A fact that contains all the words of a question, and is as close to it as a sentence can be, scores 1.
Without vectors, one that contains half of the words scores about a half. Anything below `MIN_SCORE` is noise.

A REST service ranks by words and by meaning, but returns no scores: it returns the nearest facts even for a
question that the graph knows nothing about. So its rank alone is worth little, and words decide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from math import isfinite, log

from composable_memory.facts import Fact
from composable_memory_adapters.graphiti.fact_stores import ScoredFact
from composable_memory_adapters.graphiti.reading.question_words import FactWords, QuestionWord
from composable_memory_ops_logs.quick_dataclass import dataclass

MIN_SCORE = 0.1
"""Facts that score lower are no answer."""

EXPECTED_WORDS = 8
"""The most content words of a question that a fact is expected to contain: facts are sentences."""

BASELINE_COSINE = 0.06
"""The cosine between a question and an unrelated fact, as WordLlama computes it (mean of 150 pairs)."""

NOISE = 0.15
"""A cosine this share of the way from the baseline to 1 may still be chance."""

SPAN = 0.5
"""A question is never its own answer: half the way from the noise to 1 is as close as they come."""


SUPERSEDED = 0.5
"""The factor for the score of a fact that does not hold at the time asked about."""

ASKED_AS = {
    "LIVES_IN": "wohnt wohnen gewohnt lebt leben gelebt vive vivió",
    "WORKS_AT": "arbeitet arbeiten gearbeitet trabaja trabajó",
    "MARRIED_TO": "verheiratet geheiratet casado casada",
    "LEADS": "leitet dirige lidera",
    "USES": "nutzt nutzen verwendet usa usan",
    "REPORTS_TO": "chef chefin jefe jefa",
}
"""The words of German and Spanish questions for relations, whose names are English in every language."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Scores facts for one question.

    `frequencies` has how many of the `facts` of a graph contain each word. `baseline` is the cosine of a fact
    that does not answer; it differs greatly between embedders. `vector_weight` is the share of similarity in
    the score, in [0, 1], and `holds` says whether a fact holds at the time asked about.
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
        """Compute what is the same for every fact."""
        rarities = {word.text: self._rarity(word) for word in self.words}
        object.__setattr__(self, "_rarities", rarities)
        object.__setattr__(self, "_expected", self._most_that_is_expected())

    def of(self, fact: Fact, cosine: float | None = None) -> ScoredFact:
        """Return a fact with its score; `cosine` is between its vector and the question's, if both have one.

        score = (weighted mean of word share and likeness) * (0.5 + 0.5 * confidence) * (1 if it holds, else
        0.5)
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
        """Map a cosine to [0, 1], from 0, which may be chance, to 1, which is as similar as facts get."""
        if not isfinite(cosine):
            return 0.0
        floor = self.baseline + NOISE * (1 - self.baseline)
        return min(1.0, max(0.0, (cosine - floor) / (SPAN * (1 - floor) or 1.0)))

    def _words_held(self, fact: Fact) -> tuple[float, bool]:
        """Return the share of the words that a fact contains, weighted by rarity, and whether that is all."""
        if not self.words:
            return 0.0, False
        asked = ASKED_AS.get(fact.relation, "")
        held_words = FactWords.of((fact.text, fact.source, fact.target, fact.relation, asked))
        held = [word for word in self.words if held_words.hold(word)]
        weight = sum(self._rarities[word.text] for word in held)
        share = min(1.0, weight / self._expected) if self._expected else 0.0
        return share, len(held) == len(self.words)

    def _most_that_is_expected(self) -> float:
        """Return the total weight of the rarest words that a fact can be expected to contain.

        Words that no fact contains come last: a long question always has some.
        """
        known = [self._rarity(word) for word in self.words if self.frequencies.get(word.text)]
        unknown = [rarity(self.facts, 1)] * (len(self.words) - len(known))
        return sum([*sorted(known, reverse=True), *unknown][:EXPECTED_WORDS])

    def _rarity(self, word: QuestionWord) -> float:
        return rarity(self.facts, max(1, self.frequencies.get(word.text, 0)))


def rarity(facts: int, frequency: int) -> float:
    """Return the weight of a word that `frequency` of the `facts` contain; above 0.

    This is the Robertson and Sparck Jones weight, with 1 added inside the logarithm as in Lucene, so that a
    word in most facts still counts.
    """
    frequency = min(frequency, facts)
    return log(1 + (facts - frequency + 0.5) / (frequency + 0.5))


def best_first(scored: Sequence[ScoredFact], limit: int) -> tuple[ScoredFact, ...]:
    """Return the best facts above the noise; on ties, facts that have not ended, then newer, then by id."""
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
"""The rank, counted from 0, that is worth half as much as the first."""


def score_by_place(fact: Fact, place: int, words: Sequence[QuestionWord], *, holds: bool) -> ScoredFact:
    """Score a fact from a service in [0, 1] by its rank in the list, counted from 0.

    score = (0.4 / (1 + place / 10) + 0.6 * share of its words in the fact) * (1 if it holds, else 0.5)
    """
    held_words = FactWords.of((fact.text, fact.relation))
    held = sum(map(held_words.hold, words))
    share = held / len(words) if words else 0.0
    score = PLACE_WEIGHT / (1 + place / HALF_PLACE) + (1 - PLACE_WEIGHT) * share
    score *= 1.0 if holds else SUPERSEDED
    return ScoredFact(fact=fact, score=score, exact=bool(words) and held == len(words))
