"""The words of passages as PostgreSQL keeps them, and where in a passage those of a question are (pure).

Of each passage two things are kept: its tokens, from which it is scored here as in the builtin memory, and a
sparse vector with each token's part of BM25. The inner product with the rarities of a question's tokens is
then BM25, computed by pgvector: it chooses the candidates.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import hypot, log
from struct import pack
from zlib import crc32

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


DIMENSIONS = 10**9
"""The most that a sparse vector can have: tokens are told apart by their hash."""

MOST_TOKENS = 16_000
"""More numbers than this a sparse vector cannot hold."""

AVERAGE_TOKENS = 100
"""The length that BM25 is computed for: it moves as notes come and go, and candidates are scored again."""

LEAST_RARITY = 1e-6
"""What FTS5 gives a word that is in half of the passages or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageWords:
    """The tokens of a passage as a row of the table: how many, their weights, and the tokens themselves."""

    length: int
    tokens: int
    weights: bytes
    words: str

    @property
    def different(self) -> frozenset[str]:
        """Return each token once."""
        return frozenset(self.words.split())


def words_of(row: KeywordRow, stemmer: Stemmer) -> PassageWords:
    """Return the words of a passage."""
    fields = [stemmer.of_forms(field) for field in row]
    counts: dict[str, float] = {}
    for weight, field in zip(FIELD_WEIGHTS, fields, strict=True):
        for token in field:
            counts[token] = counts.get(token, 0.0) + weight
    tokens = sum(map(len, fields))
    norm = K1 * (1 - B + B * tokens / AVERAGE_TOKENS)
    weights = {token: count * (K1 + 1) / (count + norm) for token, count in counts.items()}
    return PassageWords(
        length=len(fields[0]),
        tokens=tokens,
        weights=sparse(weights),
        words="\n".join(f" {' '.join(field)} " for field in fields),
    )


def sparse(weights: Mapping[str, float]) -> bytes:
    """Return the weights of tokens as pgvector reads a sparse vector; of too many the heaviest."""
    summed: dict[int, float] = {}
    heaviest = sorted(weights.items(), key=lambda one: -one[1])[:MOST_TOKENS]
    for token, weight in heaviest:
        place = crc32(token.encode()) % DIMENSIONS
        summed[place] = summed.get(place, 0.0) + weight
    places = sorted(summed)
    values = (summed[place] for place in places)
    return struct.pack(f">iii{len(places)}i{len(places)}f", DIMENSIONS, len(places), 0, *places, *values)


@dataclass(frozen=True, slots=True)
class Sought:
    """The tokens of a lookup, one after the other; where `is_open`, the last is the beginning of one."""

    tokens: tuple[str, ...]
    is_open: bool

    @classmethod
    def of(cls, lookup: Lookup, stemmer: Stemmer) -> "Sought":
        """Return what a lookup comes to in the index."""
        return cls(tuple(stemmer.of_forms(" ".join(lookup.words))), lookup.is_open)

    @property
    def text(self) -> str:
        """Return what stands in `words` where this is found."""
        return f" {' '.join(self.tokens)}" + ("" if self.is_open else " ")

    @property
    def is_word(self) -> bool:
        """Return whether it is one whole token."""
        return len(self.tokens) == 1 and not self.is_open

    def places(self, line: str) -> list[int]:
        """Return the numbers of the tokens at which it begins in a line of `words`."""
        places: list[int] = []
        text = self.text if self.tokens else "\n"
        number, before, at = 0, 0, line.find(text)
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
