"""A memory that stays open follows its notes on a real file system, whatever is done to them."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from watchdog.utils import BaseThread

from composable_memory import open_memory
from composable_memory.errors import MemoryPathError
from composable_memory.interfaces import BackendServices
from composable_memory.types import SearchOptions
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.notes.note_files import ScanReport, scan
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import index_writes
from composable_memory_adapters.builtin.store.index_writes import file_states
from composable_memory_adapters.builtin.store.schema import Tables
from composable_memory_adapters.builtin.sync import indexer
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs import MemorySink, OpsEvent, OpsLog, SyncComplete, SyncFailed, SyncStart

ROOT = Path(__file__).parents[2]
LIMIT_S = 60
DEBOUNCE_MS = 20
DESCRIPTORS = Path("/proc/self/fd")

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="counts what inotify takes")


class News:
    """Waits for what syncs bring about."""

    def __init__(self, ops_log: OpsLog) -> None:
        self.syncs: list[SyncComplete] = []
        self._has_come = asyncio.Event()
        ops_log.subscribe(self._hear)

    def _hear(self, event: OpsEvent) -> None:
        if isinstance(event.detail, SyncComplete):
            self.syncs.append(event.detail)
            self._has_come.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        """Return after the first sync that makes `is_so` true."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                await self._has_come.wait()
                self._has_come.clear()

    async def finds(self, memory: BuiltinMemory, words: str, *paths: str) -> None:
        """Return after the sync that makes the search for `words` find exactly these notes."""
        async with asyncio.timeout(LIMIT_S):
            while {hit.path for hit in await memory.search(words)} != set(paths):
                await self._has_come.wait()
                self._has_come.clear()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def services(services: BackendServices) -> BackendServices:
    return replace(services, is_long_lived=True)


@pytest.fixture
def news(ops_log: OpsLog) -> News:
    return News(ops_log)


@asynccontextmanager
async def followed(services: BackendServices, **options: object) -> AsyncIterator[BuiltinMemory]:
    """Open a memory that learns of changes by its watch alone, and sync it."""
    sync = {"onSearch": False, "watchDebounceMs": DEBOUNCE_MS, **options.pop("sync", {})}  # type: ignore[dict-item]
    settings = BuiltinSettings.model_validate({"sync": sync, **options})
    async with open_builtin(settings, services) as memory:
        await memory.sync(reason="boot")
        yield memory


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def watch_of(memory: BuiltinMemory) -> dict[str, object]:
    watch = memory.status().custom["watch"]
    assert isinstance(watch, dict)
    return dict(watch)


# --- what is done to notes ---


async def test_a_note_that_is_written_changed_and_deleted_is_followed(
    services: BackendServices, workspace: Path, news: News
) -> None:
    (workspace / "memory").mkdir()
    async with followed(services) as memory:
        write(workspace / "memory" / "boat.md", "The hull is green.")
        await news.finds(memory, "hull", "memory/boat.md")
        write(workspace / "memory" / "boat.md", "The mast is high.")
        await news.finds(memory, "mast", "memory/boat.md")
        await news.finds(memory, "hull")
        (workspace / "memory" / "boat.md").unlink()
        await news.finds(memory, "mast")

    assert {sync.reason for sync in news.syncs} == {"boot", "watch"}


