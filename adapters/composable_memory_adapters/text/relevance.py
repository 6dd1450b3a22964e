"""Scores how well a passage matches a query's words, from their positions in it.

SQLite's `bm25()` selects the candidates, but its scores are not fit for users. In a small index it treats a
word that half of the passages have as worthless, and it ignores whether the words are close together. Texts
found by another memory are scored in the same way, with the rarity of words estimated from what it found.
"""

from collections.abc import Sequence
from math import exp, log

from composable_memory_adapters.text.forms import Stemmer
from composable_memory_adapters.text.query_terms import KeywordQuery, Lookup
from composable_memory_ops_logs.quick_dataclass import dataclass

K1 = 1.2
B = 0.75
"""BM25's saturation of repetitions and its length penalty; FTS5's own values."""

WINDOW_TOKENS = 16
"""Words within this distance count as close together."""

WINDOW_SHARE = 0.5
"""The weight of closeness, relative to that of occurring at all."""

STEEPNESS = 2.4
"""How fast the score approaches 1: a passage with everything expected of it has 0.91."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Scores passages for one query.

    `rarities` are those of the looked-up terms, in the order of `places`; `missing` is the sum for terms that
    no passage has. They lower every score: a query whose words are half unknown has no full match.

    `places` are the token numbers, ascending, at which each term occurs in a passage of `length` tokens.
    `counts` are the terms' weighted frequencies, by default how often each occurs.
    """

    rarities: Sequence[float]
    missing: float = 0.0
    average_length: float

    @property
    def scale(self) -> float:
        """Return the score of a passage of average length with every term once, all close together."""
        return (1 + WINDOW_SHARE) * (sum(self.rarities) + self.missing)

    def length_norm(self, length: int) -> float:
        """Return the factor of the penalty for a passage of this many tokens; 1 for an average one."""
        return 1 - B + B * length / self.average_length

    def of(
        self, places: Sequence[Sequence[int]], *, length: int, counts: Sequence[float] | None = None
    ) -> float:
        """Return BM25 plus the rarity of the terms that are close together; 0 or more, unbounded."""
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
        """Return each term's share of the relevance; they sum to the result of `of`."""
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
        """Return the largest sum of rarities of distinct terms within `WINDOW_TOKENS`."""
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
    """Return a relevance as a score in [0, 1) that means the same for every query."""
    return 1 - exp(-STEEPNESS * relevance / scale)


def rarity(passages: int, frequency: int) -> float:
    """Return the inverse document frequency of a term in `frequency` of `passages`; always above 0.

    Robertson and Sparck Jones's weight with 1 added inside the logarithm, as in Lucene: FTS5's form drops to
    zero for a term in half of the passages, which in an index of three notes is almost any term.
    """
    return log(1 + (passages - frequency + 0.5) / (frequency + 0.5))


PHRASE_SHARE = 0.25
"""The weight of a phrase on top of its words, which are already counted."""

MISSING_NAME = 2.0
"""How many ordinary missing words a missing name counts as: texts without the name are seldom answers."""

MIN_PREFIX = 3
"""A word of at least this many letters that occurs nowhere is treated as a prefix."""

MAX_TEXTS = 2500
"""How many texts a `StemCache` keeps; with their stems, English passages take about 25 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The keyword score of a passage, in [0, 1); `exact` if it has all the words."""

    words: float
    exact: bool


class StemCache:
    """Caches the stems of passages, which consecutive queries need again; may be shared by threads."""

    def __init__(self, max_texts: int = MAX_TEXTS) -> None:
        self._max_texts = max_texts
        self._kept: dict[str, str] = {}

    def of_texts(self, texts: Sequence[str], stemmer: Stemmer) -> list[str]:
        """Return the stems of each text in order, each surrounded by spaces."""
        if len(self._kept) > self._max_texts:
            self._kept = {}  # a new dictionary, because other threads may still be using the old one
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
    """Return the keyword score of each text; `texts` are all passages of the documents found.

    The memory they come from is assumed to be `times` as large, and the rest of it to lack the words.
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
    """The stems to match at each position: a space before and, unless the lookup is open, after each."""

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
        # A single word that occurs nowhere may be a prefix, which is how QMD would have matched it.
        is_long = len(sequence) == 1 and len(sequence[0]) >= MIN_PREFIX + 2
        is_open = lookup.is_open or (is_long and not any(sequence[0] in passage for passage in passages))
        if sequence and is_open:
            sequence[-1] = sequence[-1][:-1]
        return sequence

    def places(self, passage: str) -> list[int]:
        """Return the positions in a passage at which it matches, ascending."""
        if len(self.sequence) == 1 and len(self.sequence[0]) == 1:
            return _positions(passage, self.sequence[0][0])
        found = [{at for one in stems for at in _positions(passage, one)} for stems in self.sequence]
        first, *following = found or [set[int]()]
        return sorted(at for at in first if all(at + by in more for by, more in enumerate(following, 1)))


def _positions(passage: str, wanted: str) -> list[int]:
    """Return the 0-based positions of the stem `wanted` in a passage."""
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
    """Count the query's terms that no passage has, names more than once; phrases' frequencies are ignored."""
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
