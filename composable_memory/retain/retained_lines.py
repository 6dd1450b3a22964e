"""Reads and writes retained lines, such as `- O(c=0.9) @Peter: Prefers short replies. #style ^m4k29x` (pure).

A line has a type (`W` world, `B` experience, `O` opinion, `S` observation), a confidence if known, its
entities, a sentence that is complete on its own, tags, and an id in the syntax of Markdown's block ids, which
is stable when the note around it changes. All but type and sentence are optional. Retained lines are the
items below a heading `Retain`. People write there too, so any other item is left alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from composable_memory.front_matter import front_matter
from composable_memory.markdown_lines import COMMENT, COMMENT_ENDS, CodeReader, heading_in
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

RETAIN_HEADING = "## Retain"

MemoryType = Literal["world", "experience", "opinion", "observation"]
"""A fact about the world, what the agent experienced, a preference or judgement, or a summary."""

MEMORY_TYPES: tuple[MemoryType, ...] = get_args(MemoryType)

_LETTERS: dict[MemoryType, str] = {"world": "W", "experience": "B", "opinion": "O", "observation": "S"}
_TYPES = {letter: name for name, letter in _LETTERS.items()}

_ENTITY = r"@(?:\[\[([^\[\]\n]+)\]\]|([^\s:：@,\[\]]+))"
_LINE = Pattern(
    r"[ \t]{0,3}[-*+][ \t]+(?P<letter>[WBOS])(?:\(c=(?P<confidence>[01]?\.?\d+)\))?"
    rf"(?P<entities>(?:[ \t,]+{_ENTITY})*)[ \t]*[:：][ \t]*(?P<rest>\S.*)"
)
_ENTITIES = Pattern(_ENTITY)
_WORD = re.compile(r"[^ \t]+")
_TAG = re.compile(r"#((?=[\w/-]*[^\W\d])[\w/-]+)")
_ID = re.compile(r"\^([A-Za-z0-9-]+)")
_TAKES_NO_ITEM = re.compile(r"(?!#{1,6}[ \t]|[ \t]|[-*+][ \t]|`{3}|~{3}).*\S.*")
"""A line after which a list needs a blank line: text, a table, HTML."""
_CONTINUED = re.compile(r"(?: {2,}+|\t)[ \t]*+(?![-*+][ \t])(\S.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedLine:
    """One retained line; `text` is its sentence, on one line.

    `confidence` is in [0, 1]. `tags` are without `#`. `start_line` and `end_line` are its 1-based place in
    the note, 0 if it is not in one yet; a person may have wrapped it over several lines.
    """

    type: MemoryType
    text: str
    entities: tuple[str, ...] = ()
    confidence: float | None = None
    tags: tuple[str, ...] = ()
    id: str | None = None
    start_line: int = 0
    end_line: int = 0


def format_retained_line(line: RetainedLine) -> str:
    """Return `line` as Markdown, without a line break."""
    confidence = "" if line.confidence is None else f"(c={round(line.confidence, 2):g})"
    about = "".join(f" {_mention(name)}" for name in line.entities)
    tags = "".join(f" #{tag}" for tag in line.tags)
    block_id = f" ^{line.id}" if line.id else ""
    return f"- {_LETTERS[line.type]}{confidence}{about}: {' '.join(line.text.split())}{tags}{block_id}"


@lru_cache(maxsize=4096)
def read_retained_line(text: str) -> RetainedLine | None:
    """Parse one line of Markdown; None if it is not a retained line."""
    match = _LINE.fullmatch(text)
    if match is None:
        return None
    confidence = float(match["confidence"]) if match["confidence"] else None
    if confidence is not None and confidence > 1:
        return None
    sentence, tags, id_ = _split_sentence(match["rest"])
    names = (linked or bare for linked, bare in _ENTITIES.findall(match["entities"]))
    return RetainedLine(
        type=_TYPES[match["letter"]],
        text=sentence,
        entities=tuple(dict.fromkeys(name.strip() for name in names)),
        confidence=confidence,
        tags=tags,
        id=id_,
    )


def _split_sentence(rest: str) -> tuple[str, tuple[str, ...], str | None]:
    """Split off the tags and the id after the sentence."""
    words = [*_WORD.finditer(rest)]
    id_ = _ID.fullmatch(words[-1][0]) if len(words) > 1 else None
    if id_:
        words.pop()
    tags: list[str] = []
    while len(words) > 1 and (tag := _TAG.fullmatch(words[-1][0])):
        tags.append(tag[1])
        words.pop()
    return rest[: words[-1].end()].strip(), tuple(reversed(tags)), id_[1] if id_ else None


def retained_lines(note: str, *, everywhere: bool = False) -> Iterator[RetainedLine]:
    """Yield the retained lines of a note, with their places: those below a heading `Retain`, or all of them.

    Lines in code blocks or comments do not count. An indented line below an item continues it.
    """
    lines = _split(note)
    for number, place in enumerate(_places(note, lines)):
        if (everywhere or place.is_retained) and not place.is_code and _LINE.fullmatch(lines[number]):
            yield from _whole(lines, number)


def with_retained_line(note: str, line: RetainedLine) -> str:
    """Return a note with a line added at the end of its last `Retain` section, which is created if missing.

    A code block or comment that is still open at the end of the note is closed before the line.
    """
    lines = _split(note)
    places = list(_places(note, lines))
    written = [number for number, text in enumerate(lines) if text.strip()]
    last = next((number for number in reversed(written) if places[number].is_retained), None)
    new = [format_retained_line(line)]
    if last is None:
        last = written[-1] if written else -1
        new = ["", RETAIN_HEADING, *new] if written else [RETAIN_HEADING, *new]
    elif _TAKES_NO_ITEM.fullmatch(lines[last]):
        new = ["", *new]
    if last >= 0 and (left_open := places[last].left_open):
        new = [COMMENT_ENDS if left_open == COMMENT else left_open, *new]
    before, after = note.split("\n")[: last + 1], note.split("\n")[last + 1 :]
    if "\r\n" in note:
        before[-1:] = [one.removesuffix("\r") + "\r" for one in before[-1:]]
        new = [f"{one}\r" for one in new]
    return "\n".join([*before, *new, *(after if any(one.strip() for one in after) else [""])])


class _Place(NamedTuple):
    """The context of a line: below a heading `Retain` or not, in code or not, and what is open after it."""

    is_retained: bool
    is_code: bool
    left_open: str


def _places(note: str, lines: Sequence[str]) -> Iterator[_Place]:
    level, code, head = 0, CodeReader(comments=True), front_matter(note).lines
    for number, text in enumerate(lines):
        is_code = number >= head and code.is_code(text)
        if number >= head and not is_code and (heading := heading_in(text)):
            is_deeper = level and heading.level > level
            level = level if is_deeper else heading.level * (heading.text.lower() == "retain")
        yield _Place(level > 0, is_code, code.left_open)


def _split(note: str) -> list[str]:
    return [line.removesuffix("\r") for line in note.removeprefix("\ufeff").split("\n")]


def _whole(lines: Sequence[str], first: int) -> Iterator[RetainedLine]:
    end = first + 1
    parts = [lines[first]]
    while end < len(lines) and (more := _CONTINUED.fullmatch(lines[end])):
        parts.append(more[1].rstrip(" \t"))
        end += 1
    if line := read_retained_line(" ".join(parts)):
        yield replace(line, start_line=first + 1, end_line=end)


def _mention(name: str) -> str:
    bare = " ".join(name.split())
    return f"@{bare}" if _ENTITIES.fullmatch(f"@{bare}") else f"@[[{bare}]]"
