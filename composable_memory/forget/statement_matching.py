"""Compares what texts say by their words, whatever is in between (pure).

A note is read as lines that can be forgotten: a retained line with its continuation, or any other line. The
words of a retained line are those of its entities and its sentence; type, confidence, tags and id may change.
Chinese, Japanese and Korean characters are words of their own.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from unicodedata import normalize

from composable_memory.retain.retained_lines import retained_lines
from composable_memory.time.expressions import time_mentions
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

Words = tuple[str, ...]

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = Pattern(rf"[{_CJK}]|[^\W_{_CJK}]+")
_IS_CJK = Pattern(rf"[{_CJK}]")
_LEAD = Pattern(r"(?:[-*+]|\d{1,4}[.)])\s+(?:\[[ xX]\]\s+)?")
_BLOCK_ID = re.compile(r"\s\^[A-Za-z0-9-]+\s*$")
_YEAR = re.compile(r"(?:19|20)\d{2}")
_YEAR_OF_A_DAY = re.compile(r"(?<!\d)(?:19|20)\d{2}(?=-\d{2}-\d{2}(?!\d))")
_STRUCTURE = re.compile(r"#{1,6}\s|`{3}|~{3}|[-*_=|: ]+$")

MIN_QUOTED_WORDS = 4
"""This many words in a row are a quotation; fewer may occur anywhere by chance."""
EDGES = (2, 3)
"""This many words at the end of a text that was cut are a quotation too."""


class Word(NamedTuple):
    """A word of a text, folded for comparison, and its place."""

    word: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A line of a note that can be forgotten; `words` are all its words, `said` those of its sentence.

    `id` is the block id of a retained line. Headings and the like are lines, but state nothing.
    """

    start_line: int
    end_line: int
    text: str
    words: Words
    said: Words
    id: str | None = None

    @property
    def is_recognisable(self) -> bool:
        """Return whether it says enough to be recognised: a heading or a single plain word does not."""
        if _STRUCTURE.match(self.text.lstrip()):
            return False
        return len(self.words) > 1 or any(map(_has_digits, self.words))


def words_with_places(text: str) -> Iterator[Word]:
    """Yield the words of a text in order."""
    for found in _WORD.finditer(text):
        yield Word(normalize("NFKC", found[0]).casefold(), found.start(), found.end())


def words_of(text: str) -> Words:
    """Return the words of a text."""
    return tuple(word.word for word in words_with_places(text))


def statements_of(note: str) -> Iterator[Statement]:
    """Yield the non-blank lines of a note, each retained line as one."""
    note = note.replace("\r\n", "\n")
    lines = note.split("\n")
    retained = {line.start_line: line for line in retained_lines(note, everywhere=True)}
    skip_to = 0
    for number, text in enumerate(lines, 1):
        if number <= skip_to or not text.strip():
            continue
        if line := retained.get(number):
            skip_to = line.end_line
            said = words_of(line.text)
            whole = "\n".join(lines[number - 1 : skip_to])
            words = (*words_of(" ".join(line.entities)), *said)
            yield Statement(
                start_line=number, end_line=skip_to, text=whole, words=words, said=said, id=line.id
            )
        else:
            said = words_of(_BLOCK_ID.sub("", _LEAD.sub("", text, count=1)))
            yield Statement(start_line=number, end_line=number, text=text, words=said, said=said)


def can_be_quoted(said: Words) -> bool:
    """Return whether these words, in a row within a longer text, count as a quotation."""
    weight = sum(0.5 if _IS_CJK.match(word) else 1 for word in said)
    return weight >= MIN_QUOTED_WORDS or (len(said) > 1 and any(map(_has_digits, said)))


def contains(words: Words, said: Words) -> bool:
    """Return whether words occur in a row among others."""
    joined, wanted = "\0".join(words), "\0".join(said)
    return f"\0{wanted}\0" in f"\0{joined}\0"


