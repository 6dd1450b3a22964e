"""How memory files are named, and which paths may be read.

A file is named by its path relative to the workspace, with `/`; one outside begins with `../`. Functions that
read the disk say so: call them in a thread.
"""

import codecs
import errno
import os
import posixpath
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path

from composable_memory.errors import MemoryPathError

_HOME_OF = re.compile(r"~[A-Za-z_][\w.-]*")
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
FEW_OTHERS = 8
"""Any text may have this many bytes that are not UTF-8; beyond that, at least half of it must be readable."""
NO_TEXT = "not text in UTF-8, UTF-16 or Windows-1252"
_UNKNOWN_TO_WINDOWS = (0x81, 0x8D, 0x8F, 0x90, 0x9D)
_WESTERN = {
    0xDC00 + byte: bytes([byte]).decode("latin-1" if byte in _UNKNOWN_TO_WINDOWS else "cp1252")
    for byte in range(0x80, 0x100)
}
"""Byte order marks of UTF-16."""

MAIN_FILES = ("MEMORY.md", "memory.md")
"""Memory files directly in the workspace."""

MEMORY_FOLDER = "memory"
"""The folder in the workspace that holds the notes of the days."""

BANK_FOLDER = "bank"
"""The folder of pages that summarise what was retained: one for each type, one for each entity."""

MEMORY_FOLDERS = (MEMORY_FOLDER, BANK_FOLDER)
"""The folders in the workspace whose notes are memory files, at any depth."""

BANK_PAGES = ("world.md", "experience.md", "opinions.md", "entities")
"""What shows that a folder named `bank` has our pages; other people have such a folder too."""

FOREIGN = "://"
"""Separates the id of a foreign memory from a name in it; no file path contains it."""

NOTE_SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".txt", ".rst", ".org"})
"""File endings of notes, in any case."""

TOOL_FOLDERS = frozenset(
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
"""Folders of tools, in which nobody keeps notes."""

NOTES = (
    "MEMORY.md, those in memory/ and bank/, and what memory.builtin.extra_paths names; if there are none "
    f"of these, the whole folder: files ending in {', '.join(sorted(NOTE_SUFFIXES))}"
)
"""What counts as a note, for messages."""

MAX_PATH_CHARS = 4096
MAX_NAME_BYTES = 255

MAX_FILE_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 1 << 20
READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # do not hang on a pipe in place of the file
    | getattr(os, "O_BINARY", 0)
)
FOLDER_FLAGS = (
    getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)
)
NO_LINKS_AT_ALL = getattr(os, "O_NOFOLLOW_ANY", 0)
"""macOS only: refuse a link anywhere in a path."""


def expanded(path: str) -> str:
    """Return a path with `~` expanded, or as it is if there is no such home folder."""
    return os.path.expanduser(path)  # noqa: PTH111 - that of a `Path` raises then


def homeless(path: str) -> str | None:
    """Return the problem if a path begins with the home folder of an unknown user, else None."""
    owner, *_ = path.split("/", 1)
    if not _HOME_OF.fullmatch(owner) or expanded(path) != path:
        return None
    return f"there is no home folder {owner}; it is {path!r}"


def canonical_key(path: str) -> str:
    """Return the canonical spelling of a relative path: `/` between names, no `.`, no doubled separator."""
    return posixpath.normpath(path.replace("\\", "/")) if path else ""


def relative_key(path: Path, workspace: Path) -> str:
    """Return the name of the absolute `path`: relative to `workspace`, `../…` outside, with `/`.

    On another drive, where no relative path exists, it is the absolute path.
    """
    try:
        return Path(os.path.relpath(path, workspace)).as_posix()
    except ValueError:
        return path.as_posix()


def leads_outside(name: str) -> bool:
    """Return whether a name may lead outside the workspace: absolute, or with `..` in it."""
    if ".." not in name and name[:1] not in "/\\" and name[1:2] != ":":
        return False
    names = name.replace("\\", "/").split("/")
    return ".." in names or names[0] == "" or names[0][1:2] == ":"


def is_note(name: str, suffixes: Set[str] = NOTE_SUFFIXES) -> bool:
    """Return whether a file name has the ending of a note."""
    return name[name.rfind(".") :].lower() in suffixes


def encoding_of(data: bytes) -> str:
    """Return a note's encoding by its first bytes: UTF-16 if they are a byte order mark, else UTF-8."""
    return "utf-16" if data.startswith(UTF_16_MARKS) else "utf-8-sig"


class Reading(IntEnum):
    """How the bytes of a note were decoded; the index stores the numbers."""

    IN_PART = 0
    WHOLE = 1
    AS_WESTERN = 2
    """Some bytes were not UTF-8, and were decoded as Windows-1252, a superset of Latin-1."""
    NO_TEXT = 3


