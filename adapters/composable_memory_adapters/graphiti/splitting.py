"""Cuts a long text into parts between paragraphs, lines or words, and says which lines each is (pure)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from composable_memory.types import Origin

__all__ = ["Piece", "pieces_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a text, and where it stands."""

    text: str
    origin: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of a text, or a part of one that is too long; `at` counts lines from 0."""

    text: str
    at: int


def pieces_of(text: str, origin: Origin | None, max_chars: int) -> Iterator[Piece]:
    """Yield the parts of a text; where the text is what the lines of its origin say, each knows its own."""
    if len(text) <= max_chars:
        if text.strip():
            yield Piece(text=text, origin=origin)
        return
    count = text.removesuffix("\n").count("\n") + 1
    for lines in _packed(list(_lines(text, max_chars)), max_chars):
        part = "\n".join(line.text for line in lines).strip("\n")
        if part.strip():
            yield Piece(text=part, origin=_lines_of(origin, lines, count))


def _packed(lines: list[_Line], max_chars: int) -> Iterator[list[_Line]]:
    """Yield runs of lines that fit, cut before a paragraph where one begins in the second half."""
    held: list[_Line] = []
    size = 0
    for line in lines:
        if held and size + len(line.text) > max_chars:
            cut = _last_paragraph(held)
            yield held[:cut]
            held = held[cut:]
            size = sum(len(kept.text) + 1 for kept in held)
            if held and size + len(line.text) > max_chars:
                yield held
                held, size = [], 0
        held.append(line)
        size += len(line.text) + 1
    yield held


def _last_paragraph(lines: list[_Line]) -> int:
    """Return how many lines come before the last paragraph; all of them if that would leave too few."""
    starts = (at for at in range(len(lines) - 1, len(lines) // 2, -1) if not lines[at - 1].text.strip())
    return next(starts, len(lines))


def _lines(text: str, max_chars: int) -> Iterator[_Line]:
    for at, line in enumerate(text.split("\n")):
        rest = line
        while len(rest) > max_chars:
            cut = rest.rfind(" ", max_chars // 2, max_chars) + 1 or max_chars
            yield _Line(text=rest[:cut].rstrip(), at=at)
            rest = rest[cut:]
        yield _Line(text=rest, at=at)


def _lines_of(origin: Origin | None, lines: list[_Line], count: int) -> Origin | None:
    if origin is None or origin.start_line < 1 or origin.end_line - origin.start_line + 1 != count:
        return origin
    said = [line.at for line in lines if line.text.strip()]
    return replace(origin, start_line=origin.start_line + said[0], end_line=origin.start_line + said[-1])