async def test_the_main_file_is_followed_and_its_neighbours_are_not(
    services: BackendServices, workspace: Path, news: News
) -> None:
    async with followed(services) as memory:
        for number in range(50):
            write(workspace / f"other{number}.md", "No note.")
        write(workspace / "code" / "x.md", "No note.")
        write(workspace / "MEMORY.md", "The hull is green.")
        await news.finds(memory, "hull", "MEMORY.md")

    assert len(news.syncs) <= 3


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read of all notes: `scan` for the disk, `index` for the index."""
    seen: list[str] = []

    def scan_all(*given: Any, **more: Any) -> ScanReport:
        seen.append("scan")
        return scan(*given, **more)

    def read_states(connection: Connection, tables: Tables, keys: Sequence[str] | None = None) -> object:
        if keys is None:
            seen.append("index")
        return file_states(connection, tables, keys)

    monkeypatch.setattr(indexer, "scan", scan_all)
    monkeypatch.setattr(index_writes, "file_states", read_states)
    return seen


async def test_only_the_notes_that_change_come_move_or_go_are_looked_at(
    services: BackendServices, workspace: Path, news: News, looks: list[str]
) -> None:
    notes = workspace / "memory"
    write(notes / "boat.md", "The hull is green.")
    write(notes / "house.md", "The roof leaks.")
    async with followed(services) as memory:
        looks.clear()
        write(notes / "boat.md", "The mast is high.")
        await news.finds(memory, "mast", "memory/boat.md")
        write(notes / "more.md", "The keel is deep.")
        await news.finds(memory, "keel", "memory/more.md")
        (notes / "more.md").rename(notes / "most.md")
        await news.finds(memory, "keel", "memory/most.md")
        (notes / "house.md").unlink()
        await news.finds(memory, "roof")
        save_by_rename(notes / "house.md", "The door sticks.")
        await news.finds(memory, "door", "memory/house.md")
        assert looks == []

        await memory.sync()  # joins the sync that brought the last note, unless that has ended
        report = await memory.sync()
        assert (report.files_indexed, report.files_removed, report.files_unchanged) == (0, 0, 3)
        assert looks[:2] == ["index", "scan"]
        assert memory.status().files == 3


async def test_what_only_a_look_at_all_notes_can_tell_takes_one(
    services: BackendServices, workspace: Path, tmp_path: Path, news: News, looks: list[str]
) -> None:
    notes = workspace / "memory"
    write(notes / "boat.md", "The hull is green.")
    write(notes / "fleet" / "barge.md", "The barge is slow.")
    write(tmp_path / "tug.md", "The tug is loud.")
    async with followed(services) as memory:
        looks.clear()
        write(notes / "harbour" / "crane.md", "The crane is tall.")
        await news.finds(memory, "crane", "memory/harbour/crane.md")
        assert "scan" in looks

        looks.clear()
        shutil.rmtree(notes / "fleet")
        await news.finds(memory, "barge")
        assert "scan" in looks

        looks.clear()
        (notes / "ship.md").hardlink_to(notes / "boat.md")
        (notes / "boat.md").unlink()
        await news.finds(memory, "hull", "memory/ship.md")
        (notes / "ship.md").unlink()
        (notes / "ship.md").symlink_to(tmp_path / "tug.md")
        await news.finds(memory, "hull")
        assert "scan" in looks
        assert not await memory.search("tug")


async def test_what_git_ignores_is_no_note_where_only_named_notes_are_looked_at(
    services: BackendServices, workspace: Path, news: News
) -> None:
    write(workspace / "boat.md", "The hull is green.")
    async with followed(services, extra_paths=[workspace]) as memory:
        write(workspace / "draft.md", "The hull is red.")
        await news.finds(memory, "hull", "boat.md", "draft.md")
        write(workspace / ".gitignore", "draft*\n")
        await news.finds(memory, "hull", "boat.md")
        write(workspace / "draft.md", "The hull is blue.")
        write(workspace / "sail.md", "The hull has a sail.")
        await news.finds(memory, "hull", "boat.md", "sail.md")


async def test_a_note_too_many_is_refused_though_only_it_is_looked_at(
    services: BackendServices, workspace: Path, ops_log: OpsLog
) -> None:
    failures: asyncio.Queue[SyncFailed] = asyncio.Queue()

    def hear(event: OpsEvent) -> None:
        if isinstance(event.detail, SyncFailed):
            failures.put_nowait(event.detail)

    ops_log.subscribe(hear)
    for name in ("boat", "house"):
        write(workspace / f"{name}.md", "The roof leaks.")
    async with followed(services, scope="folder", max_files=2) as memory:
        write(workspace / "ship.md", "The hull is green.")
        async with asyncio.timeout(LIMIT_S):
            failure = await failures.get()

        assert "max_files" in failure.error.message
        assert not await memory.search("hull")


async def test_a_note_that_was_not_read_whole_is_told_of_until_it_is(
    services: BackendServices, workspace: Path, news: News, looks: list[str]
) -> None:
    note, other = workspace / "memory" / "boat.md", workspace / "memory" / "house.md"
    write(note, "The hull is green.")
    async with followed(services) as memory:
        looks.clear()
        note.write_bytes(b"The mast is high\xff.")
        await news.until(lambda: "boat.md" in str(news.syncs[-1].problems))
        told = len(news.syncs)
        write(other, "The roof leaks.")
        await news.finds(memory, "roof", "memory/house.md")
        await news.until(lambda: len(news.syncs) > told)
        assert all("boat.md" in str(one.problems) for one in news.syncs[told:])
        write(note, "The keel is deep.")
        await news.until(lambda: not news.syncs[-1].problems)
        assert looks == []


def save_by_rename(path: Path, text: str) -> None:
    write(path.with_name(path.name + ".tmp"), text)
    path.with_name(path.name + ".tmp").replace(path)


def save_like_vim(path: Path, text: str) -> None:
    (path.parent / "4913").touch()
    (path.parent / "4913").unlink()
    path.rename(path.with_name(path.name + "~"))
    write(path, text)
    path.with_name(path.name + "~").unlink()


def save_by_truncating(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        for letter in text:
            file.write(letter)
            file.flush()


@pytest.mark.parametrize("save", [save_by_rename, save_like_vim, save_by_truncating])
async def test_every_way_to_save_is_noticed(
    services: BackendServices, workspace: Path, news: News, save: Callable[[Path, str], None]
) -> None:
    note = workspace / "memory" / "boat.md"
    write(note, "The hull is green.")
    async with followed(services) as memory:
        save(note, "The mast is high.")
        await news.finds(memory, "mast", "memory/boat.md")
        await news.finds(memory, "hull")


async def test_a_note_that_is_written_bit_by_bit_is_read_to_its_end(
    services: BackendServices, workspace: Path, news: News
) -> None:
    async with followed(services, sync={"watchDebounceMs": 1}) as memory:
        with (workspace / "MEMORY.md").open("w", encoding="utf-8") as file:
            for number in range(100):
                file.write(f"Line {number} of the log.\n")
                file.flush()
                await asyncio.sleep(0)
            await news.until(lambda: len(news.syncs) > 1)
            file.write("The lighthouse is closed.\n")
        await news.finds(memory, "lighthouse", "MEMORY.md")


async def test_a_note_that_is_changed_while_a_sync_runs_is_picked_up(
    services: BackendServices, workspace: Path, news: News, events: MemorySink
) -> None:
    for number in range(300):
        write(workspace / "memory" / f"n{number:03}.md", "The hull is green.")
    async with followed(services, sync={"watchDebounceMs": 0}) as memory:
        started = asyncio.Event()
        services.ops_log.subscribe(lambda event: started.set() if event.action == "sync.start" else None)
        write(workspace / "memory" / "n299.md", "The hull is yellow.")
        await started.wait()
        for number in range(5):
            write(workspace / "memory" / f"n{number:03}.md", "The mast is high.")
        await news.finds(memory, "mast", *(f"memory/n{number:03}.md" for number in range(5)))


@pytest.mark.thorough
async def test_ten_thousand_notes_in_a_second_cost_a_handful_of_syncs(
    services: BackendServices, workspace: Path, news: News
) -> None:
    (workspace / "memory").mkdir()

    def storm() -> None:
        for number in range(10_000):
            with (workspace / "memory" / f"n{number}.md").open("w", encoding="utf-8") as file:
                file.write(f"Buoy {number} lies in the harbour.")
        write(workspace / "memory" / "last.md", "The lighthouse is closed.")

    async with followed(services, sync={"watchDebounceMs": 1000}) as memory:
        await asyncio.to_thread(storm)
        await news.finds(memory, "lighthouse", "memory/last.md")
        await news.until(lambda: sum(sync.files_indexed for sync in news.syncs) >= 10_001)
        assert len(news.syncs) <= 8
        report = await memory.sync()

    assert (report.files_indexed, report.files_unchanged) == (0, 10_001)


async def test_the_watch_stands_before_the_first_sync_and_needs_no_other(
    services: BackendServices, workspace: Path, news: News
) -> None:
    async with followed(services) as memory:
        assert watch_of(memory)["state"] == "active"
        write(workspace / "MEMORY.md", "The hull is green.")
        await news.finds(memory, "hull", "MEMORY.md")

    assert [(sync.reason, sync.files_indexed) for sync in news.syncs[:2]] == [("boot", 0), ("watch", 1)]


# --- what is done to folders ---


async def test_folders_that_come_go_and_swap_names_are_followed(
    services: BackendServices, workspace: Path, news: News
) -> None:
    memory_folder, other = workspace / "memory", workspace / "other"
    async with followed(services) as memory:
        write(memory_folder / "deep" / "deeper" / "boat.md", "The hull is green.")
        await news.finds(memory, "hull", "memory/deep/deeper/boat.md")
        write(memory_folder / "deep" / "deeper" / "boat.md", "The mast is high.")
        await news.finds(memory, "mast", "memory/deep/deeper/boat.md")
        (memory_folder / "deep").rename(memory_folder / "low")
        await news.finds(memory, "mast", "memory/low/deeper/boat.md")
        write(memory_folder / "low" / "deeper" / "boat.md", "The keel is deep.")
        await news.finds(memory, "keel", "memory/low/deeper/boat.md")
        shutil.rmtree(memory_folder / "low")
        await news.finds(memory, "keel")
        write(other / "sub" / "house.md", "The roof leaks.")
        memory_folder.rename(workspace / "old")
        other.rename(memory_folder)
        await news.finds(memory, "roof", "memory/sub/house.md")
        write(memory_folder / "sub" / "house.md", "The stairs creak.")
        await news.finds(memory, "stairs", "memory/sub/house.md")
        shutil.rmtree(memory_folder)
        await news.finds(memory, "stairs")
        write(memory_folder / "again.md", "The door jams.")
        await news.finds(memory, "door", "memory/again.md")


async def test_trees_that_swap_back_and_forth_end_up_right(
    services: BackendServices, workspace: Path, news: News
) -> None:
    for branch in ("main", "side"):
        for number in range(100):
            write(workspace / branch / f"d{number % 10}" / f"n{number}.md", f"{branch}sail {number}")
    (workspace / "main").rename(workspace / "memory")
    async with followed(services) as memory:
        for there, here in (("main", "side"), ("side", "main"), ("main", "side")):
            (workspace / "memory").rename(workspace / there)
            (workspace / here).rename(workspace / "memory")
        write(workspace / "memory" / "d0" / "last.md", "The lighthouse is closed.")
        await news.finds(memory, "lighthouse", "memory/d0/last.md")
        await news.finds(memory, "mainsail")
        report = await memory.sync()

    assert (report.files_indexed, report.files_unchanged, report.files_removed) == (0, 101, 0)


def swap(folder: Path, other: Path) -> None:
    folder.rename(folder.with_name("old"))
    other.rename(folder)


async def test_a_workspace_whose_place_another_takes_is_found_by_and_by(
    services: BackendServices, workspace: Path, news: News
) -> None:
    write(workspace / "MEMORY.md", "The hull is green.")
    write(workspace.with_name("next") / "memory" / "boat.md", "The mast is high.")
    async with followed(services) as memory:
        swap(workspace, workspace.with_name("next"))
        await news.finds(memory, "mast", "memory/boat.md")
        write(workspace / "memory" / "boat.md", "The keel is deep.")
        await news.finds(memory, "keel", "memory/boat.md")
        assert watch_of(memory) == {
            "state": "active",
            "roots": [str(workspace), str(workspace / "memory")],
        }


async def test_extra_paths_and_transcripts_are_followed_from_when_they_are_there(
    services: BackendServices, workspace: Path, news: News
) -> None:
    chats = services.state_dir / "chats"
    options = {
        "extraPaths": ["../team", "../plan.md"],
        "sources": ["memory", "sessions"],
        "sessions": {"folder": "{stateDir}/chats"},
    }
    async with followed(services, **options) as memory:
        write(workspace.parent / "team" / "deep" / "boat.md", "The hull is green.")
        await news.finds(memory, "hull", "../team/deep/boat.md")
        write(workspace.parent / "team" / "deep" / "boat.md", "The mast is high.")
        await news.finds(memory, "mast", "../team/deep/boat.md")
        write(workspace.parent / "plan.md", "The keel is deep.")
        await news.finds(memory, "keel", "../plan.md")
        write(
            chats / "one.jsonl", '{"type":"message","message":{"role":"user","content":"The roof leaks."}}\n'
        )
        await news.finds(memory, "roof", "sessions/one.jsonl")


async def test_folders_that_are_left_out_take_no_watch_and_cause_no_sync(
    services: BackendServices, workspace: Path, news: News
) -> None:
    write(workspace / "memory" / ".git" / "refs" / "note.md", "No note.")
    async with followed(services) as memory:
        write(workspace / "memory" / ".git" / "refs" / "note.md", "Still none.")
        write(workspace / "memory" / "node_modules" / "x" / "readme.md", "None.")
        write(workspace / "MEMORY.md", "The hull is green.")
        await news.finds(memory, "hull", "MEMORY.md")

    assert len(news.syncs) <= 3


async def test_all_of_a_vault_is_followed(services: BackendServices, workspace: Path, news: News) -> None:
    write(workspace / "Täglich" / "Boot und Meer.md", "The hull is green.")
    write(workspace / ".obsidian" / "app.md", "The hull of a tool.")
    async with followed(services) as memory:
        await news.finds(memory, "hull", "Täglich/Boot und Meer.md")
        write(workspace / "memory" / "2026-05-01.md", "The mast is high.")
        await news.finds(memory, "mast", "memory/2026-05-01.md")
        write(workspace / "new folder" / "Öl.txt", "The keel is deep.")
        await news.finds(memory, "keel", "new folder/Öl.txt")
        (workspace / "Täglich" / "Boot und Meer.md").unlink()
        await news.finds(memory, "hull")


# --- other occasions ---


async def test_folders_that_are_made_while_the_one_above_is_entered_are_followed(
    services: BackendServices, workspace: Path, news: News
) -> None:
    async with followed(services) as memory:
        for number in range(400):  # a warning of the thread that watches would fail the test
            note = workspace / "memory" / str(number) / "a" / "b" / "c" / "note.md"
            await asyncio.to_thread(note.parent.mkdir, parents=True)
        note.write_text("The bilge pump is new.\n", "utf-8")
        await news.finds(memory, "bilge pump", "memory/399/a/b/c/note.md")


async def test_what_git_ignores_takes_no_watch_and_comes_and_goes_with_the_patterns(
    services: BackendServices, workspace: Path, news: News
) -> None:
    write(workspace / ".gitignore", "/drafts\n")
    write(workspace / "a.md", "The hull is green.")
    write(workspace / "drafts" / "deep" / "b.md", "The mast is high.")
    async with followed(services, scope="folder") as memory:
        assert await memory.search("mast") == ()
        write(workspace / "drafts" / "deep" / "b.md", "The mast is very high.")
        write(workspace / ".gitignore", "a.md\n")
        await news.finds(memory, "mast", "drafts/deep/b.md")
        assert await memory.search("hull") == ()
        assert memory.status().custom["passedOver"] == {"ignored by .gitignore": 1, "hidden": 1}
        write(workspace / "drafts" / "deep" / "c.md", "The keel is deep.")
        await news.finds(memory, "keel", "drafts/deep/c.md")
        with pytest.raises(MemoryPathError, match="gitignore"):
            await memory.read_file("a.md")
        write(workspace / "drafts" / ".gitignore", "*\n")
        await news.finds(memory, "keel")


async def test_a_search_sees_a_change_that_was_heard_before_the_notes_have_settled(
    services: BackendServices, workspace: Path
) -> None:
    sync = {"recheckS": 0, "onSearchWaitMs": 60_000}
    async with open_memory(
        workspace,
        services.state_dir,
        {"memory": {"embedding": {"provider": "none"}, "builtin": {"sync": sync}}},
    ) as memory:
        await memory.sync()
        write(workspace / "MEMORY.md", "The hull is green.")

        assert [hit.path for hit in await memory.search("hull")] == ["MEMORY.md"]


ON_SEARCH = {"onSearch": True, "onSearchWaitMs": 60_000, "recheckS": 3600, "watchDebounceMs": 60_000}


async def found(memory: BuiltinMemory, words: str) -> set[str]:
    return {hit.path for hit in await memory.search(words)}


@on_linux
async def test_a_search_sees_each_change_before_it_and_looks_at_no_other_note(
    services: BackendServices, workspace: Path, looks: list[str], events: MemorySink
) -> None:
    boat, house = workspace / "memory" / "boat.md", workspace / "memory" / "house.md"
    write(boat, "The hull is green.")
    write(house, "The roof leaks.")
    async with followed(services, sync={**ON_SEARCH, "recheckS": 0}) as memory:
        looks.clear()
        for number in range(20):
            write(boat, f"The mast has number{number}.")
            assert await found(memory, f"number{number}") == {"memory/boat.md"}
        boat.rename(boat.with_name("ship.md"))
        assert await found(memory, "mast") == {"memory/ship.md"}
        save_by_rename(house, "The door sticks.")
        assert await found(memory, "door") == {"memory/house.md"}
        house.unlink()
        assert await found(memory, "door") == set()
        assert looks == []

        before = len(events.details(SyncStart))
        for _ in range(5):
            assert await found(memory, "mast") == {"memory/ship.md"}
        assert len(events.details(SyncStart)) == before


@on_linux
async def test_a_search_sees_what_is_done_to_folders_before_it(
    services: BackendServices, workspace: Path
) -> None:
    notes = workspace / "memory"
    async with followed(services, sync=ON_SEARCH) as memory:
        for number in range(5):  # the first of them is the folder of the notes itself
            write(notes / f"d{number}" / "deep" / "boat.md", f"The mast has number{number}.")
            assert await found(memory, f"number{number}") == {f"memory/d{number}/deep/boat.md"}
            write(notes / f"d{number}" / "deep" / "more.md", f"The keel has depth{number}.")
            assert await found(memory, f"depth{number}") == {f"memory/d{number}/deep/more.md"}
        (notes / "d0").rename(notes / "e0")
        assert await found(memory, "number0") == {"memory/e0/deep/boat.md"}
        write(notes / "e0" / "deep" / "boat.md", "The anchor is heavy.")
        assert await found(memory, "anchor") == {"memory/e0/deep/boat.md"}
        shutil.rmtree(notes / "d1")
        assert await found(memory, "number1") == set()


@on_linux
async def test_a_note_with_a_second_name_is_looked_at_for_each_search(
    services: BackendServices, workspace: Path, tmp_path: Path
) -> None:
    write(workspace / "memory" / "boat.md", "The hull is green.")
    (tmp_path / "elsewhere.md").hardlink_to(workspace / "memory" / "boat.md")
    async with followed(services, sync={**ON_SEARCH, "recheckS": 0}) as memory:
        write(tmp_path / "elsewhere.md", "The mast is high.")
        assert await found(memory, "mast") == {"memory/boat.md"}


MOUNTED_NOTE = """
import asyncio, pathlib, subprocess, sys
from composable_memory import open_memory

