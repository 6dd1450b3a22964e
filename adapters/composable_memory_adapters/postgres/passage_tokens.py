"""The words of passages as PostgreSQL keeps them, and where in a passage those of a question are (pure)."""

import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import hypot, log
from struct import pack

from composable_memory_adapters.builtin.notes.fields import KeywordRow
from composable_memory_adapters.builtin.search.keyword_leg import FIELD_WEIGHTS
from composable_memory_adapters.text.forms import Stemmer
from composable_memory_adapters.text.query_terms import Lookup
from composable_memory_adapters.text.relevance import K1, B
from composable_memory_ops_logs.quick_dataclass import dataclass


def vector_of(numbers: bytes) -> bytes:
    """Return little-endian float32 numbers as pgvector's `vector`."""
    values = array("f", numbers)
    if sys.byteorder == "little":
        values.byteswap()
    return pack(">hh", len(values), 0) + values.tobytes()


def numbers_of(vector: bytes) -> bytes:
    """Return pgvector's `vector` as little-endian float32 numbers."""
    values = array("f", vector[4:])
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


def direction_of(values: Sequence[float]) -> bytes:
    """Return a vector of unit length that points where `values` do; they are not all 0."""
    length = hypot(*values)
    return pack(f">hh{len(values)}f", len(values), 0, *(value / length for value in values))


LONGEST_TOKEN = 640
"""Of a longer token so many characters count: an index takes 2,704 bytes, of which one may need four."""

LEAST_RARITY = 1e-6
"""What FTS5 gives a word that is in half of the passages or more."""


@dataclass(frozen=True, slots=True)
class PassageWords:
    """The tokens of a passage as a row of the table: how many are in its text, and in all, and which."""

    length: int
    tokens: int
    words: str

    def weights(self) -> Mapping[str, float]:
        """Return for each token its part of BM25.

        It is computed for texts of 100 tokens: how long they are on average moves as notes come and go, and
        what is chosen by it is scored again.
        """
        times: defaultdict[str, float] = defaultdict(float)
        for line, weight in zip(self.words.split("\n"), FIELD_WEIGHTS, strict=False):
            for word, count in Counter(line.split(" ")).items():
                times[word] += weight * count
        times.pop("", None)
        norm = K1 * (1 - B + B * self.tokens / 100)
        return {word: (K1 + 1) * count / (count + norm) for word, count in times.items()}


def words_of(row: KeywordRow, stemmer: Stemmer) -> PassageWords:
    """Return the words of a passage."""
    fields = [_tokens_in(field, stemmer) for field in row]
    return PassageWords(
        length=len(fields[0]),
        tokens=sum(map(len, fields)),
        words="\n".join(f" {' '.join(field)} " for field in fields),
    )


def _tokens_in(text: str, stemmer: Stemmer) -> list[str]:
    return [token[:LONGEST_TOKEN] for token in stemmer.of_forms(text)]


@dataclass(frozen=True, slots=True)
class Sought:
    """The tokens of a lookup, one after the other; where `is_open`, the last is the beginning of one."""

    tokens: tuple[str, ...]
    is_open: bool
    text: str
    """What stands in `words` where this is found."""
    apart: str
    """The same where two blanks stand between tokens."""

    @classmethod
    def of(cls, lookup: Lookup, stemmer: Stemmer) -> "Sought":
        """Return what a lookup comes to in the index."""
        tokens = tuple(_tokens_in(" ".join(lookup.words), stemmer))
        text, apart = (f" {blanks.join(tokens)}" + ("" if lookup.is_open else " ") for blanks in (" ", "  "))
        return cls(tokens, lookup.is_open, text, apart)

    @property
    def is_phrase(self) -> bool:
        """Return whether it is several tokens, which have to stand beside each other."""
        return len(self.tokens) > 1

    def places(self, words: str) -> list[list[int]]:
        """Return the numbers of the tokens at which it begins, line by line of `words`."""
        return [*map(self._places_in, words.split("\n"))]

    def _places_in(self, line: str) -> list[int]:
        places: list[int] = []
        text = self.text
        number, before, at = 0, 0, line.find(text) if self.tokens else -1
        while at >= 0:
            number += line.count(" ", before, at)  # a blank stands before each token
            places.append(number)
            before, at = at, line.find(text, at + 1)
        return places


NOWHERE: list[list[int]] = [[] for _ in FIELD_WEIGHTS]
"""The places of what is not in a passage."""


def fts5_rarity(passages: int, frequency: int) -> float:
    """Return the weight of a string that `frequency` of `passages` have, as FTS5's `bm25` computes it."""
    return max(LEAST_RARITY, log((passages - frequency + 0.5) / (frequency + 0.5)))


def fts5_score(
    words: str, sought: Iterable[Sought], rarities: Iterable[float], *, tokens: int, average: float
) -> float:
    """Return BM25 as FTS5 computes it: by it the builtin memory chooses its candidates.

    It is 0 where nothing is found. Of the passages that are scored one in four is kept: so words are counted
    here, and where they stand is looked for in those alone.
    """
    apart = words.replace(" ", "  ")  # else two that stand side by side share a blank, and count as one
    fields = zip(FIELD_WEIGHTS, apart.split("\n"), strict=False)
    more = [(weight - 1, field) for weight, field in fields if weight != 1]
    norm = K1 * (1 - B + B * tokens / average)
    score = 0.0
    for one, rarity in zip(sought, rarities, strict=True):
        if count := float(apart.count(one.apart)):
            for weight, field in more:
                count += weight * field.count(one.apart)
            score += rarity * count * (K1 + 1) / (count + norm)
    return score
