"""Finds notes and transcripts, and reads notes; everything here does blocking disk I/O, so use a thread."""

import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import field
from hashlib import sha256
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from composable_memory.errors import BackendError
from composable_memory.gitignore import FOLDER, GitIgnore, Rules, is_ignored
from composable_memory.paths import (
    MAIN_FILES,
    MEMORY_FOLDERS,
    NOTE_SUFFIXES,
    TOOL_FOLDERS,
    Reading,
    decoded,
    extra_root,
    is_left_out,
    is_note,
    opened_file,
    relative_key,
)
from composable_memory.state.workspaces import REGISTRY_FILE
from composable_memory.types import MemorySource
from composable_memory_ops_logs.quick_dataclass import dataclass

TRANSCRIPTS_KEY = "sessions"
"""The folder in a transcript's key in the index, wherever the file really is."""

TRANSCRIPT_SUFFIX = ".jsonl"

LATEST_NS = 2**63 - 1
"""The latest time that a database can hold, in the year 2262; some file systems go beyond it."""
CLOCK_TICK_NS = 20_000_000
"""File systems may use a clock this coarse: two writes within a tick can get the same mtime."""
SECOND_NS = 1_000_000_000
FAT_TICK_NS = 2 * SECOND_NS
"""The tick of FAT, on sticks and cards; an mtime in whole seconds may be this coarse."""
MOST_REASONS = 20
HIDDEN, OF_TOOLS, LINK, STATE_FOLDER = "hidden", "folder of a tool", "symbolic link", "state folder"
IGNORED = "ignored by .gitignore"
NO_ENDING, OTHER_ENDINGS, NO_FILE = "no ending", "other", "not a regular file"
"""Why a file or folder is skipped; a file that is not a note is counted under its suffix."""
NEVER_IGNORED = frozenset({*MAIN_FILES, *MEMORY_FOLDERS})
"""Always notes, whatever `.gitignore` says: an agent's memory is often kept out of the repository."""
TOO_MANY = (
    "there are more than {count} notes in {folder}; name a smaller folder with --workspace, choose folders "
    "in it with memory.builtin.extra_paths, or raise memory.builtin.max_files"
)
BY_KEY = itemgetter(0)
"""Gets the key of a scanned file; sorting by it takes half as long as sorting whole tuples."""


class ScannedFile(NamedTuple):
    """A note or transcript that was found: its key in the index, path, mtime and size.

    A named tuple because a scan makes one per note, in a third of the time of a frozen dataclass. Device and
    inode tell whether two paths are the same file.
    """

    key: str
    path: str
    mtime_ns: int
    size: int
    device: int
    inode: int
    ctime_ns: int
    source: MemorySource = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The notes and transcripts in a stable order, and what could not be read.

    `sources` are those that were asked for. `unreadable` maps the key of a file or folder to the reason;
    index rows under such a key must stay. The key of the whole workspace is empty. `remarks` name roots that
    were left out. `passed_over` counts the skipped files and folders by reason. `has_links` says whether a
    file in a folder has a second hard link, through which it can be changed elsewhere.
    """

    files: Collection[ScannedFile]
    unreadable: Mapping[str, str]
    remarks: tuple[str, ...] = ()
    sources: tuple[MemorySource, ...] = ("memory",)
    passed_over: Mapping[str, int] = field(default_factory=dict)
    has_links: bool = False
    listed: "_Findings | None" = field(default=None, repr=False, compare=False)
    """The raw directory listing, to compare a later scan with."""

    def covers(self, key: str, source: MemorySource = "memory") -> bool:
        """Return whether the scan can tell if `key` exists; files of a source not asked for count as gone."""
        if not self.unreadable or source not in self.sources:
            return True
        return not any(prefix in ("", key) or key.startswith(f"{prefix}/") for prefix in self.unreadable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The content of a note when it was read.

    `hash` is the SHA-256 of its bytes. `mtime_ns` and `size` were taken before reading. `settled` is False if
    a later change could still get the same mtime.
    """

    text: str
    hash: str
    mtime_ns: int
    size: int
    ctime_ns: int
    reading: Reading
    settled: bool


