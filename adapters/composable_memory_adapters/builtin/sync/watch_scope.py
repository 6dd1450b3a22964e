"""Which folders to watch so that no change to a note is missed, and which paths in them matter."""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import field
from pathlib import Path

from composable_memory.gitignore import GITIGNORE, GitIgnore, Rules
from composable_memory.paths import (
    MAIN_FILES,
    MEMORY_FOLDERS,
    NOTE_SUFFIXES,
    TOOL_FOLDERS,
    extra_root,
    is_left_out,
    is_note,
)
from composable_memory_adapters.builtin.notes.note_files import TRANSCRIPT_SUFFIX
from composable_memory_ops_logs.quick_dataclass import dataclass

MOUNTS = "/proc/self/mountinfo"
LOCAL = frozenset(
    "bcachefs btrfs exfat ext2 ext3 ext4 f2fs jfs overlay ramfs reiserfs tmpfs vfat xfs zfs".split()
)
"""File systems that only this machine can write to, so that its kernel reports every change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFolder:
    """An existing folder to watch, with its subfolders if `recursive`.

    `identity` is its device and inode, which change if another folder replaces it.
    """

    path: str
    recursive: bool
    identity: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchScope:
    """The folders to watch, and which paths in them matter.

    `trees` are the folders, existing or not, whose notes matter at any depth. `root` is the workspace; if it
    is a tree, hidden and `ignored` paths in it do not matter. Notes' names end in one of `suffixes`.
    `transcripts` is the folder of transcripts. `names` maps a folder to the lower-case names that matter
    directly in it: notes, and watched folders themselves, which may appear and disappear. `rules` are the
    root's ignore patterns.
    """

    folders: tuple[WatchedFolder, ...] = ()
    trees: tuple[str, ...] = ()
    root: str = ""
    ignored: GitIgnore | None = field(default=None, compare=False)
    rules: Rules | None = None
    suffixes: Set[str] = NOTE_SUFFIXES
    transcripts: str | None = None
    names: Mapping[str, frozenset[str]]

    def concerns(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a change at `path` may require changes to the index."""
        folder, name = os.path.split(path)
        if name.lower() in self.names.get(folder, ()):
            return True
        if is_folder or is_note(name, self.suffixes):
            return self.reaches(path, is_folder=is_folder)
        if self.is_gitignore(path):
            return self.reaches(folder)
        return folder == self.transcripts and name.endswith(TRANSCRIPT_SUFFIX)

    def reaches(self, path: str, *, is_folder: bool = True) -> bool:
        """Return whether `path` is a tree or inside one, and neither left out nor ignored there."""
        return any(
            _is_within(path, tree, root=self.root) and not self._is_ignored(path, tree, is_folder=is_folder)
            for tree in self.trees
        )

    def is_gitignore(self, path: str) -> bool:
        """Return whether `path` is a `.gitignore`, which affects the folders to watch."""
        return self.ignored is not None and path.rpartition(os.sep)[2] == GITIGNORE

    def _is_ignored(self, path: str, tree: str, *, is_folder: bool) -> bool:
        if self.ignored is None or tree != self.root:
            return False
        return self.ignored.leaves_out(path, is_folder=is_folder)

    def is_watched(self, path: str) -> bool:
        """Return whether the folder at `path` should be watched, on its own or as part of a tree."""
        return self.reaches(path) or any(path == folder.path for folder in self.folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """What is watched: the outermost folders, whether any is new, and why something is not watched."""

    folders: tuple[str, ...] = ()
    is_new: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """The file systems mounted where notes are, as the system reports them.

    `are_local` means that only this machine can write there, and every change raises an event in its folder.
    """

    lines: Set[str] = frozenset()
    are_local: bool = False


def survey(
    workspace: Path,
    extra_paths: Sequence[Path] = (),
    transcripts: Path | None = None,
    suffixes: Set[str] = NOTE_SUFFIXES,
) -> WatchScope:
    """Return what to watch for a workspace in its current state; reads the disk.

    Folders that do not exist yet are left out. Symbolic links are not followed, as in a scan.
    """
    root = Path(os.path.realpath(workspace))
    extras = [extra_root(path, root) for path in extra_paths]
    trees = [*(root / name for name in MEMORY_FOLDERS), *extras]
    folders = [(root, False), *((tree, True) for tree in trees)]
    # A file is watched through its folder: editors replace files, and a watch would follow the old one.
    folders += [(extra.parent, False) for extra in extras if is_note(extra.name, suffixes)]
    lists = [] if transcripts is None else [Path(os.path.realpath(transcripts))]
    folders += [(folder, False) for folder in lists]
    found = [_look(path, recursive=deep) for path, deep in folders]
    ignored = GitIgnore(str(root)) if root in trees else None
    return WatchScope(
        folders=tuple(_outermost([folder for folder in found if folder], str(root))),
        trees=tuple(map(str, trees)),
        root=str(root),
        ignored=ignored,
        rules=ignored.rules_of(str(root)) if ignored else None,
        suffixes=suffixes,
        transcripts=str(lists[0]) if lists else None,
        names=_by_folder([*(root / name for name in MAIN_FILES), root, *trees, *lists]),
    )


def mounts_of(scope: WatchScope) -> Mounts:
    """Return what is mounted at, above and inside the folders of a scope; reads the disk."""
    try:
        lines = Path(MOUNTS).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return Mounts()
    holding = dict.fromkeys(scope.folders, ("", ""))
    within: set[str] = set()
    are_folders = True
    for line in lines:
        # See proc(5): of two mounts at the same place, the later one is effective.
        place = line.split(" ")[4]
        if "\\" in place:
            place = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), place)
        begin = place.rstrip("/") + "/"
        for folder, (held, _) in holding.items():
            path = folder.path.rstrip("/") + "/"
            if path.startswith(begin) and len(begin) >= len(held):
                holding[folder] = begin, line
            elif begin.startswith(path) and any(
                scope.concerns(place, is_folder=one) for one in (True, False)
            ):
                within.add(line)
                # For a bind-mounted file, a change made through its other name raises no event here.
                are_folders &= os.path.isdir(place)  # noqa: PTH112 - path objects are slow
    told = within.union(line for _, line in holding.values())
    kinds = {line.partition(" - ")[2].partition(" ")[0] for line in told}
    return Mounts(lines=frozenset(told), are_local=are_folders and kinds <= LOCAL)


