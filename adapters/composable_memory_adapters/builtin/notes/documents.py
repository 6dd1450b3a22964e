"""PDF, DOCX, HTML and EPUB files as notes: which of them are read, and how their text maps to line numbers.

A program of its own, `document_reader.py`, extracts the text; `sync/document_texts.py` runs it. A line number
is the page in a PDF, the chapter in an EPUB, the line in an HTML file and the paragraph in a DOCX. Since many
lines share a number, a passage also has the offset in characters at which it starts under that number.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import get_args

from composable_memory.paths import NOTE_SUFFIXES, Reading, opened_file
from composable_memory_adapters.builtin.notes.note_files import Note, is_settled, mtime_of
from composable_memory_adapters.builtin.settings import ChunkingSettings, DocumentKind
from composable_memory_adapters.chunking import Chunk, chunk_markdown
from composable_memory_adapters.excerpts import numbered_excerpt
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_BYTES = 100 * 2**20
SUFFIXES: dict[str, tuple[str, ...]] = {
    "pdf": (".pdf",),
    "docx": (".docx",),
    "html": (".html", ".htm", ".xhtml"),
    "epub": (".epub",),
}
READER = "document-1"
_READERS = {suffix: f"{READER}-{kind}" for kind, suffixes in SUFFIXES.items() for suffix in suffixes}
EXTRA = "composable-memory[documents]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Note):
    """The extracted text of a document; `lines` holds the line number of each of its lines.

    `problem` says what is missing.
    """

    lines: Sequence[int]
    problem: str | None = None

    def excerpt(self, from_line: int | None, lines: int | None) -> str:
        """Return the text of `lines` line numbers starting at `from_line`; all of it if both are None."""
        return numbered_excerpt(self.text, self.lines, from_line, lines)


def note_suffixes(kinds: Iterable[DocumentKind]) -> frozenset[str]:
    """Return the file suffixes of notes, plus those of the document kinds that can be read here."""
    ready = (kind for kind in kinds if kind != "pdf" or pypdf_version() is not None)
    return NOTE_SUFFIXES.union(*(SUFFIXES[kind] for kind in ready))


def reader_of(key: str) -> str | None:
    """Return the reader of a document, with its version; None for a plain note.

    Each kind has its own reader, so a file renamed to another kind is read again.
    """
    suffix = key[key.rfind(".") :].lower()
    if suffix == ".pdf":
        return f"{READER}/pypdf-{pypdf_version()}"
    return _READERS.get(suffix)


def hint_of(kinds: Sequence[DocumentKind], passed_over: Iterable[str]) -> str | None:
    """Return what to set or install to have skipped documents read; None if there are none."""
    found = [kind for kind in get_args(DocumentKind) if not {*SUFFIXES[kind]}.isdisjoint(passed_over)]
    is_incomplete = "pdf" in found and pypdf_version() is None
    if missing := [kind for kind in found if kind not in kinds]:
        add = f"; for PDF install {EXTRA}" if is_incomplete else ""
        return f"add {', '.join(missing)} to memory.builtin.documents to have them read{add}"
    return f"install {EXTRA} to have PDF files read" if is_incomplete else None


@lru_cache(maxsize=1)
def pypdf_version() -> str | None:
    """Return the version of the PDF library; None if it is not installed."""
    try:
        return version("pypdf")
    except PackageNotFoundError:
        return None


def unread_document(path: str) -> Document:
    """Return a document whose text is not extracted yet; the file is read only to hash it.

    Raises:
        FileNotFoundError: the file is gone, or a folder in its path has become a link elsewhere.
        OSError: it cannot be read, or is larger than 100 MB.
    """
    digest = sha256()
    with opened_file(path, max_bytes=MAX_BYTES) as (descriptor, found):
        while part := os.read(descriptor, 2**20):
            digest.update(part)
    return Document(
        text="",
        lines=(),
        hash=digest.hexdigest(),
        mtime_ns=mtime_of(found),
        size=found.st_size,
        ctime_ns=found.st_ctime_ns,
        reading=Reading.WHOLE,
        settled=is_settled(found),
    )


def cut_document(document: Document, chunking: ChunkingSettings) -> list[Chunk]:
    """Cut a document like a note, giving each chunk the document's line numbers."""
    numbers, starts = document.lines, list(_starts(document))
    return [
        replace(
            chunk,
            start_line=numbers[chunk.start_line - 1],
            end_line=numbers[chunk.end_line - 1],
            start_char=starts[chunk.start_line - 1] + chunk.start_char,
        )
        for chunk in chunk_markdown(document.text, tokens=chunking.tokens, overlap=chunking.overlap)
    ]


def _starts(document: Document) -> Iterator[int]:
    """Yield the offset of each line from the start of its page, chapter or paragraph."""
    start, last = 0, 0
    for number, line in zip(document.lines, document.text.split("\n"), strict=False):
        start = start if number == last else 0
        yield start
        start, last = start + len(line) + 1, number
