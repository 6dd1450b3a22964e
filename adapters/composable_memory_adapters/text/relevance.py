"""How well a passage answers the words of a question, computed from where in it the words are.

SQLite's `bm25()` chooses the candidates; it cannot score them for people. In a small index it counts a word
that half of the passages have as worthless, and it does not see whether the words stand together. Texts that
another memory has found are scored in the same way: how rare a word is, is estimated from what it found.
"""

from collections.abc import Sequence
from math import exp, log

from composable_memory_adapters.text.forms import Stemmer
from composable_memory_adapters.text.query_terms import KeywordQuery, Lookup
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
class Relevance:
    """Scores passages for one question.

    `rarities` belong to the terms that are looked up, in the order of their places; `missing` is the sum for
    those that no passage has. They weigh on every score: a question half of which is unknown has no full hit.

    Token numbers, ascending, say where each term begins in a passage of `length` tokens; `counts` how much
    each counts there, which is how often it is there where nothing else is said.
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

    def of(
        self, places: Sequence[Sequence[int]], *, length: int, counts: Sequence[float] | None = None
    ) -> float:
        """Return BM25 plus the rarity of the terms that stand together; 0 or more, without an upper end."""
        penalty = K1 * self.length_norm(length)
        bm25 = rarest = 0.0
        there = 0
        for rarity, count in zip(self.rarities, counts or map(len, places), strict=True):
            if count:
                bm25 += rarity * count * (K1 + 1) / (count + penalty)
                there, rarest = there + 1, rarity
        return bm25 + WINDOW_SHARE * (self._densest_window(places) if there > 1 else rarest)

    def by_term(
        self, places: Sequence[Sequence[int]], *, length: int, counts: Sequence[float] | None = None
    ) -> list[float]:
        """Return what each term adds to the relevance; together they are what `of` returns."""
        penalty = K1 * self.length_norm(length)
        found = sorted([(at, term) for term, positions in enumerate(places) for at in positions])
        windows = [{term for at, term in found if end - WINDOW_TOKENS <= at <= end} for end, _ in found]
        densest = max(windows, key=lambda terms: sum(self.rarities[term] for term in terms), default=set())
        return [
            rarity * (count * (K1 + 1) / (count + penalty) + WINDOW_SHARE * (term in densest))
            for term, (rarity, count) in enumerate(
                zip(self.rarities, counts or map(len, places), strict=True)
            )
        ]

    def _densest_window(self, places: Sequence[Sequence[int]]) -> float:
        """Return the largest sum of rarities of different terms within `WINDOW_TOKENS`."""
        rarities = self.rarities
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


PHRASE_SHARE = 0.25
"""Weight of a phrase in addition to its words, which are counted already."""

MISSING_NAME = 2.0
"""How many other missing words a missing name weighs: what is found without it seldom answers."""

MIN_PREFIX = 3
"""A word that occurs nowhere is taken for a prefix if it has at least so many letters."""

MAX_TEXTS = 2500
"""How many texts a `StemCache` keeps; with their stems, English passages take about 25 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The score of a passage for its words, in [0, 1); `exact` if it contains all of them."""

    words: float
    exact: bool


class StemCache:
    """Keeps the stems of passages, which consecutive queries need again; threads may share it."""

    def __init__(self, max_texts: int = MAX_TEXTS) -> None:
        self._max_texts = max_texts
        self._kept: dict[str, str] = {}

    def of_texts(self, texts: Sequence[str], stemmer: Stemmer) -> list[str]:
        """Return the stems of each text in their order, with a blank before and behind each."""
        if len(self._kept) > self._max_texts:
            self._kept = {}  # a new one, because other threads may still be using the old one
        kept = self._kept
        for text in texts:
            if text not in kept:
                kept[text] = " ".join(["", *stemmer.of_text(text), ""])
        return [kept[text] for text in texts]


def score(
    query: KeywordQuery,
    texts: Sequence[str],
    cache: StemCache | None = None,
    *,
    times: int = 1,
) -> list[Scored]:
    """Return the score of each text for its words; `texts` are all passages of the documents found.

    The memory that they are from is taken to be `times` as large, and the rest of it to lack the words.
    """
    stemmer = Stemmer()
    passages = (cache or StemCache()).of_texts(texts, stemmer)
    lookups = [_StemPattern.of(alternatives, stemmer, passages) for alternatives in query.sought]
    if not lookups or not passages:
        return [Scored(words=0.0, exact=False)] * len(texts)
    places = [[lookup.places(passage) for lookup in lookups] for passage in passages]
    lengths = [passage.count(" ") - 1 for passage in passages]
    relevance = _relevance(query, lengths, places, count=times * len(passages))
    needed = range(len(query.terms), len(lookups)) if query.phrases else range(len(lookups))
    scale, nothing = relevance.scale, Scored(words=0.0, exact=False)
    return [
        Scored(
            words=absolute_score(relevance.of(found, length=length), scale=scale),
            exact=all(found[at] for at in needed),
        )
        if any(found)
        else nothing
        for length, found in zip(lengths, places, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _StemPattern:
    """What is looked for at each place of a lookup: stems with a blank before and, unless open, behind."""

    sequence: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, alternatives: Sequence[Lookup], stemmer: Stemmer, passages: Sequence[str]) -> "_StemPattern":
        first, *others = (cls._of_one(lookup, stemmer, passages) for lookup in alternatives)
        if not others or len(first) != 1:
            return cls(tuple((one,) for one in first))
        return cls(((first[0], *(one for (one,) in others)),))

    @staticmethod
    def _of_one(lookup: Lookup, stemmer: Stemmer, passages: Sequence[str]) -> list[str]:
        sequence = [f" {stem} " for stem in stemmer.of_forms(" ".join(lookup.words))]
        # A single word that occurs nowhere may be a prefix, which is how QMD matched it.
        is_long = len(sequence) == 1 and len(sequence[0]) >= MIN_PREFIX + 2
        is_open = lookup.is_open or (is_long and not any(sequence[0] in passage for passage in passages))
        if sequence and is_open:
            sequence[-1] = sequence[-1][:-1]
        return sequence

    def places(self, passage: str) -> list[int]:
        """Return the positions in a passage where it matches, ascending."""
        if len(self.sequence) == 1 and len(self.sequence[0]) == 1:
            return _positions(passage, self.sequence[0][0])
        found = [{at for one in stems for at in _positions(passage, one)} for stems in self.sequence]
        first, *following = found or [set[int]()]
        return sorted(at for at in first if all(at + by in more for by, more in enumerate(following, 1)))


def _positions(passage: str, wanted: str) -> list[int]:
    """Return which of the stems of a passage are `wanted`, counted from 0."""
    found: list[int] = []
    number = begin = 0
    at = passage.find(wanted)
    while at >= 0:
        number += passage.count(" ", begin, at)
        found.append(number)
        number, begin = number + 1, at + 1
        at = passage.find(wanted, begin)
    return found


def missing_words(query: KeywordQuery, frequencies: Sequence[int]) -> float:
    """Return how many terms of a question no passage has, by the frequencies of its lookups."""
    found = zip(query.terms, frequencies, strict=False)  # those of phrases come after
    return sum(MISSING_NAME if term in query.names else 1.0 for term, count in found if not count)


def _relevance(
    query: KeywordQuery, lengths: Sequence[int], places: Sequence[Sequence[Sequence[int]]], *, count: int
) -> Relevance:
    frequencies = [sum(map(bool, column)) for column in zip(*places, strict=True)]
    return Relevance(
        rarities=[
            rarity(count, frequency) * (1 if at < len(query.terms) else PHRASE_SHARE) if frequency else 0.0
            for at, frequency in enumerate(frequencies)
        ],
        missing=missing_words(query, frequencies) * rarity(count, 0),
        average_length=max(1.0, sum(lengths) / len(lengths)),
    )
