"""The server that answers quickly: shared, watched over, started again, and never left behind."""

import asyncio
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.supervision.process_identity import host, start_of
from composable_memory_adapters.qmd.installation import find_command
from composable_memory_adapters.qmd.settings import DaemonSettings
from composable_memory_adapters.qmd.transport.daemon import Daemon, pause_s
from composable_memory_adapters.qmd.transport.qmd_client import ProcessTransport
from composable_memory_adapters.qmd.types import Home, Installation, SubSearch
from composable_memory_ops_logs import BackendDegraded, MemorySink, OpsLog
from tests.integration.graphiti.processes import HOUSES, children, eventually, is_running
from tests.integration.qmd.homes import PATIENCE_S, QUESTION, furnish, update
from tests.variants import variants

OWNER = """
import asyncio, sys
from pathlib import Path
from composable_memory_adapters.qmd.transport.daemon import Daemon
from composable_memory_adapters.qmd.settings import DaemonSettings
from composable_memory_adapters.qmd.types import Installation
from composable_memory_ops_logs import OpsLog
from tests.integration.qmd.homes import home_in

async def main():
    installation = Installation(command=tuple(sys.argv[2:]), version="2.8.3")
    daemon = Daemon(
        installation, home_in(Path(sys.argv[1])), DaemonSettings(), may_start=True, ops_log=OpsLog(None)
    )
    daemon.start()
    while daemon.status.state != "running":
        await asyncio.sleep(0.01)
    print(daemon.status.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

Make = Callable[..., Daemon]


@pytest.fixture
def installation(qmd_command: str) -> Installation:
    return Installation(command=find_command(qmd_command, os.environ), version="2.8.3")


@pytest.fixture(scope="session")
def made_index(qmd_command: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of the one note of a home, which each test has a copy of."""
    furnished = furnish(tmp_path_factory.mktemp("qmd") / "home")
    command = find_command(qmd_command, os.environ)
    asyncio.run(update(Installation(command=command, version="2.8.3"), furnished))
    return furnished.index_file


@pytest.fixture
def home(tmp_path: Path, made_index: Path) -> Home:
    """Return a home with an index of one note."""
    furnished = furnish(tmp_path / "qmd-home")
    shutil.copytree(made_index.parent, furnished.index_file.parent, dirs_exist_ok=True)
    return furnished


@pytest.fixture
async def make(home: Home, installation: Installation, ops_log: OpsLog) -> AsyncIterator[Make]:
    """Return what makes daemons of the home; they are closed after the test."""
    made: list[Daemon] = []

    def making(*, qmd: Installation = installation, may_start: bool = True, **settings: object) -> Daemon:
        made.append(
            Daemon(qmd, home, DaemonSettings.model_validate(settings), may_start=may_start, ops_log=ops_log)
        )
        return made[-1]

    yield making
    for daemon in made:
        await daemon.close()


@pytest.fixture
async def daemon(make: Make) -> Daemon:
    """Return a daemon that runs."""
    return await started(make())


async def started(daemon: Daemon) -> Daemon:
    daemon.start()
    await eventually(lambda: daemon.status.state == "running")
    return daemon


def pid_of(daemon: Daemon) -> int:
    pid = daemon.status.pid
    assert pid is not None
    return pid


def note_in(home: Home) -> Path:
    return home.root / "daemon.json"


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - iterdir would keep one open while it counts


# --- asking -------------------------------------------------------------------------------------------------


@pytest.mark.thorough
async def test_it_finds_what_the_command_line_finds(
    daemon: Daemon, installation: Installation, home: Home
) -> None:
    hits = await daemon.ask(QUESTION, timeout_s=PATIENCE_S)

    assert hits == await ProcessTransport(installation, home).ask(QUESTION, timeout_s=PATIENCE_S)
    assert [(hit.path, hit.start_line, hit.line_count) for hit in hits] == [("gateway.md", 1, 3)]


async def test_names_of_files_come_as_they_are(
    daemon: Daemon, installation: Installation, home: Home
) -> None:
    (home.root / "notes" / "数据 50%.md").write_text("elephant\n", encoding="utf-8")
    await update(installation, home)
    elephant = replace(QUESTION, searches=(SubSearch(kind="lex", text="elephant"),))

    hits = await daemon.ask(elephant, timeout_s=PATIENCE_S)

    assert hits == await ProcessTransport(installation, home).ask(elephant, timeout_s=PATIENCE_S)
    assert len(hits) == 1


@pytest.mark.thorough
async def test_many_questions_at_once_are_all_answered(daemon: Daemon) -> None:
    answers = await asyncio.gather(*(daemon.ask(QUESTION, timeout_s=PATIENCE_S) for _ in range(40)))

    assert [len(hits) for hits in answers] == [1] * 40