def scan(
    workspace: Path,
    extra_paths: Sequence[Path] = (),
    *,
    sources: Sequence[MemorySource] = ("memory",),
    transcripts: Path | None = None,
    suffixes: Set[str] = NOTE_SUFFIXES,
    most: int | None = None,
    before: ScanReport | None = None,
) -> ScanReport:
    """List the files of `sources`.

    `memory` is `MEMORY.md`, `memory.md`, the notes in `memory/` and `bank/`, and those in the extra paths. If
    the workspace itself is an extra path, hidden and gitignored files, tools' folders and state folders in it
    are left out. `sessions` is every `*.jsonl` directly in the folder `transcripts`, which need not exist. A
    note's name ends in one of `suffixes`. Symbolic links are not followed. A file reached twice is listed
    once, under its first name. If nothing has changed since `before`, that report is returned.

    Raises:
        BackendError: the whole workspace is notes, and there are more than `most`.
    """
    walk = _Walk(suffixes, most)
    if "memory" in sources:
        _walk_notes(walk, workspace, extra_paths)
    if "sessions" in sources and transcripts is not None:
        walk.add_transcripts(os.path.realpath(transcripts))
    listed = walk.listed, walk.unreadable, walk.remarks, walk.passed_over, walk.has_links
    if before is not None and before.listed == listed:
        return before
    files, remarks = _files_of(walk.listed)
    return ScanReport(
        files=files,
        unreadable=dict(walk.unreadable),
        remarks=(*walk.remarks, *remarks),
        sources=tuple(sources),
        passed_over=_top_reasons(walk.passed_over),
        has_links=walk.has_links,
        listed=listed,
    )


@dataclass(slots=True, kw_only=True)
class Places:
    """The files of a scan by path, and the key prefix of each folder with notes.

    Nothing is known of folders in which the scan found no note, nor of any folder if the scan reached a file
    twice: then only another scan can tell which of its names counts.
    """

    files: dict[str, ScannedFile]
    prefixes: Mapping[str, str]

    @classmethod
    def of(cls, found: ScanReport) -> "Places":
        """Index the files of a scan by path."""
        prefixes: dict[str, str] = {}
        tops = {one.file for one in found.listed[0]} if found.listed else set()
        if found.listed and len(found.files) == sum(one.size for one in found.listed[0]):
            for key, path, *_, source in found.files:
                if source == "memory" and path not in tops:
                    folder, _, name = path.rpartition(os.sep)
                    prefixes.setdefault(folder, key.removesuffix(name))
        return cls(files={file.path: file for file in found.files}, prefixes=prefixes)

    def named(self, paths: Set[str], suffixes: Set[str]) -> list[ScannedFile] | None:
        """Return the notes at some paths as last scanned; zeros for a new note in a known folder.

        Returns None if a path may be something else, such as a folder.
        """
        named = []
        for path in sorted(paths):
            folder, _, name = path.rpartition(os.sep)
            file, prefix = self.files.get(path), self.prefixes.get(folder)
            if file is None:
                if prefix is None or is_left_out(name) or not is_note(name, suffixes):
                    return None
                file = ScannedFile(prefix + name, path, 0, 0, 0, 0, 0)
            named.append(file)
        return named

    def look_again(self, named: Sequence[ScannedFile]) -> tuple[ScannedFile, ...] | None:
        """Return the current state of some notes, without those that are gone.

        Returns None if only a scan can tell: a path is no longer a file or has a second hard link, or a
        folder in it is gone, unreadable or a link.
        """
        again = []
        try:
            for folder in {file.path.rpartition(os.sep)[0] for file in named}:
                if os.path.realpath(folder, strict=True) != folder:
                    return None
            for file in named:
                try:
                    found = os.lstat(file.path)
                except FileNotFoundError:
                    if file.path.rpartition(os.sep)[0] in self.prefixes:
                        continue
                    return None
                is_same = (found.st_dev, found.st_ino) == (file.device, file.inode)
                if not stat.S_ISREG(found.st_mode) or (found.st_nlink > 1 and not is_same):
                    return None
                seen = file._replace(mtime_ns=mtime_of(found), size=found.st_size)
                again.append(
                    seen._replace(device=found.st_dev, inode=found.st_ino, ctime_ns=found.st_ctime_ns)
                )
        except OSError:
            return None
        # On a case-insensitive file system, a renamed note answers to both names.
        is_told_apart = len({(file.device, file.inode) for file in again}) == len(again)
        return tuple(again) if is_told_apart and all(_is_unicode(file.key) for file in again) else None


