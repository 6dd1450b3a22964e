"""The order of what installed packages offer by entry points."""

from collections.abc import Iterable
from importlib.metadata import Distribution, EntryPoint

OWN_DISTRIBUTION = "composable-memory"


def by_precedence(entries: Iterable[EntryPoint]) -> list[EntryPoint]:
    """Return ours first, so that no other package takes their names; the rest in a fixed order."""
    owners: dict[Distribution, str] = {}  # reading a name means to parse the metadata of its package

    def rank(entry: EntryPoint) -> tuple[bool, str, str]:
        owner = ""
        if entry.dist:
            owner = owners.get(entry.dist) or owners.setdefault(entry.dist, entry.dist.name)
        return owner != OWN_DISTRIBUTION, owner, entry.name

    return sorted(entries, key=rank)
