"""Cuts a Markdown text into overlapping chunks of whole lines, or of pieces of a line that is too long.

The cut ignores headings and paragraphs. What it promises is that every line is in some chunk, that no chunk
is longer than asked for, that a chunk names its lines and where in the first of them it begins, and that the
same text always gives the same chunks and hashes.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from unicodedata import category

from composable_memory_ops_logs.quick_dataclass import dataclass

CHARACTERS_PER_TOKEN = 4
SMALLEST_CHUNK = 32

_JOINER = "\u200d"
_EMOJI_TONES = "\U0001f3fb", "\U0001f3ff"
_FLAGS = "\U0001f1e6", "\U0001f1ff"
"""Two of these letters make a flag."""
_JAMO = "\u1160", "\u11ff"
"""Vowels and finals of a Korean syllable that is written as its parts."""
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of lines of one file.

    Lines start at 1 and both ends are included. `start_char` counts the characters of the first line that
    come before a chunk, which begins within a line where that is too long for one chunk. No two chunks of a
    text have the same place.
    """

    start_line: int
    end_line: int
    start_char: int = 0
    text: str
    hash: str
    """SHA-256 of the text in UTF-8, 64 hexadecimal digits."""


def chunk_markdown(text: str, *, tokens: int = 400, overlap: int = 80) -> list[Chunk]:
    """Cut `text` into chunks of at most `tokens`, each beginning with about `overlap` tokens of the last.

    A token counts as four UTF-16 code units, so that positions and hashes agree with indexes written by
    JavaScript. A chunk holds at least 32 units. Whole lines are repeated, or pieces of a long one, as long as
    the next line fits in behind them. `overlap` is held below `tokens`: otherwise no chunk would ever end.
    Chunks of nothing but white space are left out.
    """
    limit = max(SMALLEST_CHUNK, tokens * CHARACTERS_PER_TOKEN)
    repeat = max(0, min(overlap, tokens - 1)) * CHARACTERS_PER_TOKEN
    pieces = _cut_into_pieces(text, limit, repeat)
    chunks: list[Chunk] = []
    for start, end in _group(pieces, limit, repeat):
        content = pieces.joined(start, end)
        if content and not content.isspace():
            place = (pieces.lines[start], pieces.lines[end - 1], pieces.offsets[start])
            chunks.append(_chunk(*place, content))
    return chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """What chunks are put together from: whole lines, or with `are_cut` also pieces of lines.

    Runs parallel: texts, their lines, where in these they begin, and what they cost: their length, and a line
    break where a line ends. With `are_cut`, the texts have this line break.
    """

    texts: list[str]
    lines: Sequence[int]
    offsets: Sequence[int]
    costs: list[int]
    are_cut: bool

    def ends_line(self, at: int) -> bool:
        """Return whether the piece at a place is the last one of its line."""
        return not self.are_cut or self.texts[at].endswith("\n")

    def joined(self, start: int, end: int) -> str:
        """Return the text of some pieces, without the line break behind the last."""
        if self.are_cut:
            return "".join(self.texts[start:end]).removesuffix("\n")
        return "\n".join(self.texts[start:end])


def _cut_into_pieces(text: str, limit: int, repeat: int) -> _Pieces:
    lines = text.split("\n")
    # Counting UTF-16 units is 20 times dearer than len(), and few notes hold an astral character.
    astral = not text.isascii() and _ASTRAL.search(text) is not None
    costs = [_utf16_length(line) + 1 for line in lines] if astral else [len(line) + 1 for line in lines]
    if max(costs) <= limit + 1:
        every = range(1, len(lines) + 1)
        return _Pieces(texts=lines, lines=every, offsets=[0] * len(lines), costs=costs, are_cut=False)
    # Small pieces, so that about as much of a long line is repeated as of short ones.
    size = max(limit // 16, min(repeat, limit - repeat) // 2) if repeat else limit
    cut = [
        (f"{part}\n" if offset + len(part) == len(line) else part, number, offset)
        for number, (line, cost) in enumerate(zip(lines, costs, strict=True), start=1)
        for offset, part in (_split_long_line(line, size) if cost > limit + 1 else [(0, line)])
    ]
    texts, numbers, offsets = [[*column] for column in zip(*cut, strict=True)]
    return _Pieces(
        texts=texts, lines=numbers, offsets=offsets, costs=[*map(_utf16_length, texts)], are_cut=True
    )


def _group(pieces: _Pieces, limit: int, repeat: int) -> Iterator[tuple[int, int]]:
    """Yield each chunk as a half-open range of pieces."""
    total = [0, *accumulate(pieces.costs)]
    start = end = 0
    while True:
        # A piece that fits in alone is taken: its line break, which the cost counts, does not matter.
        end = max(end + 1, bisect_right(total, total[start] + limit) - 1)
        if end >= len(pieces.costs):
            yield start, len(pieces.costs)
            return
        yield start, end
        repeated = bisect_right(total, total[end] - repeat) - 1
        fitting = bisect_left(total, total[end + 1] - pieces.ends_line(end) - limit)
        start = min(end, max(start + pieces.are_cut, repeated, fitting))


def _split_long_line(line: str, size: int) -> Iterator[tuple[int, str]]:
    """Yield pieces of at most `size` UTF-16 units with their places; between words, never in a character."""
    start = 0
    while start < len(line):
        end = start + size
        while (excess := _utf16_length(line[start:end]) - size) > 0:
            end = min(end, len(line)) - (excess + 1) // 2
        if end < len(line):
            end = _good_end(line, start, end)
        yield start, line[start:end]
        start = end


def _good_end(line: str, start: int, end: int) -> int:
    """Return where to end a piece: behind a blank in its second half, else between two visible characters."""
    middle = (start + end) // 2
    if (blank := line.rfind(" ", middle, end)) >= 0:
        return blank + 1
    return next((at for at in range(end, middle, -1) if not _is_joined(line, at)), end)


def _is_joined(line: str, at: int) -> bool:
    """Return whether the character at a place belongs to the one before it: an accent, a part of an emoji."""
    before, after = line[at - 1], line[at]
    if _JOINER in (before, after) or _EMOJI_TONES[0] <= after <= _EMOJI_TONES[1]:
        return True
    if _FLAGS[0] <= before <= _FLAGS[1] and _FLAGS[0] <= after <= _FLAGS[1]:
        flags = at
        while flags and _FLAGS[0] <= line[flags - 1] <= _FLAGS[1]:
            flags -= 1
        return (at - flags) % 2 == 1
    is_half = "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"
    return is_half or _JAMO[0] <= after <= _JAMO[1] or category(after).startswith("M")


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _chunk(start_line: int, end_line: int, start_char: int, text: str) -> Chunk:
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Chunk(start_line=start_line, end_line=end_line, start_char=start_char, text=text, hash=digest)
