"""The mapped file of vectors beside an index: it saves reading them, and is made again if it is of no use."""

from pathlib import Path

import pytest

from benchmarks import vector_kills
from composable_memory import open_memory
from composable_memory.types import QueryResponse
from composable_memory_adapters.vectors.int8_file import HEADER_BYTES
from composable_memory_adapters.vectors.mapped import MappedVectors
from tests.calls import watching_calls

MAPPED = {
    "embedding": {"provider": "wordllama"},
    "builtin": {"store": {"vector": {"engine": "mapped"}}, "sync": {"onSearch": False}},
}
NOTES = {
    "boat.md": "The boat leaks and has to be caulked before it sails again.",
    "lunch.md": "The canteen serves noodles and soup on Tuesdays.",
    "salary.md": "Wages are paid on the last day of each month.",
}
QUESTION = "ship repair"
KILLS = 4


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "notes" / "memory"
    folder.mkdir(parents=True)
    for name, text in NOTES.items():
        (folder / name).write_text(text, "utf-8")
    return folder.parent


async def asked(workspace: Path, state: Path, question: str = QUESTION) -> QueryResponse:
    async with open_memory(workspace, state, MAPPED) as memory:
        await memory.sync()
        return await memory.query(question)


def paths(response: QueryResponse) -> set[str]:
    return {one.path for one in response.results}


def file_of(state: Path) -> Path:
    (file,) = (state / "memory").glob("*-vectors")
    return file


async def test_a_file_is_opened_again_and_made_again_when_torn(workspace: Path, state_dir: Path) -> None:
    first = await asked(workspace, state_dir)
    file = file_of(state_dir)
    whole = file.read_bytes()
    with watching_calls() as called:
        again = await asked(workspace, state_dir)
    file.write_bytes(whole[: len(whole) - 100])
    torn = await asked(workspace, state_dir)

    assert first.answers[0].engines["vector"] == "mapped"
    assert first.results[0].path == "memory/boat.md"
    assert again.results == torn.results == first.results
    assert MappedVectors.open.__code__ in called
    assert MappedVectors.fill.__code__ not in called
    assert file.read_bytes()[HEADER_BYTES:] == whole[HEADER_BYTES:]


async def test_what_came_since_the_file_was_made_is_found(workspace: Path, state_dir: Path) -> None:
    await asked(workspace, state_dir)
    before = file_of(state_dir).read_bytes()
    (workspace / "memory/yard.md").write_text("The ship is in the yard.", "utf-8")

    more = await asked(workspace, state_dir)
    after = file_of(state_dir).read_bytes()
    (workspace / "memory/boat.md").unlink()
    less = await asked(workspace, state_dir)

    assert {"memory/yard.md", "memory/boat.md"} <= paths(more)
    assert "memory/boat.md" not in paths(less)
    assert before == after != file_of(state_dir).read_bytes()


async def test_a_file_is_not_believed_by_an_older_copy_of_its_index(workspace: Path, state_dir: Path) -> None:
    """The copy takes another path, and at its end its log is as long as the file says."""
    wages, boat = workspace / "memory/salary.md", workspace / "memory/boat.md"
    await asked(workspace, state_dir)
    (index,) = (state_dir / "memory").glob("*.sqlite")
    copy = index.read_bytes()
    wages.unlink()
    await asked(workspace, state_dir)

    index.write_bytes(copy)
    wages.write_text(NOTES[wages.name], "utf-8")
    boat.unlink()
    response = await asked(workspace, state_dir, "income of employees")

    assert "memory/salary.md" in paths(response)


@pytest.mark.thorough
def test_a_file_found_after_a_kill_is_whole(tmp_path: Path) -> None:
    tally = vector_kills.run(tmp_path, rounds=KILLS, seed=5)

    assert (tally.kills, tally.faults) == (KILLS, [])
    assert tally.files
