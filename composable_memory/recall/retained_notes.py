"""Caches the retained lines of a workspace's notes, and rereads only what has changed."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from composable_memory.forget.tombstones import Forgotten, Tombstones
from composable_memory.front_matter import front_matter, tags_in
from composable_memory.gitignore import GitIgnore
from composable_memory.paths import (
    BANK_FOLDER,
    MAIN_FILES,
    MEMORY_FOLDERS,
    NOTE_SUFFIXES,
    TOOL_FOLDERS,
    decoded,
    extra_root,
    is_left_out,
    is_note,
    opened_file,
    relative_key,
)
from composable_memory.query.filters import day_in_path
from composable_memory.reflect.entity_pages import is_own_line
from composable_memory.retain.retained_lines import RetainedLine, retained_lines
from composable_memory.types import Origin
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

ENTITY_PAGES = f"{BANK_FOLDER}/entities/"
_FIRST_HEADING = Pattern(r"^#[ \t]+(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLine:
    """A retained line and its place; `day` is that of its note, or of the file's last change.

    `is_dated` says that the note states its day.
    """

    path: str
    day: date
    line: RetainedLine
    is_dated: bool = True

    @property
    def source(self) -> str:
        """Return its place, as `path#L3`."""
        return Origin(path=self.path, start_line=self.line.start_line, end_line=self.line.end_line).citation


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a note retains; `names` are names for one thing: the note's title and its aliases.

    `called` are the names of the note itself: its file name, its title and its first heading. `repeated` are
    the numbers of lines that a reflection copied from retained lines. `is_dated` says that the note states
    its day.
    """

    path: str
    day: date
    lines: tuple[KnownLine, ...] = ()
    names: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    repeated: frozenset[int] = frozenset()
    is_dated: bool = True


class RetainedNotes:
    """The notes of a workspace as last read; thread-safe."""

    def __init__(self, forgotten: Forgotten | None = None) -> None:
        self._forgotten = forgotten
        self._stones = Tombstones(b"", ())
        self._known: dict[str, tuple[_Stamp, Note]] = {}
        self._lock = Lock()

    def read(self, workspace: Path, extra_paths: Sequence[str] = ()) -> Mapping[str, Note]:
        """Return every note by path; blocks, so call it in a thread. Unreadable notes are left out.

        Notes are `MEMORY.md`, those in `memory/` and `bank/`, and those in `extra_paths`. Links are not
        followed; if an extra path is the workspace itself, whatever `.gitignore` names is left out too.
        Forgotten text is removed, even if an old copy of a note came back.
        """
        with self._lock:
            stones = self._forgotten.now() if self._forgotten else self._stones
            before = self._known if stones.stones == self._stones.stones else {}
            self._stones, self._known = stones, {}
            for file in note_files(Path(os.path.realpath(workspace)), extra_paths):
                known = before.get(file.key)
                if known is None or known[0] != file.stamp:
                    note = _read(file, stones)
                    known = (file.stamp, note) if note else None
                if known is not None:
                    self._known[file.key] = known
            return {key: note for key, (_, note) in self._known.items()}


class _Stamp(NamedTuple):
    """Differs after every change of a file, including its replacement by a rename."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int


def labels_of_notes(
    workspace: Path, extra_paths: Sequence[str] = ()
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tags and types of all notes found by `RetainedNotes.read`; blocks."""
    tags, types = set[str](), set[str]()
    for file in note_files(Path(os.path.realpath(workspace)), extra_paths):
        with suppress(OSError):
            text = note_text(file.path)
            head = front_matter(text)
            tags |= tags_in(text, head)
            types |= {head.type.lower()} if head.type else set()
    return frozenset(tags), frozenset(types)