async def test_without_a_server_a_question_fails_at_once(make: Make) -> None:
    daemon = make()

    with pytest.raises(BackendUnavailable, match="not running"):
        await daemon.ask(QUESTION, timeout_s=PATIENCE_S)

    assert daemon.status.state == "off"


async def test_what_it_refuses_is_rejected(daemon: Daemon) -> None:
    unbalanced = replace(QUESTION, searches=(SubSearch(kind="lex", text='"gateway'),))

    with pytest.raises(BackendRejected, match="500"):
        await daemon.ask(unbalanced, timeout_s=PATIENCE_S)

    assert len(await daemon.ask(QUESTION, timeout_s=PATIENCE_S)) == 1


@pytest.mark.thorough
async def test_what_it_lacks_for_widening_a_question_is_told(daemon: Daemon) -> None:
    pid = pid_of(daemon)
    widened = replace(QUESTION, text="how fast?", searches=(), expand=True)

    with pytest.raises(BackendUnavailable, match="no models while the variable CI is set"):
        await daemon.ask(widened, timeout_s=PATIENCE_S)

    assert len(await daemon.ask(QUESTION, timeout_s=PATIENCE_S)) == 1
    assert pid_of(daemon) == pid


async def test_a_cancelled_question_leaves_it_usable(daemon: Daemon) -> None:
    asking = asyncio.create_task(daemon.ask(QUESTION, timeout_s=PATIENCE_S))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert len(await daemon.ask(QUESTION, timeout_s=PATIENCE_S)) == 1


@pytest.mark.thorough
async def test_a_server_that_is_slow_is_waited_for_no_longer_than_allowed(daemon: Daemon) -> None:
    pid = pid_of(daemon)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(BackendTimeout, match=r"limit 0\.2 s"):
            await daemon.ask(QUESTION, timeout_s=0.2)
    finally:
        os.kill(pid, signal.SIGCONT)

    assert len(await daemon.ask(QUESTION, timeout_s=PATIENCE_S)) == 1
    assert pid_of(daemon) == pid


# --- nobody else --------------------------------------------------------------------------------------------


def listening_ports(pid: int) -> list[str]:
    """Return the ports that a process and those of its session listen on."""
    inodes = set()
    for process in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with suppress(OSError):
            if os.getsid(int(process)) == os.getsid(pid):
                inodes |= {str(one.readlink()) for one in Path(f"/proc/{process}/fd").iterdir()}
    assert inodes
    tables = [Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:] for kind in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="there is no list of ports here")
async def test_no_port_is_opened_and_the_socket_is_ours_alone(daemon: Daemon) -> None:
    socket = str(daemon.status.address)
    modes = [os.stat(one).st_mode for one in (socket, os.path.dirname(socket))]  # noqa: PTH116, PTH120

    assert listening_ports(pid_of(daemon)) == []
    assert stat.S_ISSOCK(modes[0])
    assert [mode & 0o077 for mode in modes] == [0, 0]


async def test_a_qmd_that_would_open_a_port_all_the_same_does_not_start(
    make: Make, installation: Installation
) -> None:
    heedless = ("sh", "-c", 'unset NODE_OPTIONS; exec "$@"', "sh", *installation.command)

    daemon = make(qmd=replace(installation, command=heedless))
    daemon.start()
    await eventually(lambda: daemon.status.problem is not None)

    assert "ended at once" in str(daemon.status.problem)


@pytest.mark.thorough
async def test_a_killed_owner_leaves_no_socket(installation: Installation, home: Home) -> None:
    async with owner_of_a_server(installation, home) as (owner, _):
        folder = Path(json.loads(note_in(home).read_text(encoding="utf-8"))["address"]).parent
        assert folder.exists()
        os.kill(owner, signal.SIGKILL)
        await eventually(lambda: not folder.exists())


# --- beginning and end --------------------------------------------------------------------------------------


async def test_it_tells_how_it_is(daemon: Daemon) -> None:
    status = daemon.status

    assert (status.state, status.is_ours, status.problem) == ("running", True, None)
    assert is_running(pid_of(daemon))


async def test_closing_it_ends_the_server(daemon: Daemon, home: Home) -> None:
    pid = pid_of(daemon)

    await daemon.close()
    await daemon.close()

    await eventually(lambda: not is_running(pid))
    assert (note_in(home).exists(), daemon.status.state) == (False, "off")
    with pytest.raises(BackendUnavailable):
        await daemon.ask(QUESTION, timeout_s=PATIENCE_S)


