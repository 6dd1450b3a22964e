"""Names of memory files, and what may be read under them."""

import os
from pathlib import Path

import pytest

from composable_memory.errors import MemoryPathError
from composable_memory.paths import (
    canonical_key,
    is_note,
    opened_file,
    relative_key,
    resolve_memory_file,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a workspace with a note, beside a folder with another."""
    for path in (
        "ws/MEMORY.md",
        "ws/memory/deep/note.md",
        "ws/secret.md",
        "ws/memory/data.txt",
        "extra/a.md",
    ):
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("text", encoding="utf-8")
    return tmp_path / "ws"


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("./memory/a.md", "memory/a.md"),
        ("memory//a.md", "memory/a.md"),
        ("memory\\a.md", "memory/a.md"),
        ("memory/x/../a.md", "memory/a.md"),
        ("../extra/a.md", "../extra/a.md"),
        ("", ""),
    ],
)
def test_a_path_has_one_spelling(written: str, key: str) -> None:
    assert canonical_key(written) == key


def test_a_file_is_named_relative_to_the_workspace(tmp_path: Path) -> None:
    assert relative_key(tmp_path / "ws" / "memory" / "a.md", tmp_path / "ws") == "memory/a.md"
    assert relative_key(tmp_path / "extra" / "a.md", tmp_path / "ws") == "../extra/a.md"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.md", True), ("A.MD", True), (".md", True), ("ä b.Org", True), ("amd", False), ("a.png", False)],
)
def test_the_suffix_is_what_makes_a_note(name: str, expected: bool) -> None:
    assert is_note(name) is expected


@pytest.mark.parametrize(
    "path", ["MEMORY.md", " MEMORY.md ", "memory/deep/note.md", "memory/../MEMORY.md", "./memory/new.md"]
)
def test_a_memory_file_is_found(root: Path, path: str) -> None:
    assert resolve_memory_file(path, workspace=root) == Path(os.path.normpath(root / path.strip()))


def test_an_absolute_path_to_a_memory_file_is_fine(root: Path) -> None:
    note = root / "memory" / "deep" / "note.md"

    assert resolve_memory_file(str(note), workspace=root) == note


def test_the_name_of_a_note_in_an_extra_folder_is_fine(root: Path) -> None:
    found = resolve_memory_file("../extra/a.md", workspace=root, extra_paths=[root.parent / "extra"])

    assert found == root.parent / "extra" / "a.md"


def test_an_extra_folder_may_be_named_relative_to_the_workspace(root: Path) -> None:
    found = resolve_memory_file("../extra/a.md", workspace=root, extra_paths=[Path("../extra")])

    assert found == root.parent / "extra" / "a.md"


def test_a_single_extra_file_is_fine_and_its_neighbour_is_not(root: Path) -> None:
    resolve_memory_file("secret.md", workspace=root, extra_paths=[Path("secret.md")])

    with pytest.raises(MemoryPathError, match="outside"):
        resolve_memory_file("other.md", workspace=root, extra_paths=[Path("secret.md")])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "the path is empty"),
        ("  ", "the path is empty"),
        ("memory/a\0.md", "NUL"),
        ("memory/" + "a" * 5000 + ".md", "longer than 4096"),
        ("memory/" + "a" * 300 + ".md", "longer than 255 bytes"),
        ("memory/\udcff.md", "not valid Unicode"),
        ("../ws-other/MEMORY.md", "outside the memory folders"),
        ("../../etc/passwd", "outside the memory folders"),
        ("memory/../secret.md", "outside the memory folders"),
        ("memory/../../extra/a.md", "outside the memory folders"),
        ("/etc/hostname.md", "outside the memory folders"),
        ("secret.md", "outside the memory folders"),
        ("~/notes.md", "outside the memory folders"),
        ("memory", "only notes"),
        (".", "outside the memory folders"),
        ("memory/data.csv", "only notes"),
        ("memory/deep", "only notes"),
        ("MEMORY.md/x.md", "outside the memory folders"),
    ],
)
def test_what_is_no_memory_file_is_refused_with_the_reason(root: Path, path: str, reason: str) -> None:
    with pytest.raises(MemoryPathError, match=reason) as refused:
        resolve_memory_file(path, workspace=root, extra_paths=[Path("sub")])

    assert refused.value.allowed == ("MEMORY.md", "memory.md", "memory/**", "bank/**", "sub")
    assert len(str(refused.value)) < 600


def test_a_folder_that_is_called_like_a_note_is_refused(root: Path) -> None:
    (root / "memory" / "folder.md").mkdir()

    with pytest.raises(MemoryPathError, match="it is a folder"):
        resolve_memory_file("memory/folder.md", workspace=root)


def test_a_pipe_that_is_called_like_a_note_is_refused(root: Path) -> None:
    os.mkfifo(root / "memory" / "pipe.md")

    with pytest.raises(MemoryPathError, match="not a regular file"):
        resolve_memory_file("memory/pipe.md", workspace=root)


@pytest.mark.parametrize("target", ["../secret.md", "deep/note.md", "nothing.md"])
def test_a_link_is_refused_wherever_it_leads(root: Path, target: str) -> None:
    (root / "memory" / "link.md").symlink_to(target)

    with pytest.raises(MemoryPathError, match="symbolic link"):
        resolve_memory_file("memory/link.md", workspace=root)


def test_a_link_on_the_way_is_refused(root: Path) -> None:
    (root / "memory" / "linked").symlink_to(root.parent / "extra")

    with pytest.raises(MemoryPathError, match="symbolic link in its path"):
        resolve_memory_file("memory/linked/a.md", workspace=root)


def test_a_memory_folder_that_is_a_link_is_refused(root: Path) -> None:
    other = root.parent / "other"
    other.mkdir()
    (other / "memory").symlink_to(root.parent / "extra")

    with pytest.raises(MemoryPathError, match="symbolic link"):
        resolve_memory_file("memory/a.md", workspace=other)


def test_an_extra_folder_that_is_a_link_is_refused(root: Path) -> None:
    (root / "linked").symlink_to(root.parent / "extra")

    with pytest.raises(MemoryPathError, match="is a symbolic link"):
        resolve_memory_file("linked/a.md", workspace=root, extra_paths=[Path("linked")])


def test_a_workspace_behind_a_link_is_as_good_as_the_real_one(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)

    for path in ("MEMORY.md", str(link / "MEMORY.md"), str(root / "MEMORY.md")):
        assert resolve_memory_file(path, workspace=link) == root / "MEMORY.md"


def test_a_workspace_that_is_all_notes_keeps_what_is_hidden_and_of_tools(root: Path) -> None:
    resolve_memory_file("secret.md", workspace=root, extra_paths=[Path()])

    for path in (
        ".hidden.md",
        ".obsidian/a.md",
        "deep/.trash/a.md",
        "node_modules/a.md",
        "../extra/a.md",
        "a.png",
    ):
        with pytest.raises(MemoryPathError):
            resolve_memory_file(path, workspace=root, extra_paths=[Path()])


@pytest.mark.parametrize("link", ["memory/deep", "memory/deep/note.md", "memory"])
def test_a_file_is_not_opened_through_a_link_that_appears_after_the_check(root: Path, link: str) -> None:
    checked = resolve_memory_file("memory/deep/note.md", workspace=root)
    outside = root.parent / "outside"
    (root / link).rename(outside)
    (root / link).symlink_to(outside)

    with pytest.raises(FileNotFoundError), opened_file(checked):
        pass


def test_a_file_is_opened_whoever_may_list_the_folders_above_it(root: Path) -> None:
    (root / "memory").chmod(0o711)

    with opened_file(root / "memory" / "deep" / "note.md") as (descriptor, found):
        assert os.read(descriptor, found.st_size) == b"text"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [("pipe", "not a regular file"), ("folder", "not a regular file"), ("large", "larger")],
)
def test_what_is_no_file_to_read_is_named(root: Path, kind: str, problem: str) -> None:
    path = root / "memory" / "it.md"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x" * 11)

    with pytest.raises(OSError, match=problem), opened_file(path, max_bytes=10):
        pass


def test_of_a_workspace_that_is_all_notes_only_that_and_what_lies_outside_is_told(root: Path) -> None:
    with pytest.raises(MemoryPathError) as refused:
        resolve_memory_file("a.png", workspace=root, extra_paths=[root, root / "sub", Path("../extra")])

    assert refused.value.allowed == ("**", "../extra")
