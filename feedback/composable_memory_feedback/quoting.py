"""Finds which results an answer quotes (pure).

As in plagiarism detection, by runs of equal words: eight in a row are hardly ever chance.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from composable_memory_ops_logs import TakenFrom
from composable_memory_ops_logs.quick_dataclass import dataclass

RUN_WORDS = 8
"""At least this many consecutive words of a result make a quotation."""
RUN_CHARS = 24
"""The same in characters, for scripts without spaces between words."""
MAX_ANSWER_CHARS = 200_000
"""Only this much of a longer answer is read."""
_MIN_IDENTIFIER_CHARS = 6

_TOKEN = re.compile(r"\w[\w./:@+-]*\w")
_LINES = r"(#L|:)(\d{1,9})(?:-L?(\d{1,9}))?(?::(\d{1,9}))?"


class ShownText(NamedTuple):
    """A result as it was shown to whoever answered: its place, with lines 0 if unknown, and its text."""

    place: TakenFrom
    text: str


def quoted_places(answer: str, shown: Sequence[ShownText], *, question: str = "") -> list[TakenFrom]:
    """Return the places of the results that an answer quotes, in the order of `shown`.

    A result is quoted if the answer has `RUN_WORDS` consecutive words of it, or `RUN_CHARS` characters in a
    script without spaces; if it cites its lines, as in `notes/a.md#L3-L5`, or the path of a result without
    lines; or if it has an identifier, such as `ERR_4711`, that is in no other result and not in the question.
    Case and punctuation are ignored, except in paths.
    """
    said = _Said.of(answer[:MAX_ANSWER_CHARS])
    identifiers = [frozenset(_identifiers(one.text)) for one in shown]
    asked = frozenset(_tokens(question))
    return [
        one.place
        for at, one in enumerate(shown)
        if said.repeats(one.text)
        or said.cites(one.place)
        or said.names(identifiers[at] - asked, chain(identifiers[:at], identifiers[at + 1 :]))
    ]


@dataclass(frozen=True, slots=True)
class _Said:
    """An answer, split in the ways in which it is compared."""

    text: str
    runs: frozenset[tuple[str, ...]]
    letters: str
    tokens: frozenset[str]

    @classmethod
    def of(cls, answer: str) -> "_Said":
        words = words_of(answer)
        return cls(answer, frozenset(_runs(words)), "".join(words), frozenset(_tokens(answer)))

    def repeats(self, text: str) -> bool:
        """Return whether the answer repeats a run of a text."""
        words = words_of(text)
        return not self.runs.isdisjoint(_runs(words)) or any(
            run in self.letters for run in _unspaced_runs("".join(words))
        )

    def cites(self, place: TakenFrom) -> bool:
        """Return whether the answer cites lines of a place, or a place without lines."""
        if not place.path or place.path not in self.text:
            return False
        lines = _LINES if place.start_line > 0 else r"(?![\w/-])"
        return any(
            place.start_line < 1 or _meets(found, place)
            for found in re.finditer(rf"(?<![\w/.-])(?:\./)?{re.escape(place.path)}{lines}", self.text)
        )

    def names(self, identifiers: frozenset[str], others: Iterable[frozenset[str]]) -> bool:
        """Return whether the answer has an identifier that the others do not have."""
        return not (identifiers & self.tokens) <= frozenset().union(*others)


def _meets(cited: re.Match[str], place: TakenFrom) -> bool:
    sign, start, end, start_char = cited.groups()
    first, last = int(start), int(end or start)
    names_piece = start_char is not None and (sign == "#L" or end is not None)  # `path:3:7` are lines
    if names_piece and int(start_char) != (place.start_char or 0):
        return False
    return first <= place.end_line and place.start_line <= last


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(RUN_WORDS)), strict=False)


def _unspaced_runs(letters: str) -> Iterator[str]:
    """Yield the runs of letters of which at least half are of a script without spaces."""
    if not is_unspaced(letters):
        return
    unspaced = [is_unspaced(letter) for letter in letters]
    for start in range(len(letters) - RUN_CHARS + 1):
        if 2 * sum(unspaced[start : start + RUN_CHARS]) >= RUN_CHARS:
            yield letters[start : start + RUN_CHARS]


def _tokens(text: str) -> Iterator[str]:
    return (token.casefold() for token in _TOKEN.findall(normal(text)))


def _identifiers(text: str) -> Iterator[str]:
    for token in _TOKEN.findall(normal(text)):
        if len(token) >= _MIN_IDENTIFIER_CHARS and _is_identifier(token):
            yield token.casefold()


def _is_identifier(token: str) -> bool:
    """Return whether a token seems to name one thing: digits among letters, `a_b`, `aB`, a URL."""
    if is_unspaced(token):  # then it is a phrase
        return False
    has_letters = any(map(str.isalpha, token))
    has_digits = any(map(str.isdigit, token))
    return (
        (has_letters and (has_digits or "_" in token.strip("_") or "@" in token))
        or re.search(r"[a-z][A-Z]", token) is not None
        or re.search(r"\d{6}", token) is not None
    )


_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # kana, Han
)


def normal(text: str) -> str:
    """Normalise the Unicode form of a text; case is kept."""
    return unicodedata.normalize("NFKC", text)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; in a script without spaces, whole phrases."""
    return _WORD.findall(normal(text).casefold())


def is_unspaced(text: str) -> bool:
    """Return whether a text has letters of a script without spaces between words."""
    return _UNSPACED.search(text) is not None
