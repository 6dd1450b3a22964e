"""Which folders are watched, and which paths in them matter."""

import sys
from pathlib import Path

import pytest

from composable_memory_adapters.builtin.sync.watch_scope import WatchScope, mounts_of, survey


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Return a real, empty workspace."""
    folder = tmp_path.resolve() / "notes"
    folder.mkdir()
    return folder


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def watched(territory: WatchScope, start: Path) -> set[str]:
    """Return the watched folders relative to `start`; a tree ends in `**`."""
    return {
        Path(folder.path).relative_to(start).as_posix() + ("/**" if folder.recursive else "")
        for folder in territory.folders
    }


def test_the_workspace_is_watched_itself_and_the_memory_folder_with_all_that_is_in_it(notes: Path) -> None:
    made(notes / "memory" / "deep")
    made(notes / "code")

    assert watched(survey(notes), notes) == {".", "memory/**"}


def test_what_is_not_there_is_not_watched_and_still_matters(notes: Path) -> None:
    territory = survey(notes, [Path("team")], notes.parent / "transcripts")

    assert watched(territory, notes) == {"."}
    assert territory.concerns(str(notes / "memory"), is_folder=True)
    assert territory.concerns(str(notes / "team"), is_folder=True)


def test_the_going_of_the_workspace_matters(notes: Path) -> None:
    assert survey(notes).concerns(str(notes), is_folder=True)


def test_a_missing_workspace_has_nothing_to_watch(notes: Path) -> None:
    assert survey(notes / "gone").folders == ()


def test_an_extra_file_is_watched_by_way_of_its_folder(notes: Path) -> None:
    made(notes.parent / "team")
    territory = survey(notes, [Path("../team/plan.md")])

    assert watched(territory, notes.parent) == {"notes", "team"}
    assert territory.concerns(str(notes.parent / "team" / "plan.md"), is_folder=False)
    assert not territory.concerns(str(notes.parent / "team" / "other.md"), is_folder=False)


def test_a_folder_that_lies_in_another_is_not_watched_again(notes: Path) -> None:
    made(notes / "memory" / "deep")
    extras = [Path(), Path("memory/deep"), Path("memory"), Path("memory/deep/plan.md")]

    assert watched(survey(notes, extras, notes / "memory" / "deep"), notes) == {"./**"}


def test_a_folder_within_one_that_is_left_out_is_watched_where_it_is_named(notes: Path) -> None:
    made(notes / "memory" / ".obsidian" / "daily")
    territory = survey(notes, [Path("memory/.obsidian/daily")])

    assert watched(territory, notes) == {".", "memory/**", "memory/.obsidian/daily/**"}
    assert territory.concerns(str(notes / "memory/.obsidian/daily/today.md"), is_folder=False)
    assert not territory.concerns(str(notes / "memory/.obsidian/plug.md"), is_folder=False)


def test_of_a_whole_folder_nothing_hidden_matters_unless_it_is_named(notes: Path) -> None:
    made(notes / "Täglich" / ".trash")
    made(notes / ".named")
    territory = survey(notes, [Path(), Path(".named")])

    assert watched(territory, notes) == {"./**", ".named/**"}
    for path, matters in {
        "a b.txt": True,
        "Täglich/Schlüssel.md": True,
        ".named/a.md": True,
        ".obsidian/a.md": False,
        "Täglich/.trash/a.md": False,
        "bild.png": False,
        ".gitignore": True,
        "Täglich/.gitignore": True,
        ".obsidian/.gitignore": False,
    }.items():
        assert territory.concerns(str(notes / path), is_folder=False) is matters


def test_a_link_is_no_root(notes: Path) -> None:
    (notes / "memory").symlink_to(made(notes.parent / "elsewhere"))

    assert watched(survey(notes), notes) == {"."}


def test_a_folder_that_takes_the_place_of_another_is_told_apart(notes: Path) -> None:
    made(notes / "memory")
    before = survey(notes)
    (notes / "memory").rename(notes / "old")
    made(notes / "memory")

    assert set(before.folders) & set(survey(notes).folders) == {before.folders[1]}


@pytest.mark.parametrize(
    ("path", "is_folder", "matters"),
    [
        ("MEMORY.md", False, True),
        ("memory.md", False, True),
        ("README.md", False, False),
        ("memory", True, True),
        ("code", True, False),
        ("memory/a.md", False, True),
        ("memory/deep/A.MD", False, True),
        ("memory/deep", True, True),
        ("memory/a.md.tmp", False, False),
        ("memory/.a.md.swp", False, False),
        ("memory/index.sqlite-wal", False, False),
        ("memory/.git", True, False),
        ("memory/.git/notes.md", False, False),
        ("memory/deep/node_modules/x/readme.md", False, False),
        ("memory/chat.jsonl", False, False),
        ("chats/one.jsonl", False, True),
        ("chats/one.jsonl.lock", False, False),
        ("chats/old/one.jsonl", False, False),
        ("chats", True, True),
    ],
)
def test_only_notes_transcripts_and_folders_matter(
    notes: Path, path: str, is_folder: bool, matters: bool
) -> None:
    made(notes / "memory")
    territory = survey(notes, (), made(notes / "chats"))

    assert territory.concerns(str(notes / path), is_folder=is_folder) is matters


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
def test_folders_that_other_machines_can_write_to_are_told_apart(notes: Path) -> None:
    assert mounts_of(survey(notes)).are_local
    assert not mounts_of(survey(Path("/proc/sys"))).are_local
    assert not mounts_of(survey(notes, [Path("/proc/sys")])).are_local
    assert not mounts_of(survey(Path("/"), [Path("/")])).are_local