def decoded(data: bytes) -> tuple[str, Reading]:
    """Decode a note; also return how.

    Bytes that are not UTF-8 are decoded as Windows-1252, one by one, so a file with both is readable too. If
    that concerns most of them, or there are NUL bytes, the file is not text. Invalid UTF-16 is replaced.
    """
    if data.startswith(UTF_16_MARKS):
        try:
            return data.decode("utf-16"), Reading.WHOLE
        except UnicodeDecodeError:
            return data.decode("utf-16", "replace"), Reading.IN_PART
    try:
        text, others = data.decode("utf-8-sig"), 0
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", "surrogateescape")
        others = sum("\udc80" <= character <= "\udcff" for character in text)
    nuls = data.count(0)
    if others > max(FEW_OTHERS, len(text) / 2) or (nuls and (others or nuls > len(data) / 10)):
        return "", Reading.NO_TEXT
    return (in_western(text), Reading.AS_WESTERN) if others else (text, Reading.WHOLE)


def in_western(text: str) -> str:
    """Replace what `surrogateescape` makes of bytes that are not UTF-8 by letters of Windows-1252."""
    return text.translate(_WESTERN)


def is_left_out(name: str) -> bool:
    """Return whether a file or folder is not part of an all-notes workspace: hidden, or a tool's."""
    return name[:1] == "." or name in TOOL_FOLDERS


def has_memory_files(workspace: Path) -> bool:
    """Return whether a folder has a `memory/`, `MEMORY.md`, `memory.md`, or pages in `bank/`.

    Reads the disk.
    """
    pages = (f"{BANK_FOLDER}/{page}" for page in BANK_PAGES)
    return any(os.path.lexists(workspace / one) for one in (*MAIN_FILES, MEMORY_FOLDER, *pages))


def extra_root(path: Path, workspace: Path) -> Path:
    """Return the real place of an extra path, absolute or relative to `workspace`; reads the disk.

    Links on the way are followed, but not one at the end, so that `is_symlink` can still detect it.
    """
    absolute = Path(os.path.normpath(workspace / path))
    return Path(os.path.realpath(absolute.parent)) / absolute.name


def resolve_memory_file(
    rel_path: str,
    *,
    workspace: Path,
    extra_paths: Sequence[Path] = (),
    suffixes: Set[str] = NOTE_SUFFIXES,
) -> Path:
    """Return the real path of the memory file named `rel_path`; reads the disk.

    Allowed are `MEMORY.md`, `memory.md`, everything under `memory/` and `bank/`, and the extra folders and
    files, if the name has the ending of a note, one of `suffixes`, and there is no symbolic link on the way.
    If the workspace itself is an extra folder, hidden files and folders of tools are not allowed. An absolute
    path to such a file is accepted. The file need not exist.

    Raises:
        MemoryPathError: the path is not a memory file; the message says why and what is readable.
    """
    root = Path(os.path.realpath(workspace))
    extras = [extra_root(path, root) for path in extra_paths]
    allowed = _describe(root, extras)
    problem = problem_with_text(rel_path)
    if problem is None:
        real = {workspace: root} | dict(zip(extra_paths, extras, strict=True))
        target = _place(rel_path.strip(), root, real)
        problem = _problem_with_place(target, root, extras, suffixes) or problem_with_file(target)
    if problem is not None:
        raise MemoryPathError(rel_path[:200], problem, allowed=allowed)
    return target


def _describe(root: Path, extras: Sequence[Path]) -> list[str]:
    shown = [_shown(extra, root) for extra in extras]
    if "**" in shown:
        return ["**", *filter(leads_outside, shown)]
    return [*MAIN_FILES, *(f"{one}/**" for one in MEMORY_FOLDERS), *shown]


def _shown(extra: Path, root: Path) -> str:
    return "**" if extra == root else relative_key(extra, root)


def problem_with_text(text: str) -> str | None:
    """Return why `text` cannot be a path at all; None if it can."""
    if len(text) <= MAX_NAME_BYTES and text.isascii() and "\0" not in text and not text.isspace() and text:
        return None
    if not text.strip():
        return "the path is empty"
    if "\0" in text:
        return "the path holds a NUL character"
    if len(text) > MAX_PATH_CHARS:
        return f"the path is longer than {MAX_PATH_CHARS} characters"
    try:
        longest = max(len(name.encode()) for name in text.split("/"))
    except UnicodeEncodeError:
        return "the path is not valid Unicode"
    return f"a name in the path is longer than {MAX_NAME_BYTES} bytes" if longest > MAX_NAME_BYTES else None


def _place(text: str, root: Path, real: Mapping[Path, Path]) -> Path:
    """Return `text` as an absolute path without `..`, its root replaced by the real path of that."""
    absolute = Path(os.path.normpath(root / text))
    for written, actual in real.items():
        if written.is_absolute() and absolute.is_relative_to(written):
            return actual / absolute.relative_to(written)
    return absolute


