"""Things that go wrong while indexing, with real processes, files and databases: nothing is lost."""

import asyncio
import os
import random
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from benchmarks import kill_rounds
from composable_memory.errors import BackendError, IndexDamaged, IndexProblem, MemoryPathError
from composable_memory.interfaces import BackendServices, HideForgotten, hide_nothing
from composable_memory.supervision.single_flight import Flight
from composable_memory.testing import HashEmbedder
from composable_memory_adapters.builtin.backend import open_builtin
from composable_memory_adapters.builtin.index_file import ensure_tables
from composable_memory_adapters.builtin.notes.changed_notes import Drafter
from composable_memory_adapters.builtin.notes.note_files import scan
from composable_memory_adapters.builtin.settings import BuiltinSettings, ChunkingSettings
from composable_memory_adapters.builtin.sync.synchroniser import Synchroniser
from composable_memory_adapters.sqlite_file import PAGE_BYTES, Connection, SqliteFile
from composable_memory_ops_logs import MemorySink, SyncFailed
from tests.rounds import rounds
from tests.variants import variants

NO_SYNC = BuiltinSettings.model_validate({"sync": {"onSearch": False}})


async def index_of(services: BackendServices) -> Path:
    """Sync, close, and return the file."""
    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
        return Path(memory.status().db_path or "")


def open_to_others(folder: Path) -> list[Path]:
    """Return what is below a folder and has other permissions than 600, of folders 700."""
    found = [*folder.rglob("*")]
    assert len(found) >= 4
    return [one for one in found if one.stat().st_mode & 0o777 != (0o700 if one.is_dir() else 0o600)]


@contextmanager
def permissions(folder: Path, mode: int) -> Iterator[None]:
    folder.chmod(mode)
    try:
        yield
    finally:
        folder.chmod(0o700)


def flight_for(reason: str) -> Flight:
    flight = Flight()
    flight.join(reason, force=False, progress=None)
    return flight


def synchroniser_of(
    services: BackendServices, file: SqliteFile, hide: HideForgotten = hide_nothing
) -> Synchroniser:
    return Synchroniser(
        file=file,
        workspace=services.workspace_dir,
        settings=NO_SYNC,
        embedder=None,
        space=None,
        ops_log=services.ops_log,
        clock=services.clock,
        hide=hide,
    )


@asynccontextmanager
async def synchroniser(
    services: BackendServices, path: Path, hide: HideForgotten = hide_nothing
) -> AsyncIterator[Synchroniser]:
    """Open an index file, and sync all notes once."""
    async with SqliteFile.open(path) as file:
        sync = synchroniser_of(services, file, hide)
        await sync.run(flight_for("boot"))
        yield sync


# --- processes that die, and that share ---


@pytest.mark.parametrize("kind", variants(kill_rounds.KINDS, "sync"))
async def test_a_killed_process_leaves_an_index_that_goes_on(tmp_path: Path, kind: str) -> None:
    tally = await kill_rounds.run(tmp_path, rounds=rounds(2, explore=20), notes=60, seed=7, kind=kind)

    assert tally.wrong == []


@pytest.mark.thorough
async def test_two_processes_index_the_same_notes_at_once(tmp_path: Path) -> None:
    notes = 200
    await asyncio.to_thread(kill_rounds.write_notes, tmp_path, range(notes), random.Random(3))
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            kill_rounds.__file__,
            *("--child", str(tmp_path)),
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        for _ in range(2)
    ]
    async with open_builtin(NO_SYNC, kill_rounds.services(tmp_path)) as memory:
        report = await memory.sync()
        codes = [await child.wait() for child in children]
        last = await memory.sync()
        path = Path(memory.status().db_path or "")
        found = await asyncio.to_thread(kill_rounds.faults_in, path)

    assert (codes, report.problems, found) == ([0, 0], (), [])
    assert (last.files_indexed + last.files_unchanged, last.embeddings_pending) == (notes, 0)


