"""The files of an export: a file, a folder or a ZIP archive, read within limits and never unpacked.

Reads the disk: call it in a thread. A large JSON document is streamed element by element, up to where it is
damaged: only one element and part of the following text are in memory.
"""

import io
import json
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, TextIO, cast
from zlib import error as BadData  # noqa: N812 - a class

from composable_memory.paths import MAX_FILE_BYTES, is_left_out, opened_file
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_ARCHIVE_BYTES = 1024 * 1024 * 1024
"""Limit for reading an archive, counted while unpacking, whatever the archive claims."""
MAX_MEMBERS = 100_000
MAC_FOLDER = "__MACOSX"
BROKEN_MEMBER = (zipfile.BadZipFile, BadData, EOFError, RuntimeError, NotImplementedError)
"""The exceptions of reading a damaged archive member."""

PIECE = 2**20
"""Minimum characters per read; for a long element, as many as are already in memory."""
NEAR_END = 16
"""What looks wrong this close to the end of a piece may be right with the next one, as `tru` or `\\u00e`."""

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")
_NO_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are invalid in the encoding of the file, as decoded by `surrogateescape`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file of an export; `name` is its path there, which may be hostile.

    `opened` opens it in binary; opening and reading may raise `OSError`.
    """

    name: str
    changed_at: datetime
    opened: Callable[[], AbstractContextManager[io.BufferedReader]]

    def read(self) -> bytes:
        """Return the whole content."""
        with self.opened() as file:
            return file.read()


def files_of(export: Path) -> Iterator[ExportedFile]:
    """Yield the files of an export by name, each to be read before the next; skips links and hidden files.

    Raises:
        OSError: there is no such file or folder, or it cannot be read.
    """
    root = export.expanduser().resolve(strict=True)
    for path in [root] if root.is_file() else _below(root):
        if path.suffix.lower() == ".zip":
            yield from _members(path)
        else:
            name = path.relative_to(root).as_posix() if path != root else root.name
            changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            yield ExportedFile(name=name, changed_at=changed_at, opened=partial(_content, path))


def _below(root: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if _is_wanted(name))
        paths = (Path(folder, name) for name in sorted(names) if _is_wanted(name))
        yield from (path for path in paths if not path.is_symlink())


@contextmanager
def _content(path: Path) -> Iterator[io.BufferedReader]:
    with opened_file(path) as (descriptor, _), open(descriptor, "rb", closefd=False) as file:
        yield file


def _members(path: Path) -> Iterator[ExportedFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            left = [MAX_ARCHIVE_BYTES]
            for one in sorted(archive.infolist()[:MAX_MEMBERS], key=lambda one: one.filename):
                is_file = not (one.is_dir() or stat.S_ISLNK(one.external_attr >> 16))
                if is_file and all(map(_is_wanted, one.filename.split("/"))):
                    opened = partial(_unpacked, archive, one, left)
                    yield ExportedFile(name=one.filename, changed_at=_packed_at(one), opened=opened)
    except zipfile.BadZipFile as error:
        raise OSError(f"{path.name} is not a valid ZIP archive ({error})") from error


@contextmanager
def _unpacked(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, left: list[int]
) -> Iterator[io.BufferedReader]:
    try:
        packed = archive.open(member)
    except BROKEN_MEMBER as error:
        raise OSError(f"it cannot be unpacked ({error})") from error
    with packed, io.BufferedReader(_Unpacking(packed, left)) as file:
        yield cast("io.BufferedReader", file)


class _Unpacking(io.RawIOBase):
    """The content of an archive member; at most `left` bytes are read from all members together."""

    def __init__(self, packed: IO[bytes], left: list[int]) -> None:
        self._packed = packed
        self._left = left
        self._most = self._room = min(MAX_FILE_BYTES, left[0])

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:  # its type has a name from Python 3.12 on
        """Unpack more bytes into a buffer."""
        view = memoryview(buffer).cast("B")
        try:
            data = self._packed.read(min(len(view), self._room + 1))
        except BROKEN_MEMBER as error:
            raise OSError(f"it cannot be unpacked ({error})") from error
        if len(data) > self._room:
            self._left[0] -= self._room
            self._room = 0
            raise OSError(f"it is larger than the limit of {self._most >> 20} MB")
        self._room -= len(data)
        self._left[0] -= len(data)
        view[: len(data)] = data
        return len(data)


def _packed_at(member: zipfile.ZipInfo) -> datetime:
    try:
        return datetime(*member.date_time, tzinfo=UTC)
    except ValueError:  # an archive may contain any numbers
        return datetime.fromtimestamp(0, UTC)


def _is_wanted(name: str) -> bool:
    return name != MAC_FOLDER and not is_left_out(name)


class Unreadable(ValueError):
    """A document, or an element of it, that cannot be parsed; names the position, quotes nothing."""


def elements(file: TextIO, *names: str) -> Iterator[object]:
    """Yield the elements of a list; of an object those of the lists with these names, or else the object.

    An element that is not valid text is yielded as an `Unreadable`. The file must be opened with
    `errors="surrogateescape"`.

    Raises:
        Unreadable: what follows is not JSON, or the document is truncated.
    """
    text = _Text(file)
    match text.next():
        case "[":
            yield from text.items()
        case "{":
            yield from text.members(names)
        case _:
            value = text.value()
            # some agent files are JSON within JSON
            yield from elements(io.StringIO(value), *names) if isinstance(value, str) else [value]
    if text.next():
        raise text.wrong("there is more after its end")


class _Text:
    """The rest of a document's text, read as needed."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._before = 0
        """Number of characters before the present text."""
        self._is_over = False

    def next(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank else self._at
            if self._at < len(self._text) or self._is_over:
                return self._text[self._at : self._at + 1]
            self._read_on()

    def take(self, *expected: str) -> str:
        """Consume the next character, which must be one of these, and return it."""
        if (found := self.next()) not in expected or not found:
            raise self.wrong(f"{' or '.join(expected)} is missing" if found else "it ends too early")
        self._at += 1
        return found

    def value(self) -> object:
        """Return the next value; an `Unreadable` if it is not valid text."""
        while True:
            self.next()
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_open = error.msg.startswith("Unterminated") or error.pos > len(self._text) - NEAR_END
                if is_open and not self._is_over:
                    self._read_on()
                    continue
                if is_open:
                    raise self.wrong("it ends too early", len(self._text)) from None
                raise self.wrong(error.msg, error.pos) from None
            if end + NEAR_END < len(self._text) or self._is_over:
                break
            self._read_on()  # a number may continue
        if end == len(self._text) and isinstance(value, (int, float)):
            raise self.wrong("it ends too early", end)
        begin, self._at = self._at, end
        if not self._text.isascii() and _NO_TEXT.search(self._text, begin, end):
            return self.wrong("it is not UTF-8; save it as UTF-8", begin)
        return value

    def items(self) -> Iterator[object]:
        """Yield the items of a list."""
        self.take("[")
        if self.next() == "]":
            self._at += 1
            return
        yield self.value()
        while self.take(",", "]") == ",":
            yield self.value()

    def members(self, names: tuple[str, ...]) -> Iterator[object]:
        """Yield the items of the lists with these names in an object; the object itself if there are none."""
        self.take("{")
        rest, is_found = dict[object, object](), False
        while self.next() != "}":
            name = self.value()
            self.take(":")
            if name in names and self.next() == "[":
                yield from self.items()
                is_found = True
            else:
                rest[name] = self.value()
            if self.take(",", "}") == "}":
                break
        else:
            self._at += 1
        if not is_found:
            yield next((rest[name] for name in names if name in rest), rest)

    def wrong(self, why: str, at: int | None = None) -> Unreadable:
        """Return the error for a position in the text, by default the present one."""
        return Unreadable(f"{why} (character {self._before + (self._at if at is None else at):,})")

    def _read_on(self) -> None:
        kept = self._text[self._at :]
        self._before += self._at
        piece = self._file.read(max(PIECE, len(kept)))
        self._text, self._at, self._is_over = kept + piece, 0, not piece