def _walk_notes(walk: "_Walk", workspace: Path, extra_paths: Sequence[Path]) -> None:
    root = Path(os.path.realpath(workspace))
    try:
        problem = None if root.is_dir() else "does not exist"
    except OSError as error:  # such as a network drive that has gone away
        problem = f"cannot be looked at ({error.strerror or error})"
    if problem is not None:
        walk.unreadable[""] = f"the workspace {workspace} {problem}"
        return
    extras = [extra_root(path, root) for path in extra_paths]
    for name in [""] if root in extras else [*MAIN_FILES, *MEMORY_FOLDERS]:
        walk.add_root(root / name, name)
    for extra in extras:
        if extra != root:
            walk.add_root(extra, relative_key(extra, root), expected=True)


def is_gitignored(target: Path, workspace: Path, extra_paths: Sequence[Path]) -> bool:
    """Return whether all of the workspace is notes, but `.gitignore` excludes this file."""
    root = Path(os.path.realpath(workspace))
    extras = [extra_root(path, root) for path in extra_paths]
    named = [*(root / one for one in NEVER_IGNORED), *(extra for extra in extras if extra != root)]
    if root not in extras or any(map(target.is_relative_to, named)):
        return False
    return GitIgnore(str(root)).leaves_out(str(target))


def read_note(path: str) -> Note:
    """Read the note at the absolute real `path`, a regular file.

    Bytes that are neither UTF-8 nor UTF-16 with a byte order mark are replaced.

    Raises:
        FileNotFoundError: the file is gone, or a folder in its path has become a link elsewhere.
        OSError: it cannot be read, or is larger than 256 MB.
    """
    with opened_file(path) as (descriptor, before):
        data = _read_all(descriptor, before.st_size)
    text, reading = decoded(data)
    return Note(
        text=text,
        hash=sha256(data).hexdigest(),
        mtime_ns=mtime_of(before),
        size=before.st_size,
        ctime_ns=before.st_ctime_ns,
        reading=reading,
        settled=is_settled(before),
    )


def mtime_of(found: os.stat_result) -> int:
    """Return a file's mtime in nanoseconds since 1970, clamped to what the index can hold."""
    mtime_ns = found.st_mtime_ns
    if -LATEST_NS <= mtime_ns <= LATEST_NS:
        return mtime_ns
    return LATEST_NS if mtime_ns > 0 else -LATEST_NS


def is_settled(found: os.stat_result) -> bool:
    """Return whether any later change is sure to give the file another mtime."""
    tick_ns = CLOCK_TICK_NS if found.st_mtime_ns % SECOND_NS else FAT_TICK_NS
    return time.time_ns() - found.st_mtime_ns > tick_ns


