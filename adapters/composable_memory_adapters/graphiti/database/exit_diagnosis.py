"""Reads in the log of a server that ended, or never began, what went wrong and what helps."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from composable_memory_adapters.graphiti.database.requirements import SHARE_INSTEAD

TAIL_BYTES = 16_384
FULL_BELOW_BYTES = 65_536
PACKAGES = {
    "libgomp.so.1": ("libgomp1", "libgomp"),
    "libssl.so.3": ("libssl3", "openssl-libs"),
    "libcrypto.so.3": ("libssl3", "openssl-libs"),
    "libstdc++.so.6": ("libstdc++6", "libstdc++"),
}
"""Libraries of the system that the server needs: their packages in Debian and in Fedora."""


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
        "the graphs in {folder} were written by a newer server than this one",
        "use the Python environment that wrote them, or move the folder away and ingest again",
    ),
    (
        r"reading the append only file ([\w.-]+)",
        "{folder}/appendonlydir/{found} is damaged",
        (
            "restore {folder} from a copy, or cut off the damage with `redis-check-aof --fix`, "
            "or move the folder away and ingest again"
        ),
    ),
    (
        r"crashed by signal|BUG REPORT END",
        "the graph server crashed",
        "try again; {folder}/server.log has its report",
    ),
)
"""What a log holds, what is wrong then, and what helps; `found` is the group of the pattern."""


class Reason(NamedTuple):
    """What is wrong, and what to do about it."""

    what: str
    fix: str


def read_reason(log: Path, *, since: int | None, data_dir: Path) -> Reason | None:
    """Return why a server ended, by what it wrote from byte `since` of its log on; None if nothing tells.

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
    if library not in PACKAGES:
        return Reason(what, f"install it, or {SHARE_INSTEAD}")
    debian, fedora = PACKAGES[library]
    return Reason(what, f"apt-get install {debian}, or dnf install {fedora}; or {SHARE_INSTEAD}")


def _last_line(text: str, log: Path) -> Reason | None:
    lines = [line.split(" # ")[-1].strip() for line in text.splitlines() if "WARNING" not in line]
    last = next((line for line in reversed(lines) if line), None)
    return Reason(f"the graph server ended: {last[:300]}", f"read {log}") if last else None
