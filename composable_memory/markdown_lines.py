"""Parses the structural lines of Markdown: headings and fenced code, as in CommonMark (pure).

Each line takes a number of steps that does not depend on its length.
"""

from typing import NamedTuple

COMMENT, COMMENT_ENDS = "<!--", "-->"
MAX_LEVEL = 6

_BEFORE_HEADING = frozenset(" #")
_BEFORE_CODE = frozenset(" `~<")


class HeadingLine(NamedTuple):
    """A heading with its level from 1, and its text, which may be empty."""

    level: int
    text: str


def heading_in(line: str) -> HeadingLine | None:
    """Parse a heading line, such as `## Title ##`; None if it is not one."""
    if line[:1] not in _BEFORE_HEADING:  # nearly all lines
        return None
    marked = _unindented(line)
    words = marked.lstrip("#")
    level = len(marked) - len(words)
    if not 1 <= level <= MAX_LEVEL or (words and words[0] not in " \t\r"):
        return None
    words = words.strip(" \t\r")
    opened = words.rstrip("#")
    return HeadingLine(level, opened.rstrip(" \t") if not opened or opened[-1] in " \t" else words)


def opening_fence(line: str) -> str:
    """Return the marks that begin fenced code in this line, empty if it does not."""
    marked = _unindented(line)
    if not marked.startswith(("```", "~~~")):
        return ""
    behind = marked.lstrip(marked[0])
    return "" if marked[0] == "`" in behind else marked[: len(marked) - len(behind)]


def closes_fence(line: str, fence: str) -> bool:
    """Return whether a line ends the fenced code that began with `fence`."""
    marked = _unindented(line)
    return marked.startswith(fence) and not marked.lstrip(fence[0]).strip(" \t\r")


class CodeReader:
    """Reads the lines of a text in order and distinguishes fenced code from the rest.

    `left_open` is the fence of code that is still open after the last line, or empty. With `comments`, HTML
    comments count as code; `left_open` is then `COMMENT`.
    """

    def __init__(self, *, comments: bool = False) -> None:
        self.left_open = ""
        self._comments = comments

    def is_code(self, line: str) -> bool:
        """Read the next line; return whether it is code, or a fence."""
        before = self.left_open
        if not before and line[:1] not in _BEFORE_CODE:
            return False
        begun = before or (COMMENT if self._begins_comment(line) else opening_fence(line))
        ends = COMMENT_ENDS in line if begun == COMMENT else bool(before) and closes_fence(line, before)
        self.left_open = "" if ends else begun
        return bool(begun)

    def _begins_comment(self, line: str) -> bool:
        return self._comments and _unindented(line).startswith(COMMENT)


def _unindented(line: str) -> str:
    """Return a line without leading spaces; empty if there are four, which make it code."""
    return "" if line.startswith("    ") else line.lstrip(" ")
