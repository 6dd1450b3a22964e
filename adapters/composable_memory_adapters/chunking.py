"""Cuts a Markdown text into overlapping chunks of whole lines.

The cut ignores headings and paragraphs. What it promises is that every line is in some chunk, that a chunk
names its lines, and that the same text always gives the same chunks and hashes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate

__all__ = ["Chunk", "chunk_markdown"]

CHARACTERS_PER_TOKEN = 4
SMALLEST_CHUNK = 32

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of lines of one file.

    Lines start at 1 and both ends are included. Pieces of a line that is longer than a chunk share their line
    number, so a position alone does not name a chunk: its place in the list, or its text, does.
    """

    start_line: int
    end_line: int
    text: str
    start_char: int = 0
    hash: str
    """SHA-256 of the text in UTF-8, 64 hexadecimal digits."""


def chunk_markdown(text: str, *, tokens: int = 400, overlap: int = 80) -> list[Chunk]:
    """Cut `text` into chunks of about `tokens`, each beginning with the last `overlap` tokens of the last.

    A token counts as four UTF-16 code units, so that positions and hashes agree with indexes written by
    JavaScript. A chunk holds at least 32 units. Only whole lines are repeated, therefore a chunk may exceed
    its size by the repeated lines. `overlap` is held below `tokens`: otherwise no chunk would ever end.
    Chunks of nothing but white space are left out.
    """
    limit = max(SMALLEST_CHUNK, tokens * CHARACTERS_PER_TOKEN)
    repeat = max(0, min(overlap, tokens - 1)) * CHARACTERS_PER_TOKEN
    pieces, numbers, costs = _cut_into_pieces(text, limit)
    chunks: list[Chunk] = []
    for start, end in _group(costs, limit, repeat):
        content = "\n".join(pieces[start:end])
        if content and not content.isspace():
            chunks.append(_chunk(numbers[start], numbers[end - 1], content))
    return chunks


def _cut_into_pieces(text: str, limit: int) -> tuple[list[str], list[int] | range, list[int]]:
    """Return the pieces, the line number of each, and the cost of each (its length and a line break)."""
    lines = text.split("\n")
    # Counting UTF-16 units is 20 times dearer than len(), and few notes hold an astral character.
    astral = not text.isascii() and _ASTRAL.search(text) is not None
    costs = [_utf16_length(line) + 1 for line in lines] if astral else [len(line) + 1 for line in lines]
    if max(costs) <= limit + 1:
        return lines, range(1, len(lines) + 1), costs
    pieces: list[str] = []
    numbers: list[int] = []
    for number, (line, cost) in enumerate(zip(lines, costs, strict=True), start=1):
        parts = [line] if cost <= limit + 1 else list(_split_long_line(line, limit))
        pieces += parts
        numbers += [number] * len(parts)
    return pieces, numbers, [_utf16_length(piece) + 1 for piece in pieces]


def _group(costs: list[int], limit: int, repeat: int) -> Iterator[tuple[int, int]]:
    """Yield each chunk as a half-open range of pieces."""
    total = [0, *accumulate(costs)]
    start = end = 0
    while True:
        # The piece that did not fit before is taken now, however long the repeated ones are.
        end = max(end + 1, bisect_right(total, total[start] + limit) - 1)
        if end >= len(costs):
            yield start, len(costs)
            return
        yield start, end
        start = max(start, bisect_right(total, total[end] - repeat) - 1)


def _split_long_line(line: str, limit: int) -> Iterator[str]:
    """Yield consecutive pieces of at most `limit` UTF-16 units, never one half of a surrogate pair."""
    units = line.encode("utf-16-le", "surrogatepass")
    start = 0
    while start < len(units):
        end = start + 2 * limit
        # A little-endian unit whose high byte is DC..DF is the second half of a pair.
        if end < len(units) and 0xDC <= units[end + 1] <= 0xDF and 0xD8 <= units[end - 1] <= 0xDB:
            end -= 2
        yield units[start:end].decode("utf-16-le", "surrogatepass")
        start = end


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _chunk(start_line: int, end_line: int, text: str) -> Chunk:
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Chunk(start_line=start_line, end_line=end_line, text=text, hash=digest)
