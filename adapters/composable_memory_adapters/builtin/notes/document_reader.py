"""Extracts the text of PDF, DOCX, HTML and EPUB files: a program that runs in a process of its own.

    python -P document_reader.py 60 report.pdf book.epub

prints one line of JSON per file: the hash of its bytes, its lines with their numbers, and what is missing.
The files may be hostile, so the process limits its own memory and CPU seconds (60 here); the caller limits
the wall time. It imports nothing from the package, and starts in 50 ms (200 ms for PDF).

A line number is the page in a PDF, the chapter in an EPUB, the line in an HTML file and the paragraph in a
DOCX.
"""

import codecs
import hashlib
import json
import posixpath
import re
import sys
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from io import BytesIO
from itertools import islice
from pathlib import Path
from urllib.parse import unquote
from xml.parsers import expat

MAX_PAGES = 2000
MAX_CHARS = 5_000_000
MAX_UNPACKED_BYTES = 100 * 2**20
MAX_MEMORY_BYTES = 2 * 2**30

Line = tuple[int, str]
"""A line of text, preceded by its number in the file."""


class _IncompleteError(Exception):
    """Says which part of a file was not read; raised after the readable lines have been yielded."""


class _RefusedError(Exception):
    """Says why nothing is read from a file."""


# --- PDF ----------------------------------------------------------------------------------------------------

_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
_HYPHENATED = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_A-Z])")


def _pdf_lines(data: bytes) -> Iterator[Line]:
    """Yield the lines of each page, rejoining words hyphenated across lines."""
    from pypdf import PdfReader  # optional: only PDF needs it
    from pypdf.errors import DependencyError

    try:
        reader = PdfReader(BytesIO(data))
        is_locked = reader.is_encrypted and not reader.decrypt("")
    except DependencyError:  # the library that could decrypt it is not installed
        is_locked = True
    if is_locked:
        raise _RefusedError("it is encrypted")
    bad: list[int] = []
    for number, page in enumerate(islice(reader.pages, MAX_PAGES), start=1):
        try:
            text = page.extract_text().translate(_LIGATURES)
        except Exception:  # noqa: BLE001 - a broken page may raise anything, and the others can be read
            bad.append(number)
            continue
        yield from ((number, line) for line in _HYPHENATED.sub("", text).splitlines())
        yield number, ""
    if bad:
        raise _IncompleteError(f"{len(bad)} of its pages cannot be read, the first being page {bad[0]}")
    if len(reader.pages) > MAX_PAGES:
        raise _IncompleteError(f"only the first {MAX_PAGES} of its {len(reader.pages)} pages are read")


# --- HTML ---------------------------------------------------------------------------------------------------

_UNSEEN = frozenset("script style template svg math noscript select".split())
_BLOCKS = frozenset(
    """address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form h1 h2
    h3 h4 h5 h6 header hr html li main nav ol p pre section summary table tbody tfoot thead title tr
    ul""".split()
)
_APART = frozenset("blockquote dl figure h1 h2 h3 h4 h5 h6 ol p pre table title ul".split())
_BEGINNINGS = {"title": "# ", "li": "- ", **{f"h{level}": "#" * level + " " for level in range(1, 7)}}
_ENCODING = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def _html_lines(data: bytes) -> Iterator[Line]:
    parser = _Html()
    parser.feed(_decoded(data))
    parser.close()
    parser.end_line()
    yield from parser.lines


def _decoded(data: bytes) -> str:
    """Decode a page by its byte order mark, its declared encoding or UTF-8, else as browsers would."""
    named = _ENCODING.search(data[:1024])
    told = [named[1].decode("ascii")] if named else []
    for encoding in [*(name for mark, name in _MARKS if data.startswith(mark)), *told, "utf-8"]:
        try:
            return data.decode(encoding)
        except (LookupError, ValueError):
            continue
    return data.decode("windows-1252", "replace")


