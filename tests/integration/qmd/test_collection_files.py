"""A file is read by the name that results give it, and no other file is."""

import os
from pathlib import Path

import pytest

from composable_memory.errors import MemoryPathError
from composable_memory_adapters.qmd.collections import read_file
from composable_memory_adapters.qmd.types import Collection

LINES = "# Gateway\n\nFirst.\nSecond.\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "workspace"
    (root / "memory").mkdir(parents=True)
    (root / "memory" / "gateway.md").write_text(LINES, encoding="utf-8")
    (root / "secret.md").write_text("secret", encoding="utf-8")
    return root


@pytest.fixture
def collections(workspace: Path) -> list[Collection]:
    elsewhere = workspace.parent / "wiki"
    (elsewhere / "a b").mkdir(parents=True)
    (elsewhere / "a b" / "café.md").write_bytes(b"\xef\xbb\xbfcaf\xe9\n")
    return [
        Collection(name="memory-dir", path=workspace / "memory", pattern="**/*.md"),
        Collection(name="wiki", path=elsewhere, pattern="**/*.md"),
    ]


async def test_a_whole_file_is_read(workspace: Path, collections: list[Collection]) -> None:
    found = await read_file("./memory//gateway.md", collections=collections, workspace=workspace)

    assert (found.path, found.text) == ("memory/gateway.md", LINES)


@pytest.mark.parametrize(
    ("from_line", "lines", "text"),
    [(3, 1, "First."), (None, 2, "# Gateway\n"), (-5, 1, "# Gateway"), (4, None, "Second.\n"), (99, 5, "")],
)
async def test_lines_of_a_file_are_read(
    workspace: Path, collections: list[Collection], from_line: int | None, lines: int | None, text: str
) -> None:
    found = await read_file(
        "memory/gateway.md", from_line=from_line, lines=lines, collections=collections, workspace=workspace
    )

    assert found.text == text


async def test_a_file_outside_the_workspace_is_read_by_its_collection(
    workspace: Path, collections: list[Collection]
) -> None:
    found = await read_file("qmd/wiki/a b/café.md", collections=collections, workspace=workspace)

    assert (found.path, found.text) == ("qmd/wiki/a b/café.md", "caf\ufffd\n")


async def test_a_missing_file_has_no_text(workspace: Path, collections: list[Collection]) -> None:
    assert (await read_file("memory/none.md", collections=collections, workspace=workspace)).text == ""


@pytest.mark.parametrize(
    "path", ["", "secret.md", "../wiki/a b/café.md", "qmd/wiki/../../workspace/secret.md", "memory/\0.md"]
)
async def test_other_files_are_not_read(workspace: Path, collections: list[Collection], path: str) -> None:
    with pytest.raises(MemoryPathError):
        await read_file(path, collections=collections, workspace=workspace)


async def test_no_link_is_followed(workspace: Path, collections: list[Collection]) -> None:
    (workspace / "memory" / "link.md").symlink_to(workspace / "secret.md")

    with pytest.raises(MemoryPathError, match="symbolic link"):
        await read_file("memory/link.md", collections=collections, workspace=workspace)


async def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(
    workspace: Path, collections: list[Collection]
) -> None:
    os.mkfifo(workspace / "memory" / "pipe.md")

    with pytest.raises(MemoryPathError, match="not a regular file"):
        await read_file("memory/pipe.md", collections=collections, workspace=workspace)