async def test_a_daemon_that_is_closed_while_it_starts_leaves_nothing(make: Make, home: Home) -> None:
    before = children()
    daemon = make()
    daemon.start()
    await eventually(lambda: children() != before)

    await daemon.close()

    assert (children(), note_in(home).exists()) == (before, False)


async def test_one_that_is_switched_off_does_not_start(make: Make) -> None:
    daemon = make(enabled=False)

    daemon.start()

    assert (daemon.status.state, await daemon.find()) == ("off", False)


@pytest.mark.thorough
async def test_opening_and_closing_leave_neither_descriptor_nor_process(make: Make) -> None:
    await (await started(make())).close()
    before = open_descriptors(), children()

    for _ in range(3):
        await (await started(make())).close()

    assert (open_descriptors(), children()) == before


async def test_a_killed_server_is_missed_at_once_and_soon_back(daemon: Daemon, events: MemorySink) -> None:
    assert await daemon.ask(QUESTION, timeout_s=PATIENCE_S)
    killed = pid_of(daemon)

    os.kill(killed, signal.SIGKILL)
    with pytest.raises(BackendUnavailable):
        await daemon.ask(QUESTION, timeout_s=PATIENCE_S)
    await eventually(lambda: daemon.status.pid not in (killed, None))

    assert len(await daemon.ask(QUESTION, timeout_s=PATIENCE_S)) == 1
    degraded = [event.detail for event in events.events if isinstance(event.detail, BackendDegraded)]
    assert [one.what for one in degraded] == ["daemon"]
    assert "ended with 137" in degraded[0].reason


def test_what_fails_again_and_again_is_tried_ever_less_often() -> None:
    assert [pause_s(failures) for failures in (1, 2, 3, 4, 8, 9, 5000)] == [0, 1, 2, 4, 60, 60, 60]


# --- shared -------------------------------------------------------------------------------------------------


async def test_two_share_one_server(daemon: Daemon, make: Make) -> None:
    other = await started(make())

    assert pid_of(other) == pid_of(daemon)
    assert (daemon.status.is_ours, other.status.is_ours) == (True, False)
    assert await other.ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.thorough
async def test_of_two_that_start_at_once_one_has_the_server(make: Make) -> None:
    first, second = make(), make()
    first.start()
    second.start()
    await eventually(lambda: {first.status.state, second.status.state} == {"running"})

    assert pid_of(first) == pid_of(second)
    assert {first.status.is_ours, second.status.is_ours} == {True, False}


@pytest.mark.thorough
async def test_one_that_may_start_none_uses_that_of_another(daemon: Daemon, make: Make) -> None:
    guest = make(may_start=False)

    assert await guest.find()

    assert pid_of(guest) == pid_of(daemon)
    assert await guest.ask(QUESTION, timeout_s=PATIENCE_S)


async def test_one_that_may_start_none_does_not(make: Make) -> None:
    daemon = make(may_start=False)

    daemon.start()

    assert (await daemon.find(), daemon.status.state) == (False, "off")


@pytest.mark.thorough
async def test_closing_a_guest_leaves_the_server_alone(daemon: Daemon, make: Make) -> None:
    guest = await started(make())

    await guest.close()

    assert await daemon.ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.thorough
async def test_a_guest_has_a_server_of_its_own_when_its_host_leaves(daemon: Daemon, make: Make) -> None:
    guest = await started(make())
    left = pid_of(daemon)

    await daemon.close()
    with pytest.raises(BackendUnavailable):
        await guest.ask(QUESTION, timeout_s=PATIENCE_S)
    await eventually(lambda: guest.status.pid not in (left, None))

    assert guest.status.is_ours
    assert await guest.ask(QUESTION, timeout_s=PATIENCE_S)


@asynccontextmanager
async def owner_of_a_server(installation: Installation, home: Home) -> AsyncIterator[tuple[int, int]]:
    """Run another process that starts a server; yields its number and that of the server."""
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(home.root), *installation.command),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, HOUSES))},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert owner.stdout is not None
        yield owner.pid, int(await asyncio.wait_for(owner.stdout.readline(), PATIENCE_S))
    finally:
        if owner.returncode is None:
            owner.kill()
        await owner.communicate()


@pytest.mark.thorough
async def test_two_processes_share_one_server(make: Make, installation: Installation, home: Home) -> None:
    async with owner_of_a_server(installation, home) as (_, server):
        guest = await started(make())

        assert (pid_of(guest), guest.status.is_ours) == (server, False)
        assert await guest.ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.thorough
async def test_a_server_ends_with_a_killed_owner_and_a_guest_starts_another(
    make: Make, installation: Installation, home: Home
) -> None:
    async with owner_of_a_server(installation, home) as (owner, server):
        guest = await started(make())
        os.kill(owner, signal.SIGKILL)
        await eventually(lambda: not is_running(server))

    with pytest.raises(BackendUnavailable):
        await guest.ask(QUESTION, timeout_s=PATIENCE_S)
    await eventually(lambda: guest.status.is_ours and guest.status.state == "running")

    assert await guest.ask(QUESTION, timeout_s=PATIENCE_S)


