"""Chooses the part of a passage to show with a result, and highlights the query's words in it (pure).

The part is a run of consecutive lines. Each line gets an estimate of how likely it answers the query, from
the rare query words in it and, with less weight, in the lines next to it; the run with the largest sum is
shown.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from math import exp
from string import ascii_letters, digits

from composable_memory.types import MAX_SNIPPET_CHARS
from composable_memory_adapters.text.forms import CJK, Stemmer, is_asian, plain
from composable_memory_adapters.text.query_terms import KeywordQuery
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

ELLIPSIS = "…"
ZERO_WIDTH_JOINER = "\u200d"

LONGEST_CLUSTER = 32
"""More combining marks than this on a character are not real text, and may be split."""

STEEPNESS = 12.0
"""How much likelier a line with all the words is, as a power of e; 6 to 24 show the same within 0.01."""

NEIGHBOUR_SHARE = 0.6
"""The weight of words in adjacent lines: an answer is often next to the line that names its subject."""

LONG_LINE = 4 / 7
"""A line longer than this share of a snippet is split into sentences."""

LONG_SENTENCE = 2 / 7
"""A sentence longer than `LONG_LINE` is cut into pieces of this share."""

LEAST_ADDED = 1 / 8
"""A partial sentence is only added to whole ones if it fills at least this share of a snippet."""

SHORTEST_SENTENCE = 40
"""A shorter one, such as "Dr.", is joined with what follows."""

# Starts with one character class, to which the regex engine can skip; with two alternatives it could not.
_SENTENCE_END = Pattern(
    r"[.!?…。！？](?:(?<=[.!?…])[.!?…]*[\"'”’»)\]]*\s+|(?<=[。！？])[。！？]*[」』”’）]*)"
)
_REST_OF_WORD = Pattern(f"[^\\W_{CJK}]*")
_BORDER = Pattern(
    r"[\n.!?…。！？](?:(?<=\n)|(?<=[.!?…])[.!?…]*[\"'”’»)\]]*\s+|(?<=[。！？])[。！？]*[」』”’）]*)"
)

LATIN = frozenset(f"{ascii_letters}{digits}")
"""Characters that never precede a stem within a word: only Arabic words have prefixes stripped."""

Span = tuple[int, int]
"""Where a part of a text begins and ends (exclusive)."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A part of a passage, and the positions of query words in it: ascending and disjoint."""

    text: str
    highlights: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sought:
    """What to look for: `stem` is the word as the index has it, `literal` a string in all of its forms."""

    literal: str
    stem: str
    is_open: bool


