"""Reading a note behind a result: whole, in part, and never anything that is not a note."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory.errors import MemoryPathError
from composable_memory.interfaces import BackendServices
from composable_memory.types import MemoryFileSlice
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings

pytestmark = pytest.mark.security

LINES = ["first", "second", "third", "fourth"]


@pytest.fixture
async def memory(services: BackendServices, tmp_path: Path) -> AsyncIterator[BuiltinMemory]:
    workspace = tmp_path / "notes"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "a.md").write_text("\n".join(LINES), encoding="utf-8")
    (workspace / "secret.md").write_text("secret", encoding="utf-8")
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "plan.md").write_text("plan", encoding="utf-8")
    settings = BuiltinSettings(extra_paths=(Path("../team"),))
    async with open_builtin(settings, replace(services, workspace_dir=workspace)) as memory:
        yield memory


@pytest.mark.parametrize(
    ("from_line", "lines", "expected"),
    [
        (None, None, LINES),
        (0, 0, LINES),
        (2, None, LINES[1:]),
        (2, 2, LINES[1:3]),
        (None, 2, LINES[:2]),
        (-5, 1, LINES[:1]),
        (3, -1, LINES[2:3]),
        (4, 100, LINES[3:]),
        (9, 2, []),
    ],
)
async def test_lines_are_counted_from_one(
    memory: BuiltinMemory, from_line: int | None, lines: int | None, expected: list[str]
) -> None:
    found = await memory.read_file("memory/a.md", from_line=from_line, lines=lines)

    assert found == MemoryFileSlice(text="\n".join(expected), path="memory/a.md")


async def test_a_note_is_named_by_its_path_in_the_workspace(memory: BuiltinMemory, tmp_path: Path) -> None:
    for path in ("memory/../memory/a.md", str(tmp_path / "notes" / "memory" / "a.md"), " memory/a.md "):
        assert (await memory.read_file(path)).path == "memory/a.md"


async def test_a_note_that_is_missing_has_no_text(memory: BuiltinMemory) -> None:
    for path in ("memory/none.md", "memory/none/at/all.md", "MEMORY.md"):
        assert await memory.read_file(path, from_line=2) == MemoryFileSlice(text="", path=path)


async def test_a_note_of_an_extra_folder_is_read_by_the_path_that_a_search_names(
    memory: BuiltinMemory,
) -> None:
    await memory.sync()
    (hit,) = await memory.search("plan")

    assert await memory.read_file(hit.path) == MemoryFileSlice(text="plan", path="../team/plan.md")


async def test_the_lines_of_a_result_hold_its_text(memory: BuiltinMemory) -> None:
    await memory.sync()
    (hit,) = await memory.search("third")
    count = hit.end_line - hit.start_line + 1
    found = await memory.read_file(hit.path, from_line=hit.start_line, lines=count)

    assert "third" in found.text


async def test_a_byte_order_mark_is_no_text(memory: BuiltinMemory, tmp_path: Path) -> None:
    (tmp_path / "notes" / "MEMORY.md").write_bytes(b"\xef\xbb\xbfmarked")

    assert (await memory.read_file("MEMORY.md")).text == "marked"


async def test_bytes_that_are_not_utf8_are_read_as_windows_1252(
    memory: BuiltinMemory, tmp_path: Path
) -> None:
    (tmp_path / "notes" / "MEMORY.md").write_bytes(b"caf\xe9")

    assert (await memory.read_file("MEMORY.md")).text == "café"


@pytest.mark.parametrize(
    "path", ["secret.md", "../secret.md", "memory/../secret.md", "/etc/passwd", "memory/a.csv", "", "memory"]
)
async def test_nothing_else_is_read(memory: BuiltinMemory, path: str) -> None:
    with pytest.raises(
        MemoryPathError, match=r"readable are MEMORY.md, memory.md, memory/\*\*, bank/\*\*, ../team"
    ):
        await memory.read_file(path)


async def test_a_link_out_of_the_workspace_is_not_followed(memory: BuiltinMemory, tmp_path: Path) -> None:
    (tmp_path / "notes" / "memory" / "link.md").symlink_to(tmp_path / "notes" / "secret.md")

    with pytest.raises(MemoryPathError, match="symbolic link"):
        await memory.read_file("memory/link.md")


async def test_a_folder_that_is_a_link_is_not_entered(memory: BuiltinMemory, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "diary.md").write_text("secret", encoding="utf-8")
    (tmp_path / "notes" / "memory" / "linked").symlink_to(tmp_path / "private")

    with pytest.raises(MemoryPathError, match="symbolic link in its path"):
        await memory.read_file("memory/linked/diary.md")


async def test_a_link_is_not_followed_where_looking_at_links_fails(
    memory: BuiltinMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret", encoding="utf-8")
    (tmp_path / "notes" / "memory" / "sub").symlink_to(outside)

    def gone(path: str, **_: object) -> str:
        raise FileNotFoundError(2, "it was here a moment ago", path)

    monkeypatch.setattr(os, "readlink", gone)
    try:
        text = (await memory.read_file("memory/sub/secret.md")).text
    except MemoryPathError:
        text = ""

    assert text == ""
