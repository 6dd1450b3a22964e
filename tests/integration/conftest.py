"""What tests of the graph memory get, wherever they stand: its parts, and a second workspace."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from composable_memory_adapters.graphiti.database import requirements
from tests.integration.graphiti.neighbour import SettledNeighbour, settle


@pytest.fixture(scope="session")
def graph_parts() -> requirements.Binaries:
    """Return the server's program and module, or skip where they are not to be had."""
    pytest.importorskip("falkordb")
    found = requirements.find_binaries()
    return found if found is not None else pytest.skip(str(requirements.missing_binaries()))


@pytest.fixture(scope="session")
def settled_neighbour(
    graph_parts: requirements.Binaries, tmp_path_factory: pytest.TempPathFactory
) -> SettledNeighbour:
    """Return a workspace with facts of its own, ingested once for all tests."""
    return asyncio.run(settle(tmp_path_factory.mktemp("neighbour")))


@pytest.fixture
def move_neighbour_in(
    settled_neighbour: SettledNeighbour, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Path, Path], None]]:
    """Return a function that gives a workspace, in its state folder, a second one.

    It is checked at the end that neither saw or changed the other.
    """
    moved_in = dict[tuple[Path, Path], None]()

    def move_in(workspace: Path, state_dir: Path) -> None:
        settled_neighbour.move_in(state_dir)
        moved_in[workspace, state_dir] = None

    yield move_in
    monkeypatch.undo()  # a test may have hidden what a graph needs
    for workspace, state_dir in moved_in:
        asyncio.run(settled_neighbour.assert_apart(workspace, state_dir))


@pytest.fixture
def neighbour(move_neighbour_in: Callable[[Path, Path], None], workspace: Path, state_dir: Path) -> None:
    """Have a second workspace in the state folder of the test."""
    move_neighbour_in(workspace, state_dir)
