"""The entry points of installed packages."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

OWN_DISTRIBUTION = "composable-memory"
GROUPS = "composable_memory."
"""Prefix of the names of our groups."""


def offered(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a group: ours first, so that no package can take their names; fixed order.

    Reads files, which takes some milliseconds; cached until a folder of packages changes.
    """
    return _by_group(tuple((folder, _changed_at(folder)) for folder in sys.path)).get(group, ())


@cache
def package_of(distribution: Distribution | None) -> tuple[str, str]:
    """Return the name and version of a package, which requires parsing its metadata."""
    if distribution is None:
        return "", ""
    metadata = distribution.metadata
    return str(metadata["Name"]), str(metadata["Version"])


@lru_cache(maxsize=1)
def _by_group(_folders: tuple[tuple[str, int], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    found: dict[str, list[tuple[tuple[bool, str, str], EntryPoint]]] = {}
    owners: set[str] = set()
    for distribution in Distribution.discover():
        # Parsing the entry points of all packages, as `entry_points` does, takes twice as long.
        if GROUPS not in (distribution.read_text("entry_points.txt") or ""):
            continue
        owner, _ = package_of(distribution)
        for entry in distribution.entry_points if owner not in owners else ():
            rank = owner != OWN_DISTRIBUTION, owner, entry.name
            found.setdefault(entry.group, []).append((rank, entry))
        owners.add(owner)
    return {group: [entry for _, entry in sorted(ranked)] for group, ranked in found.items()}


def _changed_at(folder: str) -> int:
    with suppress(OSError):
        return Path(folder).stat().st_mtime_ns
    return 0