def _problem_with_place(target: Path, root: Path, extras: Sequence[Path], suffixes: Set[str]) -> str | None:
    if not _is_covered(target, root, extras):
        return "it is outside the memory folders"
    if not is_note(target.name, suffixes):
        return f"only notes ({', '.join(sorted(suffixes))}) can be read"
    if any(extra.is_symlink() for extra in extras if target.is_relative_to(extra)):
        return "it is in an extra path that is a symbolic link"
    try:
        is_real = Path(os.path.realpath(target)) == target
    except OSError as error:  # a link is being changed
        return f"it cannot be accessed ({error.strerror})"
    return None if is_real else "there is a symbolic link in its path"


def _is_covered(target: Path, root: Path, extras: Sequence[Path]) -> bool:
    if target.is_relative_to(root):
        first, *rest = target.relative_to(root).parts or ("",)
        if (first in MAIN_FILES and not rest) or first in MEMORY_FOLDERS:
            return True
        if root in extras and not any(map(is_left_out, (first, *rest))):
            return True
    return any(target.is_relative_to(extra) for extra in extras if extra != root)


def problem_with_file(target: Path) -> str | None:
    """Return why `target` cannot be read as a file; None if it can, or does not exist. Reads the disk."""
    try:
        mode = os.lstat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"it cannot be accessed ({error.strerror})"
    if stat.S_ISLNK(mode):
        return "it is a symbolic link"
    if stat.S_ISDIR(mode):
        return "it is a folder"
    return None if stat.S_ISREG(mode) else "it is not a regular file"


@contextmanager
def opened_file(path: str | Path, *, max_bytes: int = MAX_FILE_BYTES) -> Iterator[tuple[int, os.stat_result]]:
    """Open the regular file at the absolute real `path`; yield its descriptor and stat result.

    Paths are checked before they are opened, and a folder may become a link in between: so no link is
    followed, neither at the end of the path nor on the way. All user files are read through here.

    Raises:
        FileNotFoundError: it does not exist, or it or a folder on the way was replaced by a link.
        OSError: it cannot be read, is not a regular file, or is larger than `max_bytes`.
    """
    descriptor = _open_real(str(path))
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if found.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {max_bytes >> 20} MB", str(path))
        yield descriptor, found
    finally:
        os.close(descriptor)


def end_of_file(path: Path, most_bytes: int) -> tuple[int, str]:
    """Return the last bytes of a file as text, and the number of lines before them. Reads the file.

    Raises:
        OSError: it cannot be read, or is not a regular file, such as a pipe that would never end.
    """
    with opened_file(os.path.realpath(path), max_bytes=sys.maxsize) as (file, found):
        above, start = 0, max(0, found.st_size - most_bytes)
        for at in range(0, start, CHUNK_BYTES):
            above += os.pread(file, min(CHUNK_BYTES, start - at), at).count(b"\n")
        return above, os.pread(file, found.st_size - start, start).decode("utf-8", "replace")


def _open_real(path: str) -> int:
    try:
        if NO_LINKS_AT_ALL:
            return os.open(path, READ_FLAGS | NO_LINKS_AT_ALL)
        if sys.platform == "linux" and (descriptor := _open_and_ask(path)) is not None:
            return descriptor
        return _open_step_by_step(path) if os.open in os.supports_dir_fd else _open_and_compare(path)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise FileNotFoundError(
            errno.ENOENT, "there is a symbolic link or a file in its path", path
        ) from error


def _open_and_ask(path: str) -> int | None:
    """Open a file in a quarter of the time; None unless the kernel confirms that it is at this path."""
    descriptor = os.open(path, READ_FLAGS)
    with suppress(OSError):
        if os.readlink(f"/proc/self/fd/{descriptor}") == path:  # noqa: PTH115 - path objects are slow
            return descriptor
    os.close(descriptor)
    return None


def _open_step_by_step(path: str) -> int:
    """Open each folder relative to the one above it: what was checked is then what is opened."""
    *folders, name = path.strip("/").split("/")
    folder = os.open("/", FOLDER_FLAGS)
    try:
        for part in folders:
            below = os.open(part, FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(name, READ_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)


def _open_and_compare(path: str) -> int:
    """Without descriptors of folders (Windows): open, then check that the path leads to that file."""
    descriptor = os.open(path, READ_FLAGS)
    try:
        if os.path.realpath(path) == path and os.path.samestat(os.lstat(path), os.fstat(descriptor)):
            return descriptor
        raise FileNotFoundError(errno.ENOENT, "a symbolic link leads elsewhere", path)
    except OSError:
        os.close(descriptor)
        raise
