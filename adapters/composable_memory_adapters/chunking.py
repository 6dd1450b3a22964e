"""Cuts a Markdown text into overlapping chunks of whole lines, or of pieces of a line that is too long.

A list, table, code block or front matter that fits into a chunk is kept together, and so is a heading with
what follows it. Every line is in some chunk, no chunk exceeds the size limit, a chunk records its lines and
where in the first one it begins, and the same text always gives the same chunks and hashes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from unicodedata import category

from composable_memory_adapters.text.markdown_outline import Outline, outline
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

CHARACTERS_PER_TOKEN = 4
SMALLEST_CHUNK = 32

LEAST_SHARE = 0.5
"""A chunk at least this full ends before a heading, or before a paragraph that does not fit whole."""

_JOINER = "\u200d"
_EMOJI_TONES = "\U0001f3fb", "\U0001f3ff"
_FLAGS = "\U0001f1e6", "\U0001f1ff"
"""Two of these regional indicator letters make a flag."""
_JAMO = "\u1160", "\u11ff"
"""Vowels and finals of a decomposed Korean syllable."""
_ASTRAL = Pattern("[\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of lines of one file.

    Lines count from 1, and both ends are included. `start_char` is the offset of the chunk in its first line,
    not 0 only if that line is too long for one chunk. No two chunks of a text have the same place. `headings`
    are those above its first line, outermost first, without the title.
    """

    start_line: int
    end_line: int
    start_char: int = 0
    text: str
    hash: str
    """SHA-256 of the text in UTF-8, 64 hexadecimal digits."""
    headings: tuple[str, ...] = ()


def chunk_markdown(text: str, *, tokens: int = 400, overlap: int = 80) -> list[Chunk]:
    """Cut `text` into chunks; see `cut`."""
    return cut(outline(text), tokens=tokens, overlap=overlap)


def cut(structure: Outline, *, tokens: int, overlap: int) -> list[Chunk]:
    """Cut a text into chunks of at most `tokens`, each repeating about `overlap` tokens of the last one.

    A token counts as four UTF-16 code units, so that positions and hashes agree with indexes written by
    JavaScript. The limit is at least 32 units. The overlap consists of whole lines, or pieces of a long line,
    as long as the next line still fits. It is kept below `tokens`: otherwise the cutting would never end.
    Chunks of whitespace only are left out.
    """
    limit = max(SMALLEST_CHUNK, tokens * CHARACTERS_PER_TOKEN)
    repeat = max(0, min(overlap, tokens - 1)) * CHARACTERS_PER_TOKEN
    pieces = _cut_into_pieces(structure, limit, repeat)
    paths = structure.paths()
    chunks: list[Chunk] = []
    for start, end in _Cutter(pieces, structure, limit, repeat).ranges():
        content = pieces.joined(start, end)
        if content and not content.isspace():
            first = pieces.lines[start]
            place = (first, pieces.lines[end - 1], pieces.offsets[start])
            chunks.append(_chunk(*place, content, paths.at(first - 1)))
    return chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """The building blocks of chunks: whole lines or, with `are_cut`, also pieces of lines.

    The sequences are parallel: texts, their line numbers, their offsets in these lines, and their costs: the
    length, plus a line break at the end of a line. With `are_cut`, the texts include this line break.
    """

    texts: list[str]
    lines: Sequence[int]
    offsets: Sequence[int]
    costs: list[int]
    are_cut: bool

    def ends_line(self, at: int) -> bool:
        """Return whether a piece is the last one of its line."""
        return not self.are_cut or self.texts[at].endswith("\n")

    def joined(self, start: int, end: int) -> str:
        """Return the text of some pieces, without the final line break."""
        if self.are_cut:
            return "".join(self.texts[start:end]).removesuffix("\n")
        return "\n".join(self.texts[start:end])


def _cut_into_pieces(structure: Outline, limit: int, repeat: int) -> _Pieces:
    text, lines = structure.text, structure.lines
    # Counting UTF-16 units is 20 times slower than len(), and few notes have characters beyond the BMP.
    astral = not text.isascii() and _ASTRAL.search(text)
    costs = [length + 1 for length in map(_utf16_length if astral else len, lines)]
    if max(costs) <= limit + 1:
        every = range(1, len(lines) + 1)
        return _Pieces(texts=lines, lines=every, offsets=[0] * len(lines), costs=costs, are_cut=False)
    # Use small pieces, so that about as much of a long line is repeated as of short ones.
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


