"""Which passages of a workspace pass the filters of a search, by the rules of the builtin memory."""

import asyncio
from datetime import tzinfo

from composable_memory.query.filters import has_all_phrases, holds_line_of, memory_types
from composable_memory.types import SearchFilters
from composable_memory_adapters.builtin.search.filtering import (
    FileRow,
    Row,
    days_of_files,
    folded,
    newest_first,
    of_types,
)
from composable_memory_adapters.postgres.keywords import Keywords
from composable_memory_adapters.postgres.server import Connection
from composable_memory_adapters.postgres.snapshot import said_between, timed_paths

FILES = "SELECT path, source, mtime, day, tags, type FROM notes WHERE tenant = $1"
PASSAGES = """
SELECT id, path, start_line, start_char FROM passages
WHERE tenant = $1 AND path = ANY ($2) ORDER BY path COLLATE "C", start_line, start_char
"""
TEXTS = "SELECT id, text FROM passages WHERE tenant = $1 AND id = ANY ($2)"
MAY_RETAIN = f"{TEXTS} AND text ~ '[-*+][ \t][WBOS][(: @,：]'"


async def passing(
    connection: Connection, tenant: int, filters: SearchFilters, *, zone: tzinfo | None, keywords: Keywords
) -> list[int]:
    """Return the passages that pass `filters`: the first of each note, newest note first, then the others."""
    files: list[FileRow] = [tuple(row) for row in await connection.fetch(FILES, tenant)]
    timed, said = frozenset[str](), frozenset[int]()
    if filters.since is not None or filters.until is not None:
        timed = await timed_paths(connection, tenant)
        between = await said_between(connection, tenant, filters.since, filters.until) if timed else ()
        said = frozenset(one.id for one in between)
    days = await asyncio.to_thread(lambda: days_of_files(files, filters, zone=zone, timed=timed))
    sources = dict(days.keys())
    rows: list[Row] = [
        (id_, path, sources[path], start, char)
        for id_, path, start, char in await connection.fetch(PASSAGES, tenant, sorted(sources))
        if path not in timed or id_ in said
    ]
    if retained := memory_types(filters.types):
        of_notes = [row[0] for row in rows if row[2] == "memory"]
        texts = await connection.fetch(MAY_RETAIN, tenant, of_notes)
        holding = await asyncio.to_thread(
            lambda: {id_ for id_, text in texts if holds_line_of(text, retained)}
        )
        rows = of_types(rows, files, filters.types, holding)
    for phrase in filters.phrases:
        having = await keywords.having(phrase)
        rows = [row for row in rows if row[0] in having]
    if filters.phrases:
        texts = await connection.fetch(TEXTS, tenant, [row[0] for row in rows])
        holding = await asyncio.to_thread(
            lambda: {id_ for id_, text in texts if has_all_phrases(folded(text), filters.phrases)}
        )
        rows = [row for row in rows if row[0] in holding]
    for word in filters.without:
        having = await keywords.having(word)
        rows = [row for row in rows if row[0] not in having]
    return await asyncio.to_thread(newest_first, rows, days)