def _read_all(descriptor: int, size: int) -> bytes:
    """Read to the end; one call for most notes, while a file object would take twice as long."""
    parts = []
    while part := os.read(descriptor, size + 1):
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _Walk:
    """The findings of a scan so far."""

    def __init__(self, suffixes: Set[str], most: int | None) -> None:
        self._suffixes = suffixes
        self.passed_over: Counter[str] = Counter()
        self._most = most
        self.listed: list[_Listed] = []
        self.unreadable: dict[str, str] = {}
        self.remarks: list[str] = []
        self.has_links = False

    def add_root(self, path: Path, key: str, *, expected: bool = False) -> None:
        """Add the file or folder at `path`; remark on one that is missing though `expected`."""
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            if expected:
                self.remarks.append(f"extra path {key} does not exist")
        except OSError as error:
            self._skip(key, error)
        else:
            self._add(path, key, found)

    def add_transcripts(self, folder: str) -> None:
        """Add the transcripts in a folder, which need not exist."""
        found: list[_Row] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(TRANSCRIPT_SUFFIX) and entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # of this one file, not of the folder
                            found.append(self._row(entry.name, entry.stat(follow_symlinks=False)))
        except FileNotFoundError:
            return
        except OSError as error:
            self.unreadable[TRANSCRIPTS_KEY] = f"{folder} cannot be listed ({error.strerror or error})"
        self.listed.append(_Listed("", [(folder, f"{TRANSCRIPTS_KEY}/", found)], "sessions"))

    def _add(self, path: Path, key: str, found: os.stat_result) -> None:
        if stat.S_ISLNK(found.st_mode):
            self.remarks.append(f"{key} is a symbolic link and was skipped; name its target in extra_paths")
        elif stat.S_ISDIR(found.st_mode):
            self.listed.append(_Listed("", self._notes_in(str(path), key)))
        elif stat.S_ISREG(found.st_mode) and is_note(path.name, self._suffixes):
            prefix = key.removesuffix(path.name)
            self.listed.append(
                _Listed(str(path), [(str(path.parent), prefix, [self._row(path.name, found)])])
            )

    def _notes_in(self, top: str, top_key: str) -> "list[_Folder]":
        """Return the notes in a folder, at any depth; record a folder that cannot be read."""
        listed: list[_Folder] = []
        count = 0
        suffixes, usual = self._suffixes, tuple(self._suffixes)  # nearly all suffixes are lower-case
        is_whole = not top_key
        ignored = GitIgnore(top, suffixes)
        folders = [(top, f"{top_key}/" if top_key else "")]
        while folders:
            folder, prefix = folders.pop()
            is_memory = prefix.partition("/")[0] in MEMORY_FOLDERS
            rules = ignored.rules_of(folder) if is_whole and not is_memory else Rules()
            kept = NEVER_IGNORED if folder == top else ()
            patterns = rules.files
            rows: list[_Row] = []
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        name = entry.name
                        if is_whole and is_left_out(name):
                            self.passed_over[OF_TOOLS if name in TOOL_FOLDERS else HIDDEN] += 1
                        elif (name.endswith(usual) or is_note(name, suffixes)) and entry.is_file(
                            follow_symlinks=False
                        ):
                            if patterns and name not in kept and is_ignored(patterns, entry.path, name):
                                self.passed_over[IGNORED] += 1
                                continue
                            try:
                                at = entry.stat(follow_symlinks=False)
                            except FileNotFoundError:  # deleted after the folder was listed
                                continue
                            # Same as `_row`, inlined to save a call per note.
                            if at.st_nlink > 1:
                                self.has_links = True
                            rows.append(
                                (name, at.st_mtime_ns, at.st_size, at.st_dev, at.st_ino, at.st_ctime_ns)
                            )
                        elif why := _why_passed_over(entry, is_whole=is_whole):
                            self.passed_over[why] += 1
                        elif name not in kept and is_ignored(
                            rules.folders, entry.path + FOLDER, name + FOLDER
                        ):
                            self.passed_over[IGNORED] += 1
                        else:
                            folders.append((entry.path, f"{prefix}{name}/"))
            except FileNotFoundError:
                pass  # the folder was deleted too
            except OSError as error:
                self._skip(prefix.rstrip("/"), error)
            if rows:
                listed.append((folder, prefix, rows))
                count += len(rows)
            if is_whole and self._most is not None and count > self._most:
                raise BackendError("builtin", "sync", TOO_MANY.format(count=self._most, folder=top))
        for path, why in ignored.unreadable.items():
            self.unreadable[os.path.relpath(path, top)] = why
        return listed

    def _row(self, name: str, found: os.stat_result) -> "_Row":
        if found.st_nlink > 1:
            self.has_links = True
        return name, found.st_mtime_ns, found.st_size, found.st_dev, found.st_ino, found.st_ctime_ns

    def _skip(self, key: str, error: OSError) -> None:
        self.unreadable[key] = error.strerror or str(error)


