"""Plans which folders QMD indexes, and names their files: which have changed, and which may be read."""

import asyncio
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from composable_memory.errors import MemoryPathError
from composable_memory.paths import (
    BANK_FOLDER,
    MAIN_FILES,
    MEMORY_FOLDER,
    MEMORY_FOLDERS,
    canonical_key,
    expanded,
    opened_file,
    problem_with_file,
    problem_with_text,
    relative_key,
)
from composable_memory.types import MemoryFileSlice, MemorySource
from composable_memory_adapters.excerpts import excerpt
from composable_memory_adapters.qmd.glob_patterns import SKIPPED_NAMES, parse_pattern
from composable_memory_adapters.qmd.settings import DEFAULT_PATTERN, QmdSettings
from composable_memory_adapters.qmd.types import Collection

MAIN_PATTERN = "{" + ",".join(name.removesuffix(".md") for name in MAIN_FILES) + "}.md"
MAX_NAME = 64


class CollectionPlan:
    """The collections to index, and what is wrong with the others."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.collections: tuple[Collection, ...] = ()
        self.problems: tuple[str, ...] = ()

    def add(
        self,
        name: str,
        folder: Path,
        pattern: str = DEFAULT_PATTERN,
        *,
        source: MemorySource = "memory",
        may_be_missing: bool = False,
    ) -> None:
        """Add a folder, unless there is a problem with it or it is already there."""
        problem = (
            problem_with_text(str(folder))
            or self._problem_with_links(folder)
            or _problem_with_folder(folder, may_be_missing=may_be_missing)
            or _problem_with_pattern(pattern)
        )
        if problem is not None:
            self.problems += (f"collection {name!r} ({str(folder)!r:.200}): {problem}",)
            return
        real = Path(os.path.realpath(folder))
        if not any((one.path, one.pattern) == (real, pattern) for one in self.collections):
            named = Collection(name=self._free_name(name), path=real, pattern=pattern, source=source)
            self.collections += (named,)

    def _problem_with_links(self, folder: Path) -> str | None:
        """Refuse links that lead out of the workspace, and any link at `memory/` or `bank/` itself."""
        real = Path(os.path.realpath(folder))
        if real == folder or not folder.is_relative_to(self.workspace):
            return None
        if real.is_relative_to(self.workspace) and folder.name not in MEMORY_FOLDERS:
            return None
        return "a symbolic link leads elsewhere; name the folder itself"

    def _free_name(self, wanted: str) -> str:
        taken = {one.name for one in self.collections}
        slug = _slug(wanted)
        number = 2
        name = slug
        while name in taken:
            name, number = f"{slug}-{number}", number + 1
        return name


def plan_collections(settings: QmdSettings, *, workspace: Path, export_dir: Path | None) -> CollectionPlan:
    """Return the collections in the settings, with their real folders; reads the disk.

    The memory files come first, then the paths in the order of the settings, then the exported transcripts in
    `export_dir`, if any. Left out with a problem are a folder of the workspace that a symbolic link leads out
    of it, a path that is not a folder, and an unsupported pattern. Only `memory/`, `bank/` and `export_dir`
    need not exist yet.
    """
    plan = CollectionPlan(Path(os.path.realpath(workspace)))
    if settings.include_default_memory:
        plan.add("memory-root", plan.workspace, MAIN_PATTERN)
        plan.add("memory-dir", plan.workspace / MEMORY_FOLDER, may_be_missing=True)
        plan.add("bank-dir", plan.workspace / BANK_FOLDER, may_be_missing=True)
    for one in settings.paths:
        folder = Path(os.path.normpath(plan.workspace / expanded(one.path)))
        plan.add(one.name or folder.name, folder, one.pattern)
    if export_dir is not None:
        plan.add("sessions", export_dir.absolute(), source="sessions", may_be_missing=True)
    return plan


def newest_change(collections: Sequence[Collection], *, now: float) -> float:
    """Return when something in the collections last changed, in seconds since 1970; reads the disk.

    This uses `ctime`: the `mtime` of a copy may be old, or lie in the future. Adding or removing a file
    changes its folder, so folders are checked too if a pattern descends into them. Anything dated later than
    `now` is ignored, because no update could ever catch up with it. Returns 0 if there is nothing. Costs some
    microseconds per file.
    """
    moments = (moment for one in collections for moment in _changes(one))
    return max((moment for moment in moments if moment <= now), default=0.0)


def _changes(collection: Collection) -> Iterator[float]:
    covers = parse_pattern(collection.pattern).covers
    return _moments(collection.path, covers, deep="/" in collection.pattern)


def _moments(root: Path, covers: Callable[[str], bool], *, deep: bool) -> Iterator[float]:
    folders = [(root, "")]  # not recursive: folders may be nested too deeply for that
    while folders:
        folder, within = folders.pop()
        try:
            if deep:
                yield folder.stat().st_ctime
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            name = within + entry.name
            if entry.name.startswith(".") or entry.name in SKIPPED_NAMES:
                continue
            try:
                if deep and entry.is_dir(follow_symlinks=False):
                    folders.append((Path(entry.path), f"{name}/"))
                elif covers(name):
                    yield entry.stat(follow_symlinks=False).st_ctime
            except OSError:
                continue


def _slug(name: str) -> str:
    """Return a name that QMD accepts for a collection: small letters, digits, `-`; accents are dropped."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")[:MAX_NAME].strip("-") or "collection"


def _problem_with_folder(folder: Path, *, may_be_missing: bool) -> str | None:
    # A path that is not a folder, or cannot be entered, would abort the update of all that follow.
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        return None if may_be_missing else "it does not exist"
    except NotADirectoryError:
        return "it is not a folder"
    except OSError as error:
        return f"it cannot be looked into ({error.strerror})"
    return None


def _problem_with_pattern(pattern: str) -> str | None:
    try:
        parse_pattern(pattern)
    except ValueError as error:
        return f"the pattern {pattern!r:.100} cannot be used: {error}"
    return None


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

    Reads the disk.
    """
    root = Path(os.path.realpath(workspace))
    file = collection.path / path
    if file.is_relative_to(root):
        return relative_key(file, root)
    return f"{ELSEWHERE}/{collection.name}/{canonical_key(path)}"


def resolve(rel_path: str, collections: Sequence[Collection], workspace: Path) -> Path:
    """Return the real path of the file named `rel_path`; reads the disk.

    The file must be covered by a collection: within its folder, matched by its pattern, not skipped by QMD,
    and without a symbolic link in its path. It need not exist.

    Raises:
        MemoryPathError: no collection covers it; the message says why and what is readable.
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
    """Return the text of the regular file at the absolute real path `file`; reads the disk.

    Bytes that are not UTF-8 are replaced, and a byte order mark is dropped.

    Raises:
        FileNotFoundError: it is missing, or a folder in its path has become a link to elsewhere.
        OSError: it cannot be read, is not a regular file, or is larger than `max_bytes`.
    """
    with (
        opened_file(file, max_bytes=max_bytes) as (descriptor, _),
        os.fdopen(descriptor, "rb", closefd=False) as opened,
    ):
        # It may grow while it is being read.
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
    return "the path contains `..`" if ".." in re.split(r"[/\\]", text) else None


def _problem_with_links(file: Path) -> str | None:
    try:
        has_links = os.path.realpath(file) != str(file)
    except OSError:  # a link that has just disappeared
        has_links = True
    return "there is a symbolic link in its path" if has_links else None


def _covered(path: str, collections: Sequence[Collection], workspace: Path) -> Iterator[Path]:
    """Yield the files that `path` can name: in the workspace first, then in collections elsewhere."""
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
