"""Finds and reads the files that `cmem ingest` is given; everything here looks at the disk: use a thread."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from composable_memory.ingest.note_reader import TRANSCRIPT_SUFFIX
from composable_memory.paths import opened_file, relative_key
from composable_memory_ops_logs.quick_dataclass import dataclass

SUFFIXES = (".md", ".markdown", ".txt", TRANSCRIPT_SUFFIX)
NOTHING = f"there is nothing in it that ends in {', '.join(SUFFIXES)}"
MAX_NOTE_BYTES = 8 * 1024 * 1024
MAX_TRANSCRIPT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file to ingest: where it is, and how results are to name it."""

    real: Path
    key: str


def find_files(names: Sequence[str], workspace: Path) -> tuple[list[FoundFile], list[tuple[str, str]]]:
    """Return the files that `names` mean, in order, and why something is none of them.

    A file is meant as it is, of a folder all notes and transcripts in it.

    A relative name is looked for in the workspace, then in the current folder, and has to mean something in
    the workspace; an absolute one, or one that begins with `~`, may mean anything. Links that lead out of
    what was named, and files and folders whose names begin with a dot, are passed over.
    """
    found: dict[Path, FoundFile] = {}
    problems: list[tuple[str, str]] = []
    for name in names:
        try:
            start = _start(name, workspace)
        except OSError as error:
            problems.append((name, _reason(error)))
            continue
        unreadable: list[OSError] = []
        files = {path: _named(path, workspace) for path in _files(start, unreadable)}
        problems += [(str(error.filename), _reason(error)) for error in unreadable]
        if not files and not unreadable:
            problems.append((name, NOTHING))
        found = files | found
    return sorted(found.values(), key=lambda file: file.key), problems


def read_text(file: FoundFile) -> tuple[str, datetime]:
    """Return the text of a file, and when it was written.

    Raises:
        OSError: it cannot be read, is too large, or is no text.
    """
    limit = MAX_TRANSCRIPT_BYTES if file.real.suffix.lower() == TRANSCRIPT_SUFFIX else MAX_NOTE_BYTES
    with (
        opened_file(file.real, max_bytes=limit) as (descriptor, looked),
        os.fdopen(descriptor, "rb", closefd=False) as opened,
    ):
        data = opened.read(limit)
    if b"\0" in data:
        raise OSError("it is not a text")
    try:
        return data.decode("utf-8"), _written(looked.st_mtime)
    except UnicodeDecodeError as error:
        raise OSError(f"it is not UTF-8 (byte {error.start})") from error


def _start(name: str, workspace: Path) -> Path:
    """Return the real path of what a name means.

    Raises:
        OSError: it means nothing, or something outside the workspace without saying so.
    """
    given = Path(name).expanduser()
    if given.is_absolute():
        return given.resolve(strict=True)
    inside = workspace / given
    real = (inside if inside.exists() else given).resolve(strict=True)
    if not real.is_relative_to(workspace):
        raise PermissionError(f"it lies outside the workspace; if you mean it, write {real}")
    return real


def _files(start: Path, unreadable: list[OSError]) -> Iterator[Path]:
    if not start.is_dir():
        yield start
        return
    for folder, folders, names in os.walk(start, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            is_wanted = path.suffix.lower() in SUFFIXES and not name.startswith(".")
            if is_wanted and (not path.is_symlink() or _stays_in(path, start)):
                yield path.resolve()


def _stays_in(link: Path, folder: Path) -> bool:
    return link.exists() and link.resolve().is_relative_to(folder)


def _named(path: Path, workspace: Path) -> FoundFile:
    """Name a file relative to the workspace, below `~`, or in full."""
    home = Path.home().resolve()
    if path.is_relative_to(workspace):
        key = relative_key(path, workspace)
    elif path.is_relative_to(home):
        key = f"~/{path.relative_to(home).as_posix()}"
    else:
        key = path.as_posix()
    return FoundFile(real=path, key=key)


def _written(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # some file systems have dates that no calendar has
        return datetime.now(UTC)


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file or folder"
    return error.strerror or str(error)
