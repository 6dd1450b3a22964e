"""Finds what the index holds of forgotten lines, and purges what a sync leaves of them.

A sync removes the passages. But their words stay in the keyword index's segments and in `long_words`, their
vectors in the cache, where the same text would find them again, and their bytes in free pages.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from composable_memory.forget.report import Forgetting
from composable_memory_adapters.builtin.notes.documents import reader_of
from composable_memory_adapters.builtin.notes.erasable_lines import Stored, sought
from composable_memory_adapters.builtin.store import document_cache, index_meta, rebuild, schema
from composable_memory_adapters.builtin.store.schema import LIVE
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_adapters.text.compounds import long_words

OVERLAPPING = "SELECT id FROM chunks WHERE path = ? AND start_line <= ? AND end_line >= ?"
WITH_WORD = "SELECT id, path, text, source FROM chunks WHERE text LIKE ? ESCAPE '!'"
VECTORS = """
SELECT count(DISTINCT embedding_id) FROM chunks WHERE id IN (SELECT value FROM json_each(?))
"""
READ_AGAIN = "UPDATE files SET chunker = '' WHERE path IN (SELECT value FROM json_each(?))"
READ_ALL_SESSIONS = "UPDATE files SET chunker = '' WHERE source = 'sessions'"
UNREAD = "SELECT path FROM files WHERE chunker = ''"
UNUSED_VECTORS = """
DELETE FROM embedding_cache
WHERE NOT EXISTS (SELECT 1 FROM chunks WHERE chunks.embedding_id = embedding_cache.id)
"""
TEXTS = "SELECT text FROM chunks"
OPTIMIZE = "INSERT INTO {keywords} ({keywords}) VALUES ('optimize')"


def stored(connection: Connection, wanted: Forgetting) -> Stored:
    """Return what is stored of some lines, and of other text with the same words."""
    own = set[int]()
    for line in wanted.lines:
        own.update(
            row[0] for row in connection.execute(OVERLAPPING, (line.path, line.end_line, line.start_line))
        )
    said = dict(_quoting(connection, wanted.texts))
    vectors = connection.execute(VECTORS, (json.dumps([*own, *said]),)).get
    transcripts, documents = set[str](), set[str]()
    for path in said.values():
        (documents if reader_of(path) else transcripts).add(path)
    left = (sorted(found.difference(wanted.paths)) for found in (transcripts, documents))
    return Stored(len(own - said.keys()), [*said.values()], vectors, *left)


def mark_unread(connection: Connection, wanted: Forgetting) -> None:
    """Mark every file that contains forgotten lines, so that the next sync reads it again."""
    paths = [*wanted.paths, *dict(_quoting(connection, wanted.texts)).values()]
    connection.execute(READ_AGAIN, (json.dumps(paths),))
    if not wanted.is_known:
        connection.execute(READ_ALL_SESSIONS)


def unread(connection: Connection) -> list[str]:
    """Return the files that have not been read again yet."""
    return [row[0] for row in connection.execute(UNREAD)]


def purge(connection: Connection) -> None:
    """Remove everything that no passage uses: vectors, words, documents, unmerged keyword segments."""
    from composable_memory_adapters.vectors import int8_file  # late: it loads numpy

    index_meta.count_forgotten(connection)
    int8_file.remove(int8_file.place_beside(Path(connection.filename)))
    rebuild.drop_tables(connection)
    connection.execute(UNUSED_VECTORS)
    rebuild.prune_kept(connection)
    document_cache.prune(connection)
    connection.execute(LIVE.sql("DELETE FROM {words}"))
    schema.add_long_words(connection, LIVE, long_words(row[0] for row in connection.execute(TEXTS)))
    connection.execute(LIVE.sql(OPTIMIZE))
    index_meta.bump_revision(connection)


def _quoting(connection: Connection, texts: Iterable[str]) -> Iterable[tuple[int, str]]:
    """Yield the passages of transcripts and documents that contain some texts, with their paths."""
    for one in sought(texts):
        for id_, path, text, source in connection.execute(WITH_WORD, (one.like,)):
            if one.is_said_in(path, source, text):
                yield id_, path
