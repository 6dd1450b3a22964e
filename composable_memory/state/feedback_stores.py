"""Where the feedback stores of a state folder are: in a folder of their own, named after their memories.

Earlier versions had them beside the indexes, as `memory/feedback-<memory>.sqlite`, which is also the name of
the index of an agent called `feedback-<agent>`. Looks at the disk, so call it in a thread.
"""

import glob
from contextlib import suppress
from pathlib import Path

_FOLDER = "feedback"
_BEFORE = "feedback-"
_MAGIC = b"SQLite format 3\0"
_ID_AT, _OURS = 68, b"CMFb"
"""Where a database says whose it is, and how ours do."""


def feedback_store_of(state_dir: Path, memory_id: str) -> Path:
    """Return the file of a memory's store; nothing is moved."""
    return state_dir / _FOLDER / f"{memory_id}.sqlite"


def feedback_stores(state_dir: Path) -> list[Path]:
    """Return the files of all stores there are; those of an earlier version are moved here first.

    Raises:
        OSError: a folder cannot be read or written.
    """
    for old in (state_dir / "memory").glob(f"{_BEFORE}*.sqlite"):
        _move(old, feedback_store_of(state_dir, old.stem.removeprefix(_BEFORE)))
    return sorted((state_dir / _FOLDER).glob("*.sqlite"))


def _move(old: Path, new: Path) -> None:
    """Move a store with what is beside it, itself last: who was killed meanwhile goes on another time."""
    with suppress(FileNotFoundError):  # another process was quicker
        if new.exists() or _is_of_others(old):
            return
        new.parent.mkdir(mode=0o700, exist_ok=True)
        for one in (*old.parent.glob(f"{glob.escape(old.name)}?*"), old):
            one.rename(new.with_name(new.name + one.name.removeprefix(old.name)))


def _is_of_others(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_ID_AT + 4)
    return head.startswith(_MAGIC) and head[_ID_AT:] != _OURS
