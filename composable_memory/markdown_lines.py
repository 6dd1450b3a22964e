"""Reads the lines that structure a Markdown text: headings and fenced code, as CommonMark has them (pure).

Each line is read in a number of steps that does not depend on its length.
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
    """Return the heading that a line is, such as `## Title ##`; None where it is none."""
    if line[:1] not in _BEFORE_HEADING:  # as of nearly all lines
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
    """Return the marks with which a line begins fenced code; nothing where it does not."""
    marked = _unindented(line)
    if not marked.startswith(("```", "~~~")):
        return ""
    behind = marked.lstrip(marked[0])
    return "" if marked[0] == "`" in behind else marked[: len(marked) - len(behind)]


def closes_fence(line: str, fence: str) -> bool:
    """Return whether a line ends the code that began with `fence`."""
    marked = _unindented(line)
    return marked.startswith(fence) and not marked.lstrip(fence[0]).strip(" \t\r")


class CodeReader:
    """Reads the lines of a text in their order and tells fenced code from the rest.

    `left_open` is the fence of the code that goes on below the last line, empty where none does. With
    `comments`, what is commented out counts as code; `left_open` is then `COMMENT`.
    """

    def __init__(self, *, comments: bool = False) -> None:
        self.left_open = ""
        self._comments = comments

    def is_code(self, line: str) -> bool:
        """Read the next line; return whether it is code, or the fence of some."""
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
    """Return a line without the blanks before it; nothing where there are four, which make it code."""
    return "" if line.startswith("    ") else line.lstrip(" ")
