"""Plans which folders QMD indexes, and finds out whether files in them have changed."""

import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from composable_memory.paths import BANK_FOLDER, MAIN_FILES, MEMORY_FOLDER, MEMORY_FOLDERS, problem_with_text
from composable_memory.types import MemorySource
from composable_memory_adapters.qmd.documents.patterns import SKIPPED_NAMES, parse_pattern
from composable_memory_adapters.qmd.settings import DEFAULT_PATTERN, QmdSettings
from composable_memory_adapters.qmd.types import Collection
from composable_memory_ops_logs.quick_dataclass import dataclass

MAIN_PATTERN = "{" + ",".join(name.removesuffix(".md") for name in MAIN_FILES) + "}.md"
MAX_NAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionPlan:
    """The collections that are to be indexed, and what is wrong with those that are not."""

    collections: tuple[Collection, ...]
    problems: tuple[str, ...]


def plan_collections(settings: QmdSettings, *, workspace: Path, export_dir: Path | None) -> CollectionPlan:
    """Return the collections that the settings name, with their real folders; looks at the disk.

    The memory files come first, then the paths in the order of the settings, then the exported transcripts in
    `export_dir`, if there are any. Left out with a problem is a folder of the workspace that a symbolic link
    leads out of it, a path that is no folder, and a pattern that is not understood. Only `memory/`, `bank/`
    and `export_dir` need not be there yet.
    """
    plan = _Plan(Path(os.path.realpath(workspace)))
    if settings.include_default_memory:
        plan.add("memory-root", plan.workspace, MAIN_PATTERN)
        plan.add("memory-dir", plan.workspace / MEMORY_FOLDER, may_be_missing=True)
        plan.add("bank-dir", plan.workspace / BANK_FOLDER, may_be_missing=True)
    for one in settings.paths:
        named = os.path.expanduser(one.path)  # noqa: PTH111 - that of a Path raises where there is no home
        folder = Path(os.path.normpath(plan.workspace / named))
        plan.add(one.name or folder.name, folder, one.pattern)
    if export_dir is not None:
        plan.add("sessions", export_dir.absolute(), source="sessions", may_be_missing=True)
    return CollectionPlan(collections=tuple(plan.collections), problems=tuple(plan.problems))


def newest_change(collections: Sequence[Collection], *, now: float) -> float:
    """Return when something in the collections last changed, in seconds since 1970; looks at the disk.

    The time that counts is `ctime`: the `mtime` of a copy may be old, or lie in the future. Adding or
    removing a file changes its folder, so folders are looked at too where a pattern descends into them.
    Anything dated later than `now` is ignored, because no update could ever catch up with it. Returns 0 if
    there is nothing. Costs some microseconds per file.
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


class _Plan:
    """The collections found so far, and the problems."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.collections: list[Collection] = []
        self.problems: list[str] = []

    def add(
        self,
        name: str,
        folder: Path,
        pattern: str = DEFAULT_PATTERN,
        *,
        source: MemorySource = "memory",
        may_be_missing: bool = False,
    ) -> None:
        """Add a folder, unless there is a problem with it or it is there already."""
        problem = (
            problem_with_text(str(folder))
            or self._problem_with_links(folder)
            or _problem_with_folder(folder, may_be_missing=may_be_missing)
            or _problem_with_pattern(pattern)
        )
        if problem is not None:
            self.problems.append(f"collection {name!r} ({str(folder)!r:.200}): {problem}")
            return
        real = Path(os.path.realpath(folder))
        if not any((one.path, one.pattern) == (real, pattern) for one in self.collections):
            self.collections.append(
                Collection(name=self._free_name(name), path=real, pattern=pattern, source=source)
            )

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


def _slug(name: str) -> str:
    """Return a name that QMD takes for a collection: small letters, digits, `-`; accents are left out."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")[:MAX_NAME].strip("-") or "collection"


def _problem_with_folder(folder: Path, *, may_be_missing: bool) -> str | None:
    # One that is no folder, or cannot be entered, would end the update of all that follow.
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
