"""How well a passage answers the words of a question, computed from where in it the words are.

SQLite's `bm25()` chooses the candidates; it cannot score them for people. In a small index it counts a word
that half of the passages have as worthless, and it does not see whether the words stand together.
"""

from collections.abc import Sequence
from math import exp, log

from composable_memory_ops_logs.quick_dataclass import dataclass

K1 = 1.2
B = 0.75
"""How fast repetition stops to count, and how much length is held against a passage: FTS5's own values."""

WINDOW_TOKENS = 16
"""Words this near to each other count as standing together."""

WINDOW_SHARE = 0.5
"""What standing together is worth, measured in what occurring at all is worth."""

STEEPNESS = 2.4
"""How fast relevance comes near to the best score: a passage with all that is expected of it has 0.91."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageMatch:
    """Where in a passage the terms of a question begin: token numbers, ascending, one sequence per term.

    `length` counts the tokens of the passage. `counts` says how much each term counts there; by default, how
    often it is there.
    """

    places: Sequence[Sequence[int]]
    length: int
    counts: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Scores passages for one question.

    `rarities` belong to the terms that are looked up, in the order of their places; `missing` is the sum for
    those that no passage has. They weigh on every score: a question half of which is unknown has no full hit.
    """

    rarities: Sequence[float]
    missing: float = 0.0
    average_length: float

    @property
    def scale(self) -> float:
        """Return the score of a passage of average length with every term once, all near each other."""
        return (1 + WINDOW_SHARE) * (sum(self.rarities) + self.missing)

    def length_norm(self, length: int) -> float:
        """Return by how much a word counts less in a passage of so many tokens than in an average one."""
        return 1 - B + B * length / self.average_length

    def of(self, match: PassageMatch) -> float:
        """Return BM25 plus the rarity of the terms that stand together; 0 or more, without an upper end."""
        penalty = K1 * self.length_norm(match.length)
        counts = match.counts if match.counts is not None else [len(one) for one in match.places]
        found = zip(self.rarities, counts, strict=True)
        bm25 = sum([rarity * count * (K1 + 1) / (count + penalty) for rarity, count in found if count])
        return bm25 + WINDOW_SHARE * self._densest_window(match.places)

    def by_term(self, match: PassageMatch) -> list[float]:
        """Return what each term adds to the relevance; together they are what `of` returns."""
        penalty = K1 * self.length_norm(match.length)
        counts = match.counts if match.counts is not None else [len(one) for one in match.places]
        found = sorted([(at, term) for term, positions in enumerate(match.places) for at in positions])
        windows = [{term for at, term in found if end - WINDOW_TOKENS <= at <= end} for end, _ in found]
        densest = max(windows, key=lambda terms: sum(self.rarities[term] for term in terms), default=set())
        return [
            rarity * (count * (K1 + 1) / (count + penalty) + WINDOW_SHARE * (term in densest))
            for term, (rarity, count) in enumerate(zip(self.rarities, counts, strict=True))
        ]

    def _densest_window(self, places: Sequence[Sequence[int]]) -> float:
        """Return the largest sum of rarities of different terms within `WINDOW_TOKENS`."""
        rarities = self.rarities
        alone = [rarity for rarity, positions in zip(rarities, places, strict=True) if positions]
        if len(alone) < 2:
            return sum(alone)
        found = sorted([(at, term) for term, positions in enumerate(places) for at in positions])
        inside = [0] * len(places)
        first = 0
        total = best = 0.0
        for at, term in found:
            if not inside[term]:
                total += rarities[term]
            inside[term] += 1
            while found[first][0] < at - WINDOW_TOKENS:
                leaving = found[first][1]
                inside[leaving] -= 1
                if not inside[leaving]:
                    total -= rarities[leaving]
                first += 1
            best = max(best, total)
        return best


def absolute_score(relevance: float, *, scale: float) -> float:
    """Return a relevance as a score in [0, 1), which means the same for every question."""
    return 1 - exp(-STEEPNESS * relevance / scale)


def rarity(passages: int, frequency: int) -> float:
    """Return the inverse document frequency of a term that `frequency` of `passages` contain; above 0.

    Robertson and Sparck Jones's weight with 1 added inside the logarithm, as Lucene has it: FTS5's form falls
    to nothing for a term in half of the passages, which in an index of three notes is almost any term.
    """
    return log(1 + (passages - frequency + 0.5) / (frequency + 0.5))
