"""Nothing that the graph memory writes can be read by other users, whatever the umask is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from composable_memory.content import MemoryContentObject
from composable_memory.runtime.opening import open_memory
from composable_memory_adapters.graphiti.database import requirements

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")
pytestmark = [
    pytest.mark.usefixtures("neighbour"),
    pytest.mark.skipif(
        requirements.find_binaries() is None, reason="there is no graph server for this system"
    ),
]


@pytest.fixture
def open_to_all() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable_by_others(folder: Path) -> list[str]:
    """Return what others may read or enter in a folder, and the folder itself where they may."""
    found = [folder, *folder.rglob("*")]
    return [str(one) for one in found if not one.is_symlink() and stat.S_IMODE(one.stat().st_mode) & 0o077]


async def test_the_files_of_the_graph_and_its_server_are_closed_to_others(
    open_to_all: None, workspace: Path, state_dir: Path
) -> None:
    config = {"graphiti": {"enabled": True}, "embedding": {"provider": "none"}}
    content = MemoryContentObject(id="c", kind="document", text="Ana lives in Porto.")
    async with open_memory(workspace, state_dir, config) as memory:
        await memory.ingest([content])
        assert readable_by_others(state_dir / "graphiti") == []
    assert readable_by_others(state_dir / "graphiti") == []