class SnippetMaker:
    """Makes the snippets for one query; not thread-safe.

    `rarities` are those of the query's terms; without them all terms count the same.

        SnippetMaker(analyse("where is the trolley?")).snippet(text)
    """

    def __init__(self, query: KeywordQuery, rarities: Sequence[float] | None = None) -> None:
        self._stemmer = Stemmer()
        self._stems: dict[str, list[str]] = {}
        lookups = query.sought[: len(query.terms)]
        self._weights = rarities if rarities and any(rarities) else [1.0] * len(lookups)
        sought = (
            (number, self._to_seek(" ".join(one.words), one.is_open))
            for number, alternatives in enumerate(lookups)
            for one in alternatives
        )
        self._sought = [(number, one) for number, one in sought if one.literal]
        self._total = sum(self._weights) or 1.0
        self._likely: dict[tuple[int, int, int], float] = {}

    def snippet(self, text: str, *, limit: int = MAX_SNIPPET_CHARS, head: int = 0) -> Snippet:
        """Return the part of `text` that most likely answers the query, at most `limit` characters.

        It begins and ends at a sentence or word boundary if possible, with "…" where text is left out. Of
        equally likely parts, the first is chosen. Combining marks stay with their character. The first `head`
        characters, such as front matter, are skipped if they contain no query word and are not all there is.
        """
        found = self._matches(text)
        if head and not text[head:].isspace() and head < len(text) and (not found or found[0][0] >= head):
            return self.snippet(text[head:].lstrip("\n"), limit=limit)
        if len(text) <= limit:
            return Snippet(text, tuple(_joined((start, stop) for start, stop, _ in found)))
        begin, end = self._part(text, found, max(1, limit - 2 * len(ELLIPSIS)))
        end = min(end, begin + limit)
        before = ELLIPSIS if begin and limit > 2 else ""
        behind = ELLIPSIS if end < len(text) and limit > 2 else ""
        shift = len(before) - begin
        marks = ((start + shift, stop + shift) for start, stop, _ in found if begin <= start and stop <= end)
        return Snippet(f"{before}{text[begin:end]}{behind}", tuple(_joined(marks)))

    def _to_seek(self, word: str, is_open: bool) -> _Sought:
        if is_asian(word):
            return _Sought(_folded(word), "", is_open)
        stems = self._stemmer.of_forms(word)
        if word.isascii():
            self._stems[word] = stems  # most words that are found have the spelling of the query
        stem = next(iter(stems), "")
        # If a stem is not a prefix of its word, only the last letter differs: happy, happi; ability, abl.
        literal = stem[:-1] if len(stem) > 2 and stem[-1] in "eil" and not is_open else stem
        return _Sought(_folded(literal), stem, is_open)

    def _matches(self, text: str) -> list[tuple[int, int, int]]:
        """Return the positions of query words and the number of the term each belongs to, in order."""
        folded, found = _folded(text), set[tuple[int, int, int]]()
        for number, sought in self._sought:
            literal = sought.literal
            at = folded.find(literal)
            while at >= 0:
                end = at + len(literal)
                if not sought.stem:
                    found.add((at, end, number))
                elif not at or text[at - 1] not in LATIN:  # otherwise within a word: port in important
                    start, end = _word_around(text, at, end)
                    if self._is_form(text[start:end], sought):
                        found.add((start, end, number))
                at = folded.find(literal, end)
        return sorted(found)

    def _is_form(self, word: str, sought: _Sought) -> bool:
        stems = self._stems.get(word)
        if stems is None:
            stems = self._stems[word] = self._stemmer.of_text(word)
        if sought.is_open:
            return any(stem.startswith(sought.stem) for stem in stems)
        return sought.stem in stems

    def _part(self, text: str, found: Sequence[tuple[int, int, int]], limit: int) -> Span:
        """Return the part of a text to show, at most `limit` characters."""
        if found:
            units = [*_units(text, limit)]
            first, last = _best_run(units, self._likelihoods(units, found), limit)
        else:
            units = [*takewhile(lambda unit: not unit[0] or unit[1] <= limit, _units(text, limit))]
            first, last = 0, len(units) - 1
        return _widened(text, units[first][0], units[last][1], limit)

    def _likelihoods(self, units: Sequence[Span], found: Sequence[tuple[int, int, int]]) -> list[float]:
        """Return each unit's unnormalised likelihood of answering: exp of its share of the query's words."""
        said = [0] * len(units)
        at = 0
        for start, _, number in found:
            while start >= units[at][1]:
                at += 1
            said[at] |= 1 << number
        known, sides = self._likely, zip([0, *said], said, [*said[1:], 0], strict=False)
        return [known.get(side) or self._likelihood(*side) for side in sides]

    def _likelihood(self, before: int, own: int, behind: int) -> float:
        """Return a unit's likelihood; the arguments are bit sets of the terms before, in and behind it."""
        share = self._weight(own)
        share += NEIGHBOUR_SHARE * (self._weight(before & ~own) + self._weight(behind & ~own))
        likely = exp(STEEPNESS * min(1.0 + NEIGHBOUR_SHARE, share / self._total))
        self._likely[before, own, behind] = likely
        return likely

    def _weight(self, words: int) -> float:
        return sum([one for number, one in enumerate(self._weights) if words >> number & 1])


