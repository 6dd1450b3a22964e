"""The fields of a passage besides its text: its note's names, the headings above it, and tags (pure).

Each is a column of its own in the keyword index; the rules are the same for all languages.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from composable_memory.front_matter import tags_in
from composable_memory.paths import MAIN_FILES
from composable_memory_adapters.text.forms import index_text
from composable_memory_adapters.text.markdown_outline import Outline, heading_text

MAX_ALIASES = 32
MAX_TAGS = 500
MAX_INDEXED_TAGS = 32

_DATED = re.compile(r"^\d{4}-\d{2}-\d{2}[-_ ]?")
_LETTER = re.compile(r"[^\W\d_]")
_UMLAUT = re.compile(r"([aou])e", re.IGNORECASE)


class NoteFields(NamedTuple):
    """A note's metadata as the index stores it; lists have one item per line.

    `tags` holds those of the front matter, then those in the text. `day` is an ISO date.
    """

    title: str = ""
    aliases: str = ""
    tags: str = ""
    type: str = ""
    day: str = ""


NO_FIELDS = NoteFields()


class KeywordRow(NamedTuple):
    """A passage's columns in the keyword index."""

    text: str
    names: str
    headings: str
    tags: str


def fields_of(text: str, structure: Outline) -> NoteFields:
    """Return the fields of a note."""
    head = structure.front
    tags = tuple(dict.fromkeys([*head.tags, *sorted(tags_in(text, head))])) if "#" in text else head.tags
    return NoteFields(
        title=heading_text(head.title) if head.title else structure.title or "",
        aliases=_lines(heading_text(alias) for alias in head.aliases[:MAX_ALIASES]),
        tags=_lines(tags[:MAX_TAGS]),
        type=head.type or "",
        day=head.date.date().isoformat() if head.date else "",
    )


def keyword_row(path: str, fields: NoteFields, headings: str, text: str) -> KeywordRow:
    """Return a passage's row of the keyword index; `headings` has one per line."""
    names, tags = _words_of_note(path, fields)
    return KeywordRow(index_text(text), names, index_text(headings), tags)


@lru_cache(maxsize=64)
def _words_of_note(path: str, fields: NoteFields) -> tuple[str, str]:
    """Return the words of the note's name, title and aliases, and the words of its tags."""
    name = path.rpartition("/")[2]
    bare = _UMLAUT.sub(r"\1", name)  # Böhm may be boehm in a file name, and is searched for as bohm
    file_names = () if name in MAIN_FILES else (name, bare) if bare != name else (name,)
    names = _lines(
        undated
        for one in (*file_names, fields.title, *fields.aliases.split("\n"))
        if _LETTER.search(_without_suffix(undated := _DATED.sub("", one, count=1), one in file_names))
    )
    return index_text(names), index_text(_lines(fields.tags.split("\n")[:MAX_INDEXED_TAGS]))


def _without_suffix(name: str, has_suffix: bool) -> str:
    return name.rpartition(".")[0] if has_suffix else name


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(parts)
