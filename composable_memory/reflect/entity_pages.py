"""Writes lines into pages that people edit, and recognises its own lines again (pure).

A line of ours ends with `^KEY-CHECK`: the key of what it says, which is the id of its source, and the start
of a hash of the line. It may be moved anywhere in the page. Once somebody has changed it, the check no longer
matches: then it is theirs and stays as it is, and nothing is written for its key again.
"""

import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import field
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from composable_memory.markdown_lines import CodeReader, heading_in
from composable_memory_ops_logs.quick_dataclass import dataclass

CHECK_CHARS = 4
COUNTS = "about"
"""The key of the line that counts what is retained about an entity, on its page."""

_ITEM = re.compile(r"\s*[-*+]\s+\S")
_KEY = re.compile(rf"([A-Za-z0-9-]+)-([0-9a-f]{{{CHECK_CHARS}}})")


class _OwnLine(NamedTuple):
    """A line in our format: what it says, its key, and the check that it should have."""

    body: str
    key: str
    check: str

    @property
    def is_intact(self) -> bool:
        """Return whether nobody has changed it."""
        return self.check == _check(self.body, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line that should be in a page: its key, its heading, and its text."""

    key: str
    section: str
    text: str

    @property
    def line(self) -> str:
        """Return the line as written in the page."""
        body = f"- {' '.join(self.text.split())}"
        return f"{body} ^{self.key}-{_check(body, self.key)}"


@dataclass(slots=True, kw_only=True)
class Page:
    """A planned page: how it begins, the lines it should have, and which of them to write now.

    `name` is that of its entity.
    """

    head: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    name: str | None = None

    def add(self, entry: Entry, *, is_fresh: bool) -> None:
        """Plan a line; one that is not fresh is only kept if it is there."""
        self.entries[entry.key] = entry
        if is_fresh:
            self.fresh.add(entry.key)


def revise_page(page: str, entries: Sequence[Entry], valid: Set[str], *, head: str) -> str:
    """Return a page in which every entry has its line, without lines of ours whose key is not `valid`.

    An existing line is updated in place; a new one is added last under its heading. An empty page begins with
    `head`. Everything that is not ours stays.
    """
    ending = "\r" if "\r\n" in page else ""
    wanted = {entry.key: entry for entry in entries}
    text = page or (head if entries else "")
    lines = text.removesuffix("\n").split("\n")
    kept, present = _keep(lines, wanted, valid)
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
    """Return whether a line was written by us and is unchanged."""
    found = _own_line(line)
    return found is not None and found.is_intact


def own_lines(page: str) -> dict[str, str]:
    """Return the unchanged lines of ours in a page, by key."""
    found = map(_own_line, page.split("\n"))
    return {one.key: one.body for one in found if one and one.is_intact}


def without_counts(text: str, page: str, changed: Collection[str]) -> str:
    """Remove our lines that count what is on pages that have changed; the next reflection adds them again."""
    links = [f"]({quote(one)}): " for one in changed]

    def is_outdated(line: str) -> bool:
        found = _own_line(line)
        if found is None or not found.is_intact:
            return False
        return (found.key == COUNTS and page in changed) or any(one in found.body for one in links)

    return "\n".join(line for line in text.split("\n") if not is_outdated(line))


def is_empty(text: str) -> bool:
    """Return whether a page has nothing but our front matter and headings."""
    head, _, rest = text.replace("\r\n", "\n").partition("\n---\n")
    is_ours = head.startswith("---\ntype: ") and head.count("\n") == 1
    return is_ours and all(not line.strip() or line.startswith("#") for line in rest.split("\n"))


def derive_key(prefix: str, *parts: str) -> str:
    """Return a key derived from the content of something that has no id."""
    digest = sha256("\0".join(parts).encode()).hexdigest()
    return f"{prefix}{digest[:8]}"


def _keep(lines: Sequence[str], wanted: Mapping[str, Entry], valid: Set[str]) -> tuple[list[str], set[str]]:
    """Return the lines that stay, ours updated, and the keys that are there."""
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
    """Return where to insert a line so that it is the last under a heading; None without that heading."""
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
    """Return the code fence that is still open at the end of a page, or an empty text."""
    code = CodeReader()
    for line in lines:
        code.is_code(line)
    return code.left_open


def _own_line(line: str) -> _OwnLine | None:
    if "^" not in line:  # nearly all lines
        return None
    body, _, last = line.rstrip().rpartition("^")
    found = _KEY.fullmatch(last) if body[-1:].isspace() else None
    body = body.rstrip()
    return _OwnLine(body, found[1], found[2]) if found and _ITEM.match(body) else None


def _check(body: str, key: str) -> str:
    return sha256(f"{' '.join(body.split())} ^{key}".encode()).hexdigest()[:CHECK_CHARS]
