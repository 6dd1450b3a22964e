"""Finds the passages of the index that pass a search's filters, and the date of each note.

Runs in a reader thread, within one snapshot of the index file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, tzinfo

from composable_memory.front_matter import has_tag
from composable_memory.query.filters import (
    day_in_path,
    has_all_phrases,
    holds_line_of,
    leading_day,
    may_pass,
    memory_types,
    path_matches,
    type_matches,
)
from composable_memory.retain.retained_lines import MemoryType, RetainedLine, format_retained_line
from composable_memory.types import SearchFilters
from composable_memory_adapters.builtin.store.message_times import said_between, timed_paths
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_adapters.text.query_terms import KeywordQuery
from composable_memory_ops_logs.quick_dataclass import dataclass

FILES = "SELECT path, source, mtime, day, tags, type FROM files"
PASSAGES = """
SELECT id, path, source, start_line, start_char FROM chunks
WHERE path IN (SELECT value FROM json_each(?)) ORDER BY path, start_line, start_char
"""
WITH_WORDS = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?"
TEXTS = "SELECT id, path, text FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
MAY_RETAIN = "SELECT id, text FROM chunks WHERE source = 'memory' AND text GLOB '*[-*+][ \t][WBOS][(: @,：]*'"
WITH_LETTER = f"{MAY_RETAIN} AND id IN ({WITH_WORDS})"
"""Filtering by the type's letter first takes a tenth of the time: few passages have it as a word."""

Row = tuple[int, str, str, int, int]
"""A passage: its id, path, source, start line and start character."""
FileRow = tuple[str, str, int, str, str, str]
"""A file: path, source, mtime in nanoseconds, and the day, tags and type from its front matter."""
File = tuple[str, str]
"""The path of a file and its source."""


def passing(
    connection: Connection, filters: SearchFilters, *, zone: tzinfo | None, has_keywords: bool
) -> list[int]:
    """Return the ids of the passages that pass: the first of each note, newest note first, then the others.

    Without a keyword index, every text is read to look for words.
    """
    has_time = filters.since is not None or filters.until is not None
    timed = timed_paths(connection) if has_time else frozenset()
    said = {one.id for one in said_between(connection, filters.since, filters.until)} if timed else set()
    files = [*connection.execute(FILES)]
    days = days_of_files(files, filters, zone=zone, timed=timed)
    rows = [
        row
        for row in connection.execute(PASSAGES, (_json(sorted({path for path, _ in days})),))
        if (row[1], row[2]) in days and (row[1] not in timed or row[0] in said)
    ]
    if retained := memory_types(filters.types):
        holding = _holding(connection, retained, has_keywords=has_keywords)
        rows = of_types(rows, files, filters.types, holding)
    search = _Texts(connection, [row[0] for row in rows], has_keywords)
    if filters.phrases:
        found = search.with_words(*filters.phrases)
        holding = {id_ for id_, _, text in found if has_all_phrases(folded(text), filters.phrases)}
        rows = [row for row in rows if row[0] in holding]
    for word in filters.without:
        excluded = {id_ for id_, _, _ in search.with_words(word)}
        rows = [row for row in rows if row[0] not in excluded]
    return newest_first(rows, days)


def days_of_files(
    files: Iterable[FileRow], filters: SearchFilters, *, zone: tzinfo | None, timed: Set[str] = frozenset()
) -> dict[File, date]:
    """Return the files that pass the filters on path, source, tags, type and date, with their dates.

    Files in `timed` pass whatever their date: each of their passages has times of its own. If a type of
    retained line is wanted, files of every type pass: that is decided per passage.
    """
    days = {}
    may_hold_lines = bool(memory_types(filters.types))
    for path, source, mtime, told, tags, type_ in files:
        day = day_in_path(path) or leading_day(told) or datetime.fromtimestamp(mtime / 1e9, zone).date()
        if (
            (not filters.paths or path_matches(path, filters.paths))
            and (not filters.sources or source in filters.sources)
            and (not filters.types or may_hold_lines or type_matches(path, source, filters.types, told=type_))
            and all(has_tag(tags.split("\n"), tag) for tag in filters.tags)
            and (path in timed or may_pass(day, filters) is not False)
        ):
            days[path, source] = day
    return days


def _holding(connection: Connection, types: Set[MemoryType], *, has_keywords: bool) -> set[int]:
    """Return the ids of the passages that contain a retained line of one of `types`."""
    letters = (format_retained_line(RetainedLine(type=one, text=""))[2] for one in types)
    words = " OR ".join(f'"{letter}"' for letter in letters)
    texts = connection.execute(WITH_LETTER, (words,)) if has_keywords else connection.execute(MAY_RETAIN)
    return {id_ for id_, text in texts if holds_line_of(text, types)}


def of_types(
    rows: Iterable[Row], files: Iterable[FileRow], types: Sequence[str], holding: Set[int]
) -> list[Row]:
    """Return the passages of notes of one of `types`, and those in `holding`, with a retained line of one."""
    typed = {
        (path, source)
        for path, source, _, _, _, told in files
        if type_matches(path, source, types, told=told)
    }
    return [row for row in rows if row[0] in holding or (row[1], row[2]) in typed]


def newest_first(rows: Sequence[Row], days: Mapping[File, date]) -> list[int]:
    """Return the first passage of each note, newest note first, then the others."""
    by_day = sorted(rows, key=lambda row: -days[row[1], row[2]].toordinal())
    first_of = {(path, source): id_ for id_, path, source, *_ in reversed(by_day)}
    firsts = {*first_of.values()}
    return [row[0] for row in sorted(by_day, key=lambda row: row[0] not in firsts)]


@dataclass(frozen=True, slots=True)
class _Texts:
    """Looks up which of some passages contain given words."""

    connection: Connection
    ids: Sequence[int]
    has_keywords: bool

    def with_words(self, *phrases: str) -> Iterator[tuple[int, str, str]]:
        """Yield id, path and text of the passages with all `phrases`; may yield a few more."""
        ids: Iterable[int] = self.ids
        if self.has_keywords:
            wanted = " AND ".join(one for (one,) in KeywordQuery(terms=(), phrases=phrases).lookups)
            found = {row[0] for row in self.connection.execute(WITH_WORDS, (wanted,))}
            ids = [id_ for id_ in self.ids if id_ in found]
        for id_, path, text in self.connection.execute(TEXTS, (_json([*ids]),)):
            if self.has_keywords or all(part.casefold() in folded(text) for part in phrases):
                yield id_, path, text


def folded(text: str) -> str:
    """Return a text casefolded, with each run of whitespace as one space, to look for phrases in it."""
    return " ".join(text.split()).casefold()


def _json(values: Sequence[object]) -> str:
    return json.dumps(values)