class Quotations:
    """Finds quotations of statements, even partial: `MIN_QUOTED_WORDS` of their words in a row, or a number.

    The year of a date is not such a number: it occurs in most texts about that year. At the start or end of a
    text, which may have been cut, fewer words suffice. So they do next to a place from which something was
    removed, and a piece of a statement left between two such places is a quotation of any length.
    """

    def __init__(self, statements: Iterable[Statement]) -> None:
        telling = [one for one in statements if one.is_recognisable]
        said = {words for one in telling for words in (one.said, words_of(one.text))}
        self._said = said
        self._runs = {run for words in said for run in _runs(words)}
        self._sizes = {len(run) for run in self._runs}
        self._beginnings = {words[:size] for words in said for size in EDGES}
        self._endings = {words[-size:] for words in said for size in EDGES}
        self._marks = {word for one in telling for word in _marks_in(one)}
        every = frozenset(word for words in said for word in words)
        self.words = frozenset(one for one in every if len(one) > 3 or _IS_CJK.match(one)) or every
        """Every text with a quotation has one of these words."""

    def __bool__(self) -> bool:
        return bool(self._runs)

    def masked(self, text: str, instead: str) -> str:
        """Return a text with its quotations replaced."""
        pieces = text.split(instead)
        return instead.join(self._masked(one, instead, is_piece=len(pieces) > 1) for one in pieces)

    def _masked(self, text: str, instead: str, *, is_piece: bool) -> str:
        places = [*words_with_places(text)]
        words = tuple(place.word for place in places)
        is_left = is_piece and len(words) > 1 and any(contains(said, words) for said in self._said)
        quoted = [is_left or words[at] in self._marks for at in range(len(words))]
        for at in range(len(words)):
            for size in self._sizes:
                if words[at : at + size] in self._runs:
                    quoted[at : at + size] = [True] * size
        for size in EDGES:
            if words[:size] in self._endings:
                quoted[:size] = [True] * size
            if words[-size:] in self._beginnings:
                quoted[-size:] = [True] * size
        del quoted[len(words) :]  # the text may be shorter than a run or an edge
        return without(text, joined_spans(places, quoted), instead) if any(quoted) else text


def joined_spans(words: list[Word], chosen: list[bool]) -> list[tuple[int, int]]:
    """Return the spans of the chosen words, neighbours joined."""
    spans: list[tuple[int, int]] = []
    for at, (word, is_chosen) in enumerate(zip(words, chosen, strict=True)):
        if is_chosen and at and chosen[at - 1]:
            spans[-1] = (spans[-1][0], word.end)
        elif is_chosen:
            spans.append((word.start, word.end))
    return spans


def without(text: str, spans: Iterable[tuple[int, int]], instead: str) -> str:
    """Return a text with some spans replaced."""
    reached, parts = 0, []
    for begin, end in spans:
        parts += [text[reached:begin], instead]
        reached = end
    return "".join([*parts, text[reached:]])


def _runs(words: Words) -> Iterator[Words]:
    size = min(MIN_QUOTED_WORDS, len(words))
    if size > 1 or can_be_quoted(words):
        yield from (words[at : at + size] for at in range(len(words) - size + 1))


def _marks_in(statement: Statement) -> set[str]:
    """Return the numbers in a statement, except those that only occur as the year of a date."""
    text, rest = statement.text, statement.text
    for mention in reversed(time_mentions(text)):
        if "-" in (mention.hint.date or ""):
            days = _YEAR.sub("", text[mention.start : mention.end])
            rest = f"{rest[: mention.start]}{days}{rest[mention.end :]}"
    rest = _YEAR_OF_A_DAY.sub("", rest)  # also in paths, where it is not a time
    return {word for word in words_of(rest) if len(word) > 3 and _has_digits(word)}


def _has_digits(word: str) -> bool:
    return any(map(str.isdigit, word))
