"""The files of an export: one file, a folder, or a ZIP archive, read with limits and never unpacked.

Reads the disk: call it from a thread.
"""

import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, cast
from zlib import error as BadData  # noqa: N812 - a class

from composable_memory.paths import MAX_FILE_BYTES, is_left_out, opened_file
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_ARCHIVE_BYTES = 1024 * 1024 * 1024
"""So much of an archive is read in all; it is counted as it is unpacked, whatever the archive claims."""
MAX_MEMBERS = 100_000
MAC_FOLDER = "__MACOSX"
BROKEN_MEMBER = (zipfile.BadZipFile, BadData, EOFError, RuntimeError, NotImplementedError)
"""What a damaged member of an archive raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file of an export; `name` is its path in there, which may be hostile.

    `opened` gives its bytes; opening and reading may raise `OSError`.
    """

    name: str
    changed_at: datetime
    opened: Callable[[], AbstractContextManager[io.BufferedReader]]

    def read(self) -> bytes:
        """Return all of it."""
        with self.opened() as file:
            return file.read()


def files_of(export: Path) -> Iterator[ExportedFile]:
    """Yield the files of an export by name, each to be read before the next; no links, nothing hidden.

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
        raise OSError(f"{path.name} is no sound ZIP archive ({error})") from error


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
    """The bytes of a member of an archive, of which `left` are read at most, in all members together."""

    def __init__(self, packed: IO[bytes], left: list[int]) -> None:
        self._packed = packed
        self._left = left
        self._most = self._room = min(MAX_FILE_BYTES, left[0])

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # its type has a name from Python 3.12 on
        """Unpack some more into a buffer."""
        view = memoryview(buffer).cast("B")
        try:
            data = self._packed.read(min(len(view), self._room + 1))
        except BROKEN_MEMBER as error:
            raise OSError(f"it cannot be unpacked ({error})") from error
        if len(data) > self._room:
            self._left[0] -= self._room
            self._room = 0
            raise OSError(f"it is larger than the {self._most >> 20} MB that are read")
        self._room -= len(data)
        self._left[0] -= len(data)
        view[: len(data)] = data
        return len(data)


def _packed_at(member: zipfile.ZipInfo) -> datetime:
    try:
        return datetime(*member.date_time, tzinfo=UTC)
    except ValueError:  # an archive may hold any numbers
        return datetime.fromtimestamp(0, UTC)


def _is_wanted(name: str) -> bool:
    return name != MAC_FOLDER and not is_left_out(name)
