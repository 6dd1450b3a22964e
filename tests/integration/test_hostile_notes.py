"""Notes and paths that are hard on who reads them: the good notes are found, and nothing from outside."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.hostile import tricks, write_hostile, write_ways_out
from composable_memory import Memory, open_memory
from composable_memory.errors import ComposableMemoryError

pytestmark = pytest.mark.security

CONFIG = {
    "embedding": {"provider": "none"},
    "ops_log": {"enabled": False},
    "builtin": {"sync": {"watch": False}},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a workspace of a good note."""
    notes = tmp_path / "ws" / "memory"
    notes.mkdir(parents=True)
    (notes / "good.md").write_text("The keepsake is in the drawer.", encoding="utf-8")
    return tmp_path


@pytest.fixture
async def memory(root: Path) -> AsyncIterator[Memory]:
    async with open_memory(root / "ws", root / "state", CONFIG, environ={}, long_lived=False) as memory:
        yield memory


async def test_the_good_notes_among_hostile_ones_are_found(root: Path, memory: Memory) -> None:
    write_hostile(root / "ws" / "memory")

    await memory.sync()
    again = await memory.sync()
    answer = await memory.query("keepsake in the drawer", max_results=50)

    assert again.files_indexed == 0
    assert answer.results[0].path == "memory/good.md"
    assert not any("root:" in one.snippet for one in answer.results)


async def test_no_trick_reads_a_file_outside(root: Path, memory: Memory) -> None:
    notes, outside = root / "ws" / "memory", root / "outside"
    write_ways_out(notes, outside)
    await memory.sync()

    for path in tricks(outside):
        try:
            text = (await memory.read_file(path)).text
        except ComposableMemoryError:
            continue
        assert not text, path
    assert not (await memory.query("of others")).results
