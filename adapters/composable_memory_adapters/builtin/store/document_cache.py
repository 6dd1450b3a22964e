"""Caches the texts of documents by the hash of the file, so that none is read twice.

The table is created when the first document is read; an index without documents has none.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from composable_memory_adapters.sqlite_file import Connection

CREATE = """
CREATE TABLE IF NOT EXISTS documents (
  hash TEXT NOT NULL,          -- SHA-256 of the file
  reader TEXT NOT NULL,        -- what read it, with its version
  lines TEXT NOT NULL,         -- JSON: [number, text] for each line
  problem TEXT,                -- what could not be read
  PRIMARY KEY (hash, reader)
)
"""
EXISTS = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'documents')"
FIND = "SELECT lines, problem FROM documents WHERE hash = ? AND reader = ?"
PROBLEMS = """
SELECT path, problem FROM files JOIN documents USING (hash)
WHERE problem IS NOT NULL AND chunker LIKE reader || '/%'
"""


class DocumentText(NamedTuple):
    """The lines of a document with their numbers, and what is missing."""

    lines: Sequence[tuple[int, str]]
    problem: str | None = None


def stored(
    connection: Connection, wanted: Iterable[tuple[str, str]], *, failed: bool
) -> dict[tuple[str, str], DocumentText]:
    """Return the cached texts among those `wanted`, by hash and reader.

    With `failed`, this includes documents without text because they could not be read.
    """
    if not connection.execute(EXISTS).get:
        return {}
    rows = ((one, connection.execute(FIND, one).fetchone()) for one in wanted)
    texts = {one: DocumentText(json.loads(row[0]), row[1]) for one, row in rows if row}
    return {one: text for one, text in texts.items() if failed or text.lines}


def store(connection: Connection, texts: dict[tuple[str, str], DocumentText]) -> None:
    """Store texts by hash and reader."""
    connection.execute(CREATE)
    connection.executemany(
        "INSERT OR REPLACE INTO documents (hash, reader, lines, problem) VALUES (?, ?, ?, ?)",
        [
            (*one, json.dumps(found.lines, ensure_ascii=False, separators=(",", ":")), found.problem)
            for one, found in texts.items()
        ],
    )


def problems(connection: Connection) -> dict[str, str]:
    """Return the indexed documents that could not be read, or only in part, with the reasons."""
    return dict(connection.execute(PROBLEMS)) if connection.execute(EXISTS).get else {}


def prune(connection: Connection) -> None:
    """Drop the texts of files that are no longer in the index, or were read again."""
    if connection.execute(EXISTS).get:
        connection.execute(
            "DELETE FROM documents WHERE NOT EXISTS (SELECT 1 FROM files"
            " WHERE files.hash = documents.hash AND files.chunker LIKE documents.reader || '/%')"
        )
