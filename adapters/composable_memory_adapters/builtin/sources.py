"""Finds the notes of a workspace and reads them; all of it looks at the disk, so call it from a thread."""

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from composable_memory.paths import MAIN_FILES, MEMORY_FOLDER, extra_root, is_markdown, relative_key

__all__ = ["Note", "ScanReport", "ScannedFile", "read_note", "scan"]

IGNORED_FOLDERS = frozenset(
    {
        ".git",
        "node_modules",
        ".pnpm-store",
        ".venv",
        "venv",
        ".tox",
        "__pycache__",
        ".mypy_cache",
        ".obsidian",
    }
)
MAX_NOTE_BYTES = 256 * 1024 * 1024
CLOCK_TICK_NS = 20_000_000
"""File systems stamp files with a clock this coarse: two writes within a tick may bear the same time."""
READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a pipe in the place of the note must not hold us
    | getattr(os, "O_BINARY", 0)
)


class ScannedFile(NamedTuple):
    """A note that was found: its name in the index, where it is, and how it looked from outside.

    A named tuple because a scan makes one for every note: a third of the time a frozen dataclass takes.
    """

    key: str
    path: str
    mtime_ns: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The notes in a stable order, and what could not be looked at.

    `unreadable` maps the key of a file or folder to the reason; what the index holds under such a key says
    nothing about the disk and must stay. The key of the whole workspace is empty. `remarks` tell of roots
    that were left out.
    """

    files: tuple[ScannedFile, ...]
    unreadable: Mapping[str, str]
    remarks: tuple[str, ...] = ()

    def covers(self, key: str) -> bool:
        """Say whether the scan could see if the note `key` exists."""
        return not self.unreadable or not any(
            prefix in ("", key) or key.startswith(f"{prefix}/") for prefix in self.unreadable
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a note held when it was read.

    `hash` is the SHA-256 of its bytes. `mtime_ns` and `size` are from before the reading. `is_utf8` is false
    where bytes were replaced. `settled` is false when a later change could still bear the same time.
    """

    text: str
    hash: str
    mtime_ns: int
    size: int
    is_utf8: bool
    settled: bool


def scan(workspace: Path, extra_paths: Sequence[Path] = ()) -> ScanReport:
    """List `MEMORY.md`, `memory.md`, `memory/**/*.md` and the Markdown files of the extra paths.

    Symbolic links are not followed. A file that is reached twice is listed once, under its first name.
    """
    root = os.path.realpath(workspace)
    walk = _Walk()
    if not Path(root).is_dir():
        walk.unreadable[""] = f"the workspace {workspace} does not exist"
    else:
        for name in MAIN_FILES:
            walk.add_root(Path(root, name), name)
        walk.add_root(Path(root, MEMORY_FOLDER), MEMORY_FOLDER)
        for path in extra_paths:
            extra = extra_root(path, Path(root))
            walk.add_root(extra, relative_key(extra, Path(root)), expected=True)
    return ScanReport(files=tuple(walk.files), unreadable=dict(walk.unreadable), remarks=tuple(walk.remarks))


def read_note(path: str) -> Note:
    """Read the note at `path`, which must be a regular file; bytes that are not UTF-8 are replaced.

    Raises:
        OSError: it cannot be read, or is larger than 256 MB.
    """
    descriptor = os.open(path, READ_FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        if before.st_size > MAX_NOTE_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MAX_NOTE_BYTES >> 20} MB", path)
        data = file.read()
    text, is_utf8 = _decode(data)
    return Note(
        text=text,
        hash=sha256(data).hexdigest(),
        mtime_ns=before.st_mtime_ns,
        size=before.st_size,
        is_utf8=is_utf8,
        settled=time.time_ns() - before.st_mtime_ns > CLOCK_TICK_NS,
    )


def _decode(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode("utf-8-sig"), True
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace").removeprefix("\ufeff"), False


class _Walk:
    """What a scan has found so far."""

    def __init__(self) -> None:
        self.files: list[ScannedFile] = []
        self.unreadable: dict[str, str] = {}
        self.remarks: list[str] = []
        self._seen: set[object] = set()

    def add_root(self, path: Path, key: str, *, expected: bool = False) -> None:
        """Add the file or folder at `path`; one that is `expected` and missing is worth a remark."""
        try:
            mode = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            if expected:
                self.remarks.append(f"extra path {key} does not exist")
        except OSError as error:
            self._skip(key, error)
        else:
            self._add(path, key, mode)

    def _add(self, path: Path, key: str, found: os.stat_result) -> None:
        if stat.S_ISLNK(found.st_mode):
            self.remarks.append(f"{key} is a symbolic link and left out; name its target in extraPaths")
        elif stat.S_ISDIR(found.st_mode):
            # The order of a folder's entries is the file system's; sorted, the index is the same everywhere.
            for file, status in sorted(self._walk(str(path), key), key=_first):
                self._keep(file, status)
        elif stat.S_ISREG(found.st_mode) and is_markdown(path.name):
            self._keep(ScannedFile(key, str(path), found.st_mtime_ns, found.st_size), found)

    def _walk(self, top: str, top_key: str) -> Iterator[tuple[ScannedFile, os.stat_result]]:
        folders = [(top, top_key)]
        while folders:
            folder, prefix = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        name = entry.name
                        if name[-3:].lower() == ".md" and entry.is_file(follow_symlinks=False):
                            found = entry.stat(follow_symlinks=False)
                            key = f"{prefix}/{name}"
                            yield ScannedFile(key, entry.path, found.st_mtime_ns, found.st_size), found
                        elif entry.is_dir(follow_symlinks=False) and name not in IGNORED_FOLDERS:
                            folders.append((entry.path, f"{prefix}/{name}"))
            except OSError as error:
                self._skip(prefix, error)

    def _keep(self, file: ScannedFile, found: os.stat_result) -> None:
        # Windows has no inode here; its paths then tell files apart.
        identity = (found.st_dev, found.st_ino) if found.st_ino else os.path.normcase(file.path)
        if identity in self._seen:
            return
        self._seen.add(identity)
        if file.key.isascii() or _is_unicode(file.key):
            self.files.append(file)
        else:
            shown = file.key.encode("utf-8", "backslashreplace").decode()
            self.remarks.append(f"{shown}: the name is not valid Unicode; rename the file")

    def _skip(self, key: str, error: OSError) -> None:
        self.unreadable[key] = error.strerror or str(error)


def _first(pair: tuple[ScannedFile, os.stat_result]) -> ScannedFile:
    return pair[0]


def _is_unicode(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