# --- what may be found --------------------------------------------------------------------------------------


OURS: dict[str, object] = {
    "address": "/tmp/there-is-none",
    "pid": os.getpid(),
    "host": host(),
    "started": start_of(os.getpid()),
}
"""What a note says of a server in this very process."""


STALE = {
    "of a dead process": json.dumps(OURS | {"pid": 2**22 + 1}),
    "of another process by now": json.dumps(OURS | {"started": "1"}),
    "of a process that does not listen": json.dumps(OURS),
    "of one that has a port": json.dumps(OURS | {"address": "http://127.0.0.1:8181"}),
    "no note at all": "{",
    "empty": "",
}


@pytest.mark.parametrize("stale", variants(STALE, "of a dead process"))
async def test_a_stale_note_does_not_keep_it_from_starting(make: Make, home: Home, stale: str) -> None:
    note_in(home).write_text(STALE[stale], encoding="utf-8")

    daemon = await started(make())

    assert daemon.status.is_ours
    assert json.loads(note_in(home).read_text(encoding="utf-8"))["pid"] == pid_of(daemon)


def faulty(tmp_path: Path, script: str) -> Installation:
    program = tmp_path / "faulty-qmd"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    return Installation(command=("sh", str(program)), version="2.8.3")


@pytest.mark.parametrize(
    ("script", "told", "timeout_s"),
    [
        ("echo Error: no luck >&2; exit 1", "no luck", PATIENCE_S),
        ("kill -SEGV $$", "it said nothing", PATIENCE_S),
        ("exec sleep 600", "did not listen after 0.5 s", 0.5),
    ],
)
async def test_a_server_that_does_not_start_is_told(
    make: Make, tmp_path: Path, script: str, told: str, timeout_s: float
) -> None:
    before = children()
    daemon = make(qmd=faulty(tmp_path, script), start_timeout_ms=int(timeout_s * 1000))

    daemon.start()
    await eventually(lambda: daemon.status.problem is not None)
    problem = daemon.status.problem
    await daemon.close()

    assert problem is not None
    assert told in problem
    assert children() == before


@asynccontextmanager
async def answering(home: Home, answer: bytes) -> AsyncIterator[None]:
    """Have a server in this process noted that is well, and gives this answer to every question."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" if b"/health" in asked else answer)
        await writer.drain()
        writer.close()

    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/s"
        async with await asyncio.start_unix_server(serve, address):
            note_in(home).write_text(json.dumps(OURS | {"address": address}), encoding="utf-8")
            yield


OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    variants(
        [
            (OK + b"<html>", BackendGarbled, "expected a JSON object, got <html>"),
            (OK, BackendGarbled, "got nothing"),
            (OK + b'{"results": 3}', BackendGarbled, "expected a list of results"),
            (OK + b'{"results": [{"file": 3}]}', BackendGarbled, r"at 0\.file"),
            (OK + b"[" * 100_000, BackendGarbled, "expected a JSON object"),
            (OK + b" " * 5_000_000, BackendGarbled, "at most 4 MiB"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", BackendUnavailable, "broke off"),
            (b"", BackendUnavailable, "broke off"),
            (b"SSH-2.0\r\n", BackendUnavailable, "broke off"),
            (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", BackendRejected, "403 Forbidden: no"),
        ],
        (OK, BackendGarbled, "got nothing"),
        (b"", BackendUnavailable, "broke off"),
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", BackendRejected, "403 Forbidden: no"),
    ),
)
async def test_an_answer_that_cannot_be_used_is_told_by_what_it_is(
    make: Make, home: Home, answer: bytes, error: type[BackendError], told: str
) -> None:
    async with answering(home, answer):
        guest = make(may_start=False)
        assert await guest.find()

        with pytest.raises(error, match=told):
            await guest.ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"result": {"structuredContent": {"results": [{"file": "notes/a b.md"}]}}}',
        b'event: message\ndata: {"result": {"structuredContent": {"results": [{"file": "notes/a b.md"}]}}}\n',
    ],
)
async def test_a_widened_question_is_answered_in_either_form(make: Make, home: Home, answer: bytes) -> None:
    widened = replace(QUESTION, searches=(), expand=True)

    async with answering(home, OK + answer):
        guest = make(may_start=False)
        await guest.find()
        hits = await guest.ask(widened, timeout_s=PATIENCE_S)

    assert [(hit.collection, hit.path) for hit in hits] == [("notes", "a b.md")]
