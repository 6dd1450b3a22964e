"""The words of passages as stored in PostgreSQL, and the places of a question's words in a passage (pure)."""

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
    """Convert little-endian float32 numbers to pgvector's `vector`."""
    values = array("f", numbers)
    if sys.byteorder == "little":
        values.byteswap()
    return pack(">hh", len(values), 0) + values.tobytes()


def numbers_of(vector: bytes) -> bytes:
    """Convert pgvector's `vector` to little-endian float32 numbers."""
    values = array("f", vector[4:])
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


def direction_of(values: Sequence[float]) -> bytes:
    """Return a vector of unit length in the direction of `values`, which are not all 0."""
    length = hypot(*values)
    return pack(f">hh{len(values)}f", len(values), 0, *(value / length for value in values))


LONGEST_TOKEN = 640
"""Characters kept of a longer token: an index entry has 2,704 bytes, and a character up to four."""

LEAST_RARITY = 1e-6
"""FTS5's weight of a word that is in half of the passages or more."""


@dataclass(frozen=True, slots=True)
class PassageWords:
    """The tokens of a passage as a row of the table: the numbers in its text and in all, and the words."""

    length: int
    tokens: int
    words: str

    def weights(self) -> Mapping[str, float]:
        """Return the BM25 part of each token.

        Computed for texts of 100 tokens: the true mean length changes as notes come and go, and the selected
        passages are scored again.
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
    """The tokens of a lookup, in sequence; if `is_open`, the last is a prefix."""

    tokens: tuple[str, ...]
    is_open: bool
    text: str
    """The string as it occurs in `words`."""
    apart: str
    """The same with two blanks between tokens."""

    @classmethod
    def of(cls, lookup: Lookup, stemmer: Stemmer) -> "Sought":
        """Return the tokens of a lookup as the index has them."""
        tokens = tuple(_tokens_in(" ".join(lookup.words), stemmer))
        text, apart = (f" {blanks.join(tokens)}" + ("" if lookup.is_open else " ") for blanks in (" ", "  "))
        return cls(tokens, lookup.is_open, text, apart)

    @property
    def is_phrase(self) -> bool:
        """Return whether it has several tokens, which must be adjacent."""
        return len(self.tokens) > 1

    def places(self, words: str) -> list[list[int]]:
        """Return the token numbers at which it begins, for each line of `words`."""
        return [*map(self._places_in, words.split("\n"))]

    def _places_in(self, line: str) -> list[int]:
        places: list[int] = []
        text = self.text
        number, before, at = 0, 0, line.find(text) if self.tokens else -1
        while at >= 0:
            number += line.count(" ", before, at)  # a blank precedes each token
            places.append(number)
            before, at = at, line.find(text, at + 1)
        return places


NOWHERE: list[list[int]] = [[] for _ in FIELD_WEIGHTS]
"""The places of a string that is not in a passage."""


def fts5_rarity(passages: int, frequency: int) -> float:
    """Return the weight of a string in `frequency` of `passages`, as computed by FTS5's `bm25`."""
    return max(LEAST_RARITY, log((passages - frequency + 0.5) / (frequency + 0.5)))


def fts5_score(
    words: str, sought: Iterable[Sought], rarities: Iterable[float], *, tokens: int, average: float
) -> float:
    """Return BM25 as FTS5 computes it, by which the builtin memory chooses its candidates.

    0 if nothing is found. One in four scored passages is kept, so words are only counted here, and their
    places are looked up for those kept.
    """
    apart = words.replace(" ", "  ")  # otherwise two adjacent ones share a blank, and count as one
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
