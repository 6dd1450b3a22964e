"""Names the files of collections, decides which may be read, and reads them."""

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from composable_memory.errors import MemoryPathError
from composable_memory.paths import (
    canonical_key,
    opened_file,
    problem_with_file,
    problem_with_text,
    relative_key,
)
from composable_memory.types import MemoryFileSlice
from composable_memory_adapters.excerpts import excerpt
from composable_memory_adapters.qmd.documents.patterns import parse_pattern
from composable_memory_adapters.qmd.types import Collection

ELSEWHERE = "qmd"
"""Prefix of the names of files outside the workspace: `qmd/<collection>/<path>`."""

MAX_FILE_BYTES = 64 * 1024 * 1024


async def read_file(
    rel_path: str,
    *,
    from_line: int | None = None,
    lines: int | None = None,
    collections: Sequence[Collection],
    workspace: Path,
) -> MemoryFileSlice:
    """Return a file by its name in results, or `lines` lines of it (at least one) from `from_line` on.

    A missing file has empty text.

    Raises:
        MemoryPathError: no collection covers the file, or it cannot be read; the message says which.
    """
    text = await asyncio.to_thread(_text_of, rel_path, collections, workspace)
    return MemoryFileSlice(text=excerpt(text, from_line, lines), path=canonical_key(rel_path))


def canonical_path(collection: Collection, path: str, workspace: Path) -> str:
    """Return the name of a collection's file: as in the builtin index, or `qmd/…` outside the workspace.

    Looks at the disk.
    """
    root = Path(os.path.realpath(workspace))
    file = collection.path / path
    if file.is_relative_to(root):
        return relative_key(file, root)
    return f"{ELSEWHERE}/{collection.name}/{canonical_key(path)}"


def resolve(rel_path: str, collections: Sequence[Collection], workspace: Path) -> Path:
    """Return the real path of the file that is named `rel_path`; looks at the disk.

    Allowed is what a collection covers: within its folder, matched by its pattern, not passed over by QMD,
    and without a symbolic link on the way. The file need not exist.

    Raises:
        MemoryPathError: it is none of those; the message says why and what is readable.
    """
    problem = problem_with_text(rel_path) or _problem_with_place(rel_path)
    covered: list[Path] = []
    if problem is None:
        covered = list(_covered(canonical_key(rel_path), collections, Path(os.path.realpath(workspace))))
        problem = None if covered else "no collection covers it"
    if problem is None:
        file = next(filter(os.path.lexists, covered), covered[0])
        problem = _problem_with_links(file) or problem_with_file(file)
    if problem is not None:
        raise MemoryPathError(rel_path[:200], problem, allowed=_readable(collections, workspace))
    return file


def read_text(file: Path, *, max_bytes: int) -> str:
    """Return the text of the regular file at the absolute real path `file`; looks at the disk.

    Bytes that are not UTF-8 are replaced, and a byte order mark is dropped.

    Raises:
        FileNotFoundError: it is not there, or a folder on the way has become a link to elsewhere.
        OSError: it cannot be read, is no regular file, or is larger than `max_bytes`.
    """
    with (
        opened_file(file, max_bytes=max_bytes) as (descriptor, _),
        os.fdopen(descriptor, "rb", closefd=False) as opened,
    ):
        # It may grow while it is read.
        return opened.read(max_bytes).decode("utf-8-sig", "replace")


def _text_of(rel_path: str, collections: Sequence[Collection], workspace: Path) -> str:
    file = resolve(rel_path, collections, workspace)
    try:
        return read_text(file, max_bytes=MAX_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise MemoryPathError(rel_path, error.strerror or str(error)) from error


def _problem_with_place(text: str) -> str | None:
    if Path(text).is_absolute() or text.startswith(("/", "\\")):
        return "the path is not relative"
    return "the path leads upwards" if ".." in re.split(r"[/\\]", text) else None


def _problem_with_links(file: Path) -> str | None:
    try:
        has_links = os.path.realpath(file) != str(file)
    except OSError:  # a link that was there a moment ago, and is not any more
        has_links = True
    return "a symbolic link lies on the way to it" if has_links else None


def _covered(path: str, collections: Sequence[Collection], workspace: Path) -> Iterator[Path]:
    """Yield the files that `path` can name: of the workspace first, then of a collection elsewhere."""
    elsewhere, _, rest = path.partition("/")
    name, _, inside = rest.partition("/")
    file = workspace / path
    for one in collections:
        if file.is_relative_to(one.path) and _covers(one, file.relative_to(one.path).as_posix()):
            yield file
    for one in collections:
        if elsewhere == ELSEWHERE and name == one.name and _covers(one, inside):
            yield one.path / inside


def _covers(collection: Collection, path: str) -> bool:
    return parse_pattern(collection.pattern).covers(path)


def _readable(collections: Sequence[Collection], workspace: Path) -> list[str]:
    folders = {one: canonical_path(one, "", workspace) for one in collections}
    return [
        one.pattern if folder == "." else f"{folder.rstrip('/')}/{one.pattern}"
        for one, folder in folders.items()
    ]
