"""Reads in the log of a server that ended, or never began, what went wrong and what helps."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from composable_memory_adapters.graphiti.database.requirements import SHARE_INSTEAD

__all__ = ["Reason", "read_reason"]

TAIL_BYTES = 16_384
FULL_BELOW_BYTES = 65_536
PACKAGES = {
    "libgomp.so.1": ("libgomp1", "libgomp"),
    "libssl.so.3": ("libssl3", "openssl-libs"),
    "libcrypto.so.3": ("libssl3", "openssl-libs"),
    "libstdc++.so.6": ("libstdc++6", "libstdc++"),
}
"""Libraries of the system that the server needs: their packages in Debian and in Fedora."""


class Reason(NamedTuple):
    """What is wrong, and what to do about it."""

    what: str
    fix: str


def read_reason(log: Path, *, since: int | None, data_dir: Path) -> Reason | None:
    """Return why a server ended, by what it wrote from byte `since` of its log on; None if nothing tells.

    Without `since`, the log is not read.
    """
    text = "" if since is None else _tail(log, since)
    for pattern, explain in _SIGNS:
        if found := re.search(pattern, text):
            return explain(found, data_dir)
    # A log on a full disk says nothing.
    return _full(data_dir) if _is_full(data_dir) else _last_line(text, log)


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


def _full(data_dir: Path) -> Reason:
    what = f"the disk of {data_dir} is full or fails"
    return Reason(what, "make room there; what was acknowledged is kept")


def _has_no_room(_: re.Match[str], data_dir: Path) -> Reason:
    return _full(data_dir)


def _lacks_library(found: re.Match[str], _: Path) -> Reason:
    library = found[1]
    what = f"the system lacks {library}, which the graph server needs"
    if library not in PACKAGES:
        return Reason(what, f"install it, or {SHARE_INSTEAD}")
    debian, fedora = PACKAGES[library]
    return Reason(what, f"apt-get install {debian}, or dnf install {fedora}; or {SHARE_INSTEAD}")


def _is_too_old(found: re.Match[str], _: Path) -> Reason:
    return Reason(
        f"the system's libraries are older than {found[1]}, which FalkorDB needs",
        f"run on a newer system, such as Debian 12 or Ubuntu 22.04, or {SHARE_INSTEAD}",
    )


def _is_unloadable(found: re.Match[str], _: Path) -> Reason:
    return Reason(f"FalkorDB cannot be loaded: {found[1]}", f"reinstall it, or {SHARE_INSTEAD}")


def _is_of_a_newer_server(_: re.Match[str], data_dir: Path) -> Reason:
    return Reason(
        f"the graphs in {data_dir} were written by a newer server than this one",
        "use the Python environment that wrote them, or move the folder away and ingest again",
    )


def _is_damaged(found: re.Match[str], data_dir: Path) -> Reason:
    return Reason(
        f"{data_dir / 'appendonlydir' / found[1]} is damaged",
        f"restore {data_dir} from a copy, or cut off the damage with `redis-check-aof --fix`, "
        "or move the folder away and ingest again",
    )


def _has_crashed(_: re.Match[str], data_dir: Path) -> Reason:
    return Reason("the graph server crashed", f"try again; {data_dir / 'server.log'} has its report")


def _last_line(text: str, log: Path) -> Reason | None:
    lines = [line.split(" # ")[-1].strip() for line in text.splitlines() if "WARNING" not in line]
    last = next((line for line in reversed(lines) if line), None)
    return Reason(f"the graph server ended: {last[:300]}", f"read {log}") if last else None


_Explain = Callable[[re.Match[str], Path], Reason]
_SIGNS: tuple[tuple[str, _Explain], ...] = (
    (r"No space left on device|File too large|Disk quota exceeded|AOF write error", _has_no_room),
    (r"(lib[\w+.-]+\.so[.\d]*): cannot open shared object file", _lacks_library),
    (r"version [`'](GLIBC\w*_[\d.]+)' not found", _is_too_old),
    (r"Module \S+ failed to load: ([^\n]+)", _is_unloadable),
    (r"Can't handle RDB format version", _is_of_a_newer_server),
    (r"reading the append only file ([\w.-]+)", _is_damaged),
    (r"crashed by signal|BUG REPORT END", _has_crashed),
)
