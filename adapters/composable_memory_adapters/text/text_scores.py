"""Scores texts for a question as the builtin index scores its passages, from the texts alone (pure).

Where another memory has found them, the rarity of a word is estimated from what it found.
"""

from collections.abc import Mapping, Sequence

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

Stems = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The score of a passage for its words, in [0, 1); `exact` if it contains all of them."""

    words: float
    exact: bool


class StemCache:
    """Keeps the stems of passages, which consecutive queries need again; threads may share it."""

    def __init__(self, max_texts: int = MAX_TEXTS) -> None:
        self._max_texts = max_texts
        self._kept: dict[str, Stems] = {}
        self._words: dict[str, str] = {}  # equal stems share one string

    def of_texts(self, texts: Sequence[str]) -> list[Stems]:
        """Return the stems of each text, in their order."""
        if len(self._kept) > self._max_texts:
            # New objects, because other threads may still be using the old ones.
            self._kept, self._words = {}, {}
        kept, words = self._kept, self._words
        if missing := dict.fromkeys(text for text in texts if text not in kept):
            stemmer = Stemmer()
            for text in missing:
                kept[text] = tuple([words.setdefault(stem, stem) for stem in stemmer.of_text(text)])
        return [kept[text] for text in texts]


def score(
    query: KeywordQuery, texts: Sequence[str], cache: StemCache | None = None, *, times: int = 1
) -> list[Scored]:
    """Return the score of each text for its words; `texts` are all passages of the documents found.

    The memory that they are from is taken to be `times` as large, and the rest of it to lack the words.
    """
    stemmer = Stemmer()
    passages = (cache or StemCache()).of_texts(texts)
    known = frozenset[str]().union(*passages)
    lookups = [_StemPattern.of(alternatives, stemmer, known) for alternatives in query.sought]
    if not lookups or not passages:
        return [Scored(words=0.0, exact=False)] * len(texts)
    places = _places(lookups, passages)
    relevance = _relevance(passages, places, terms=len(query.terms), count=times * len(passages))
    needed = range(len(query.terms), len(lookups)) if query.phrases else range(len(lookups))
    return [
        Scored(
            words=absolute_score(
                relevance.of(PassageMatch(places=found, length=len(passage))), scale=relevance.scale
            ),
            exact=all(found[at] for at in needed),
        )
        for passage, found in zip(passages, places, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _StemPattern:
    """The stems that match at each place of a lookup: one for a word, several for a prefix."""

    sequence: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, alternatives: Sequence[Lookup], stemmer: Stemmer, known: frozenset[str]) -> "_StemPattern":
        first, *others = (cls._of_one(lookup, stemmer, known) for lookup in alternatives)
        if not others or len(first) != 1:
            return cls(tuple(first))
        return cls((first[0].union(*(stems for (stems,) in others)),))

    @staticmethod
    def _of_one(lookup: Lookup, stemmer: Stemmer, known: frozenset[str]) -> list[frozenset[str]]:
        stems = stemmer.of_forms(" ".join(lookup.words))
        sequence = [frozenset((stem,)) for stem in stems]
        # A single word that occurs nowhere may be a prefix, which is how QMD matched it.
        is_unknown = len(stems) == 1 and len(stems[0]) >= MIN_PREFIX and stems[0] not in known
        if stems and (lookup.is_open or is_unknown):
            sequence[-1] = frozenset(stem for stem in known if stem.startswith(stems[-1]))
        return sequence

    def places(self, index: Mapping[str, Sequence[int]]) -> list[int]:
        """Return the positions in a passage where it matches, ascending."""
        if len(self.sequence) == 1 and len(self.sequence[0]) == 1:
            (stem,) = self.sequence[0]
            return [*index.get(stem, ())]
        found = [{at for stem in index.keys() & stems for at in index[stem]} for stems in self.sequence]
        first, *following = found or [set()]
        return sorted(at for at in first if all(at + by in more for by, more in enumerate(following, 1)))


def _places(lookups: Sequence[_StemPattern], passages: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """Return for each passage the positions where each lookup matches."""
    wanted = frozenset(stem for lookup in lookups for stems in lookup.sequence for stem in stems)
    nowhere: list[list[int]] = [[] for _ in lookups]
    places = []
    for stems in passages:
        index = {stem: _positions(stems, stem) for stem in wanted.intersection(stems)}
        places.append([lookup.places(index) for lookup in lookups] if index else nowhere)
    return places


def _positions(stems: Sequence[str], stem: str) -> list[int]:
    """Return where a stem is; many times as fast as a loop over all, for most passages are long."""
    found, at = [], -1
    for _ in range(stems.count(stem)):
        at = stems.index(stem, at + 1)
        found.append(at)
    return found


def _relevance(
    passages: Sequence[Sequence[str]], places: Sequence[Sequence[Sequence[int]]], *, terms: int, count: int
) -> Relevance:
    frequencies = [sum(map(bool, column)) for column in zip(*places, strict=True)]
    return Relevance(
        rarities=[
            rarity(count, frequency) * (1 if at < terms else PHRASE_SHARE) if frequency else 0.0
            for at, frequency in enumerate(frequencies)
        ],
        missing=frequencies[:terms].count(0) * rarity(count, 0),
        average_length=max(1.0, sum(map(len, passages)) / len(passages)),
    )
