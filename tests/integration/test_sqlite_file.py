"""The file of the index: whole transactions, snapshots, cancellation, and errors that say what to do."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

from composable_memory.errors import IndexDamaged, IndexProblem
from composable_memory_adapters.sqlite_file import PAGE_BYTES, Connection, Recovery, SqliteFile, translate

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqliteFile]:
    async with SqliteFile.open(tmp_path / "index" / "notes.sqlite", readers=2) as file:
        await file.write(lambda connection: connection.execute("CREATE TABLE note (text)").fetchall())
        yield file


def add(text: str) -> Callable[[Connection], list[Any]]:
    return lambda connection: connection.execute("INSERT INTO note VALUES (?)", (text,)).fetchall()


def notes(connection: Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT text FROM note ORDER BY rowid")]


def other_file(path: Path, *texts: str) -> Path:
    """Make a sound file with these notes, as another program would."""
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE note (text)")
    connection.executemany("INSERT INTO note VALUES (?)", [(text,) for text in texts])
    connection.close()
    return path


def threads_of(file: SqliteFile) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if file.path.name in thread.name]


async def test_what_was_written_is_read(file: SqliteFile) -> None:
    await file.write(add("fog"))

    assert await file.read(notes) == ["fog"]


async def test_a_write_that_raises_leaves_nothing(file: SqliteFile) -> None:
    def half(connection: Connection) -> None:
        connection.execute("INSERT INTO note VALUES ('half')")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await file.write(half)

    assert await file.read(notes) == []


async def test_writes_run_in_the_order_they_were_handed_in(file: SqliteFile) -> None:
    await asyncio.gather(*(file.write(add(str(number))) for number in range(50)))

    assert await file.read(notes) == [str(number) for number in range(50)]


async def test_a_read_cannot_write(file: SqliteFile) -> None:
    with pytest.raises(IndexProblem, match="cannot be written"):
        await file.read(add("smuggled"))


async def test_a_read_sees_one_state_from_beginning_to_end(file: SqliteFile) -> None:
    began, written = threading.Event(), threading.Event()

    def twice(connection: Connection) -> tuple[list[str], list[str]]:
        first = notes(connection)
        began.set()
        assert written.wait(10)
        return first, notes(connection)

    reading = asyncio.create_task(file.read(twice))
    await asyncio.to_thread(began.wait, 10)
    await file.write(add("later"))
    written.set()

    assert await reading == ([], [])
    assert await file.read(notes) == ["later"]


async def test_reads_run_side_by_side(file: SqliteFile) -> None:
    meeting = threading.Barrier(2, timeout=10)

    await asyncio.gather(file.read(lambda _: meeting.wait()), file.read(lambda _: meeting.wait()))


async def test_a_cancelled_read_frees_its_thread(file: SqliteFile) -> None:
    began = threading.Event()

    def endless(connection: Connection) -> None:
        began.set()
        connection.execute(ENDLESS).fetchall()

    for _ in range(4):  # twice as often as there are readers
        began.clear()
        reading = asyncio.create_task(file.read(endless))
        await asyncio.to_thread(began.wait, 10)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    async with asyncio.timeout(10):
        assert await file.read(notes) == []


async def test_a_read_that_is_cancelled_between_two_statements_stops_there(file: SqliteFile) -> None:
    began, go_on = threading.Event(), threading.Event()
    reached: list[str] = []

    def slow(connection: Connection) -> None:
        began.set()
        assert go_on.wait(10)
        connection.execute("SELECT 1").fetchall()
        reached.append("the second statement")

    reading = asyncio.create_task(file.read(slow))
    await asyncio.to_thread(began.wait, 10)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    go_on.set()
    await file.close()

    assert reached == []


async def test_a_cancelled_write_that_waits_is_dropped(file: SqliteFile) -> None:
    go_on = threading.Event()
    first = asyncio.create_task(file.write(lambda _: go_on.wait(10)))
    second = asyncio.create_task(file.write(add("dropped")))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go_on.set()
    await first

    assert await file.read(notes) == []


async def test_a_cancelled_write_that_has_begun_is_stored_whole(file: SqliteFile) -> None:
    began, go_on = threading.Event(), threading.Event()

    def two(connection: Connection) -> None:
        connection.execute("INSERT INTO note VALUES ('one')")
        began.set()
        assert go_on.wait(10)
        connection.execute("INSERT INTO note VALUES ('two')")

    writing = asyncio.create_task(file.write(two))
    await asyncio.to_thread(began.wait, 10)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    go_on.set()
    await file.write(add("three"))

    assert await file.read(notes) == ["one", "two", "three"]


async def test_closing_finishes_the_writes_that_were_handed_in(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    async with SqliteFile.open(path) as file:
        await file.write(lambda connection: connection.execute("CREATE TABLE note (text)").fetchall())
        writes = [asyncio.create_task(file.write(add(str(number)))) for number in range(20)]
        await asyncio.sleep(0)
    await asyncio.gather(*writes)

    async with SqliteFile.open(path) as again:
        assert len(await again.read(notes)) == 20


async def test_closing_stops_a_read_and_says_so(file: SqliteFile) -> None:
    began = threading.Event()

    def endless(connection: Connection) -> None:
        began.set()
        connection.execute(ENDLESS).fetchall()

    reading = asyncio.create_task(file.read(endless))
    await asyncio.to_thread(began.wait, 10)
    await file.close()

    with pytest.raises(IndexProblem, match="it is closed; open it again"):
        await reading


async def test_closing_does_not_wait_for_ever_for_work_that_hangs(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def hang(connection: Connection) -> None:
        began.set()
        go_on.wait(60)

    opened = AsyncExitStack()
    file = await opened.enter_async_context(SqliteFile.open(tmp_path / "notes.sqlite", close_timeout_s=0.01))
    await file.write(lambda connection: None)
    reading = asyncio.create_task(file.read(hang))
    await asyncio.to_thread(began.wait, 10)
    with pytest.raises(IndexProblem, match="was not closed within"):
        await opened.aclose()
    go_on.set()
    await reading


async def test_a_closed_file_says_so_and_has_no_threads(file: SqliteFile) -> None:
    await file.read(notes)
    await asyncio.gather(file.close(), file.close())
    await file.close()

    assert threads_of(file) == []
    for call in (file.read, file.write):
        with pytest.raises(IndexProblem, match="it is closed; open it again"):
            await call(notes)


async def test_a_file_that_is_only_opened_starts_no_thread_and_makes_no_file(tmp_path: Path) -> None:
    async with SqliteFile.open(tmp_path / "notes.sqlite") as file:
        assert threads_of(file) == []

    assert not file.path.exists()


async def test_closing_leaves_one_file_and_no_log_beside_it(file: SqliteFile) -> None:
    await file.write(add("fog"))
    await file.read(notes)
    await file.close()

    assert [path.name for path in file.path.parent.iterdir()] == ["notes.sqlite"]


async def test_the_file_and_its_folder_are_for_their_owner_alone(file: SqliteFile) -> None:
    assert file.path.stat().st_mode & 0o077 == 0
    assert file.path.parent.stat().st_mode & 0o077 == 0


async def test_a_lock_of_another_program_is_named(tmp_path: Path) -> None:
    async with SqliteFile.open(tmp_path / "notes.sqlite", busy_timeout_s=0.05) as file:
        await file.write(lambda connection: connection.execute("CREATE TABLE note (text)").fetchall())
        other = apsw.Connection(str(file.path))
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(IndexProblem, match="another process kept it locked"):
            await file.write(add("fog"))
        other.close()
        await file.write(add("fog"))


async def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    def small(connection: Connection) -> None:
        connection.execute("PRAGMA max_page_count = 4")

    async with SqliteFile.open(tmp_path / "notes.sqlite", on_connect=small) as file:
        await file.write(lambda connection: connection.execute("CREATE TABLE note (text)").fetchall())
        await file.write(add("fog"))

        with pytest.raises(IndexProblem, match="the disk is full; free some space"):
            await file.write(add("x" * 100_000))

        await file.write(add("mist"))
        assert await file.read(notes) == ["fog", "mist"]


async def test_what_is_no_database_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    path.write_bytes(b"these are not the pages of a database" * 1000)

    async with SqliteFile.open(path) as file:
        for call in (file.read, file.write):
            with pytest.raises(IndexDamaged, match="cmem index"):
                await call(notes)


async def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    async with SqliteFile.open(tmp_path) as file:
        with pytest.raises(IndexProblem, match="cannot be opened; check that its folder"):
            await file.write(notes)


async def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file", encoding="utf-8")

    async with SqliteFile.open(tmp_path / "state" / "notes.sqlite") as file:
        with pytest.raises(IndexProblem, match="its folder cannot be used"):
            await file.write(notes)


async def test_work_that_raises_stop_iteration_does_not_hang(file: SqliteFile) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await file.read(lambda connection: next(connection.execute("SELECT 1 WHERE 0")))


# --- what is given back to the disk ---


def fill_and_clear(connection: Connection) -> None:
    connection.executemany("INSERT INTO note VALUES (?)", [("x" * 10_000,)] * 2000)
    connection.execute("DELETE FROM note")


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


async def test_compacting_gives_back_the_file_and_the_log(file: SqliteFile) -> None:
    await file.write(fill_and_clear)
    await file.write(add("fog"))
    await asyncio.gather(file.compact(), *(file.write(add(str(number))) for number in range(5)))
    await file.compact()

    assert file.path.stat().st_size < 200_000
    assert log_of(file.path).stat().st_size == 0
    assert await file.read(notes) == ["fog", "0", "1", "2", "3", "4"]


async def test_compacting_lets_other_writes_come_in_between(file: SqliteFile) -> None:
    await file.write(fill_and_clear)
    compacting = asyncio.create_task(file.compact())
    written = 0
    while not compacting.done():
        await file.write(add("fog"))
        written += 1
    await compacting

    assert written > 2
    assert len(await file.read(notes)) == written


async def test_compacting_empties_the_log_while_searches_go_on(file: SqliteFile) -> None:
    async def search() -> None:
        while not compacting.done():
            await file.read(notes)

    await file.write(lambda connection: connection.execute("PRAGMA wal_autocheckpoint = 0").get)
    await file.write(fill_and_clear)
    assert log_of(file.path).stat().st_size > 100_000
    compacting = asyncio.create_task(file.compact())
    await asyncio.gather(compacting, *(search() for _ in range(2)))

    assert log_of(file.path).stat().st_size == 0


async def test_compacting_does_not_wait_for_a_reader_that_stays(file: SqliteFile) -> None:
    await file.write(add("fog"))
    stays = apsw.Connection(str(file.path))
    stays.execute("BEGIN")
    assert notes(stays) == ["fog"]
    await file.write(fill_and_clear)

    async with asyncio.timeout(10):
        await file.compact()

    assert notes(stays) == ["fog"]
    stays.close()
    await file.compact()
    assert log_of(file.path).stat().st_size == 0


async def test_scrubbing_leaves_nothing_of_what_was_deleted_nor_of_damaged_files(file: SqliteFile) -> None:
    await file.write(add("secret fog"))
    await file.write(lambda connection: connection.execute("DELETE FROM note").fetchall())
    folder = file.path.parent
    neighbour = other_file(folder / "other.sqlite.damaged-1", "another file's")
    for damaged in (".damaged", ".damaged-20260301T120000", ".damaged-20260301T120000-wal"):
        file.path.with_name(f"{file.path.name}{damaged}").write_text("secret fog")

    await file.scrub()

    parts = {one.name: one.read_bytes() for one in folder.iterdir()}
    assert not any(b"secret fog" in text for text in parts.values())
    assert {name for name in parts if "damaged" in name} == {neighbour.name}


async def test_scrubbing_says_that_somebody_still_reads_what_was_deleted(file: SqliteFile) -> None:
    await file.write(add("fog"))
    stays = apsw.Connection(str(file.path))
    stays.execute("BEGIN")
    assert notes(stays) == ["fog"]
    await file.write(lambda connection: connection.execute("DELETE FROM note").fetchall())

    with pytest.raises(IndexProblem, match="another process keeps reading it; end that process"):
        await file.scrub()

    stays.close()
    await file.scrub()
    assert log_of(file.path).stat().st_size == 0


# --- files that become read-only, or give way to others ---


class ReadOnlyAtFirst:
    """Makes the first connections that write refuse to."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, connection: Connection) -> None:
        if self.left and not connection.readonly("main"):
            self.left -= 1
            connection.execute("PRAGMA query_only = 1")


