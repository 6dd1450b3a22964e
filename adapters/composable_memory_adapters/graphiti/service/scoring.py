"""Scores for facts that come in an order alone, by place and by words they share with a question (pure).

The service ranks by words and by meaning, but tells neither how well a fact matches nor whether it does at
all: the nearest facts come even to a question that the graph knows nothing about. So a place alone is worth
little, and words decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from composable_memory.facts import Fact
from composable_memory_adapters.graphiti.reading.words import FactWords, QuestionWord
from composable_memory_adapters.graphiti.stores import ScoredFact

__all__ = ["Placing"]

PLACE_WEIGHT = 0.4
HALF_PLACE = 10
"""The place, counted from 0, that is worth half of what the first is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Scores the facts that a service brings for one question.

    The score of what does not hold at `now` is multiplied by `superseded_factor`; None for `now` where the
    time does not matter.
    """

    words: Sequence[QuestionWord]
    superseded_factor: float
    now: datetime | None = None

    def of(self, fact: Fact, place: int) -> ScoredFact:
        """Return a fact with its score, in [0, 1], by its place in the service's list, counted from 0.

        score = (0.4 / (1 + place / 10) + 0.6 * share of the words that it holds) * superseded factor
        """
        held_words = FactWords.of((fact.text, fact.relation))
        held = sum(map(held_words.hold, self.words))
        share = held / len(self.words) if self.words else 0.0
        score = PLACE_WEIGHT / (1 + place / HALF_PLACE) + (1 - PLACE_WEIGHT) * share
        if self.now is not None and not fact.is_current(self.now):
            score *= self.superseded_factor
        return ScoredFact(fact=fact, score=score, exact=bool(self.words) and held == len(self.words))
