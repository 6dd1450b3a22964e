"""Finds the structure of a Markdown text: its headings, and the lines that belong together (pure).

It reads line by line, following CommonMark as far as cutting a text requires. A full parser would take as
long as all the rest of indexing.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Literal

from composable_memory.front_matter import FrontMatter, front_matter
from composable_memory.markdown_lines import closes_fence, heading_in, opening_fence
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_HEADING_CHARS = 120
MAX_LINKED_CHARS = 1000
"""How much of a heading to search for links: each `[` is followed to the end of the text."""
MAX_PATH = 6

BlockKind = Literal["heading", "paragraph", "list", "whole"]

# Nearly all lines are plain: they continue the block they are in, or begin a paragraph.
_MARK = re.compile(r"[\s#`~|\-*+=:\d]|\Z")
_NEXT_MARK = re.compile(rf"\n(?={_MARK.pattern})")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})")
# Possessive quantifiers avoid backtracking: a row of empty cells would take exponential time.
_DELIMITER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*+:?+-*+:?+[ \t]*+)+")
_LINK = re.compile(r"!?\[\[(?:[^\]|]*\|)?([^\]]*)\]\]|!?\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading with its level from 1, and its 0-based line."""

    line: int
    level: int
    text: str


@dataclass(slots=True)
class Block:
    """Lines that belong together, from `start` to `end` (exclusive); blank lines may follow.

    A `whole` block makes no sense in parts: a table, code, front matter.
    """

    start: int
    end: int
    kind: BlockKind


@dataclass(slots=True)
class Outline:
    """A text and its lines, front matter, blocks and headings, and the lines at which list items begin."""

    text: str
    lines: list[str]
    front: FrontMatter
    blocks: list[Block] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    items: list[int] = field(default_factory=list)

    @property
    def title(self) -> str | None:
        """Return the first level-1 heading."""
        return next((one.text for one in self.headings if one.level == 1), None)

    def paths(self) -> "HeadingPaths":
        """Return the heading path of each line, leaving out the first level-1 heading."""
        return HeadingPaths(self.headings)


class HeadingPaths:
    """The headings above each line."""

    def __init__(self, headings: Sequence[Heading]) -> None:
        self._lines = [one.line for one in headings]
        self._paths: list[tuple[str, ...]] = []
        title = next((one for one in headings if one.level == 1), None)
        above: list[Heading] = []
        for heading in headings:
            above = [*(one for one in above if one.level < heading.level), heading]
            self._paths.append(tuple(one.text for one in above if one is not title)[-MAX_PATH:])

    def at(self, line: int) -> tuple[str, ...]:
        """Return the headings above or at a line, outermost first."""
        found = bisect_right(self._lines, line)
        return self._paths[found - 1] if found else ()


def outline(text: str) -> Outline:
    """Return the structure of a text."""
    found = Outline(text, text.split("\n"), front_matter(text))
    head = found.front.lines
    if head:
        found.blocks.append(Block(0, head, "whole"))
    reader = _Reader(found)
    at = head
    for number in _lines_with_marks(text):
        if number >= head:
            reader.read_plain(at, number)
            reader.read(number, found.lines[number])
            at = number + 1
    reader.read_plain(at, len(found.lines))
    return found


def _lines_with_marks(text: str) -> Iterator[int]:
    """Yield the numbers of the lines that are not plain."""
    if _MARK.match(text):
        yield 0
    number = start = 0
    for found in _NEXT_MARK.finditer(text):
        number += text.count("\n", start, found.end())
        start = found.end()
        yield number


def heading_text(text: str) -> str:
    """Return a heading or title on one line, without links and markup, truncated if too long."""
    text = _LINK.sub(lambda link: link[1] or link[2] or "", text[:MAX_LINKED_CHARS])
    text = " ".join(text.replace("`", "").replace("**", "").split())
    return text if len(text) <= MAX_HEADING_CHARS else f"{text[: MAX_HEADING_CHARS - 1].rstrip()}…"


class _Reader:
    """Reads a text line by line."""

    def __init__(self, found: Outline) -> None:
        self.found = found
        self._fence = ""
        self._is_new = True
        """Whether the next line with text begins a block, unless it continues the list before it."""
        self._before = ""

    def read_plain(self, start: int, end: int) -> None:
        """Read the plain lines from `start` to `end` (exclusive); there may be none."""
        if start == end:
            return
        if self._is_new and not self._fence:
            self._begin(start, "paragraph")
        self.found.blocks[-1].end = end
        self._before = self.found.lines[end - 1]

    def read(self, number: int, line: str) -> None:
        """Read a line that is not plain."""
        if self._fence:
            self._in_code(number, line)
        elif not line or line.isspace():
            self._is_new = True
            return
        else:
            self._read_mark(number, line)
        self._before = line

    def _in_code(self, number: int, line: str) -> None:
        self.found.blocks[-1].end = number + 1
        if closes_fence(line, self._fence):
            self._fence = ""
            self._is_new = True

    def _read_mark(self, number: int, line: str) -> None:
        """Read a line that begins with markup, a digit or whitespace."""
        blocks = self.found.blocks
        last = blocks[-1] if blocks else None
        is_in_list = last is not None and last.kind == "list"
        if is_in_list and line[0] in " \t":
            self._go_on(number)
            if _ITEM.match(line):
                self.found.items.append(number)
        elif heading := heading_in(line):
            self._begin(number, "heading")
            self._name(number, heading.level, heading.text)
        elif fence := opening_fence(line):
            self._begin(number, "whole")
            self._fence = fence
        elif not self._is_new and last and last.kind == "paragraph" and self._is_underlined(number, line):
            last.kind, last.end = "heading", number + 1
            self._name(last.start, 1 if "=" in line else 2, self._before)
            self._is_new = True
        elif last and not self._is_new and "|" in self._before and _DELIMITER.fullmatch(line.rstrip()):
            self._begin_table(number)
        elif _RULE.fullmatch(line.rstrip()):
            self._begin(number, "paragraph")
            self._is_new = True
        elif _ITEM.match(line):
            if is_in_list:
                self._go_on(number)
            else:
                self._begin(number, "list")
            self.found.items.append(number)
        elif self._is_new:
            self._begin(number, "whole" if line.lstrip().startswith("|") else "paragraph")
        else:
            self._go_on(number)

    def _is_underlined(self, number: int, line: str) -> bool:
        is_one_line = number - self.found.blocks[-1].start == 1
        return is_one_line and _UNDERLINE.fullmatch(line.rstrip()) is not None

    def _begin_table(self, number: int) -> None:
        """Begin a table whose header is the line before, which may have been the end of a paragraph."""
        last = self.found.blocks[-1]
        if last.start == number - 1:
            last.kind, last.end = "whole", number + 1
        elif last.kind == "paragraph":
            last.end = number - 1
            self.found.blocks.append(Block(number - 1, number + 1, "whole"))
        else:
            self._go_on(number)

    def _begin(self, number: int, kind: BlockKind) -> None:
        self.found.blocks.append(Block(number, number + 1, kind))
        self._is_new = kind == "heading"

    def _go_on(self, number: int) -> None:
        self.found.blocks[-1].end = number + 1
        self._is_new = False

    def _name(self, line: int, level: int, text: str) -> None:
        if text := heading_text(text):
            self.found.headings.append(Heading(line, level, text))
