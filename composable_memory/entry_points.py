"""What installed packages offer by entry points."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path

OWN_DISTRIBUTION = "composable-memory"
GROUPS = "composable_memory."
"""How the names of our groups begin."""


def offered(group: str) -> Sequence[EntryPoint]:
    """Return ours first, so that no other package takes their names; the rest in a fixed order.

    Reads files: again only where a folder of packages has changed, since it takes some milliseconds.
    """
    return _by_group(tuple((folder, _changed_at(folder)) for folder in sys.path)).get(group, ())


@cache
def package_of(distribution: Distribution | None) -> tuple[str, str]:
    """Return the name and the version of a package, which means to parse its metadata."""
    if distribution is None:
        return "", ""
    metadata = distribution.metadata
    return str(metadata["Name"]), str(metadata["Version"])


@lru_cache(maxsize=1)
def _by_group(_folders: tuple[tuple[str, int], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    def rank(entry: EntryPoint) -> tuple[bool, str, str]:
        owner, _ = package_of(entry.dist)
        return owner != OWN_DISTRIBUTION, owner, entry.name

    installed = entry_points()
    ours = [group for group in installed.groups if group.startswith(GROUPS)]
    return {group: sorted(installed.select(group=group), key=rank) for group in ours}


def _changed_at(folder: str) -> int:
    with suppress(OSError):
        return Path(folder).stat().st_mtime_ns
    return 0
