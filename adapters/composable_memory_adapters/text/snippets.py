"""Cuts the part of a passage that is shown with a result."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from composable_memory.types import MAX_SNIPPET_CHARS

__all__ = ["snippet"]

ZERO_WIDTH_JOINER = "\u200d"

LONGEST_CLUSTER = 32
"""More marks than this are no writing, and may be parted."""

Span = tuple[int, int]
"""Where a part of a text begins and ends."""


def snippet(text: str, terms: Iterable[str], *, limit: int = MAX_SNIPPET_CHARS) -> str:
    """Return at most `limit` characters of `text`: its beginning, or the part that holds most of `terms`.

    The beginning is preferred when it holds as many different terms as any other part. No character is parted
    from the marks that belong to it.
    """
    if len(text) <= limit:
        return text
    span = _best_span(_folded(text), {_stem(_folded(term)) for term in terms}, limit)
    begin = _begin(text, span, limit) if span else 0
    return text[begin : _boundary(text, begin + limit)]


def _best_span(text: str, terms: set[str], limit: int) -> Span | None:
    """Return the first span of at most `limit` with the most terms, or None if the beginning has as many."""
    hits = sorted(
        (*match.span(), term) for term in terms if term for match in re.finditer(re.escape(term), text)
    )
    most = len({term for _, end, term in hits if end <= limit})
    best: Span | None = None
    inside: Counter[str] = Counter()
    first = 0
    for _, end, term in hits:
        inside[term] += 1
        while end - hits[first][0] > limit or inside[hits[first][2]] > 1:
            inside -= Counter([hits[first][2]])
            first += 1
        if len(inside) > most:
            best, most = (hits[first][0], end), len(inside)
    return best


def _begin(text: str, span: Span, limit: int) -> int:
    """Return where to begin so that `span` is in the middle, if possible where a line or a word begins."""
    start, end = span
    earliest = max(0, end - limit)
    middle = min(max(earliest, start - (limit - (end - start)) // 2), len(text) - limit)
    for mark in "\n", " ":
        place = text.find(mark, max(0, middle - 1), start)
        if place >= 0:
            return place + 1
    return _boundary(text, middle)


def _boundary(text: str, place: int) -> int:
    """Return the last place up to `place` where a character begins that is more than a mark on another."""
    earliest = max(0, place - LONGEST_CLUSTER)
    for begin in range(place, earliest, -1):
        if begin >= len(text) or not _belongs_to_previous(text, begin):
            return begin
    return place if earliest else 0


def _belongs_to_previous(text: str, place: int) -> bool:
    return (
        unicodedata.category(text[place]) in ("Mn", "Me") or ZERO_WIDTH_JOINER in text[place - 1 : place + 1]
    )


def _stem(word: str) -> str:
    """Return so much of `word` that its other forms begin alike."""
    return word[: max(4, len(word) - 3)]


def _folded(text: str) -> str:
    """Return `text` without case and accents, character for character, as the keyword index compares."""
    return text.lower() if text.isascii() else "".join(map(_folded_character, text))


@lru_cache(maxsize=4096)
def _folded_character(character: str) -> str:
    return unicodedata.normalize("NFKD", character.casefold())[:1]
