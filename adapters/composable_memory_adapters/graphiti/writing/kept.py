"""The episodes that are kept in the ledgers of a state folder, of all workspaces."""

import sqlite3
from contextlib import closing
from pathlib import Path

from composable_memory.interfaces import KeptStore
from composable_memory_adapters.graphiti.writing.ledger import FILE_NAME

__all__ = ["kept"]

COUNT = """
SELECT workspace, sum(length(draft)) FROM episodes
WHERE workspace IS NOT NULL AND state NOT IN ('moved', 'forgotten') GROUP BY workspace
"""


def kept(state_dir: Path) -> tuple[KeptStore, ...]:
    """Return how much each workspace has told each graph; reads the ledgers."""
    return tuple(
        KeptStore(workspace_id=workspace, kind="facts", path=path.parent, bytes=size)
        for path in sorted(state_dir.glob(f"graphiti*/{FILE_NAME}"))
        for workspace, size in _sizes(path)
    )


def _sizes(path: Path) -> list[tuple[str, int]]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as ledger:
            return [(str(workspace), int(size or 0)) for workspace, size in ledger.execute(COUNT)]
    except sqlite3.Error:  # of an earlier version, which knows no workspaces, or damaged
        return []