def paths_of_notes(workspace: Path, extra_paths: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the paths of all notes as named in results; blocks."""
    return tuple(file.key for file in note_files(Path(os.path.realpath(workspace)), extra_paths))


class FoundNote(NamedTuple):
    """A note on disk; `key` is its name in results."""

    key: str
    path: str
    stamp: _Stamp


def note_files(
    root: Path,
    extra_paths: Iterable[str],
    unread: MutableMapping[str, str] | None = None,
    suffixes: Set[str] = NOTE_SUFFIXES,
) -> Iterator[FoundNote]:
    """Yield the notes of the workspace at a real path, each once, as `RetainedNotes.read` defines them.

    Unreadable folders are added to `unread` with the reasons.
    """

    def note_error(error: OSError) -> None:
        if unread is not None:
            unread[relative_key(Path(error.filename), root)] = error.strerror or str(error)

    extras = [extra_root(Path(path), root) for path in extra_paths]
    named = [*(root / name for name in (*MAIN_FILES, *MEMORY_FOLDERS)), *extras]
    ignored = GitIgnore(str(root)) if root in extras else None
    seen: set[tuple[int, int] | str] = set()
    for top in dict.fromkeys(named):
        for path, found in _below(top, ignored if top == root else None, note_error, suffixes):
            identity = (found.st_dev, found.st_ino) if found.st_ino else path
            if identity not in seen:
                seen.add(identity)
                stamp = _Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
                yield FoundNote(relative_key(Path(path), root), path, stamp)


def _below(
    top: Path, ignored: GitIgnore | None, on_error: Callable[[OSError], None], suffixes: Set[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the notes at or below a path; for a workspace, all notes that are not ignored."""
    try:
        found = top.lstat()
    except OSError:
        return
    if stat.S_ISREG(found.st_mode) and is_note(top.name, suffixes):
        yield str(top), found
    if not stat.S_ISDIR(found.st_mode):
        return
    for folder, below, names in os.walk(top, onerror=on_error):
        below[:] = sorted(
            name for name in below if not _is_skipped(f"{folder}/{name}", ignored, is_folder=True)
        )
        for name in sorted(name for name in names if is_note(name, suffixes)):
            path = f"{folder}/{name}"
            try:
                found = os.lstat(path)
            except OSError:  # it was removed meanwhile
                continue
            if stat.S_ISREG(found.st_mode) and not _is_skipped(path, ignored):
                yield path, found


def _is_skipped(path: str, ignored: GitIgnore | None, *, is_folder: bool = False) -> bool:
    name = path.rpartition("/")[2]
    if ignored is None:
        return is_folder and name in TOOL_FOLDERS
    return is_left_out(name) or ignored.leaves_out(path, is_folder=is_folder)


def _read(file: FoundNote, stones: Tombstones) -> Note | None:
    try:
        text = stones.hide(note_text(file.path), "memory")
    except OSError:
        return None
    return note_of(file.key, text, datetime.fromtimestamp(file.stamp.mtime_ns / 1e9, UTC).date())


def note_of(path: str, text: str, changed_on: date) -> Note:
    """Return what a note retains; one that does not state its day is dated by its last change."""
    head = front_matter(text)
    told_day = day_in_path(path) or (head.date.date() if head.date else None)
    day = told_day or changed_on
    is_dated = told_day is not None
    in_bank = path.startswith(f"{BANK_FOLDER}/")
    lines: tuple[KnownLine, ...] = ()
    if in_bank or "retain" in text.lower():
        found = retained_lines(text, everywhere=in_bank)
        lines = tuple(KnownLine(path=path, day=day, line=line, is_dated=is_dated) for line in found)
    stem = path.rpartition("/")[2].rpartition(".")[0]
    names = (stem,) if path.startswith(ENTITY_PAGES) else ()
    if head.aliases:
        names = tuple(dict.fromkeys((head.title or stem, *names, *head.aliases)))
    heading = _FIRST_HEADING.search(text, head.length)
    called = tuple(filter(None, (stem, head.title, heading and heading[1])))
    is_page = in_bank or path in MAIN_FILES
    rows = enumerate(text.split("\n"), 1) if is_page else ()
    repeated = frozenset(number for number, row in rows if is_own_line(row))
    return Note(
        path=path,
        day=day,
        lines=lines,
        names=names,
        called=called,
        repeated=repeated,
        is_dated=is_dated,
    )


def note_data(path: str | Path) -> bytes:
    """Return the bytes of the note at an absolute real path.

    Raises:
        OSError: it cannot be read.
    """
    with opened_file(path) as (descriptor, found), os.fdopen(os.dup(descriptor), "rb") as stream:
        return stream.read(found.st_size)


def note_text(path: str | Path) -> str:
    """Return the text of the note at an absolute real path, as it is indexed.

    Raises:
        OSError: it cannot be read.
    """
    return decoded(note_data(path))[0]
