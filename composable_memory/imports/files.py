"""The files of an export: one file, a folder, or a ZIP archive, read with limits and never unpacked.

Reads the disk: call it from a thread.
"""

import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from zlib import error as BadData  # noqa: N812 - a class

from composable_memory.paths import MAX_FILE_BYTES, is_left_out, opened_file
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_ARCHIVE_BYTES = 1024 * 1024 * 1024
"""So much of an archive is read in all; it is counted as it is unpacked, whatever the archive claims."""
MAX_MEMBERS = 100_000
MAC_FOLDER = "__MACOSX"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file of an export; `name` is its path in there, which may be hostile; `read` may raise `OSError`."""

    name: str
    changed_at: datetime
    read: Callable[[], bytes]


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
            yield ExportedFile(name=name, changed_at=changed_at, read=partial(_content, path))


def _below(root: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if _is_wanted(name))
        paths = (Path(folder, name) for name in sorted(names) if _is_wanted(name))
        yield from (path for path in paths if not path.is_symlink())


def _content(path: Path) -> bytes:
    with opened_file(path) as (descriptor, found):
        return os.pread(descriptor, found.st_size, 0)


def _members(path: Path) -> Iterator[ExportedFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            left = [MAX_ARCHIVE_BYTES]
            for one in sorted(archive.infolist()[:MAX_MEMBERS], key=lambda one: one.filename):
                is_file = not (one.is_dir() or stat.S_ISLNK(one.external_attr >> 16))
                if is_file and all(map(_is_wanted, one.filename.split("/"))):
                    read = partial(_unpacked, archive, one, left)
                    yield ExportedFile(name=one.filename, changed_at=_packed_at(one), read=read)
    except zipfile.BadZipFile as error:
        raise OSError(f"{path.name} is no sound ZIP archive ({error})") from error


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, left: list[int]) -> bytes:
    most = min(MAX_FILE_BYTES, left[0])
    try:
        with archive.open(member) as file:
            data = file.read(most + 1)
    except (zipfile.BadZipFile, BadData, EOFError, RuntimeError, NotImplementedError) as error:
        raise OSError(f"it cannot be unpacked ({error})") from error
    left[0] -= min(len(data), most)
    if len(data) > most:
        raise OSError(f"it is larger than the {most >> 20} MB that are read")
    return data


def _packed_at(member: zipfile.ZipInfo) -> datetime:
    try:
        return datetime(*member.date_time, tzinfo=UTC)
    except ValueError:  # an archive may hold any numbers
        return datetime.fromtimestamp(0, UTC)


def _is_wanted(name: str) -> bool:
    return name != MAC_FOLDER and not is_left_out(name)
