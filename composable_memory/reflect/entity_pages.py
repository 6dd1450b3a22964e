"""Writes lines into pages that people edit, and knows its own again (pure).

A line of ours ends with `^KEY-CHECK`: the key of what it says, which is the id of its source, and the
beginning of a hash of the line. It may be moved anywhere in the page. Once somebody has changed it, the check
does not fit any more: it is theirs then, stays as it is, and nothing is written for its key again.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import field
from hashlib import sha256
from typing import NamedTuple

from composable_memory.markdown_lines import CodeReader, heading_in
from composable_memory_ops_logs.quick_dataclass import dataclass

CHECK_CHARS = 4

_ITEM = re.compile(r"\s*[-*+]\s+\S")
_KEY = re.compile(rf"([A-Za-z0-9-]+)-([0-9a-f]{{{CHECK_CHARS}}})")


class _OwnLine(NamedTuple):
    """A line in the form of ours: what it says, whose it is, and what its check should be."""

    body: str
    key: str
    check: str

    @property
    def is_intact(self) -> bool:
        """Return whether nobody has changed it."""
        return self.check == _check(self.body, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line that is to be in a page: its key, the heading it belongs under, and its text."""

    key: str
    section: str
    text: str

    @property
    def line(self) -> str:
        """Return the line as it stands in the page."""
        body = f"- {' '.join(self.text.split())}"
        return f"{body} ^{self.key}-{_check(body, self.key)}"


@dataclass(slots=True, kw_only=True)
class Page:
    """A page that is planned: how it begins, the lines it is to have, and which of them to write now.

    `name` is that of the entity that it is about.
    """

    head: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    name: str | None = None

    def add(self, entry: Entry, *, is_fresh: bool) -> None:
        """Plan a line; one that is not fresh only stays if it is there."""
        self.entries[entry.key] = entry
        if is_fresh:
            self.fresh.add(entry.key)


def revised(page: str, entries: Sequence[Entry], valid: Set[str], *, head: str) -> str:
    """Return a page in which every entry has its line, and no line of ours has a key that is not `valid`.

    A line that is there is changed where it stands; a new one comes last under its heading. An empty page
    begins with `head`. What is not ours stays.
    """
    ending = "\r" if "\r\n" in page else ""
    wanted = {entry.key: entry for entry in entries}
    text = page or (head if entries else "")
    lines = text.removesuffix("\n").split("\n")
    kept, present = _kept(lines, wanted, valid)
    new: dict[str, list[str]] = {}
    for entry in wanted.values():
        if entry.key not in present:
            new.setdefault(entry.section, []).append(f"{entry.line}{ending}")
    if new and (fence := _left_open(kept)):
        kept.append(f"{fence}{ending}")
    for section, added in new.items():
        at = _end_of_section(kept, section)
        if at is None:
            above = [] if not kept[-1].strip() else [ending]
            kept += [*above, f"## {section}{ending}", ending]
            at = len(kept)
        kept[at:at] = added
    return page if kept == lines and text == page else "\n".join(kept) + "\n"


def is_own_line(line: str) -> bool:
    """Return whether a line was written here and is unchanged."""
    found = _own_line(line)
    return found is not None and found.is_intact


def own_lines(page: str) -> dict[str, str]:
    """Return the lines of a page that were written here and are unchanged, by their keys."""
    found = map(_own_line, page.split("\n"))
    return {one.key: one.body for one in found if one and one.is_intact}


def made_key(prefix: str, *parts: str) -> str:
    """Return a key for what has no id, made from what it is."""
    digest = sha256("\0".join(parts).encode()).hexdigest()
    return f"{prefix}{digest[:8]}"


def _kept(lines: Sequence[str], wanted: Mapping[str, Entry], valid: Set[str]) -> tuple[list[str], set[str]]:
    """Return the lines that stay, ours up to date, and the keys that are there."""
    kept: list[str] = []
    present: set[str] = set()
    for line in lines:
        found = _own_line(line)
        if found is None:
            kept.append(line)
            continue
        key = found.key
        if not found.is_intact:
            kept.append(line)
        elif key not in valid or key in present:
            continue
        else:
            kept.append(wanted[key].line + "\r" * line.endswith("\r") if key in wanted else line)
        present.add(key)
    return kept, present


def _end_of_section(lines: Sequence[str], section: str) -> int | None:
    """Return where a line has to be put to be the last under a heading; None where there is none."""
    level, end, code = 0, None, CodeReader()
    for number, line in enumerate(lines):
        heading = None if code.is_code(line) else heading_in(line)
        if level and heading and heading.level <= level:
            break
        if not level and heading and heading.level > 1 and heading.text == section:
            level, end = heading.level, number + 1
        elif level and line.strip():
            end = number + 1
    return end


def _left_open(lines: Sequence[str]) -> str:
    """Return the fence of code that goes on to the end of a page, empty where none does."""
    code = CodeReader()
    for line in lines:
        code.is_code(line)
    return code.left_open


def _own_line(line: str) -> _OwnLine | None:
    if "^" not in line:  # as of nearly all lines
        return None
    body, _, last = line.rstrip().rpartition("^")
    found = _KEY.fullmatch(last) if body[-1:].isspace() else None
    body = body.rstrip()
    return _OwnLine(body, found[1], found[2]) if found and _ITEM.match(body) else None


def _check(body: str, key: str) -> str:
    return sha256(f"{' '.join(body.split())} ^{key}".encode()).hexdigest()[:CHECK_CHARS]
