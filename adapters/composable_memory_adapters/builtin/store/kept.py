"""The index files that are kept in a state folder, of all workspaces."""

import sqlite3
from contextlib import closing
from pathlib import Path

from composable_memory.interfaces import KeptStore

__all__ = ["kept"]

INDEXES = "memory/*-*.sqlite"
NOT_OURS = "feedback-"


def kept(state_dir: Path) -> tuple[KeptStore, ...]:
    """Return the indexes that stand where they do by default; reads them."""
    return tuple(
        KeptStore(
            workspace_id=path.stem.rpartition("-")[2],
            kind="index",
            path=path,
            bytes=sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")),
            is_rebuildable=True,
            is_empty=_is_empty(path),
        )
        for path in sorted(state_dir.glob(INDEXES))
        if not path.name.startswith(NOT_OURS)
    )


def _is_empty(path: Path) -> bool:
    """Return whether no note is in an index; one that cannot be read may hold some."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as index:
            return index.execute("SELECT 1 FROM files LIMIT 1").fetchone() is None
    except sqlite3.Error:
        return False
