"""How memory files are named, and which paths may be read.

A file is named by its path relative to the workspace, with `/`; one outside begins with `../`. Functions that
look at the disk say so: call them from a thread.
"""

import os
import posixpath
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from composable_memory.errors import MemoryPathError

__all__ = [
    "MAIN_FILES",
    "MEMORY_FOLDER",
    "canonical_key",
    "extra_root",
    "is_markdown",
    "problem_with_file",
    "problem_with_text",
    "relative_key",
    "resolve_memory_file",
]

MAIN_FILES = ("MEMORY.md", "memory.md")
"""Memory files directly in the workspace."""

MEMORY_FOLDER = "memory"
"""The folder in the workspace whose Markdown files are memory files, at any depth."""

MAX_PATH_CHARS = 4096
MAX_NAME_BYTES = 255


def canonical_key(path: str) -> str:
    """Return the one spelling of a relative path: `/` between names, no `.`, no doubled separator."""
    return posixpath.normpath(path.replace("\\", "/")) if path else ""


def relative_key(path: Path, workspace: Path) -> str:
    """Return the name of the absolute `path`: relative to `workspace`, `../…` outside, with `/`.

    On another drive, where no relative path exists, the absolute path is the name.
    """
    try:
        return Path(os.path.relpath(path, workspace)).as_posix()
    except ValueError:
        return path.as_posix()


def is_markdown(name: str) -> bool:
    """Say whether a file name ends in `.md`, in small or capital letters."""
    return name[-3:].lower() == ".md"


def extra_root(path: Path, workspace: Path) -> Path:
    """Return where an extra path, absolute or relative to `workspace`, really is; looks at the disk.

    Links on the way are followed; a link at its end is not, so that `is_symlink` still tells.
    """
    absolute = Path(os.path.normpath(workspace / path))
    return Path(os.path.realpath(absolute.parent)) / absolute.name


def resolve_memory_file(rel_path: str, *, workspace: Path, extra_paths: Sequence[Path] = ()) -> Path:
    """Return the real path of the memory file named `rel_path`; looks at the disk.

    Allowed are `MEMORY.md`, `memory.md`, everything under `memory/`, and the extra folders and files, as long
    as the name ends in `.md` and no symbolic link lies on the way. An absolute path to such a file is fine.
    The file need not exist.

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
        problem = _problem_with_place(target, root, extras) or problem_with_file(target)
    if problem is not None:
        raise MemoryPathError(rel_path[:200], problem, allowed=allowed)
    return target


def _describe(root: Path, extras: Sequence[Path]) -> list[str]:
    return [*MAIN_FILES, f"{MEMORY_FOLDER}/**/*.md", *(relative_key(extra, root) for extra in extras)]


def problem_with_text(text: str) -> str | None:
    """Say why `text` can be no path, wherever it leads; None where it can."""
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
    """Return `text` as an absolute path without `..`, and with the real root for the one as written."""
    absolute = Path(os.path.normpath(root / text))
    for written, actual in real.items():
        if written.is_absolute() and absolute.is_relative_to(written):
            return actual / absolute.relative_to(written)
    return absolute


def _problem_with_place(target: Path, root: Path, extras: Sequence[Path]) -> str | None:
    if not _is_covered(target, root, extras):
        return "it lies outside the memory folders"
    if not is_markdown(target.name):
        return "only Markdown files (.md) can be read"
    if any(extra.is_symlink() for extra in extras if target.is_relative_to(extra)):
        return "the extra path that holds it is a symbolic link"
    if Path(os.path.realpath(target)) != target:
        return "a symbolic link lies on the way to it"
    return None


def _is_covered(target: Path, root: Path, extras: Sequence[Path]) -> bool:
    if target.is_relative_to(root):
        first, *rest = target.relative_to(root).parts or ("",)
        if (first in MAIN_FILES and not rest) or (first == MEMORY_FOLDER and rest):
            return True
    return any(target.is_relative_to(extra) for extra in extras)


def problem_with_file(target: Path) -> str | None:
    """Say why `target` cannot be read as a file; None where it can, or is not there. Looks at the disk."""
    try:
        mode = os.lstat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"it cannot be looked at ({error.strerror})"
    if stat.S_ISLNK(mode):
        return "it is a symbolic link"
    if stat.S_ISDIR(mode):
        return "it is a folder"
    return None if stat.S_ISREG(mode) else "it is not a regular file"
