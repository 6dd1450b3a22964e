"""Reads the front matter of a note: what it says of itself at its head, between two lines of `---` (pure).

It is no parser of YAML, so that a head which YAML refuses, such as `title: Plan: part two`, is still read.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

LONGEST = 32_000
"""A head with more characters is text that happens to begin with a rule."""

_MARK = "---"
_HEAD = Pattern(r"\ufeff?---[ \t\r]*\n((?:.*\n)*?)(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)")
_KEY = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*)|[ \t]*)")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_QUOTED = re.compile(r"""["'](.*)["']""")
_COMMENT = re.compile(r"(?:^|[ \t])#[ \t].*")
_PART = re.compile(r""""[^"]*"|'[^']*'|[^,]+""")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)(?:[T ]\d{2}:\d{2}(?::\d{2})?)?")
# A heading has a blank behind its marks, and a number alone is no tag but an issue. What stands before the
# mark is looked at behind it: a pattern that begins with a character is searched for many times as fast.
_TAG = re.compile(r"#(?<![\w#/&]#)(?=[\w/-]*[^\W\d])([\w/-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """What a note says of itself.

    `tags` are in lower case and without `#`. `date` is when it was written, in UTC, the beginning of the day
    where no time is given. `length` and `lines` count the characters and lines that the front matter takes.
    """

    title: str | None = None
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    date: datetime | None = None
    type: str | None = None
    length: int = 0
    lines: int = 0


_NOTHING = FrontMatter()


def front_matter(text: str) -> FrontMatter:
    """Return the front matter of a note; `a`, `[a, b]` and lists of one item a line are read."""
    if not text.startswith((_MARK, f"\ufeff{_MARK}")) or not (head := _HEAD.match(text, 0, LONGEST)):
        return _NOTHING
    values = _values(head[1].split("\n"))
    if not values:  # a text between two rules
        return _NOTHING
    tags = (part for key in ("tags", "tag") for value in values[key] for part in re.split(r"[\s,]+", value))
    return FrontMatter(
        title=next(iter(values["title"]), None),
        aliases=tuple(dict.fromkeys([*values["aliases"], *values["alias"]])),
        tags=_distinct(tags),
        date=next(_dates(values), None),
        type=next(iter(values["type"]), None),
        length=head.end(),
        lines=head[1].count("\n") + 2,
    )


def tags_in(text: str, head: FrontMatter | None = None) -> frozenset[str]:
    """Return the tags of a text: those of its front matter, which may have been read, and each `#tag`."""
    head = head or front_matter(text)
    return frozenset((*head.tags, *_distinct(_TAG.findall(text, head.length))))


def has_tag(tags: Iterable[str], wanted: str) -> bool:
    """Return whether a tag, or one below it, is among some; `work` is there where `work/alpha` is."""
    bare = wanted.strip().strip("#/").lower()
    return any(tag == bare or tag.startswith(f"{bare}/") for tag in tags)


def _distinct(tags: Iterable[str]) -> tuple[str, ...]:
    bare = (tag.strip("#/").lower() for tag in tags)
    return tuple(dict.fromkeys(tag for tag in bare if tag))


def _dates(values: Mapping[str, Sequence[str]]) -> Iterator[datetime]:
    for value in (value for key in ("date", "day", "created") for value in values[key]):
        if match := _DATE.match(value.strip("[] ")):
            try:
                yield datetime.fromisoformat(match[0]).replace(tzinfo=UTC)
            except ValueError:  # the calendar has no such day
                continue


def _values(lines: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the values of each key, keys in lower case; what is nested is left out."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    values: list[str] = []
    for line in lines:
        if match := _KEY.fullmatch(line.rstrip()):
            values = found[match[1].lower()]
            values += _listed(match[2] or "")
        elif match := _ITEM.match(line):
            values += _listed(match[1])
    return found


def _listed(value: str) -> Iterator[str]:
    """Yield what a value holds, without quotation marks and comments."""
    value = value.strip()
    if value.startswith(("|", ">")):  # its text is in the lines below
        return
    if not _QUOTED.fullmatch(value):
        value = _COMMENT.sub("", value).strip()
    is_list = value.startswith("[") and value.endswith("]")
    for part in _PART.findall(value[1:-1]) if is_list else [value]:
        bare = part.strip()
        quoted = _QUOTED.fullmatch(bare)
        if bare := (quoted[1] if quoted else bare).strip():
            yield bare
