"""Highlights, the parts of a snippet that match the query: validated, cut and split with it (pure)."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import fsum
from typing import TypeAlias, TypeGuard

from composable_memory.front_matter import front_matter
from composable_memory.types import MemorySearchResult
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

ELLIPSIS = "…"
STEM_CHARS = 5
"""How many characters of a word to compare, without an s: enough for "kept", "bicycle" and "ports"."""

WIKI_LINK = Pattern(  # neither `a[[i]]` and `${x[[1]]}` nor `[[ -f x ]]`, which are code
    r"(?:(?<![\\\w])!|(?<![A-Za-z0-9_$\[{\\]))\[\["
    r"(?!\s)(?P<name>[^\[\]|\n]+?)(?<!\s)(?:\\?\|(?P<alias>[^\[\]|\n]+))?\]\]"
)
CODE = Pattern(
    r"^[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})[^\n]*"
    r"(?:\n.*?(?:^[ \t>]*(?P=fence)[`~]*[ \t]*$|\Z)|\Z)"
    r"|(?<![`\\])(?P<ticks>`+)(?!`)(?:(?!\n[ \t>]*(?:\n|```|~~~)).)+?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
"""Fenced code blocks, and inline code."""

_FIELD = re.compile(r"^([^\s:\[\]{}#-][^:\n]*):", re.MULTILINE)
_NAMING = frozenset({"title", "alias", "aliases", "tag", "tags", "type"})

Span: TypeAlias = tuple[int, int]
"""Begin and end of a part of a text, as 0-based offsets."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, the parts of it that match the query, and those that are code."""

    text: str
    highlights: tuple[Span, ...] = ()
    code: tuple[Span, ...] | None = None
    """The parts that are code, if the lines around it were taken into account."""


def within(highlights: object, length: int) -> tuple[Span, ...]:
    """Return the highlights that are valid for a text of this length; none if it is not a list of spans."""
    if are_within(highlights, length):  # nearly always
        return highlights
    if not highlights or not isinstance(highlights, list | tuple):
        return ()
    sound: list[Span] = []
    reached = 0
    for span in highlights:
        if not (isinstance(span, list | tuple) and len(span) == 2 and all(type(at) is int for at in span)):
            return ()
        begin, end = span
        if reached <= begin < end <= length:
            sound.append((begin, end))
            reached = end
    return tuple(sound)


def are_within(highlights: object, length: int) -> TypeGuard[tuple[Span, ...]]:
    """Return whether all highlights are within a text of this length, and ascending."""
    if not isinstance(highlights, tuple):
        return False
    reached = 0
    try:
        for span in highlights:
            begin, end = span
            if not (span.__class__ is tuple and begin.__class__ is end.__class__ is int):
                return False
            if not reached <= begin < end:
                return False
            reached = end
    except (TypeError, ValueError):  # not a pair
        return False
    return reached <= length


def stripped(result: MemorySearchResult) -> MemorySearchResult:
    """Return a result whose snippet has no leading or trailing white space."""
    snippet = result.snippet.strip()
    if snippet == result.snippet:
        return result
    shift = len(result.snippet) - len(result.snippet.lstrip())
    return replace(
        result, snippet=snippet, highlights=_between(result.highlights, shift, shift + len(snippet))
    )


def snippet_of(result: MemorySearchResult) -> Line:
    """Return the snippet of a result; what is code in it is found out from the whole passage."""
    snippet, place = Line(result.snippet, result.highlights), _place_of_snippet(result)
    if place is None:
        return snippet
    return replace(snippet, code=_between(_code_of(Line(result.text)), place, place + len(snippet.text)))


def whole_text(result: MemorySearchResult) -> Line:
    """Return the passage of a result with the snippet's highlights, or the snippet if there is no more."""
    shift = _place_of_snippet(result)
    if shift is None:
        return Line(result.text or result.snippet, () if result.text else result.highlights)
    return Line(result.text, tuple((start + shift, end + shift) for start, end in result.highlights))


def _place_of_snippet(result: MemorySearchResult) -> int | None:
    """Return the offset of the snippet in the passage; None if it is not part of it, or is all of it."""
    shown = result.snippet.removeprefix(ELLIPSIS)
    begin = result.text.find(shown.removesuffix(ELLIPSIS)) if result.text else -1
    return begin - (len(result.snippet) - len(shown)) if begin >= 0 else None


def lines_of(line: Line, width: int | None = None) -> list[Line]:
    """Split a text into lines; with `width`, also between words to at most that many characters."""
    whole = replace(line, code=_code_of(line))
    pieces = ((begin, line.text[begin:end].rstrip("\r\n")) for begin, end in _breaks(line.text, width))
    return [_part(whole, begin, begin + len(piece)) for begin, piece in pieces if piece]


