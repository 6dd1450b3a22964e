"""How well passages answer a question, as numbers that stand beside those of the builtin index (pure).

QMD's own scores cannot: fused searches are scored 1/rank, and its bm25 is 0 in small collections. So the
passages of the documents that it found are scored here by their words, as the builtin index scores its own;
how rare a word is, is read off these documents. Likeness, where QMD searches by it, is known only as a rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from composable_memory_adapters.qmd.documents.stemming import StemMemory
from composable_memory_adapters.qmd.settings import SearchMode
from composable_memory_adapters.text.query_terms import KeywordQuery, Lookup
from composable_memory_adapters.text.relevance import PassageMatch, Relevance, absolute_score, rarity
from composable_memory_adapters.text.stems import Stemmer

__all__ = ["FOUND_SCORE", "LIKENESS_WEIGHT", "WORDS_WEIGHT", "Scored", "likeness", "score"]

WORDS_WEIGHT: Mapping[SearchMode, float] = {"search": 0.8, "vsearch": 0.7, "query": 0.7}
"""The share of the words in a score.

Less than 1, so that a passage comes out a little lower than from the builtin index, which knows likeness as
well: where both are asked, the order of the one that knows more is not undone."""

LIKENESS_WEIGHT: Mapping[SearchMode, float] = {"search": 0.0, "vsearch": 0.2, "query": 0.2}
"""The share of the place that QMD gave a document, in the passage that answers best in it.

By words alone the place tells nothing that the words do not, and costs answers. More than 0.2 costs some of
what vectors add, measured with MiniLM."""

HALF_RANK = 10
"""The document at this place, counted from 0, is taken for half as like as the first."""

FOUND_SCORE = 0.05
"""Of a document that QMD found and whose words do not tell why."""

PHRASE_SHARE = 0.25
"""What a phrase adds to its words, which count already."""

MIN_BEGINNING = 3
"""So many letters of a word that stands nowhere may be the beginning of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """How well a passage answers by its words, in [0, 1); `exact` if it has all of them."""

    words: float
    exact: bool


def score(asked: KeywordQuery, texts: Sequence[str], stems: StemMemory | None = None) -> list[Scored]:
    """Return how well each text answers by its words; `texts` are all passages of what was found."""
    stemmer = Stemmer()
    passages = (stems or StemMemory()).of_texts(texts)
    known = frozenset[str]().union(*passages)
    lookups = [_Sought.of(lookup, stemmer, known) for lookup in asked.sought()]
    if not lookups or not passages:
        return [Scored(words=0.0, exact=False)] * len(texts)
    places = _places(lookups, passages)
    relevance = _relevance(passages, places, terms=len(asked.terms))
    needed = range(len(asked.terms), len(lookups)) if asked.phrases else range(len(lookups))
    return [
        Scored(
            words=absolute_score(
                relevance.of(PassageMatch(places=found, length=len(passage))), scale=relevance.scale
            ),
            exact=all(found[at] for at in needed),
        )
        for passage, found in zip(passages, places, strict=True)
    ]


def likeness(rank: int) -> float:
    """Return how like a question the document is that QMD put at `rank`, counted from 0; in (0, 1]."""
    return HALF_RANK / (HALF_RANK + rank)


@dataclass(frozen=True, slots=True)
class _Sought:
    """The stems that a lookup may begin with, and those that have to follow, of which the last may vary."""

    sequence: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, lookup: Lookup, stemmer: Stemmer, known: frozenset[str]) -> "_Sought":
        stems = stemmer.of_forms(" ".join(lookup.words))
        sequence = [frozenset((stem,)) for stem in stems]
        # A single word that stands nowhere may be the beginning of one, which is how QMD looked for it.
        is_unknown = len(stems) == 1 and len(stems[0]) >= MIN_BEGINNING and stems[0] not in known
        if stems and (lookup.is_open or is_unknown):
            sequence[-1] = frozenset(stem for stem in known if stem.startswith(stems[-1]))
        return cls(tuple(sequence))

    def places(self, index: Mapping[str, Sequence[int]]) -> list[int]:
        """Return where in a passage it begins, ascending."""
        if len(self.sequence) == 1 and len(self.sequence[0]) == 1:
            (stem,) = self.sequence[0]
            return [*index.get(stem, ())]
        found = [{at for stem in index.keys() & stems for at in index[stem]} for stems in self.sequence]
        first, *following = found or [set()]
        return sorted(at for at in first if all(at + by in more for by, more in enumerate(following, 1)))


def _places(lookups: Sequence[_Sought], passages: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """Return for each passage where in it each lookup begins."""
    wanted = frozenset(stem for lookup in lookups for stems in lookup.sequence for stem in stems)
    nowhere: list[list[int]] = [[] for _ in lookups]
    places = []
    for stems in passages:
        index: dict[str, list[int]] = {}
        for at, stem in [(at, stem) for at, stem in enumerate(stems) if stem in wanted]:
            index.setdefault(stem, []).append(at)
        places.append([lookup.places(index) for lookup in lookups] if index else nowhere)
    return places


def _relevance(
    passages: Sequence[Sequence[str]], places: Sequence[Sequence[Sequence[int]]], *, terms: int
) -> Relevance:
    frequencies = [sum(map(bool, column)) for column in zip(*places, strict=True)]
    count = len(passages)
    return Relevance(
        rarities=[
            rarity(count, frequency) * (1 if at < terms else PHRASE_SHARE) if frequency else 0.0
            for at, frequency in enumerate(frequencies)
        ],
        missing=frequencies[:terms].count(0) * rarity(count, 0),
        average_length=max(1.0, sum(map(len, passages)) / count),
    )
