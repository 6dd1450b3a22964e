"""The changes of `cmem connect` to an agent's files: planned first, and only written by `write`."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from composable_memory.connect import file_text
from composable_memory.connect.clients import Client, Places, Scope
from composable_memory.errors import ConfigError
from composable_memory.shared_file import remove_unchanged, replace_unchanged
from composable_memory_ops_logs.private_files import BINARY, make_private_folder, replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

COPIES = "connect"
"""The subfolder of the state folder with a copy of each file from before our first change."""

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | BINARY
_NOTHING_LEFT = frozenset({"", "{}", '{"version":1}'})
"""What is left in a file that we created when we are removed, without spaces; anything else is others'."""
PACKAGE = "composable-memory[mcp]"
PROGRAMS = ("cmem", "composable-memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A file as it is and as it will be; None where there is no file.

    `had_us` says that it already contains us. An edit that undoes another may have a `copy` of the original
    file.
    """

    path: Path
    before: str | None
    after: str | None
    had_us: bool = False
    is_undo: bool = False
    copy: Path | None = None

    @property
    def is_change(self) -> bool:
        """Return whether the edit changes anything."""
        return self.before != self.after


def plan(
    client: Client, places: Places, scope: Scope, words: Sequence[str], options: Sequence[str], *, hooks: bool
) -> tuple[Edit, ...]:
    """Return the edits that add a server and hooks to an agent's files; `words` is the command line of cmem.

    Raises:
        ConfigError: a file cannot be read, or not edited without risk to its other content.
    """
    entry = client.server([*words, "mcp", *options])
    commands = [*hook_commands(client, words, options)]
    server = places.find(client.servers[scope])
    edits = [
        _edit(server, client, lambda text, toml: file_text.with_server(text, client, entry, is_toml=toml))
    ]
    if hooks and scope in client.hook_files:
        file = places.find(client.hook_files[scope])
        edits.append(_edit(file, client, lambda text, _: file_text.with_hooks(text, client, commands)))
    return tuple(edits)


def plan_undo(client: Client, places: Places, scope: Scope, state_dir: Path) -> tuple[Edit, ...]:
    """Return the edits that remove us from an agent's files; a file changed only by us becomes the original.

    Raises:
        ConfigError: a file cannot be read.
    """
    files = [places.find(one[scope]) for one in (client.servers, client.hook_files) if scope in one]
    edits = (
        _edit(file, client, lambda text, toml: file_text.without_us(text, client, is_toml=toml))
        for file in files
    )
    return tuple(_restored(edit, state_dir) for edit in edits)


def write(edit: Edit, state_dir: Path, *, is_private: bool) -> Path | None:
    """Change a file atomically, and return where its original is kept; links to it stay links.

    A new file is readable by its owner only if `is_private`.

    Raises:
        ConfigError: it was changed in the meantime.
        OSError: it cannot be written; then it is unchanged.
    """
    if _read(edit.path) != edit.before:
        raise _changed_meanwhile(edit)
    wanted = _copy_to_keep(edit, state_dir)
    with ExitStack() as on_failure:
        if wanted is not None:
            make_private_folder(wanted[0].parent)
            if not wanted[0].exists():
                on_failure.callback(wanted[0].unlink, missing_ok=True)
            replace_file(*wanted, survives="power cut")
        _replace(edit, is_private=is_private)
        on_failure.pop_all()
    kept = wanted and wanted[0]
    used = edit.copy if edit.is_undo else _copy_of(edit.path, edit.before or "", state_dir)
    if used is not None and used != kept:
        used.unlink(missing_ok=True)
    return kept


def _replace(edit: Edit, *, is_private: bool) -> None:
    """Replace the file, unless the agent has just saved it."""
    if edit.before is None:
        edit.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(edit.path, _NEW, 0o600 if is_private else 0o666)
        try:
            with os.fdopen(descriptor, "wb") as new:
                new.write((edit.after or "").encode())
        except OSError:
            edit.path.unlink()
            raise
        return
    before = edit.before.encode()
    is_done = (
        remove_unchanged(edit.path, before)
        if edit.after is None
        else replace_unchanged(edit.path, before, edit.after.encode())
    )
    if not is_done:
        raise _changed_meanwhile(edit)


def _changed_meanwhile(edit: Edit) -> ConfigError:
    return ConfigError(
        "connect", "it has changed in the meantime; run the command again", origin=str(edit.path)
    )


def hook_commands(
    client: Client, words: Sequence[str], options: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield for each event of an agent the name of a hook and its shell command."""
    for event, names in client.hooks.items():
        for name in names:
            yield event, name, shell_command([*words, "hook", name, *options])


def shell_command(words: Sequence[str]) -> str:
    """Return words as a command line for the shell of this system."""
    if os.name == "nt":
        return subprocess.list2cmdline([word.replace("\\", "/") for word in words])
    return shlex.join(words)


def running_command(program: str, prefix: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line that starts this program again, given its `program` path and Python `prefix`.

    What uvx and `pipx run` install for one run will be gone, so use these to start it again.
    """
    parts = prefix.parts
    if "uv" in parts and {"archive-v0", "environments-v2"} & set(parts):
        uvx = Path(environ["UV"]).with_name("uvx") if environ.get("UV") else "uvx"
        return (str(uvx), "--from", PACKAGE, "cmem")
    if "pipx" in parts and (".cache" in parts or "cache" in parts):
        return (shutil.which("pipx") or "pipx", "run", "--spec", PACKAGE, "cmem")
    found = shutil.which(program) if Path(program).stem in PROGRAMS else None
    return (str(Path(found).absolute()),) if found else (sys.executable, "-m", "composable_memory.cli")


Change = Callable[[str, bool], str]
"""Changes a text; the flag says whether it is TOML."""


def _edit(path: Path, client: Client, change: Change) -> Edit:
    path = path.resolve()  # a dotfile manager keeps the file behind a link, which must stay a link
    before, is_toml = _read(path), path.suffix == ".toml"
    text = before or ""
    try:
        after = change(text, is_toml)
        had_us = after == text or file_text.without_us(text, client, is_toml=is_toml) != text
        if file_text.others(after, is_toml=is_toml) != file_text.others(text, is_toml=is_toml):
            raise ValueError("something else in it would change")
    except (ValueError, RecursionError) as problem:
        raise ConfigError("connect", f"not changed: {problem}", origin=str(path)) from problem
    return Edit(path=path, before=before, after=before if after == text else after, had_us=had_us)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError("connect", "not text in UTF-8", origin=str(path)) from error


def _restored(edit: Edit, state_dir: Path) -> Edit:
    edit = replace(edit, is_undo=True)
    if not edit.is_change or edit.before is None or edit.after is None:
        return edit
    copy = _copy_of(edit.path, edit.before, state_dir)
    if copy.exists():
        return replace(edit, after=copy.read_bytes().decode(), copy=copy)
    return replace(edit, after=None) if "".join(edit.after.split()) in _NOTHING_LEFT else edit


def _copy_to_keep(edit: Edit, state_dir: Path) -> tuple[Path, bytes] | None:
    """Return where to keep the original of a file, and the original; None if nothing is to be kept.

    If the file already contained us, its original was kept before. An undo keeps the file as others have
    changed it since, only the last one per path.
    """
    if edit.before is None or edit.after is None:
        return None
    if edit.is_undo:
        name = f"undone-{_digest(str(edit.path))}-{edit.path.name}"
        return None if edit.copy else (state_dir / COPIES / name, edit.before.encode())
    kept, earlier = edit.before.encode(), _copy_of(edit.path, edit.before, state_dir)
    if earlier.exists():
        kept = earlier.read_bytes()
    elif edit.had_us:
        return None
    return _copy_of(edit.path, edit.after, state_dir), kept


def _copy_of(path: Path, text: str, state_dir: Path) -> Path:
    """Return where the original of a file with this text is kept."""
    return state_dir / COPIES / f"{_digest(str(path))}-{_digest(text)}-{path.name}"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