def best_lines(
    result: MemorySearchResult, most: int = 1, *, width: int | None = None, marks_cuts: bool = False
) -> list[Line]:
    """Return up to `most` adjacent lines of the snippet: those that match most of the query.

    Words that are in few of the lines weigh more, and each counts once. Among equal runs, the one is chosen
    whose best line is in the middle. With `width`, lines are split between words to that length. Front matter
    is skipped as long as the passage has anything else, unless a field such as `birthday:` matches and
    nothing below it does. With `marks_cuts`, an ellipsis shows where lines before or after are left out.
    """
    lines = lines_of(_without_front_matter(result), width)
    said = [set(_words_of(line)) for line in lines]
    lines_with = Counter(word for words in said for word in words)
    shares = [sum(1 / lines_with[word] for word in words) for words in said]
    best = max(range(len(lines)), key=lambda at: shares[at], default=0)
    first = max(
        range(max(1, len(lines) - most + 1)),
        key=lambda at: (
            fsum(1 / lines_with[word] for word in set().union(*said[at : at + most])),
            -abs(at - (best - (most - 1) // 2)),
        ),
    )
    shown = lines[first : first + most]
    if marks_cuts and first > 0:
        shown[0] = _after_ellipsis(shown[0])
    if marks_cuts and first + most < len(lines) and not shown[-1].text.endswith(ELLIPSIS):
        shown[-1] = replace(shown[-1], text=f"{shown[-1].text} {ELLIPSIS}")
    return shown


def _after_ellipsis(line: Line) -> Line:
    if line.text.startswith(ELLIPSIS):
        return line
    shift = len(ELLIPSIS) + 1
    moved = (
        tuple((begin + shift, end + shift) for begin, end in spans)
        for spans in (line.highlights, _code_of(line))
    )
    return Line(f"{ELLIPSIS} {line.text}", *moved)


def _without_front_matter(result: MemorySearchResult) -> Line:
    """Return the snippet without its note's front matter, or else the passage without it."""
    snippet, place = snippet_of(result), _place_of_snippet(result)
    passage = snippet if place is None else whole_text(result)
    head = front_matter(passage.text).length if result.start_line <= 1 else 0
    bodies = (
        _part(one, begin, len(one.text))
        for one, begin in ((snippet, max(0, head - (place or 0))), (passage, head))
    )
    body = next((body for body in bodies if body.text.strip()), snippet)
    return snippet if head and _holds_an_answer(snippet, body) else body


def _holds_an_answer(head: Line, body: Line) -> bool:
    """Return whether a field of front matter has a word of the query, and nothing below it does."""
    telling = tuple(one for one in head.highlights if not _is_of_a_name(head.text, one[0]))
    return not {*_words_of(replace(head, highlights=telling))} <= {*_words_of(body)}


def _is_of_a_name(text: str, at: int) -> bool:
    """Return whether a place is in a field that names or sorts a note, such as its tags."""
    fields = _FIELD.findall(text[:at] + text[at:].partition("\n")[0])
    return not fields or fields[-1].lower() in _NAMING


def _words_of(line: Line) -> Iterator[str]:
    """Yield the words of a line that match the query, normalised for comparison."""
    for begin, end in line.highlights:
        yield line.text[begin:end].casefold().rstrip("s")[:STEM_CHARS]


def readable(line: Line) -> Line:
    """Return a line with wiki links as text: "the licence" for `[[Boat licence|the licence]]`.

    If it is the name of the note that matches, it comes first: "Boat licence (the licence)". Code is
    unchanged.
    """
    parts: list[str] = []
    moves: list[tuple[int, int]] = []
    done = shift = 0
    code = _code_of(line)
    for link in WIKI_LINK.finditer(line.text):
        if any(begin <= link.start() < end for begin, end in code):
            continue
        for begin, end, instead in _signs_of(link, line.highlights):
            parts += line.text[done:begin], instead
            shift += len(instead) - (end - begin)
            moves.append((end, shift))
            done = end
    if not moves:
        return line
    moved = ((begin + _shift(moves, begin), end + _shift(moves, end - 1)) for begin, end in line.highlights)
    text = "".join(parts) + line.text[done:]
    return Line(text, tuple((begin, end) for begin, end in moved if begin < end))


def _signs_of(link: re.Match[str], highlights: Sequence[Span]) -> Iterator[tuple[int, int, str]]:
    """Yield the parts of a link to replace, and their replacements."""
    name, alias = link.span("name"), link.span("alias")
    if alias[0] < 0:
        yield link.start(), name[0], ""
        yield name[1], link.end(), ""
    elif any(begin < name[1] and name[0] < end for begin, end in highlights):
        yield link.start(), name[0], ""
        yield name[1], alias[0], " ("
        yield alias[1], link.end(), ")"
    else:
        yield link.start(), alias[0], ""
        yield alias[1], link.end(), ""


def _shift(moves: Sequence[tuple[int, int]], at: int) -> int:
    """Return by how much the character at an offset moves: as given by the last change before it."""
    return next((shift for end, shift in reversed(moves) if end <= at), 0)


def _code_of(line: Line) -> tuple[Span, ...]:
    return tuple(found.span() for found in CODE.finditer(line.text)) if line.code is None else line.code


def _part(line: Line, begin: int, end: int) -> Line:
    """Return a part of a line, with its highlights and code."""
    code = _between(_code_of(line), begin, end)
    return Line(line.text[begin:end], _between(line.highlights, begin, end), code)


def _between(highlights: Sequence[Span], begin: int, end: int) -> tuple[Span, ...]:
    """Return the highlights of a part of a text, relative to its beginning."""
    inside = ((max(start, begin), min(stop, end)) for start, stop in highlights)
    return tuple((start - begin, stop - begin) for start, stop in inside if start < stop)


def _breaks(text: str, width: int | None) -> Iterator[Span]:
    for match in re.finditer(r"[^\n]*(?:\n|\Z)", text):
        begin, end = match.span()
        while width is not None and end - begin > width:
            blank = text.rfind(" ", begin + 1, begin + width + 1)
            cut = blank if blank > begin else begin + width
            yield begin, cut
            begin = cut + (blank > begin)
        if begin < end:
            yield begin, end