_Row = tuple[str, int, int, int, int, int]
"""A file as the file system reports it: name, mtime, size, device, inode and ctime."""

_Folder = tuple[str, str, list[_Row]]
"""A folder with notes: its path, the prefix of their keys, and the notes directly in it."""


class _Listed(NamedTuple):
    """The notes below a root, or the one `file` that is the root, as the file system lists them."""

    file: str
    folders: list[_Folder]
    source: MemorySource = "memory"

    @property
    def size(self) -> int:
        return sum(len(rows) for _, _, rows in self.folders)

    def files(self) -> list[ScannedFile]:
        """Return the files sorted by key."""
        files = []
        for folder, prefix, rows in self.folders:
            begin = folder if folder[-1:] == os.sep else folder + os.sep
            for name, mtime_ns, *rest in rows:
                time_ns = min(max(mtime_ns, -LATEST_NS), LATEST_NS)
                place = (prefix + name, begin + name, time_ns, *rest, self.source)
                files.append(tuple.__new__(ScannedFile, place))  # takes two thirds of the time of `_make`
        return sorted(files, key=BY_KEY)


_Findings = tuple[list[_Listed], dict[str, str], list[str], Counter[str], bool]
"""The notes below each root, the unreadable files, remarks, counts of skipped files, and `has_links`."""


def _files_of(listed: Sequence[_Listed]) -> tuple[tuple[ScannedFile, ...], list[str]]:
    """Return each file once, sorted by key within each root, and a remark on each that cannot be indexed.

    The file system's own order varies; sorting makes the index the same everywhere.
    """
    files: list[ScannedFile] = []
    remarks: list[str] = []
    seen: set[int | str] = set()
    for file in chain.from_iterable(one.files() for one in listed):
        key, path, _, _, device, inode, *_ = file
        # Windows reports no inode here; there, paths tell files apart.
        identity = device << 64 | inode if inode else os.path.normcase(path)
        if identity in seen:
            continue
        seen.add(identity)
        if key.isascii() or _is_unicode(key):
            files.append(file)
        else:
            shown = key.encode("utf-8", "backslashreplace").decode()
            remarks.append(f"{shown}: the name is not valid Unicode; rename the file")
    return tuple(files), remarks


def _why_passed_over(entry: os.DirEntry[str], *, is_whole: bool) -> str | None:
    """Return why an entry that is not a note is skipped; None for a folder that may hold notes."""
    if entry.is_symlink():
        return LINK
    if entry.is_file(follow_symlinks=False):
        return os.path.splitext(entry.name)[1].lower() or NO_ENDING  # noqa: PTH122 - path objects are slow
    if not entry.is_dir(follow_symlinks=False):
        return NO_FILE
    if entry.name in TOOL_FOLDERS:
        return OF_TOOLS
    return STATE_FOLDER if is_whole and _is_state_folder(entry.path) else None


def _top_reasons(counts: Counter[str]) -> dict[str, int]:
    """Return the most frequent reasons with their counts, and the rest as one sum."""
    shown = dict(counts.most_common(MOST_REASONS))
    others = counts.total() - sum(shown.values())
    return {**shown, OTHER_ENDINGS: others} if others else shown


def _is_state_folder(path: str) -> bool:
    return os.path.exists(f"{path}/{REGISTRY_FILE}")  # noqa: PTH110 - runs per folder: path objects are slow


def _is_unicode(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
