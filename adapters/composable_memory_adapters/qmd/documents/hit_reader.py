"""Reads the documents that QMD found, cuts them into passages, and locates QMD's line in them.

QMD names a document and estimates a line; only the file itself has the exact lines and today's text. It is
cut into the same passages as in the builtin index, so that both backends report the same lines. Everything
here looks at the disk: call it from a thread.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from composable_memory.errors import MemoryPathError
from composable_memory_adapters.chunking import chunk_markdown
from composable_memory_adapters.qmd.documents.collections import canonical_path, read_text, resolve
from composable_memory_adapters.qmd.types import Collection, Hit
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_BYTES_READ = 16 * 1024 * 1024
"""Limit for all files of an answer; for files beyond it, only what QMD reports is known."""

_CUT_OFF = "..."
_EDGES = "\ufeff\ufffd" + "".join(map(chr, range(0xD800, 0xE000)))
"""Remains of a character that QMD has cut through, and the byte order mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Lines of a document; `is_stale` means that the file does not contain them any more.

    `start_char` is the position in the first line where it begins.
    """

    start_line: int
    end_line: int
    start_char: int = 0
    text: str
    is_stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file that QMD found at a `rank`, counted from 0, and the `path` by which results name it.

    `passages` are those of the file as it is now; none if it is empty, or could not be read. `named` is the
    one that contains what QMD found in it, or else QMD's own snippet.
    """

    rank: int
    hit: Hit
    path: str
    collection: Collection
    passages: tuple[Passage, ...]
    named: Passage

    @property
    def size(self) -> int:
        """Return the bytes of its passages in UTF-8."""
        return sum(len(passage.text.encode("utf-8", "replace")) for passage in self.passages)


class DocumentReader:
    """Reads the documents of one answer, and only files that the collections cover."""

    def __init__(self, collections: Sequence[Collection], workspace: Path) -> None:
        self._collections = {one.name: one for one in collections}
        self._workspace = workspace
        self._left = MAX_BYTES_READ

    def documents(self, hits: Sequence[Hit]) -> list[Document]:
        """Return the documents that exist and may be read, each once, in the order of `hits`."""
        documents: dict[str, Document] = {}
        for rank, hit in enumerate(hits):
            if (document := self._document(rank, hit)) is not None:
                documents.setdefault(document.path, document)
        return [*documents.values()]

    def _document(self, rank: int, hit: Hit) -> Document | None:
        collection = self._collections.get(hit.collection)
        if collection is None:
            return None
        path = canonical_path(collection, hit.path, self._workspace)
        try:
            text = self._text(path)
        except (MemoryPathError, FileNotFoundError, NotADirectoryError):
            return None
        passages = _cut(text or "")
        named = _from_snippet(hit)
        if text is not None:
            line = line_of(hit, text)
            holding = (one for one in passages if line and one.start_line <= line <= one.end_line)
            named = next(holding, replace(named, is_stale=True))
        return Document(rank=rank, hit=hit, path=path, collection=collection, passages=passages, named=named)

    def _text(self, path: str) -> str | None:
        """Return the text of a file; None if it exists but cannot be read, or is too large."""
        file = resolve(path, [*self._collections.values()], self._workspace)
        try:
            text = read_text(file, max_bytes=self._left)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError:
            return None
        self._left -= len(text)
        return text


def line_of(hit: Hit, text: str) -> int | None:
    """Return the 1-based line that matches best, located by QMD's snippet; None if the text has changed."""
    text, snippet = text.replace("\r\n", "\n"), hit.snippet.replace("\r\n", "\n").strip(_EDGES)
    if not snippet.strip():
        return hit.line or 1
    expected = _beginning_of_line(text, hit.start_line)
    for wanted in (snippet, snippet.removesuffix(_CUT_OFF)):
        place = text.find(wanted, expected)
        # The snippet may begin and end within a line, but it begins in the line that QMD names.
        if place < 0 or "\n" in text[expected:place]:
            place = text.find(wanted)
        if place >= 0:
            further = min(max(0, hit.line - hit.start_line), wanted.count("\n"))
            return text.count("\n", 0, place) + 1 + further
    return None


def _beginning_of_line(text: str, line: int) -> int:
    place = 0
    for _ in range(line - 1):
        place = text.find("\n", place) + 1
        if not place:
            return len(text)
    return place


def _cut(text: str) -> tuple[Passage, ...]:
    return tuple(
        Passage(
            start_line=chunk.start_line,
            end_line=chunk.end_line,
            start_char=chunk.start_char,
            text=chunk.text,
        )
        for chunk in chunk_markdown(text)
    )


def _from_snippet(hit: Hit) -> Passage:
    start = hit.start_line or max(1, hit.line)
    lines = hit.line_count or hit.snippet.count("\n") + 1
    text = hit.snippet.removesuffix(_CUT_OFF)
    return Passage(start_line=start, end_line=start + lines - 1, text=text)