def _look(path: Path, *, recursive: bool) -> WatchedFolder | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return None
    return WatchedFolder(path=str(path), recursive=recursive, identity=(found.st_dev, found.st_ino))


def _outermost(folders: Sequence[WatchedFolder], root: str) -> Iterator[WatchedFolder]:
    """Yield the folders not covered by another one's tree, so that none is watched twice."""
    trees: list[str] = []
    seen: set[str] = set()
    for folder in sorted(folders, key=lambda one: (not one.recursive, len(one.path))):
        if folder.path in seen or any(_is_within(folder.path, tree, root=root) for tree in trees):
            continue
        seen.add(folder.path)
        if folder.recursive:
            trees.append(folder.path)
        yield folder


def _by_folder(paths: Sequence[Path]) -> dict[str, frozenset[str]]:
    names: dict[str, frozenset[str]] = {}
    for path in paths:
        folder = str(path.parent)
        names[folder] = names.get(folder, frozenset()) | {path.name.lower()}
    return names


def _is_within(path: str, tree: str, *, root: str) -> bool:
    """Return whether `path` is `tree` or inside it, and not left out there."""
    if path == tree:
        return True
    inner = path.removeprefix(tree.rstrip(os.sep) + os.sep)
    if inner == path:
        return False
    # This may run for thousands of events a second: path objects would take most of the time.
    names = inner.split(os.sep)  # noqa: PTH206 - see above
    return TOOL_FOLDERS.isdisjoint(names) and not (tree == root and any(map(is_left_out, names)))
