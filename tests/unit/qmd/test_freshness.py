"""Whether files have changed since QMD looked at them, as the disk tells it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from composable_memory_adapters.qmd.collections import MAIN_PATTERN, newest_change
from composable_memory_adapters.qmd.types import Collection

NEVER = float("inf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with notes, as they were before anything in a test happens."""
    notes = tmp_path / "notes"
    (notes / "deep" / "deeper").mkdir(parents=True)
    (notes / "MEMORY.md").write_text("Lasting.\n")
    (notes / "deep" / "deeper" / "note.md").write_text("Deep.\n")
    return notes


def notes_in(folder: Path, pattern: str = "**/*.md") -> list[Collection]:
    return [Collection(name="notes", path=folder, pattern=pattern)]


def is_seen(collections: list[Collection], change: Callable[[], object]) -> bool:
    """Say whether a change makes something newer than all that was there before."""
    before = newest_change(collections, now=NEVER)
    tick(before)
    change()
    return newest_change(collections, now=NEVER) > before


def tick(moment: float) -> None:
    """Return when the clock of the file system has passed a moment; it goes on in steps."""
    probe = Path(os.environ["HOME"]) / "tick"
    while True:
        probe.write_text("")
        if probe.stat().st_ctime > moment:
            return


def test_where_there_is_nothing_nothing_has_changed(tmp_path: Path) -> None:
    assert newest_change([], now=NEVER) == 0.0
    assert newest_change(notes_in(tmp_path / "missing"), now=NEVER) == 0.0


def test_a_change_deep_in_a_folder_is_seen(folder: Path) -> None:
    assert is_seen(notes_in(folder), lambda: (folder / "deep/deeper/note.md").write_text("Deeper.\n"))


@pytest.mark.parametrize("name", ["new.md", "deep/new.md", "new/new.md"])
def test_a_new_file_is_seen(folder: Path, name: str) -> None:
    def write() -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("New.\n")

    assert is_seen(notes_in(folder), write)


def test_a_file_that_is_gone_is_seen(folder: Path) -> None:
    assert is_seen(notes_in(folder), (folder / "deep/deeper/note.md").unlink)


def test_a_copy_that_bears_an_old_date_is_seen(folder: Path) -> None:
    def copy() -> None:
        (folder / "MEMORY.md").write_text("Restored.\n")
        os.utime(folder / "MEMORY.md", (1.0, 1.0))

    assert is_seen(notes_in(folder, MAIN_PATTERN), copy)


def test_a_note_that_bears_a_date_in_the_future_is_not_newer_than_the_present(folder: Path) -> None:
    future = time.time() + 86_400.0
    os.utime(folder / "MEMORY.md", (future, future))

    assert 0.0 < newest_change(notes_in(folder), now=NEVER) < future


def test_what_the_disk_dates_later_than_now_is_passed_over(folder: Path) -> None:
    newest = newest_change(notes_in(folder), now=NEVER)

    assert newest_change(notes_in(folder), now=newest) == newest
    assert newest_change(notes_in(folder), now=newest - 3600.0) == 0.0


def test_of_a_folder_that_is_not_gone_into_only_the_files_that_are_meant_count(folder: Path) -> None:
    collections = notes_in(folder, MAIN_PATTERN)

    assert is_seen(collections, lambda: (folder / "MEMORY.md").write_text("Other.\n"))
    assert not is_seen(collections, lambda: (folder / "other.md").write_text("Not meant.\n"))
    assert not is_seen(collections, lambda: (folder / "deep/deeper/note.md").write_text("Not meant.\n"))


def test_files_that_are_no_markdown_count_where_a_pattern_means_them(folder: Path) -> None:
    (folder / "list.txt").write_text("Eggs.\n")
    buy = lambda: (folder / "list.txt").write_text("Eggs, tea.\n")  # noqa: E731 - what happens, as a value

    assert is_seen(notes_in(folder, "**/*.txt"), buy)
    assert not is_seen(notes_in(folder, "**/*.md"), buy)


@pytest.mark.parametrize("name", [".git", ".obsidian", "node_modules", "vendor", "dist", "build"])
def test_folders_that_qmd_passes_over_do_not_count(folder: Path, name: str) -> None:
    (folder / name).mkdir()

    assert not is_seen(notes_in(folder), lambda: (folder / name / "note.md").write_text("Passed over.\n"))


def test_a_link_that_leads_around_in_a_circle_ends(folder: Path) -> None:
    (folder / "deep" / "again").symlink_to(folder, target_is_directory=True)

    assert newest_change(notes_in(folder), now=NEVER) > 0.0


def test_a_collection_whose_folder_has_become_a_file_disturbs_nothing(folder: Path) -> None:
    gone = Collection(name="gone", path=folder / "MEMORY.md", pattern=MAIN_PATTERN)

    assert newest_change([gone], now=NEVER) == 0.0
    assert newest_change([gone, *notes_in(folder)], now=NEVER) == newest_change(notes_in(folder), now=NEVER)


def test_several_collections_of_one_folder_are_all_looked_at(folder: Path) -> None:
    both = notes_in(folder, MAIN_PATTERN) + notes_in(folder)

    assert is_seen(both, lambda: (folder / "deep/deeper/note.md").write_text("Deeper.\n"))
