"""Where a memory keeps its own files: its folders, and the id that distinguishes it from its neighbours.

Reads the disk: call it in a thread when an event loop is running.
"""

import glob
import re
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from composable_memory.errors import ConfigError
from composable_memory_ops_logs.private_files import make_private_folder

OPS_LOG_FOLDER = "ops-logs"


def memory_id_of(agent_id: str, workspace_id: str) -> str:
    """Return the id of an agent's memory of a workspace, as used in file names and in the log."""
    return f"{file_name_of(agent_id)}-{workspace_id}"


def file_name_of(agent_id: str) -> str:
    """Return the id of an agent in a form that can be part of a file name."""
    return re.sub(r"[^\w.-]", "_", agent_id)


def workspace_hash(workspace: Path) -> str:
    """Return a hash of the real path of a workspace: its id if nothing else is known of it."""
    return sha256(str(workspace.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:8]


def existing_folder(folder: Path) -> Path:
    """Return the real path of a workspace.

    Raises:
        ConfigError: it is not a folder.
    """
    resolved = folder.expanduser().resolve()
    if not resolved.is_dir():
        raise ConfigError("workspace", f"{resolved} is not a folder; give the folder that holds your notes")
    return resolved


def make_state_folder(folder: Path) -> Path:
    """Create a folder for state, readable by its owner only, and return its real path.

    Raises:
        ConfigError: it cannot be created.
    """
    resolved = folder.expanduser().resolve()
    try:
        make_private_folder(resolved)
    except OSError as error:
        raise ConfigError(
            "state_dir", f"{resolved} cannot be made: {error.strerror}; name another"
        ) from error
    return resolved


_FOLDER = "feedback"
_BEFORE = "feedback-"
_MAGIC = b"SQLite format 3\0"
_ID_AT, _OURS = 68, b"CMFb"
"""Offset of a database's application id, and the value in ours."""


def feedback_store_of(state_dir: Path, memory_id: str) -> Path:
    """Return the path of a memory's feedback store, without moving older files there."""
    return state_dir / _FOLDER / f"{memory_id}.sqlite"


def judged_elsewhere_of(state_dir: Path, memory_id: str) -> Path:
    """Return the path of the file that lists a memory's traces with judgements stored on a server."""
    return state_dir / _FOLDER / f"{memory_id}.judged"


def all_judged_elsewhere(state_dir: Path) -> list[Path]:
    """Return those files of all memories."""
    return sorted((state_dir / _FOLDER).glob("*.judged"))


def feedback_stores(state_dir: Path) -> list[Path]:
    """Return the files of all feedback stores, moving those of earlier versions here first.

    Raises:
        OSError: a folder cannot be read or written.
    """
    for old in (state_dir / "memory").glob(f"{_BEFORE}*.sqlite"):
        _move(old, feedback_store_of(state_dir, old.stem.removeprefix(_BEFORE)))
    return sorted((state_dir / _FOLDER).glob("*.sqlite"))


def _move(old: Path, new: Path) -> None:
    """Move a store with its companion files, itself last, so that an interrupted move can be resumed."""
    with suppress(FileNotFoundError):  # another process was faster
        if new.exists() or _is_of_others(old):
            return
        make_private_folder(new.parent)
        for one in (*old.parent.glob(f"{glob.escape(old.name)}?*"), old):
            one.rename(new.with_name(new.name + one.name.removeprefix(old.name)))


def _is_of_others(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_ID_AT + 4)
    return head.startswith(_MAGIC) and head[_ID_AT:] != _OURS