def _units(text: str, limit: int) -> Iterator[Span]:
    """Split a text into lines, long lines into sentences and long sentences into pieces."""
    longest, piece = max(1, int(limit * LONG_LINE)), max(1, int(limit * LONG_SENTENCE))
    begin = 0
    for line in text.splitlines(keepends=True):
        end = begin + len(line)
        if len(line) <= longest:
            yield begin, end
        else:
            for stop in _sentence_ends(text, begin, end):
                if stop - begin > longest:
                    while stop - begin > piece:
                        blank = text.rfind(" ", begin + piece // 2, begin + piece)
                        cut = blank + 1 if blank >= 0 else _boundary(text, begin + piece, stop)
                        yield begin, cut
                        begin = cut
                if begin < stop:
                    yield begin, stop
                begin = stop
        begin = end


def _sentence_ends(text: str, begin: int, end: int) -> Iterator[int]:
    for match in _SENTENCE_END.finditer(text, begin, end):
        if match.end() - begin >= SHORTEST_SENTENCE:
            begin = match.end()
            yield begin
    if begin < end:
        yield end


def _best_run(units: Sequence[Span], likely: Sequence[float], limit: int) -> Span:
    """Return the first and last unit of the run with the largest sum, of at most `limit` characters."""
    sums = [0.0, *accumulate(likely)]
    best, run, last = -1.0, (0, 0), 0
    for first, (begin, _) in enumerate(units):
        last = max(last, first)
        while last + 1 < len(units) and units[last + 1][1] - begin <= limit:
            last += 1
        total = sums[last + 1] - sums[first]
        if total > best * (1 + 1e-9):
            best, run = total, (first, last)
    return run


def _widened(text: str, begin: int, end: int, limit: int) -> Span:
    """Extend a part on both sides by whole sentences, or else whole words, as far as they fit."""
    room = max(0, limit - (end - begin))
    behind = min(len(text) - end, room - min(begin, room // 2))
    earliest, latest = begin - min(begin, room - behind), end + behind
    worth = int(limit * LEAST_ADDED)
    if earliest:
        borders = _BORDER.finditer(text, earliest, begin)
        begin = next((border.end() for border in borders), _after_blank(text, earliest, begin, worth))
    else:
        begin = 0
    if latest < len(text):
        borders = _BORDER.finditer(text, end, latest)
        end = max((border.end() for border in borders), default=_before_blank(text, end, latest, worth))
    else:
        end = len(text)
    return _stripped(text, begin, end)


def _after_blank(text: str, earliest: int, latest: int, worth: int) -> int:
    blank = text.find(" ", earliest, max(earliest, latest - worth))
    return blank + 1 if blank >= 0 else latest


def _before_blank(text: str, earliest: int, latest: int, worth: int) -> int:
    blank = text.rfind(" ", earliest + worth, latest)
    return blank if blank >= 0 else earliest


def _stripped(text: str, begin: int, end: int) -> Span:
    """Trim whitespace at the cut ends of a part, unless it is all whitespace."""
    part = text[begin:end]
    if part.isspace():
        return begin, end
    if begin:
        begin += len(part) - len(part.lstrip())
    if end < len(text):
        end -= len(part) - len(part.rstrip())
    return begin, end


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Merge touching or overlapping spans, which come in ascending order."""
    joined: Span | None = None
    for begin, end in spans:
        if joined is None:
            joined = begin, end
        elif begin <= joined[1]:
            joined = joined[0], max(joined[1], end)
        else:
            yield joined
            joined = begin, end
    if joined is not None:
        yield joined


def _word_around(text: str, begin: int, end: int) -> Span:
    """Return the bounds of the word that contains a part of a text."""
    while begin and (before := text[begin - 1]).isalnum() and (before.isascii() or not is_asian(before)):
        begin -= 1
    rest = _REST_OF_WORD.match(text, end)
    return begin, rest.end() if rest else end


def _boundary(text: str, place: int, end: int) -> int:
    """Return the first position from `place` on at which a character begins that is not a combining mark."""
    for begin in range(place, min(end, place + LONGEST_CLUSTER)):
        if not _belongs_to_previous(text, begin):
            return begin
    return min(end, place + LONGEST_CLUSTER)


def _belongs_to_previous(text: str, place: int) -> bool:
    return (
        unicodedata.category(text[place]) in ("Mn", "Me") or ZERO_WIDTH_JOINER in text[place - 1 : place + 1]
    )


def _folded(text: str) -> str:
    """Return `text` without case and accents, one character for one, as the keyword index compares."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


class _Folds(dict[int, int]):
    """Caches what each character folds to."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        bare = unicodedata.normalize("NFKD", (plain(character) or character).casefold())
        folded = self[code] = ord(bare[0]) if bare else code
        return folded


_FOLDS = _Folds()
