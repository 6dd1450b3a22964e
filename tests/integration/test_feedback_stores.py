"""Where feedback stores are kept: no agent's name leads to the file of another one."""

import asyncio
from pathlib import Path

from composable_memory import open_memory
from composable_memory.state.folders import feedback_store_of, feedback_stores

OFF = {"embedding": {"provider": "none"}}


async def test_the_store_of_an_agent_is_never_the_index_of_another_one(tmp_path: Path) -> None:
    notes, state = tmp_path / "notes", tmp_path / "state"
    notes.mkdir()
    (notes / "MEMORY.md").write_text("Tides are high on Monday.", "utf-8")
    async with open_memory(notes, state, {**OFF, "agent_id": "feedback-x"}) as memory:
        await memory.sync()
        index = Path(str(memory.status().db_path))
        workspace = index.stem.removeprefix("feedback-x-")
    async with open_memory(notes, state, {**OFF, "agent_id": "x"}) as memory:
        await memory.learning.weights.set({"builtin": 0.5})
        assert memory.context.store_path != index
    async with open_memory(notes, state, {**OFF, "agent_id": "feedback-x"}) as memory:
        assert (await memory.query("tides")).results

    found = await asyncio.to_thread(feedback_stores, state)
    assert found == [feedback_store_of(state, f"x-{workspace}")]


async def test_a_store_of_an_earlier_version_is_moved_with_all_that_is_beside_it(tmp_path: Path) -> None:
    notes, state = tmp_path / "notes", tmp_path / "state"
    notes.mkdir()
    async with open_memory(notes, state, OFF) as memory:
        await memory.learning.weights.set({"builtin": 0.25})
        path = memory.context.store_path
    await asyncio.to_thread(_as_before, path, state / "memory")

    async with open_memory(notes, state, OFF) as memory:
        assert (await memory.learning.weights.report()).table["builtin"] == 0.25
    there = await asyncio.to_thread(lambda: [one.relative_to(state) for one in state.rglob("*.copy")])
    assert there == [Path("feedback") / f"{path.name}.2026-03-10.copy"]


def _as_before(path: Path, folder: Path) -> None:
    """Put a store, and its copy, where earlier versions had them."""
    folder.mkdir(exist_ok=True)
    (copy,) = path.parent.glob("*.copy")
    copy.rename(folder / f"feedback-{path.name}.2026-03-10.copy")
    path.rename(folder / f"feedback-{path.name}")