class _Cutter:
    """Finds where chunks begin and end; all numbers are indices of pieces."""

    def __init__(self, pieces: _Pieces, structure: Outline, limit: int, repeat: int) -> None:
        self._pieces = pieces
        self._total = [0, *accumulate(pieces.costs)]
        self._limit = limit
        self._repeat = repeat
        self._blocks = structure.blocks
        self._starts = [self._place(block.start) for block in structure.blocks]
        self._headings = [self._place(one.start) for one in structure.blocks if one.kind == "heading"]
        self._items = [self._place(line) for line in structure.items]

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield each chunk as a half-open range of pieces."""
        count = len(self._pieces.costs)
        start = end = 0
        while True:
            # A piece that fits alone is taken: its line break, included in the cost, does not matter.
            fitting = max(end + 1, bisect_right(self._total, self._total[start] + self._limit) - 1)
            if fitting >= count:
                yield start, count
                return
            best = self._end(start, fitting)
            end = best if best > end else fitting
            yield start, end
            start = self._next_start(start, end)

    def _place(self, line: int) -> int:
        """Return the first piece of a line."""
        return bisect_left(self._pieces.lines, line + 1) if self._pieces.are_cut else line

    def _end(self, start: int, end: int) -> int:
        """Return the best end for a chunk that may extend to `end`."""
        end = self._end_before_block(start, end)
        least = self._total[start] + LEAST_SHARE * self._limit
        heading = bisect_right(self._headings, end) - 1
        if heading >= 0 and self._total[self._headings[heading]] >= least:
            end = self._headings[heading]
        at = bisect_left(self._starts, end)
        top = self._top(at) if self._is_start(at, end) else end
        return top if top > start else end

    def _end_before_block(self, start: int, end: int) -> int:
        """Return the start of a block that `end` would split although it fits into a chunk, else `end`."""
        at = bisect_right(self._starts, end) - 1
        if at < 0 or not self._starts[at] < end < self._end_of(at):
            return end
        first, kind = self._starts[at], self._blocks[at].kind
        is_full = self._total[end] - self._total[first] <= (1 - LEAST_SHARE) * self._limit
        may_end = first > start if kind in ("list", "whole") else is_full and self._top(at) > start
        if self._fits(at) and may_end:
            return first
        item = bisect_right(self._items, end) - 1
        return self._items[item] if kind == "list" and item >= 0 and self._items[item] > first else end

    def _next_start(self, start: int, end: int) -> int:
        """Return where the next chunk begins, including its overlap, if it continues at `end`."""
        at = bisect_right(self._starts, end) - 1
        is_border = self._is_start(at, end)
        if is_border and self._is(at, "heading"):
            return end
        total = self._total
        needed = self._end_of(at) if is_border and self._fits(at) else end + 1
        repeated = bisect_right(total, total[end] - self._repeat) - 1
        # If only one more piece must fit, its line break does not matter; otherwise it does, as in `ranges`.
        spare = self._pieces.ends_line(end) if needed == end + 1 else 0
        fitting = bisect_left(total, total[needed] - spare - self._limit)
        first = min(end, max(start + self._pieces.are_cut, repeated, fitting))
        return min(end, max(first, self._barrier(first, end)))

    def _barrier(self, first: int, end: int) -> int:
        """Return the earliest start for an overlap: the last heading, after a whole block, or a list item."""
        at = bisect_left(self._starts, end) - 1
        while at >= 0 and self._end_of(at) > first:
            if self._is(at, "heading"):
                return self._starts[at]
            if self._is(at, "whole"):
                return self._end_of(at)
            if self._is(at, "list") and self._starts[at] < first:
                item = bisect_left(self._items, first)
                return self._items[item] if item < len(self._items) else end
            at -= 1
        return first

    def _top(self, at: int) -> int:
        """Return the start of the headings directly above a block, or of the block itself."""
        while self._is(at - 1, "heading"):
            at -= 1
        return self._starts[at]

    def _is(self, at: int, kind: str) -> bool:
        return at >= 0 and self._blocks[at].kind == kind

    def _is_start(self, at: int, place: int) -> bool:
        return 0 <= at < len(self._starts) and self._starts[at] == place

    def _end_of(self, at: int) -> int:
        return self._place(self._blocks[at].end)

    def _fits(self, at: int) -> bool:
        """Return whether a block fits into a chunk, including its last line break."""
        return self._total[self._end_of(at)] - self._total[self._starts[at]] <= self._limit


def _split_long_line(line: str, size: int) -> Iterator[tuple[int, str]]:
    """Yield pieces of at most `size` UTF-16 units with their offsets, cut between words if possible."""
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
    """Return where to end a piece: after a space in its second half, else between visible characters."""
    middle = (start + end) // 2
    if (blank := line.rfind(" ", middle, end)) >= 0:
        return blank + 1
    return next((at for at in range(end, middle, -1) if not _is_joined(line, at)), end)


def _is_joined(line: str, at: int) -> bool:
    """Return whether the character at `at` belongs to the one before: an accent, or a part of an emoji."""
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


def _chunk(start_line: int, end_line: int, start_char: int, text: str, headings: tuple[str, ...]) -> Chunk:
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Chunk(
        start_line=start_line,
        end_line=end_line,
        start_char=start_char,
        text=text,
        hash=digest,
        headings=headings,
    )
