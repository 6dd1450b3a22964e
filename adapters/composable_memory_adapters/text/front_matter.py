"""What a note says of itself: the keys at its head, between two lines of `---`, and its tags (pure)."""

import re
from collections.abc import Mapping, Sequence
from datetime import date

from composable_memory.query.filters import leading_day

__all__ = ["day_of", "front_matter", "has_tag", "tags_in"]

DATE_KEYS = ("date", "day", "created")

_HEAD = re.compile(r"\ufeff?---[ \t]*\n(.*?)(?:\n(?:---|\.\.\.)[ \t]*(?:\n|$)|$)", re.DOTALL)
_KEY = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
# A heading has a blank behind its marks, and a number alone is no tag but an issue.
_TAG = re.compile(r"(?<![\w#/&])#(?=[\w/-]*[^\W\d])([\w/-]+)")


def front_matter(text: str) -> Mapping[str, Sequence[str]]:
    """Return the values of each key at the head of a note, keys in lower case; `a`, `[a, b]` and lists.

    It is no parser of YAML: what is nested or spans lines is left out.
    """
    head = _HEAD.match(text)
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for line in head[1].split("\n") if head else ():
        if match := _KEY.match(line):
            values = found.setdefault(match[1].lower(), [])
            values += _listed(match[2])
        elif match := _ITEM.match(line):
            values += _listed(match[1])
    return found


def day_of(head: Mapping[str, Sequence[str]]) -> date | None:
    """Return the day that front matter gives a note."""
    values = (value for key in DATE_KEYS for value in head.get(key, ()))
    return next((day for value in values if (day := leading_day(value))), None)


def tags_in(text: str) -> frozenset[str]:
    """Return the tags of a text in lower case: those of its front matter, and each `#tag`."""
    head = front_matter(text)
    named = [tag for key in ("tags", "tag") for value in head.get(key, ()) for tag in value.split()]
    return frozenset(tag.strip("#/").lower() for tag in (*named, *_TAG.findall(text)))


def has_tag(tags: frozenset[str], wanted: str) -> bool:
    """Return whether a tag, or one below it, is among some; `work` is there where `work/alpha` is."""
    bare = wanted.strip().strip("#/").lower()
    return any(tag == bare or tag.startswith(f"{bare}/") for tag in tags)


def _listed(value: str) -> list[str]:
    value = value.strip()
    parts = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
    return [bare for part in parts if (bare := part.strip().strip("\"'"))]
