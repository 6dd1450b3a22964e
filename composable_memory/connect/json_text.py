"""Edits JSON as text, keeping comments, order and layout; accepts trailing commas and JSON5 (pure)."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from composable_memory_ops_logs.quick_dataclass import dataclass

Path: TypeAlias = tuple[str | int, ...]
"""Names of members and indices of array entries, from the root."""

_SPACE = re.compile(r"(?:[\s\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_WORD = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[^\s,:\[\]{}"\'/]+')
_PLAIN = json.JSONDecoder()
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Node:
    """A value in a text from `start` to `end`: an object, an array, or a word.

    Plain JSON is parsed into `known` at once, even megabytes of it; its parts are located only on demand.
    """

    text: str
    start: int
    end: int
    kind: str  # "{", "[", or "" for a word
    read: tuple["Part", ...] | None = None
    known: object = None

    @property
    def parts(self) -> tuple["Part", ...]:
        """Return the members of an object, or the entries of an array."""
        if self.read is None and self.kind:
            return _parts(self.text, self.start, 0)[0]
        return self.read or ()

    @property
    def value(self) -> object:
        """Return the parsed value."""
        if self.read is None:
            return self.known
        if self.kind == "{":
            return {part.name: part.node.value for part in self.parts}
        return [part.node.value for part in self.parts]

    def find(self, path: Sequence[str | int]) -> "Node | None":
        """Return the node at a path; of members with the same name the last counts."""
        if not path:
            return self
        inner = next((part.node for part in reversed(self.parts) if part.name == path[0]), None)
        return inner and inner.find(path[1:])

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, "Node"]]:
        """Yield every node below, with its path, from the end to the beginning."""
        for part in reversed(self.parts):
            yield (*path, part.name), part.node
            yield from part.node.walk((*path, part.name))


class Part(NamedTuple):
    """A member of an object by name, or an entry of an array by index; it begins at `start`."""

    name: str | int
    start: int
    node: Node


def parse(text: str) -> Node:
    """Return the root of a text; a blank text is an empty object.

    Raises:
        ValueError: it is neither JSON nor JSON5.
    """
    begin = _skip(text, 0)
    if begin == len(text):
        return Node(text, begin, begin, "{", ())
    root = _node(text, begin, 0)
    if _skip(text, root.end) != len(text):
        raise _syntax_error(text, root.end)
    return root


def with_value(text: str, path: Sequence[str], value: object) -> str:
    """Return the text with a value set at a path of names, replacing the present one or appended.

    Raises:
        ValueError: the text cannot be parsed, or something on the path is not an object.
    """
    container = parse(text)
    for depth, name in enumerate(path):
        inner = container.find((name,))
        if inner is None:
            for outer in reversed(path[depth + 1 :]):
                value = {outer: value}
            return _with_part(text, container, value, name)
        container = inner
    is_inline = bool(container.parts) and "\n" not in text[container.start : container.end]
    shown = _shown(value, text, _margin(text, container.start), is_inline=is_inline)
    return text[: container.start] + shown + text[container.end :]


def with_entry(text: str, path: Sequence[str], value: object) -> str:
    """Return the text with one more entry in the array at a path, which is created if missing.

    Raises:
        ValueError: as for `with_value`.
    """
    array = parse(text).find(path)
    if array is None:
        return with_value(text, path, [value])
    if array.kind != "[":
        raise ValueError(f"{'.'.join(path)} is no list")
    return _with_part(text, array, value)


def without(text: str, path: Path) -> str:
    """Return the text without the value at a path, and without containers that become empty."""
    root = parse(text)
    while len(path) > 1 and len(_parent(root, path).parts) == 1:
        path = path[:-1]
    container = _parent(root, path)
    place = max(at for at, part in enumerate(container.parts) if part.name == path[-1])
    part = container.parts[place]
    begin = len(text[: part.start].rstrip())
    end = part.node.end
    comma = _skip(text, end)
    if text[comma : comma + 1] == ",":
        end = comma + 1
    elif place > 0:
        before = _skip(text, container.parts[place - 1].node.end)
        return text[:before] + text[before + 1 : max(begin, before + 1)] + text[end:]
    cut = text[:begin] + text[end:]
    is_empty = (
        len(container.parts) == 1 and not cut[container.start + 1 : container.end - (end - begin) - 1].strip()
    )
    return text[: container.start + 1] + text[container.end - 1 :] if is_empty else cut


def _parent(root: Node, path: Path) -> Node:
    found = root.find(path[:-1])
    if found is None:
        raise ValueError(f"there is nothing at {path}")
    return found


def _node(text: str, start: int, depth: int) -> Node:
    opening = text[start : start + 1]
    if opening not in ("{", "["):
        word, end = _word(text, start)
        return Node(text, start, end, "", known=word)
    try:
        value, end = _PLAIN.raw_decode(text, start)
        return Node(text, start, end, opening, known=value)
    except (ValueError, RecursionError):  # comments and the like, or a syntax error to report
        parts, end = _parts(text, start, depth)
        return Node(text, start, end, opening, parts)


def _parts(text: str, start: int, depth: int) -> tuple[tuple["Part", ...], int]:
    if depth > _MAX_DEPTH:
        raise _syntax_error(text, start)
    is_object = text[start] == "{"
    parts: list[Part] = []
    at, closing = _skip(text, start + 1), "}" if is_object else "]"
    while text[at : at + 1] != closing:
        begin, name = at, str(len(parts))
        if is_object:
            word, at = _word(text, at)
            name, at = str(word), _expect(text, _skip(text, at), ":")
        node = _node(text, at, depth + 1)
        parts.append(Part(name if is_object else len(parts), begin, node))
        at = _skip(text, node.end)
        if text[at : at + 1] != closing:
            at = _expect(text, at, ",")
    return tuple(parts), at + 1


def _word(text: str, at: int) -> tuple[object, int]:
    found = _WORD.match(text, at)
    if found is None:
        raise _syntax_error(text, at)
    word = found[0]
    try:
        return json.loads(word), found.end()
    except ValueError:
        return word.strip("'"), found.end()


def _expect(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise _syntax_error(text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _syntax_error(text: str, at: int) -> ValueError:
    return ValueError(f"line {text.count(chr(10), 0, at) + 1} cannot be read as JSON")


def _with_part(text: str, container: Node, value: object, name: str | None = None) -> str:
    if container.kind != ("{" if name is not None else "["):
        raise ValueError("something else is where a section is expected")
    if container.start == container.end:  # blank, or only comments
        above = f"{text}\n" if text.strip("\ufeff \t") and not text.endswith("\n") else text
        text, container = f"{above}{{}}\n", Node(text, len(above), len(above) + 2, "{", ())
    newline = "\r\n" if "\r\n" in text else "\n"
    is_inline = bool(container.parts) and "\n" not in text[container.start : container.end]
    margin = _margin(text, container.start)
    inner = _margin(text, container.parts[-1].start) if container.parts else margin + _unit(text)
    prefix = "" if name is None else f"{json.dumps(name, ensure_ascii=False)}: "
    shown = prefix + _shown(value, text, inner, is_inline=is_inline)
    tail = len(text[: container.end - 1].rstrip())
    if container.parts:
        last = container.parts[-1].node.end
        comma = _skip(text, last)
        if text[comma : comma + 1] != ",":
            text, tail = f"{text[:last]},{text[last:]}", tail + 1
    if is_inline:
        return f"{text[:tail]} {shown}{text[tail:]}"
    end = text[tail:]
    close = (
        end
        if "\n" in end[: end.find("}" if name is not None else "]")]
        else f"{newline}{margin}{end.lstrip()}"
    )
    return f"{text[:tail]}{newline}{inner}{shown}{close}"


def _shown(value: object, text: str, margin: str, *, is_inline: bool = False) -> str:
    shown = json.dumps(value, ensure_ascii=False, indent=None if is_inline else _unit(text))
    return shown.replace("\n", ("\r\n" if "\r\n" in text else "\n") + margin)


def _margin(text: str, at: int) -> str:
    """Return the indentation of the line at a position."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else "  "