async def main(workspace, state_dir):
    sync = {"onSearchWaitMs": 60_000, "recheckS": 0, "watchDebounceMs": 60_000}
    config = {"memory": {"embedding": {"provider": "none"}, "builtin": {"sync": sync}}}
    outside = workspace / "outside.md"
    subprocess.run(["mount", "--bind", outside, workspace / "memory" / "boat.md"], check=True)
    async with open_memory(workspace, state_dir, config) as memory:
        await memory.sync()
        outside.write_text("The mast is high.")
        print([hit.path for hit in await memory.search("mast")])

asyncio.run(main(*map(pathlib.Path, sys.argv[1:])))
"""

MOUNTED_FOLDER = """
import pathlib, subprocess, sys
from composable_memory_adapters.builtin.sync.watch_scope import survey
from composable_memory_adapters.builtin.sync.watcher import Watcher

workspace = pathlib.Path(sys.argv[1])
watcher = Watcher(lambda: survey(workspace), lambda path: None)
for command in ([], [], ["mount", "-t", "tmpfs", "none"], [], ["umount"], []):
    if command:
        subprocess.run([*command, workspace / "memory" / "deep"], check=True)
    print(watcher.update().is_new)
watcher.stop()
"""


@on_linux
def test_a_note_that_is_mounted_on_its_own_is_looked_at_for_each_search(
    workspace: Path, state_dir: Path
) -> None:
    write(workspace / "outside.md", "The roof leaks.")
    write(workspace / "memory" / "boat.md", "")

    assert run_apart(MOUNTED_NOTE, workspace, state_dir).split() == ["['memory/boat.md']"]


@on_linux
def test_folders_are_watched_anew_where_something_is_mounted_or_unmounted_among_them(
    workspace: Path, state_dir: Path
) -> None:
    (workspace / "memory" / "deep").mkdir(parents=True)

    told = run_apart(MOUNTED_FOLDER, workspace, state_dir).split()

    assert told == ["True", "False"] * 3


async def test_a_memory_that_is_kept_between_commands_watches_from_the_second_on(
    services: BackendServices, workspace: Path, looks: list[str]
) -> None:
    write(workspace / "memory" / "boat.md", "The hull is green.")
    settings = BuiltinSettings.model_validate({"sync": {"onSearchWaitMs": 60_000}})
    async with open_builtin(settings, replace(services, is_long_lived=False)) as memory:
        await memory.sync()  # until then, what its notes are is not chosen for good
    async with open_builtin(settings, replace(services, is_long_lived=False)) as memory:
        looks.clear()
        assert await found(memory, "hull") == {"memory/boat.md"}
        for number in range(5):
            write(workspace / "memory" / "boat.md", f"The mast has number{number}.")
            assert await memory.refresh()
            assert await found(memory, f"number{number}") == {"memory/boat.md"}
        assert "watch" not in memory.status().custom
        assert looks.count("scan") < 5 or sys.platform != "linux"


async def test_a_new_conversation_looks_at_the_notes_once(
    services: BackendServices, workspace: Path, events: MemorySink
) -> None:
    async with followed(services, sync={"watch": False, "onSearchWaitMs": 60_000}) as memory:
        write(workspace / "MEMORY.md", "The hull is green.")
        hits = [
            len(await memory.search("hull", SearchOptions(session_key=key)))
            for key in (None, "", "chat:1", "chat:1")
        ]
        write(workspace / "MEMORY.md", "Nothing.")
        await memory.search("hull", SearchOptions(session_key="chat:1"))

    assert hits == [0, 0, 1, 1]
    assert [start.reason for start in events.details(SyncStart)] == ["boot", "session-start"]


async def test_every_sync_in_the_background_has_a_trace_of_its_own(
    services: BackendServices, workspace: Path, state_dir: Path
) -> None:
    config = {"memory": {"embedding": {"provider": "none"}, "builtin": {"sync": {"watchDebounceMs": 1}}}}
    async with open_memory(workspace, state_dir, config) as memory:
        news, sink = News(memory.ops_log), MemorySink()
        memory.ops_log.subscribe(sink)
        await memory.sync()
        for number in (1, 2):
            write(workspace / "MEMORY.md", f"Number {number}")
            await news.until(lambda number=number: len(news.syncs) > number)  # type: ignore[misc]

    traces = [event.trace_id for event in sink.events if event.action == "sync.complete"]
    assert len(traces) == len(set(traces))


async def test_two_memories_of_one_workspace_each_follow_it(
    services: BackendServices, workspace: Path, news: News
) -> None:
    async with followed(services) as one, followed(services) as other:
        write(workspace / "MEMORY.md", "The hull is green.")
        await news.finds(one, "hull", "MEMORY.md")
        await news.finds(other, "hull", "MEMORY.md")


async def test_a_single_command_follows_nothing(services: BackendServices) -> None:
    async with followed(replace(services, is_long_lived=False)) as memory:
        assert "watch" not in memory.status().custom
        assert watching_threads() == 0


# --- what it takes ---


def watching_threads() -> int:
    return sum(isinstance(thread, BaseThread) for thread in threading.enumerate())


def watching_descriptors() -> int:
    """Count what is open for inotify, and the pipes, of which it takes one."""
    with os.scandir(DESCRIPTORS) as entries:
        links = [Path(entry.path).readlink() for entry in entries if Path(entry.path).is_symlink()]
    return sum(str(link).startswith(("anon_inode:inotify", "pipe:")) for link in links)


def taken() -> tuple[int, int]:
    return watching_threads(), watching_descriptors()


@pytest.mark.thorough
@on_linux
async def test_three_thousand_folders_take_three_descriptors_and_a_thread_for_each_root(
    services: BackendServices, workspace: Path, news: News
) -> None:
    for number in range(3000):
        (workspace / "memory" / f"d{number % 50}" / f"d{number}").mkdir(parents=True)
    threads, descriptors = taken()
    async with followed(services) as memory:
        assert watch_of(memory)["roots"] == [str(workspace), str(workspace / "memory")]
        assert taken() == (threads + 4, descriptors + 3)
        write(workspace / "memory" / "d49" / "d2999" / "boat.md", "The hull is green.")
        await news.finds(memory, "hull", "memory/d49/d2999/boat.md")

    assert taken() == (threads, descriptors)


@on_linux
async def test_memories_that_open_and_close_leave_nothing(services: BackendServices, workspace: Path) -> None:
    (workspace / "memory").mkdir()
    settings = BuiltinSettings.model_validate({"sync": {"watchDebounceMs": 0}})
    before = taken()
    for turns in range(50):
        async with open_builtin(settings, services):
            write(workspace / "memory" / "boat.md", f"The hull is green {turns}.")
            for _ in range(turns):
                await asyncio.sleep(0)

    assert taken() == before
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- when nothing can be watched ---

LIMITED = """
import asyncio, json, pathlib, sys
from composable_memory import open_memory

