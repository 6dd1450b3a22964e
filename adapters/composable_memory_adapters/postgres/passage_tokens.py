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

    @classmethod
    def of(cls, lookup: Lookup, stemmer: Stemmer) -> "Sought":
        """Return what a lookup comes to in the index."""
        tokens = tuple(_tokens_in(" ".join(lookup.words), stemmer))
        return cls(tokens, lookup.is_open, f" {' '.join(tokens)}" + ("" if lookup.is_open else " "))

    @property
    def is_phrase(self) -> bool:
        """Return whether it is several tokens, which have to stand beside each other."""
        return len(self.tokens) > 1

    def places(self, line: str) -> list[int]:
        """Return the numbers of the tokens at which it begins in a line of `words`."""
        places: list[int] = []
        text = self.text
        number, before, at = 0, 0, line.find(text) if self.tokens else -1
        while at >= 0:
            number += line.count(" ", before, at)  # a blank stands before each token
            places.append(number)
            before, at = at, line.find(text, at + 1)
        return places


class Fields:
    """The tokens of a passage, column by column. They are not parted: few of them are asked for."""

    def __init__(self, words: str) -> None:
        self._lines = words.split("\n")
        lengths = [line.count(" ") - 1 if len(line) > len("  ") else 0 for line in self._lines]
        self.length = lengths[0]
        """How many tokens the text has."""
        self.tokens = sum(lengths)
        """How many all fields have."""

    def places(self, sought: Sought) -> list[list[int]]:
        """Return where something begins, column by column."""
        return [*map(sought.places, self._lines)]

    @property
    def nowhere(self) -> list[list[int]]:
        """Return the same of what is not there."""
        return [[] for _ in self._lines]


def fts5_rarity(passages: int, frequency: int) -> float:
    """Return the weight of a string that `frequency` of `passages` have, as FTS5's `bm25` computes it."""
    return max(LEAST_RARITY, log((passages - frequency + 0.5) / (frequency + 0.5)))


def fts5_score(
    places: Iterable[Sequence[Sequence[int]]], rarities: Iterable[float], *, tokens: int, average: float
) -> float:
    """Return BM25 as FTS5 computes it: by it the builtin memory chooses its candidates."""
    norm = K1 * (1 - B + B * tokens / average)
    score = 0.0
    for columns, rarity in zip(places, rarities, strict=True):
        count = sum(weight * len(column) for weight, column in zip(FIELD_WEIGHTS, columns, strict=True))
        score += rarity * count * (K1 + 1) / (count + norm)
    return score