AT_ONCE = """
import asyncio, random, sys
from pathlib import Path
from benchmarks import kill_rounds
from composable_memory_adapters.builtin.backend import open_builtin

async def add_notes(root, first):
    async with open_builtin(kill_rounds.SETTINGS, kill_rounds.services(root)) as memory:
        for number in range(first, first + 24, 3):
            kill_rounds.write_notes(root, range(number, number + 3), random.Random(number))
            answers = (memory.search(f"{kill_rounds.IN_EVERY_NOTE} ferry") for _ in range(4))
            report, *_ = await asyncio.gather(memory.sync(force=number % 4 == 0), *answers)
            assert not report.problems, report.problems

asyncio.run(add_notes(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.thorough
async def test_processes_that_add_rebuild_and_search_at_once_lose_nothing(tmp_path: Path) -> None:
    path = os.pathsep.join(path for path in [str(Path(kill_rounds.__file__).parents[1]), *sys.path] if path)
    children = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", AT_ONCE, str(tmp_path), first),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        for first in ("0", "100")
    ]
    said = [(await child.communicate())[1].decode() for child in children]

    assert said == ["", ""]
    (index,) = (tmp_path / "state" / "memory").glob("*.sqlite")
    names = [*range(24), *range(100, 124)]
    assert (await asyncio.to_thread(kill_rounds.holdings, index)).notes == {
        f"memory/{name:04}.md" for name in names
    }
    assert await asyncio.to_thread(kill_rounds.faults_in, index) == []


async def test_two_memories_on_one_file_do_not_get_in_each_others_way(services: BackendServices) -> None:
    handed = replace(services, embedder=HashEmbedder())
    async with open_builtin(NO_SYNC, handed) as one, open_builtin(NO_SYNC, handed) as two:
        for _ in range(3):
            reports = await asyncio.gather(one.sync(force=True), two.sync(), one.sync(), two.sync(force=True))
            assert [report.problems for report in reports] == [()] * 4
        await asyncio.gather(one.sync(), two.sync())

        assert one.status().chunks == two.status().chunks
        assert kill_rounds.faults_in(Path(one.status().db_path or "")) == []


# --- files that are damaged, full, or closed to us ---


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("damage", ["not a database", "half a database", "a page of nothing"])
async def test_a_damaged_index_is_set_aside_by_a_sync(
    services: BackendServices, damage: str, force: bool
) -> None:
    path = await index_of(services)
    data = path.read_bytes()
    path.write_bytes(
        {
            "not a database": b"nothing of the kind" * 1000,
            "half a database": data[: len(data) // 2],
            "a page of nothing": data[:16384] + b"\xa5" * 16384 + data[32768:],
        }[damage]
    )
    damaged = path.read_bytes()

    async with open_builtin(NO_SYNC, services) as memory:
        await memory.check()
        report = await memory.sync(force=force)
        answer = await memory.answer("pump relay")

        assert (report.files_indexed, len(report.problems)) == (9, 1)
        assert ".damaged-" in report.problems[0]
        assert answer.results[0].path == "memory/2026-03-05.md"
        assert memory.status().custom.get("lastSyncError") is None
    (aside,) = [file for file in path.parent.glob("*.damaged-*") if file.name[-4:] not in ("-wal", "-shm")]
    assert len(aside.read_bytes()) == len(damaged)
    async with open_builtin(NO_SYNC, services) as memory:
        assert await memory.check() == ()


async def test_a_damaged_index_says_what_to_do_and_a_search_does_not_touch_it(
    services: BackendServices,
) -> None:
    path = await index_of(services)
    path.write_bytes(b"nothing of the kind" * 1000)

    async with open_builtin(NO_SYNC, services) as memory:
        with pytest.raises(BackendError, match="your notes are untouched: `cmem index`"):
            await memory.answer("pump")
        assert memory.status().dirty is True
        assert "not a valid database" in str(memory.status().custom["lastSyncError"])
        assert (await memory.read_file("MEMORY.md")).text.startswith("# Lasting notes")

    assert path.read_bytes() == b"nothing of the kind" * 1000


async def test_a_file_that_may_be_another_programs_is_only_set_aside_by_force(
    services: BackendServices, tmp_path: Path
) -> None:
    path = tmp_path / "accounts.txt"
    path.write_bytes(b"nothing of the kind" * 1000)
    settings = BuiltinSettings.model_validate({"sync": {"onSearch": False}, "store": {"path": str(path)}})

    async with open_builtin(settings, services) as memory:
        with pytest.raises(BackendError, match="--force"):
            await memory.sync()
        assert path.read_bytes() == b"nothing of the kind" * 1000
        assert (await memory.sync(force=True)).files_indexed == 9


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE files SET path = CAST(x'ff6d642e6d64' AS TEXT) WHERE path = 'MEMORY.md'",
        "UPDATE meta SET value = CAST(x'7bff' AS TEXT) WHERE key = 'last_sync'",
        "UPDATE meta SET value = '{}' WHERE key = 'last_sync'",
        "UPDATE meta SET value = 'seven' WHERE key = 'revision'",
        "UPDATE meta SET value = '[1]' WHERE key = 'space'",
    ],
)
async def test_damage_that_sqlite_does_not_see_is_named_and_can_be_mended(
    services: BackendServices, damage: str
) -> None:
    services = replace(services, embedder=HashEmbedder())
    path = await index_of(services)
    async with SqliteFile.open(path) as file:
        await file.write(lambda connection: connection.execute(damage))

    async with open_builtin(NO_SYNC, services) as memory:
        assert any("`cmem index`" in one for one in await memory.check())
        report = await memory.sync()
        assert "damaged" in report.problems[0]
        assert await memory.check() == ()

        assert await memory.search("dock")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sqlite_schema SET sql = replace(sql, 'start_line', 'start_lime') WHERE name = 'chunks'",
        "UPDATE sqlite_schema SET sql = replace(sql, 'unicode61', 'unicode62') WHERE name = 'chunks_fts'",
        "UPDATE sqlite_schema SET tbl_name = 'Files' WHERE name = 'files'",
        "UPDATE sqlite_schema SET name = 'chunks_fts_date' WHERE name = 'chunks_fts_data'",
        "DROP TABLE meta",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 1090519041",
        "PRAGMA application_id = 7",
    ],
)
async def test_tables_that_are_not_as_they_were_made_are_named_and_can_be_mended(
    services: BackendServices, damage: str
) -> None:
    path = await index_of(services)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = 1")
    connection.execute(damage)
    connection.close()

    async with open_builtin(NO_SYNC, services) as memory:
        assert any("`cmem index`" in one for one in await memory.check())
        report = await memory.sync()
        assert "damaged" in report.problems[0]
        assert await memory.check() == ()

        assert (await memory.search("pump relay"))[0].path == "memory/2026-03-05.md"


@pytest.mark.parametrize("is_moved", [True, False], ids=["set aside", "deleted"])
async def test_a_memory_moves_to_the_file_that_another_process_has_put_in_place(
    services: BackendServices, workspace: Path, is_moved: bool
) -> None:
    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
        path = Path(memory.status().db_path or "")
        for part in path.parent.glob(f"{path.name}*"):
            part.rename(part.with_name(f"old-{part.name}")) if is_moved else part.unlink()
        async with open_builtin(NO_SYNC, services) as other:
            await other.sync()
        (workspace / "memory" / "quagga.md").write_text("A quagga was seen.", encoding="utf-8")
        await memory.sync()

        async with open_builtin(NO_SYNC, services) as other:
            found = await other.search("quagga")

    assert [result.path for result in found] == ["memory/quagga.md"]


async def test_a_sync_that_fails_is_logged(services: BackendServices, events: MemorySink) -> None:
    path = await index_of(services)
    path.write_bytes(b"nothing of the kind" * 1000)
    async with SqliteFile.open(path) as file:
        sync = synchroniser_of(services, file)
        with pytest.raises(IndexDamaged):
            await sync.run(flight_for("watch"))

    (failed,) = events.details(SyncFailed)
    assert (failed.reason, failed.error.type) == ("watch", "IndexDamaged")


async def test_others_can_write_while_a_note_that_was_named_is_read(
    services: BackendServices, workspace: Path
) -> None:
    path, read = await index_of(services), list[str]()

    def write_meanwhile(text: str, _source: str) -> str:
        with closing(apsw.Connection(str(path))) as other:
            other.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('other', 'was here')")
        read.append(text)
        return text

    async with synchroniser(services, path, write_meanwhile) as sync:
        note = workspace / "MEMORY.md"
        note.write_text("The hull is green.", encoding="utf-8")
        report = await sync.run(flight_for("watch"), {str(note)})

    assert report is not None
    assert (report.files_indexed, read[-1]) == (1, "The hull is green.")


async def test_that_a_sync_looks_at_the_notes_is_told_before_it_does(
    services: BackendServices, workspace: Path
) -> None:
    path, flight, told = await index_of(services), flight_for("watch"), list[object]()

    def note_progress(text: str, _source: str) -> str:
        told.append(flight.progress)
        return text

    async with synchroniser(services, path, note_progress) as sync:
        note = workspace / "MEMORY.md"
        note.write_text("The hull is green.", encoding="utf-8")
        await sync.run(flight, {str(note)})

    assert told[-1] is not None


async def test_after_a_write_that_failed_a_note_that_could_not_be_read_is_not_lost_sight_of(
    services: BackendServices, workspace: Path
) -> None:
    path = await index_of(services)
    large, note = workspace / "memory" / "large.md", workspace / "MEMORY.md"
    large.touch()
    os.truncate(large, 2**29)
    async with synchroniser(services, path) as sync:
        with closing(apsw.Connection(str(path))) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE UPDATE ON meta WHEN new.key = 'last_sync'"
                " BEGIN SELECT RAISE(ABORT, 'no space'); END"
            )
        large.write_text("The mast is high.", encoding="utf-8")
        note.write_text("The hull is green.", encoding="utf-8")
        with pytest.raises(IndexProblem, match="no space"):
            await sync.run(flight_for("watch"), {str(note)})
        with closing(apsw.Connection(str(path))) as other:
            other.execute("DROP TRIGGER full")
        report = await sync.run(flight_for("watch"), {str(note)})

    assert report is not None
    assert (report.files_indexed, report.problems) == (2, ())


async def test_an_empty_file_is_a_new_index(services: BackendServices) -> None:
    path = await index_of(services)
    path.write_bytes(b"")

    async with open_builtin(NO_SYNC, services) as memory:
        assert (await memory.sync()).files_indexed == 9


async def test_a_full_disk_stops_the_sync_and_keeps_the_old_index(
    services: BackendServices, workspace: Path
) -> None:
    path = await index_of(services)

    def small(connection: Connection) -> None:
        connection.execute(f"PRAGMA max_page_count = {path.stat().st_size // PAGE_BYTES + 4}")

    for number in range(40):
        (workspace / "memory" / f"big{number}.md").write_text(f"weather {number} " * 2000, encoding="utf-8")
    async with SqliteFile.open(path, on_connect=small) as file:
        await ensure_tables(file)
        sync = synchroniser_of(services, file)
        with pytest.raises(IndexProblem, match="the disk is full; free some space and run `cmem index`"):
            await sync.run(flight_for("cli"))

    assert kill_rounds.faults_in(path) == []
    async with open_builtin(NO_SYNC, services) as memory:
        assert (await memory.search("pump relay"))[0].path == "memory/2026-03-05.md"
        assert (await memory.sync()).files_indexed == 40


@pytest.mark.usefixtures("permissions_bind")
async def test_a_folder_that_cannot_be_written_is_named(services: BackendServices, state_dir: Path) -> None:
    with permissions(state_dir, 0o500), pytest.raises(BackendError, match="folder cannot be used"):
        async with open_builtin(NO_SYNC, services):
            pass


@pytest.mark.usefixtures("permissions_bind")
async def test_an_index_that_cannot_be_written_still_answers(
    services: BackendServices, workspace: Path
) -> None:
    path = await index_of(services)
    (workspace / "memory" / "new.md").write_text("a lighthouse", encoding="utf-8")

    with permissions(path, 0o400):
        async with open_builtin(NO_SYNC, services) as memory:
            with pytest.raises(BackendError, match="cannot be written; check the permissions"):
                await memory.sync()

            assert (await memory.search("pump relay"))[0].path == "memory/2026-03-05.md"


async def test_a_file_in_the_place_of_the_folder_is_named(services: BackendServices, state_dir: Path) -> None:
    (state_dir / "memory").write_text("in the way", encoding="utf-8")

    with pytest.raises(BackendError, match="its folder cannot be used"):
        async with open_builtin(NO_SYNC, services):
            pass


# --- notes that are odd ---


@pytest.mark.usefixtures("permissions_bind")
async def test_a_folder_that_cannot_be_read_keeps_its_rows(
    services: BackendServices, workspace: Path
) -> None:
    folder = workspace / "memory" / "projects"
    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
        with permissions(folder, 0):
            report = await memory.sync()
            answer = await memory.answer("greenhouse")

    assert report.problems == ("memory/projects: Permission denied",)
    assert report.files_removed == 0
    assert "unreadable-files" in [one.code for one in answer.degraded]


async def test_a_workspace_that_is_gone_keeps_its_rows(services: BackendServices, workspace: Path) -> None:
    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
        await asyncio.to_thread(workspace.rename, workspace.with_name("away"))
        report = await memory.sync()

        assert (report.files_removed, memory.status().files) == (0, 9)
        assert "does not exist" in report.problems[0]


def test_notes_and_folders_that_vanish_while_they_are_listed_are_no_problem(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "memory" / "deep").mkdir()
    (workspace / "memory" / "stays.md").write_text("it stays", encoding="utf-8")
    listed = os.scandir

    def scandir(path: str) -> Iterator[os.DirEntry[str]]:
        if path.endswith("deep"):
            (workspace / "memory" / "deep").rmdir()
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = scan(workspace)

    assert "memory/stays.md" in [file.key for file in report.files]
    assert dict(report.unreadable) == {}


async def test_what_an_index_writes_is_for_its_owner_alone_whatever_the_umask(
    services: BackendServices, state_dir: Path
) -> None:
    usual = os.umask(0)
    try:
        path = await index_of(services)
        path.write_bytes(b"nothing of the kind" * 1000)
        async with open_builtin(NO_SYNC, services) as memory:
            await memory.sync()
            wrong = await asyncio.to_thread(open_to_others, state_dir)
    finally:
        os.umask(usual)

    assert wrong == []


def test_a_note_that_vanishes_before_it_is_read_is_no_problem(workspace: Path) -> None:
    drafter = Drafter(chunking=ChunkingSettings(), keywords=True)
    changed = drafter.changed(scan(workspace), {})
    (workspace / "memory" / "boat.md").unlink(missing_ok=True)
    (workspace / "MEMORY.md").unlink()
    group = drafter.group(changed, 0)

    assert (group.vanished, group.unread) == (True, {})
    assert "MEMORY.md" not in [draft.key for draft in group.drafts]


async def test_a_note_in_latin_1_is_found_by_its_words_and_named_until_it_is_utf8(
    services: BackendServices, workspace: Path
) -> None:
    latin = workspace / "memory" / "latin.md"
    latin.write_bytes("# Orte\n\nDas Café am Gasometer – schön.".encode("cp1252"))

    async with open_builtin(NO_SYNC, services) as memory:
        report = await memory.sync()
        (hit,) = await memory.search("Café")

        assert len(report.problems) == 1
        assert "memory/latin.md" in report.problems[0]
        assert (hit.path, hit.start_line, hit.end_line) == ("memory/latin.md", 1, 3)
        assert "Das Café am Gasometer – schön." in hit.snippet
    async with open_builtin(NO_SYNC, services) as memory:  # also by those who have not read it
        again = await memory.sync()
        answer = await memory.answer("Café")

        assert (again.files_indexed, again.problems) == (0, report.problems)
        assert memory.status().custom["problems"] == list(report.problems)
        assert [one.code for one in answer.degraded if one.code == "unreadable-files"] == []
        latin.write_text("Das Café am Gasometer", encoding="utf-8")

        assert (await memory.sync()).problems == ()
        assert memory.status().custom["problems"] == []


async def test_a_note_that_is_no_text_is_named_and_not_indexed(
    services: BackendServices, workspace: Path
) -> None:
    note = workspace / "memory" / "odd.md"
    note.write_bytes(b"gasometer")

    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
        note.write_bytes(b"gasometer\x7fELF\0\0\xff\xfe")
        report = await memory.sync()
        answer = await memory.answer("gasometer")

        assert "memory/odd.md" not in [one.path for one in answer.results]
        assert [one.partition(":")[0] for one in report.problems] == ["memory/odd.md"]
        assert (await memory.sync()).problems == report.problems
        assert [one.code for one in answer.degraded if one.code == "unreadable-files"] == []
        assert memory.status().custom["problems"] == list(report.problems)
        with pytest.raises(MemoryPathError):
            await memory.read_file("memory/odd.md")


async def test_what_an_earlier_version_has_not_read_in_full_is_read_again(
    services: BackendServices, workspace: Path
) -> None:
    (workspace / "memory" / "latin.md").write_bytes("Das Café".encode("latin-1"))
    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
    index = next(services.state_dir.glob("memory/*.sqlite"))
    with closing(sqlite3.connect(index)) as file, file:
        file.execute("UPDATE files SET is_utf8 = 0 WHERE path = 'memory/latin.md'")

    async with open_builtin(NO_SYNC, services) as memory:
        assert (await memory.sync()).files_indexed == 1
        assert (await memory.sync()).files_indexed == 0


async def test_nul_characters_do_not_cut_a_note(services: BackendServices, workspace: Path) -> None:
    (workspace / "memory" / "nul.md").write_bytes(b"before the zero\0after the zero: gasometer")

    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
        (hit,) = await memory.search("gasometer")

        assert hit.path == "memory/nul.md"


@pytest.mark.thorough
async def test_a_huge_note_is_indexed_whole_while_searches_go_on(
    services: BackendServices, workspace: Path
) -> None:
    lines = (f"line {number} of the weather log, with wind and rain" for number in range(80_000))
    (workspace / "memory" / "huge.md").write_text("\n".join(lines) + "\ngasometer", encoding="utf-8")
    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
        (workspace / "memory" / "huge.md").touch()
        syncing = asyncio.create_task(memory.sync(force=True))
        searches = 0
        while not syncing.done():
            assert (await memory.search("gasometer"))[0].end_line == 80_001
            searches += 1

        assert (await syncing).problems == ()
        assert searches > 1


async def test_lines_without_end_are_indexed(services: BackendServices, workspace: Path) -> None:
    (workspace / "memory" / "minified.md").write_text("x" * 500_000 + " gasometer", encoding="utf-8")

    async with open_builtin(NO_SYNC, services) as memory:
        report = await memory.sync()

        assert report.problems == ()
        assert (await memory.search("gasometer"))[0].path == "memory/minified.md"


@pytest.mark.parametrize("at", [2**63 + 10**9, -(2**62)], ids=["year 2262", "year 1823"])
async def test_a_note_from_another_age_keeps_no_other_from_being_found(
    services: BackendServices, workspace: Path, at: int
) -> None:
    """File systems know times that a database cannot hold."""
    (workspace / "memory" / "odd.md").write_text("gasometer", encoding="utf-8")
    os.utime(workspace / "memory" / "odd.md", ns=(at, at))
    async with open_builtin(NO_SYNC, services) as memory:
        first = await memory.sync()

        assert first.problems == ()
        assert (await memory.search("gasometer"))[0].path == "memory/odd.md"
        assert (await memory.sync(reason="again")).files_removed == 0
