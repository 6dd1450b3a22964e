"""The documents that QMD found, as their files are now: safely read, cut like notes, with QMD's line in them.

QMD names a document and guesses at a line. The file itself has the exact lines and the text as it is today.
It is cut into the passages that the builtin index cuts, so that both name the same lines alike. Everything
here looks at the disk: call it from a thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from composable_memory.errors import MemoryPathError
from composable_memory_adapters.chunking import chunk_markdown
from composable_memory_adapters.qmd.documents.collections import canonical_path, resolve
from composable_memory_adapters.qmd.documents.files import read_text
from composable_memory_adapters.qmd.values import Collection, Hit

__all__ = ["Document", "DocumentReader", "Passage", "line_of"]

MAX_BYTES_READ = 16 * 1024 * 1024
"""Of all files of an answer. Of those that have no room only what QMD tells is known."""

_CUT_OFF = "..."
_EDGES = "\ufeff\ufffd" + "".join(map(chr, range(0xD800, 0xE000)))
"""What is left of a character where QMD cuts within it, and the mark of byte order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Lines of a document; `is_stale` says that the file does not hold them any more.

    `start_char` is where in the first line it begins.
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
    one that holds what QMD found in it, or what QMD says is there.
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
    """Reads what QMD found in collections for one answer, and nothing else."""

    def __init__(self, collections: Sequence[Collection], workspace: Path) -> None:
        self._collections = {one.name: one for one in collections}
        self._workspace = workspace
        self._left = MAX_BYTES_READ

    def documents(self, hits: Sequence[Hit]) -> list[Document]:
        """Return the documents that are there and may be read, each once, in the order of `hits`."""
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
        told = _as_told(hit)
        if text is not None:
            line = line_of(hit, text)
            holding = (one for one in passages if line and one.start_line <= line <= one.end_line)
            told = next(holding, replace(told, is_stale=True))
        return Document(rank=rank, hit=hit, path=path, collection=collection, passages=passages, named=told)

    def _text(self, path: str) -> str | None:
        """Return the text of a file; None if it is there and cannot be read, or is too large."""
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
    """Return the 1-based line of a text that QMD takes for the best, found by its snippet; None if gone."""
    text, told = text.replace("\r\n", "\n"), hit.snippet.replace("\r\n", "\n").strip(_EDGES)
    if not told.strip():
        return hit.line or 1
    expected = _beginning_of_line(text, hit.start_line)
    for wanted in (told, told.removesuffix(_CUT_OFF)):
        place = text.find(wanted, expected)
        # QMD may begin and end within a line, but begins in the one that it names.
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


def _as_told(hit: Hit) -> Passage:
    start = hit.start_line or max(1, hit.line)
    lines = hit.line_count or hit.snippet.count("\n") + 1
    text = hit.snippet.removesuffix(_CUT_OFF)
    return Passage(start_line=start, end_line=start + lines - 1, text=text)