async def main(workspace, state_dir):
    sync = {"onSearch": False, "watchDebounceMs": 1}
    config = {"memory": {"embedding": {"provider": "none"}, "builtin": {"sync": sync}}}
    async with open_memory(workspace, state_dir, config) as memory:
        await memory.sync()
        response = await memory.query("hull")
        watch = memory.status().custom["watch"]
    (log,) = pathlib.Path(state_dir, "ops-logs").glob("*.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    print(json.dumps({
        "found": [hit.path for hit in response.results],
        "watch": watch,
        "stale": [one.reason for one in response.degraded if one.code == "stale"],
        "logged": [event["detail"]["level"] for event in events if "degraded" in event["action"]],
    }))

asyncio.run(main(*sys.argv[1:]))
"""


def run_apart(script: str, workspace: Path, state_dir: Path, *, limits: str = "true") -> str:
    """Run a script as root of a namespace, in which the kernel may set limits; return what it prints."""
    shell = f"{limits} && exec {sys.executable} -c '{script}' {workspace} {state_dir}"
    paths = os.pathsep.join(str(ROOT / folder) for folder in (".", "adapters", "feedback", "ops_logs"))
    run = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if "unshare" in run.stderr or "max_inotify" in run.stderr:
        pytest.skip("the system lets nobody set limits of their own")
    assert run.returncode == 0, run.stderr
    return run.stdout


def run_with_limits(limits: str, workspace: Path, state_dir: Path) -> dict[str, object]:
    """Run a memory where the kernel allows this user so few watches."""
    told = json.loads(run_apart(LIMITED, workspace, state_dir, limits=limits))
    assert isinstance(told, dict)
    return told


@on_linux
def test_where_nothing_can_be_watched_the_memory_works_and_says_so(workspace: Path, state_dir: Path) -> None:
    write(workspace / "memory" / "boat.md", "The hull is green.")

    told = run_with_limits("echo 0 > /proc/sys/user/max_inotify_instances", workspace, state_dir)

    reason = "the system allows no more watchers; raise fs.inotify.max_user_instances or `ulimit -n`"
    assert told == {
        "found": ["memory/boat.md"],
        "watch": {"state": "failed", "roots": [], "reason": reason},
        "stale": [f"the notes are not being watched; run `cmem index` after changes: {reason}"],
        "logged": ["failed"],
    }


@pytest.mark.thorough
@on_linux
def test_where_a_part_of_a_tree_cannot_be_watched_the_status_says_so(
    workspace: Path, state_dir: Path
) -> None:
    for number in range(20):
        write(workspace / "memory" / f"d{number}" / "boat.md", "The hull is green.")

    told = run_with_limits("echo 9 > /proc/sys/user/max_inotify_watches", workspace, state_dir)

    watch = told["watch"]
    assert isinstance(watch, dict)
    assert (watch["state"], told["logged"]) == ("partial", ["partial"])
    assert "max_user_watches" in watch["reason"]
