"""Finds what a workspace on the server holds of forgotten lines, and removes what a sync leaves of them.

A sync of the folder that had the lines removes their passages, words, vectors and text.
"""

import asyncio
import json
from collections.abc import Callable, Sequence

from composable_memory.forget.report import Forgetting
from composable_memory.forget.statement_matching import Quotations, statements_of
from composable_memory.forget.tombstones import INSTEAD
from composable_memory.interfaces import HideForgotten
from composable_memory_adapters.builtin.notes.documents import reader_of
from composable_memory_adapters.builtin.notes.erasable_lines import Sought, Stored, sought
from composable_memory_adapters.postgres import postings
from composable_memory_adapters.postgres.server import Connection, Record
from composable_memory_adapters.postgres.writing import LOCK
from composable_memory_ops_logs.erasing import PLACES, masked_value

PAGE = 500
OVERLAPPING = """
SELECT DISTINCT id
FROM passages, unnest($2::text[], $3::int[], $4::int[]) AS line (at, first_line, last_line)
WHERE tenant = $1 AND path = at AND start_line <= last_line AND end_line >= first_line
"""
WITH_WORD = """
SELECT id, passages.path, text, source
FROM passages JOIN notes ON notes.tenant = passages.tenant AND notes.path = passages.path
WHERE passages.tenant = $1 AND text ILIKE $2 ESCAPE '!'
"""
VECTORS = """
SELECT count(*) FROM vectors
WHERE tenant = $1 AND hash IN (SELECT hash FROM passages WHERE tenant = $1 AND id = ANY ($2))
"""
IS_OWN = """
EXISTS (
  SELECT FROM copies WHERE copies.tenant = notes.tenant AND copies.path = notes.path
  AND copies.hash = notes.hash AND owner = $2
)
"""
READ_AGAIN = f"""
UPDATE notes SET recipe = ''
WHERE tenant = $1 AND (path = ANY ($3) OR ($4 AND source = 'sessions')) AND {IS_OWN}
"""  # noqa: S608 - our own text
UNREAD = f"SELECT path FROM notes WHERE tenant = $1 AND recipe = '' AND {IS_OWN}"  # noqa: S608
OWNERS = "SELECT DISTINCT owner FROM copies WHERE tenant = $1 AND path = ANY ($2) ORDER BY owner"
LINES_AFTER = "SELECT id, line FROM log_lines WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3"
PUT_LINE = "UPDATE log_lines SET line = $3 WHERE tenant = $1 AND id = $2"

Mask = Callable[[str], str]


def mask_of(wanted: Forgetting, hide: HideForgotten) -> Mask:
    """Return a function that masks the lines, or everything forgotten if the lines are unknown."""
    quotations = Quotations(one for text in wanted.texts for one in statements_of(text))
    if wanted.is_known:
        return lambda text: quotations.masked(text, INSTEAD) if quotations else text
    return lambda text: hide(hide(text, "memory"), "sessions")


async def stored(connection: Connection, tenant: int, *, wanted: Forgetting) -> Stored:
    """Return what is stored of some lines, and of passages in the same words."""
    lines = wanted.lines
    places = ([getattr(one, name) for one in lines] for name in ("path", "start_line", "end_line"))
    own = {row["id"] for row in await connection.fetch(OVERLAPPING, tenant, *places)}
    said = {row["id"]: row["path"] for row in await _said(connection, tenant, wanted)}
    vectors = await connection.fetchval(VECTORS, tenant, [*own, *said])
    documents = {path for path in said.values() if reader_of(path)}
    left = (sorted(one.difference(wanted.paths)) for one in ({*said.values()} - documents, documents))
    return Stored(len(own - said.keys()), [*said.values()], vectors, *left)


async def mark_unread(connection: Connection, tenant: int, *, owner: str, wanted: Forgetting) -> bool:
    """Have an owner's next sync reread all files that contain what is forgotten."""
    await connection.execute(LOCK, tenant)
    said = [row["path"] for row in await _said(connection, tenant, wanted)]
    await connection.execute(READ_AGAIN, tenant, owner, [*wanted.paths, *said], not wanted.is_known)
    return True


async def forget_words(connection: Connection, tenant: int) -> None:
    """Remove the words of deleted passages from the index, where they may still be pending."""
    await connection.execute(LOCK, tenant)
    await postings.merge(connection, tenant)


async def unread(connection: Connection, tenant: int, *, owner: str) -> list[str]:
    """Return an owner's files that still have to be reread."""
    return [row["path"] for row in await connection.fetch(UNREAD, tenant, owner)]


async def of_others(
    connection: Connection, tenant: int, *, wanted: Forgetting
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the files that still contain it once the owner has reread everything, and their owners."""
    found = await _with_words(connection, tenant, wanted)
    paths = {
        row["path"]
        for one, row in found
        if one.is_said_in(row["path"], row["source"], row["text"]) or one.is_line_of(row["text"])
    }
    owners = await connection.fetch(OWNERS, tenant, [*paths])
    return sorted(paths), [row["owner"] for row in owners]


async def mask_log_lines(connection: Connection, tenant: int, *, mask: Mask, is_rehearsal: bool) -> int:
    """Mask the texts of log lines; return how many. A rehearsal changes nothing."""
    after, found = "", 0
    while rows := await connection.fetch(LINES_AFTER, tenant, after, PAGE):
        changed = await asyncio.to_thread(_masked, rows, mask)
        found += len(changed)
        if not is_rehearsal:
            await connection.executemany(PUT_LINE, [(tenant, *one) for one in changed])
        after = rows[-1]["id"]
    return found


def _masked(rows: Sequence[Record], mask: Mask) -> list[tuple[str, str]]:
    lines = [(id_, json.loads(line)) for id_, line in rows]
    masked = [
        (id_, line, {**line, "detail": masked_value(line.get("detail"), mask, kept=PLACES)})
        for id_, line in lines
    ]
    return [(id_, json.dumps(new)) for id_, line, new in masked if new != line]


async def _said(connection: Connection, tenant: int, wanted: Forgetting) -> list[Record]:
    found = await _with_words(connection, tenant, wanted)
    return [row for one, row in found if one.is_said_in(row["path"], row["source"], row["text"])]


async def _with_words(connection: Connection, tenant: int, wanted: Forgetting) -> list[tuple[Sought, Record]]:
    """Return the passages that may contain what is forgotten, each with the lines in question."""
    found = []
    for one in await asyncio.to_thread(sought, wanted.texts):
        found += [(one, row) for row in await connection.fetch(WITH_WORD, tenant, one.like)]
    return found
