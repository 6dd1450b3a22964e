"""Scores texts for a question as the builtin index scores its passages, from the texts alone (pure).

Where another memory has found them, the rarity of a word is estimated from what it found.
"""

from collections.abc import Sequence

from composable_memory_adapters.text.query_terms import KeywordQuery, Lookup
from composable_memory_adapters.text.relevance import PassageMatch, Relevance, absolute_score, rarity
from composable_memory_adapters.text.stems import Stemmer
from composable_memory_ops_logs.quick_dataclass import dataclass

PHRASE_SHARE = 0.25
"""Weight of a phrase in addition to its words, which are counted already."""

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
    relevance = _relevance(lengths, places, terms=len(query.terms), count=times * len(passages))
    needed = range(len(query.terms), len(lookups)) if query.phrases else range(len(lookups))
    scale, nothing = relevance.scale, Scored(words=0.0, exact=False)
    return [
        Scored(
            words=absolute_score(relevance.of(PassageMatch(places=found, length=length)), scale=scale),
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


def _relevance(
    lengths: Sequence[int], places: Sequence[Sequence[Sequence[int]]], *, terms: int, count: int
) -> Relevance:
    frequencies = [sum(map(bool, column)) for column in zip(*places, strict=True)]
    return Relevance(
        rarities=[
            rarity(count, frequency) * (1 if at < terms else PHRASE_SHARE) if frequency else 0.0
            for at, frequency in enumerate(frequencies)
        ],
        missing=frequencies[:terms].count(0) * rarity(count, 0),
        average_length=max(1.0, sum(lengths) / len(lengths)),
    )