async def test_a_write_is_done_again_when_the_file_had_become_read_only(tmp_path: Path) -> None:
    path = other_file(tmp_path / "notes.sqlite")
    async with SqliteFile.open(path, on_connect=ReadOnlyAtFirst(1)) as file:
        await file.write(add("fog"))
        await file.write(add("mist"))

        assert await file.read(notes) == ["fog", "mist"]
        said = "attempt to write a readonly database"
        assert file.recovery == Recovery(attempts=1, successes=1, last_error=said)


async def test_a_file_that_stays_read_only_is_named_after_one_more_try(tmp_path: Path) -> None:
    path, refusal = other_file(tmp_path / "notes.sqlite"), ReadOnlyAtFirst(99)
    async with SqliteFile.open(path, on_connect=refusal) as file:
        with pytest.raises(IndexProblem, match="it cannot be written; check the permissions"):
            await file.write(add("fog"))

        assert refusal.left == 97
        assert (file.recovery.attempts, file.recovery.successes, file.recovery.failures) == (1, 0, 1)
        assert await file.read(notes) == []


@pytest.mark.usefixtures("permissions_bind")
async def test_a_write_works_as_soon_as_permissions_are_repaired(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    async with SqliteFile.open(path) as file:
        await file.write(lambda connection: connection.execute("CREATE TABLE note (text)").fetchall())
    path.chmod(0o400)

    async with SqliteFile.open(path) as file:
        with pytest.raises(IndexProblem, match="check the permissions"):
            await file.write(add("fog"))
        assert await file.read(notes) == []
        path.chmod(0o600)
        await file.write(add("mist"))

        assert await file.read(notes) == ["mist"]


async def test_a_read_that_fails_is_done_again_on_the_file_that_has_taken_the_place(tmp_path: Path) -> None:
    # With a second reader, the last read might have come to one that opens the new file at once.
    async with SqliteFile.open(tmp_path / "notes.sqlite", readers=1) as file:
        await file.write(lambda connection: connection.execute("CREATE TABLE note (text)").fetchall())
        await file.write(add("fog"))
        await file.compact()
        await file.read(lambda connection: connection.pragma("user_version"))
        for part in await asyncio.to_thread(lambda: list(tmp_path.iterdir())):
            part.rename(part.with_name(f"old-{part.name}"))
        os.truncate(tmp_path / f"old-{file.path.name}", PAGE_BYTES)
        other_file(file.path, "rain")

        assert await file.read(notes) == ["rain"]
        assert (file.recovery.attempts, file.recovery.successes) == (1, 1)
        assert await asyncio.to_thread(file.was_replaced)


async def test_a_fault_in_a_file_that_is_still_there_is_not_tried_again(file: SqliteFile) -> None:
    with pytest.raises(IndexProblem, match="no such table"):
        await file.read(lambda connection: connection.execute("SELECT * FROM absent").fetchall())

    assert file.recovery == Recovery()


ERRORS = [kind for kind in vars(apsw).values() if isinstance(kind, type) and issubclass(kind, apsw.Error)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_the_database_names_the_file_and_what_to_do(kind: type[apsw.Error]) -> None:
    translated = translate(Path("notes.sqlite"), kind("the cause"))

    assert isinstance(translated, IndexProblem)
    assert str(translated).startswith("index notes.sqlite: ")
    assert "the cause" in str(translated)
    assert ";" in str(translated)