class _Html(HTMLParser):
    """Collects the lines of a page: one per block, and one per table row, with its cells side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []
        self._words: list[str] = []
        self._number = 1
        self._beginning = ""
        self._unseen: list[str] = []
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - named by the library
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag in _BLOCKS or tag == "br":
            self.end_line()
            self._beginning = _BEGINNINGS.get(tag, self._beginning)
            self._preformatted += tag == "pre"
        elif tag in ("td", "th") and self._words:
            self._words.append(" | ")

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag not in _UNSEEN:  # in XHTML such an element may be empty, so no end tag would follow
            super().handle_startendtag(tag, attrs)  # type: ignore[arg-type]

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        elif tag in _BLOCKS:
            self.end_line()
            self._beginning = ""
            self._preformatted -= tag == "pre" and self._preformatted > 0
            if tag in _APART and self.lines and self.lines[-1][1]:
                self.lines.append((self._number, ""))

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        first, *others = data.split("\n") if self._preformatted else [data]
        self._add(first)
        for number, line in enumerate(others, start=self.getpos()[0] + 1):
            self.end_line()
            self._add(line, number)

    def _add(self, words: str, number: int | None = None) -> None:
        if not self._words and words.strip():
            self._number = number or self.getpos()[0] + words[: len(words) - len(words.lstrip())].count("\n")
        if self._words or words.strip():
            self._words.append(words)

    def end_line(self) -> None:
        text = "".join(self._words)
        self._words = []
        text = text.rstrip() if self._preformatted else " ".join(text.split())
        if text:
            self.lines.append((self._number, self._beginning + text))
            self._beginning = ""


# --- archives: EPUB and DOCX --------------------------------------------------------------------------------

_OBFUSCATED_FONTS = (b"http://www.idpf.org/2008/embedding", b"http://ns.adobe.com/pdf/enc#RC")
_ALGORITHM = re.compile(rb"""<[^>]*EncryptionMethod[^>]*Algorithm=["']([^"']*)""")
_HEADING = re.compile(r"heading ([1-6])", re.IGNORECASE)


class _Archive:
    """A zip file with a limit on the total bytes unpacked from it."""

    def __init__(self, data: bytes) -> None:
        self._file = zipfile.ZipFile(BytesIO(data))
        self._left = MAX_UNPACKED_BYTES

    def read(self, name: str) -> bytes:
        """Return a member's bytes; empty if there is no such member."""
        try:
            part = self._file.open(name)
        except KeyError:
            return b""
        with part:
            data = part.read(self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise _RefusedError(f"it is larger than {MAX_UNPACKED_BYTES >> 20} MB unpacked")
        return data

    def elements(self, name: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield a member's XML elements and their attributes, both without namespaces."""
        found: list[tuple[str, Mapping[str, str]]] = []
        _parse(self.read(name), start=lambda tag, attributes: found.append((tag, attributes)))
        yield from found


def _parse(
    data: bytes,
    *,
    start: Callable[[str, Mapping[str, str]], object],
    end: Callable[[str], object] | None = None,
    text: Callable[[str], object] | None = None,
) -> None:
    """Parse an XML document, calling back for each element and text; refuse one that declares entities."""
    if not data:
        return
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.EntityDeclHandler = _refuse_entities
    parser.StartElementHandler = lambda name, attributes: start(
        _local(name), {_local(key): value for key, value in attributes.items()}
    )
    if end is not None:
        parser.EndElementHandler = lambda name: end(_local(name))
    if text is not None:
        parser.CharacterDataHandler = text
    parser.Parse(data, True)


def _refuse_entities(*_: object) -> None:
    raise _RefusedError("it declares XML entities, which are not allowed")


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _epub_lines(data: bytes) -> Iterator[Line]:
    """Yield the lines of each chapter in reading order."""
    archive = _Archive(data)
    algorithms = _ALGORITHM.findall(archive.read("META-INF/encryption.xml"))
    if set(algorithms) - {*_OBFUSCATED_FONTS}:
        raise _RefusedError("it is encrypted")
    roots = (
        found["full-path"] for tag, found in archive.elements("META-INF/container.xml") if tag == "rootfile"
    )
    package = next(roots, "")
    elements = [*archive.elements(package)]
    files = {found["id"]: found["href"] for tag, found in elements if tag == "item" and "href" in found}
    chapters = [
        files[found["idref"]] for tag, found in elements if tag == "itemref" and found["idref"] in files
    ]
    for number, href in enumerate(chapters[:MAX_PAGES], start=1):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(href)))
        yield from ((number, line) for _, line in _html_lines(archive.read(name)))
        yield number, ""
    if len(chapters) > MAX_PAGES:
        raise _IncompleteError(f"only the first {MAX_PAGES} of its {len(chapters)} chapters are read")


def _docx_lines(data: bytes) -> Iterator[Line]:
    """Yield the document's paragraphs, then its footnotes and endnotes; a table row is one line."""
    archive = _Archive(data)
    relations = archive.elements("_rels/.rels")
    main = next(
        (one["Target"] for _, one in relations if one.get("Type", "").endswith("/officeDocument")), ""
    )
    main = main.lstrip("/") or "word/document.xml"
    folder = posixpath.dirname(main)
    body = _Docx(_headings_in(archive, f"{folder}/styles.xml"))
    for part in (main, f"{folder}/footnotes.xml", f"{folder}/endnotes.xml"):
        _parse(archive.read(part), start=body.start, end=body.end, text=body.text)
    return iter(body.lines)


def _headings_in(archive: _Archive, part: str) -> dict[str, str]:
    """Map style ids to Markdown heading prefixes; the ids depend on the language, the style names do not."""
    signs: dict[str, str] = {}
    style = ""
    for tag, attributes in archive.elements(part):
        if tag == "style":
            style = attributes.get("styleId", "")
        elif tag == "name":
            name = attributes.get("val", "")
            if found := _HEADING.fullmatch(name):
                signs[style] = "#" * int(found[1]) + " "
            elif name.lower() == "title":
                signs[style] = "# "
    return signs


class _Docx:
    """Collects the lines of a DOCX document."""

    def __init__(self, headings: Mapping[str, str]) -> None:
        self.lines: list[Line] = []
        self._headings = headings
        self._number = 0
        self._words: list[str] = []
        self._beginning = ""
        self._cells: list[str] = []
        self._rows = 0
        self._row_number = 0
        self._fallbacks = 0
        self._is_text = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "p":
            self._number += 1
            self._words, self._beginning = [], ""
        elif tag == "pStyle":
            self._beginning = self._headings.get(attributes.get("val", ""), self._beginning)
        elif tag == "numPr":
            self._beginning = self._beginning or "- "
        elif tag == "tr":
            self._rows += 1
            self._row_number = self._number + 1 if self._rows == 1 else self._row_number
        elif tag == "Fallback":  # repeats the content for older programs
            self._fallbacks += 1
        elif tag in ("tab", "br", "cr"):
            self._words.append(" ")
        self._is_text = tag == "t" and not self._fallbacks

    def text(self, words: str) -> None:
        if self._is_text:
            self._words.append(words)

    def end(self, tag: str) -> None:
        self._is_text = False
        if tag == "p":
            text, self._words = " ".join("".join(self._words).split()), []
            if text and self._rows:
                self._cells.append(text)
            elif text:
                self._add(self._number, self._beginning + text, is_apart=self._beginning != "- ")
        elif tag == "tr":
            self._rows -= 1
            if self._cells and not self._rows:
                self._add(self._row_number, " | ".join(self._cells))
                self._cells = []
        elif tag == "tbl":
            self._add(self._number, "")
        elif tag == "Fallback":
            self._fallbacks -= 1

    def _add(self, number: int, line: str, *, is_apart: bool = False) -> None:
        self.lines.append((number, line))
        if is_apart:
            self.lines.append((number, ""))


# --- the program --------------------------------------------------------------------------------------------

_READERS = {".pdf": _pdf_lines, ".docx": _docx_lines, ".epub": _epub_lines}


def main(arguments: Sequence[str]) -> None:
    """Read the files named in `arguments[1:]`; `arguments[0]` is the limit of CPU seconds."""
    seconds, *paths = arguments
    _limit_resources(int(seconds))
    for path in map(Path, paths):
        data = path.read_bytes()
        is_full = False
        try:
            lines, problem = _read(data, path.suffix.lower())
        except MemoryError:
            is_full = True  # while the error is being handled, there is no memory for a message either
        if is_full:
            sys.exit(f"reading it needs more than {MAX_MEMORY_BYTES >> 30} GB of memory")
        found = {"hash": hashlib.sha256(data).hexdigest(), "lines": lines, "problem": problem}
        sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def _read(data: bytes, suffix: str) -> tuple[list[Line], str | None]:
    """Return a file's lines and what is missing; exit with a message if it cannot be read."""
    try:
        lines, problem = _within_limits(_READERS.get(suffix, _html_lines)(data))
    except (ImportError, MemoryError, OSError):  # not the file's fault, or reported by the caller
        raise
    except _RefusedError as error:
        sys.exit(str(error))
    except Exception:  # noqa: BLE001 - a damaged file may raise anything
        sys.exit(f"it is not a {suffix[1:].upper()} file, or is damaged")
    if problem or any(line for _, line in lines):
        return lines, problem
    pictures = "; scanned pages are not read" if suffix == ".pdf" else ""
    return lines, f"it contains no text{pictures}"


def _within_limits(lines: Iterable[Line]) -> tuple[list[Line], str | None]:
    """Return as many lines as the limits allow, and what is missing."""
    kept: list[Line] = []
    left = MAX_CHARS
    try:
        for number, line in lines:
            left -= len(line) + 1
            if left < 0:
                return kept, f"only its first {MAX_CHARS // 1_000_000} million characters are read"
            # A lone surrogate could not be stored, and a NUL would end the text for SQLite.
            kept.append((number, line.encode("utf-8", "replace").decode().replace("\0", " ").rstrip()))
    except _IncompleteError as error:
        return kept, str(error)
    return kept, None


def _limit_resources(seconds: int) -> None:
    """Limit this process's memory and CPU time, where the system allows it."""
    try:
        import resource
    except ImportError:  # on Windows
        return
    for what, limit in ((resource.RLIMIT_AS, MAX_MEMORY_BYTES), (resource.RLIMIT_CPU, seconds)):
        try:
            resource.setrlimit(what, (limit, limit))
        except (ValueError, OSError):  # macOS refuses the first
            continue


if __name__ == "__main__":
    main(sys.argv[1:])
