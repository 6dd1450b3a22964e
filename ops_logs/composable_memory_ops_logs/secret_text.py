"""What the rules for secrets work with: a text in its simple form, its spans, and looks in linear time."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "ALNUM",
    "ALNUM_KINDS",
    "DIGIT_KINDS",
    "JUDGED",
    "TOKEN_KINDS",
    "TOUCHING",
    "TRAILING",
    "WORD_CHARS",
    "Finder",
    "Span",
    "Text",
    "anchored",
    "has_run",
    "line_end",
    "places",
    "run_before",
    "runs",
]


class Span(NamedTuple):
    """Where a secret stands. Of a token the ends may be kept, so that people can tell which it was."""

    start: int
    end: int
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A text, and the same without capitals and typographic signs; both have the same length."""

    raw: str
    low: str

    @classmethod
    def of(cls, raw: str) -> "Text":
        """Return the text with its simple form."""
        low = raw.lower()
        if not raw.isascii():
            low = raw.replace("İ", "i").lower()
            for sign, simple in _SIMPLE:
                low = low.replace(sign, simple)
        return cls(raw, low)


_SIMPLE = tuple(
    (sign, simple)
    for simple, signs in (
        (" ", "\u200b\u200c\u200d\u2060\ufeff\u00a0\u3000"),
        (":", "："),
        ("=", "＝"),
        ('"', "“”„"),
    )
    for sign in signs
)

JUDGED = 128
"""How much of a value is looked at to tell whether it is a secret."""


@dataclass(frozen=True, slots=True)
class Finder:
    """`find` yields spans of a text that holds one of the hints, in its simple form, or one of the runs."""

    hints: tuple[str, ...]
    """Words, or a sign and a word (`" -&curl"`): a text with one of the words and its sign is looked at."""
    find: Callable[[Text], Iterable[Span]]
    abroad: tuple[str, ...] = ()
    """Hints that a text of ASCII cannot hold."""
    runs: tuple[str, ...] = ()
    """Hints within long runs of characters, as they are written."""
    prefixes: tuple[str, ...] = ()
    """The same, where a token starts with them."""
    numeric: tuple[str, ...] = ()
    """Hints that count in a text with a digit only."""
    in_prose: bool = False
    """Whether words without any sign, digits beside them or long runs can hold what it finds."""


TOKEN_KINDS = bytes(
    ord("x") if code < 128 and (chr(code).isalnum() or chr(code) in "-_:") else ord(" ")
    for code in range(256)
)
ALNUM_KINDS = bytes(ord("x") if code < 128 and chr(code).isalnum() else ord(" ") for code in range(256))
DIGIT_KINDS = bytes(ord("x") if chr(code) in "0123456789 -" else ord(" ") for code in range(256))


def has_run(text: str, kinds: bytes, least: int) -> bool:
    """Tell whether the text holds so many characters of a kind in a row."""
    return b"x" * least in text.encode("latin-1", "replace").translate(kinds)


def runs(text: str, kinds: bytes, least: int) -> Iterator[tuple[int, int]]:
    """Yield where so many characters of a kind stand in a row."""
    data = text.encode("latin-1", "replace").translate(kinds) + b" "
    end = 0
    while (start := data.find(b"x" * least, end)) >= 0:
        end = data.index(b" ", start)
        yield start, end


def places(text: str, word: str) -> Iterator[int]:
    """Yield where a word stands."""
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + len(word))


def anchored(low: str, word: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches of `pattern` that start with a word of this beginning."""
    end = 0
    for place in places(low, word):
        if place >= end and (not place or low[place - 1] not in ALNUM):
            match = pattern.match(low, place)
            if match is not None:
                end = match.end()
                yield match


def line_end(text: str, start: int, limit: int) -> int:
    """Return where the line ends, or how far it is looked at."""
    end = text.find("\n", start, start + limit)
    return end if end >= 0 else min(len(text), start + limit)


TRAILING = "\"'`&;<>,.:)}]\\」』。，、；"
WORD_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
TOUCHING = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")
ALNUM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def run_before(text: str, place: int, characters: str = WORD_CHARS, most: int = 48) -> str:
    """Return the run of `characters` that ends at `place`, or as much of it as counts."""
    part = text[max(0, place - most) : place]
    return part[len(part.rstrip(characters)) :]
