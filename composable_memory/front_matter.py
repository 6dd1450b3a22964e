"""Reads the front matter of a note: the fields at its head, between two lines of `---` (pure).

Not a YAML parser, so that invalid YAML such as `title: Plan: part two` is still read.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

LONGEST = 32_000
"""Anything longer is text that happens to begin with a horizontal rule."""

_MARK = "---"
_HEAD = Pattern(r"\ufeff?---[ \t\r]*\n((?:.*\n)*?)(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)")
_KEY = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*)|[ \t]*)")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_QUOTED = re.compile(r"""["'](.*)["']""")
_COMMENT = re.compile(r"(?:^|[ \t])#[ \t].*")
_PART = re.compile(r""""[^"]*"|'[^']*'|[^,]+""")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)(?:[T ]\d{2}:\d{2}(?::\d{2})?)?")
# A heading has a space after its marks, and a number alone is an issue, not a tag. What precedes the mark is
# checked by a lookbehind after it: a pattern that begins with a fixed character is searched many times
# faster.
_TAG = re.compile(r"#(?<![\w#/&]#)(?=[\w/-]*[^\W\d])([\w/-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """The front matter of a note.

    `tags` are in lower case and without `#`. `date` is when it was written, in UTC, the start of the day if
    no time is given. `length` and `lines` count the characters and lines of the front matter.
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
    """Parse the front matter of a note; supports `a`, `[a, b]` and lists with one item per line."""
    if not text.startswith((_MARK, f"\ufeff{_MARK}")) or not (head := _HEAD.match(text, 0, LONGEST)):
        return _NOTHING
    values = _values(head[1].split("\n"))
    if not values:  # text between two horizontal rules
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
    """Return the tags of a text: those of its front matter (`head`, if already parsed), and each `#tag`."""
    head = head or front_matter(text)
    return frozenset((*head.tags, *_distinct(_TAG.findall(text, head.length))))


def has_tag(tags: Iterable[str], wanted: str) -> bool:
    """Return whether `tags` include a tag or one below it: `work/alpha` counts as `work`."""
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
    """Return the values of each key, keys in lower case; nested values are left out."""
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
    """Yield the items of a value, without quotation marks and comments."""
    value = value.strip()
    if value.startswith(("|", ">")):  # a block scalar: its text is in the lines below
        return
    if not _QUOTED.fullmatch(value):
        value = _COMMENT.sub("", value).strip()
    is_list = value.startswith("[") and value.endswith("]")
    for part in _PART.findall(value[1:-1]) if is_list else [value]:
        bare = part.strip()
        quoted = _QUOTED.fullmatch(bare)
        if bare := (quoted[1] if quoted else bare).strip():
            yield bare
