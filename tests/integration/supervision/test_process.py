"""Commands under the guard: limits that hold, and nothing left of them, however they or we end."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Literal

import pytest

from composable_memory.errors import BackendError, BackendGarbled, BackendTimeout, BackendUnavailable
from composable_memory.supervision.file_lock import hold_lock
from composable_memory.supervision.process import GuardedProcess, GuardedServer
from composable_memory.supervision.run_command import Reply, run_command
from tests.integration.graphiti.processes import HOUSES, children, eventually, is_running

FOREVER = "exec sleep 600"
STUBBORN = "trap '' TERM; while :; do sleep 600; done"
OWNER = """
import asyncio, os, sys
from pathlib import Path
from composable_memory.supervision.run_command import run_command

asyncio.run(run_command(
    ["sh", "-c", sys.argv[1]],
    environ=dict(os.environ), cwd=Path.cwd(), timeout_s=600.0, owner="test", operation="wait for its end",
))
"""

SWEEPER = """
import asyncio, os, sys
from pathlib import Path
from composable_memory.supervision.process import GuardedProcess

async def main():
    process = await GuardedProcess.start(
        ["sh", "-c", sys.argv[1]], environ=dict(os.environ), cwd=Path.cwd(), owner="test", operation="try",
        on_output=lambda _fd, _data: None, sweeps=True,
    )
    await asyncio.to_thread(sys.stdin.readline)
    if not sys.argv[2]:
        await process.wait()
    await process.stop()

asyncio.run(main())
"""


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., Coroutine[object, object, Reply]]:
    """Return what runs a line of shell, in a folder of its own and with a limit that fits most."""

    async def running(
        script: str,
        *,
        timeout_s: float = 20.0,
        max_output_bytes: int = 2**20,
        overflow: Literal["refuse", "keep-end"] = "refuse",
    ) -> Reply:
        return await run_command(
            ["sh", "-c", script],
            environ={"PATH": os.environ["PATH"], "GREETING": "hello"},
            cwd=tmp_path,
            timeout_s=timeout_s,
            owner="test",
            operation="try",
            max_output_bytes=max_output_bytes,
            overflow=overflow,
        )

    return running


Shell = Callable[..., Coroutine[object, object, Reply]]


def noted_pid(tmp_path: Path) -> int:
    return int((tmp_path / "pid").read_text())


def has_noted(tmp_path: Path) -> bool:
    note = tmp_path / "pid"
    return note.exists() and note.read_text().endswith("\n")


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - iterdir would keep one open while it counts


async def test_what_a_command_writes_comes_back_with_its_exit_code(shell: Shell) -> None:
    reply = await shell('echo "$GREETING"; echo trouble >&2; exit 3')

    assert reply == Reply(code=3, stdout="hello\n", stderr="trouble\n")


async def test_a_command_without_output_is_no_error(shell: Shell) -> None:
    assert await shell("true") == Reply(code=0, stdout="", stderr="")


async def test_a_command_has_nothing_to_read(shell: Shell) -> None:
    assert await shell("cat; echo end") == Reply(code=0, stdout="end\n", stderr="")


async def test_a_command_gets_no_other_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "42")

    assert "A_SECRET" not in (await shell("env")).stdout


async def test_a_command_keeps_no_line_to_us(shell: Shell) -> None:
    reply = await shell("for n in 3 4 5 6 7 8 9; do (: >&$n) 2>/dev/null && echo $n; done; true")

    assert reply.stdout == ""


async def test_what_a_command_writes_is_for_its_owner_alone(shell: Shell, tmp_path: Path) -> None:
    await shell("echo private > file")

    assert (tmp_path / "file").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["SEGV", "KILL", "TERM"])
async def test_the_signal_that_ended_a_command_can_be_told(shell: Shell, name: str) -> None:
    reply = await shell(f"kill -{name} $$")

    assert reply.code == 128 + signal.Signals[f"SIG{name}"]


async def test_nulls_and_broken_letters_do_no_harm(shell: Shell) -> None:
    assert (await shell(r"printf 'a\0b\377c'")).stdout == "ab\ufffdc"


async def test_arguments_are_not_read_by_a_shell(tmp_path: Path) -> None:
    words = ["$(touch pwned)", "a b", "-n", "", "`id`", "*", "ü"]

    reply = await run_command(
        [sys.executable, "-c", "import sys; print(sys.argv[1:])", *words],
        environ={"PYTHONIOENCODING": "utf-8"},
        cwd=tmp_path,
        timeout_s=20.0,
        owner="test",
        operation="try",
    )

    assert reply.stdout == f"{words}\n"


@pytest.mark.parametrize(
    ("command", "cwd"),
    [("no-such-command", "."), ("./a-note.md", "."), ("true", "no-such-folder"), ("tr\0ue", ".")],
)
async def test_what_cannot_be_started_is_unavailable(tmp_path: Path, command: str, cwd: str) -> None:
    (tmp_path / "a-note.md").write_text("no program")
    before = open_descriptors()

    with pytest.raises(BackendUnavailable, match="cannot be started"):
        await run_command(
            [command],
            environ={"PATH": os.environ["PATH"]},
            cwd=tmp_path / cwd,
            timeout_s=20.0,
            owner="test",
            operation="try",
        )

    assert open_descriptors() == before


@pytest.mark.parametrize("way", [FOREVER, STUBBORN, f"sh -c '{FOREVER}' & wait"])
async def test_a_command_that_hangs_ends_at_its_limit(shell: Shell, tmp_path: Path, way: str) -> None:
    with pytest.raises(BackendTimeout, match="limit 1 s"):
        await shell(f"echo $$ > pid; {way}", timeout_s=1.0)

    await eventually(lambda: not is_running(noted_pid(tmp_path)))


async def test_a_command_takes_those_along_whom_it_left_behind(shell: Shell, tmp_path: Path) -> None:
    reply = await shell(f"({FOREVER}) & echo $! > pid; echo bye")

    assert reply.stdout == "bye\n"
    await eventually(lambda: not is_running(noted_pid(tmp_path)))


async def test_at_a_limit_grandchildren_end_as_well(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(BackendTimeout):
        await shell(f"({STUBBORN}) & echo $! > pid; wait", timeout_s=1.0)

    await eventually(lambda: not is_running(noted_pid(tmp_path)))


async def test_who_left_the_guard_cannot_hold_up_an_answer(tmp_path: Path) -> None:
    program = "import os, time\nif os.fork() == 0:\n os.setsid(); time.sleep(5)\nelse:\n print('bye')"
    before = open_descriptors()

    reply = await run_command(
        [sys.executable, "-c", program],
        environ={},
        cwd=tmp_path,
        timeout_s=4.5,
        owner="test",
        operation="try",
    )

    assert reply.stdout == "bye\n"
    assert open_descriptors() == before


async def test_fifty_megabytes_are_refused_and_their_writer_ended(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(BackendGarbled, match="expected at most 1 MiB of output, got y"):
        await shell("echo $$ > pid; exec yes | head -c 50000000")

    await eventually(lambda: not is_running(noted_pid(tmp_path)))


async def test_of_much_output_the_end_can_be_kept(shell: Shell) -> None:
    script = "yes | head -c 50000000; printf 'the end'"

    reply = await shell(script, max_output_bytes=7, overflow="keep-end")

    assert reply == Reply(code=0, stdout="the end", stderr="")


async def test_of_many_complaints_the_end_is_kept(shell: Shell) -> None:
    reply = await shell("(yes | head -c 50000000; printf 'the end') >&2; echo fine", max_output_bytes=7)

    assert reply == Reply(code=0, stdout="fine\n", stderr="the end")


async def test_a_command_that_closes_its_output_early_is_waited_for(shell: Shell, tmp_path: Path) -> None:
    reply = await shell("exec >&- 2>&-; sleep 0.1; touch done; exit 4")

    assert (reply.code, (tmp_path / "done").exists()) == (4, True)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_command_ends(shell: Shell, tmp_path: Path, times: int) -> None:
    running = asyncio.create_task(shell(f"echo $$ > pid; {STUBBORN}"))
    await eventually(lambda: has_noted(tmp_path))

    for _ in range(times):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running

    await eventually(lambda: not is_running(noted_pid(tmp_path)))


async def test_being_cancelled_at_any_moment_leaves_nothing(shell: Shell) -> None:
    before = open_descriptors(), children()

    for turns in range(12):
        running = asyncio.create_task(shell(FOREVER))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    await eventually(lambda: (open_descriptors(), children()) == before)


@pytest.mark.parametrize(
    ("end", "way"),
    [
        (signal.SIGKILL, FOREVER),
        (signal.SIGKILL, STUBBORN),
        (signal.SIGKILL, f"sh -c '{FOREVER}' & wait"),
        (signal.SIGTERM, FOREVER),
        (signal.SIGINT, FOREVER),
    ],
)
async def test_a_command_ends_with_its_owner(tmp_path: Path, end: signal.Signals, way: str) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, f"echo $$ > pid; {way}"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, HOUSES))},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await eventually(lambda: has_noted(tmp_path))
    finally:
        owner.send_signal(end)
        await asyncio.wait_for(owner.wait(), 20.0)

    await eventually(lambda: not is_running(noted_pid(tmp_path)))


async def test_a_command_ends_when_its_guard_is_killed(tmp_path: Path) -> None:
    process = await GuardedProcess.start(
        ["sh", "-c", f"echo $PPID > pid; {FOREVER}"],
        environ={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        owner="test",
        operation="try",
        on_output=lambda _fd, _data: None,
    )
    try:
        await eventually(lambda: has_noted(tmp_path) and process.pid is not None)
        pid = process.pid
        os.kill(noted_pid(tmp_path), signal.SIGKILL)
        code = await process.wait()
    finally:
        await process.stop()

    assert code == 128 + signal.SIGKILL
    assert pid is not None
    await eventually(lambda: not is_running(pid))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux")
@pytest.mark.parametrize("way", ["by itself", "stopped", "with us"])
async def test_who_left_the_session_of_a_command_ends_with_it_where_that_is_asked_for(
    tmp_path: Path, way: str
) -> None:
    leave = "setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 600; done' &"
    stays = "while [ ! -s pid ]; do sleep 0.05; done" if way == "by itself" else FOREVER
    script = [sys.executable, "-c", SWEEPER, f"{leave} {stays}", "stop" if way == "stopped" else ""]
    owner = await asyncio.create_subprocess_exec(
        *script,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, HOUSES))},
        stdin=asyncio.subprocess.PIPE,
    )
    try:
        await eventually(lambda: has_noted(tmp_path))
        assert way == "by itself" or is_running(noted_pid(tmp_path))
        if way == "with us":
            owner.kill()
        await asyncio.wait_for(owner.communicate(b"\n"), 60.0)
    finally:
        if owner.returncode is None:
            owner.kill()
            await owner.wait()

    await eventually(lambda: not is_running(noted_pid(tmp_path)))


async def test_many_commands_run_at_once_and_keep_their_output_apart(shell: Shell) -> None:
    replies = await asyncio.gather(*(shell(f"sleep 0.1; echo {number}") for number in range(20)))

    assert [reply.stdout for reply in replies] == [f"{number}\n" for number in range(20)]


async def test_a_hundred_commands_leave_neither_descriptor_nor_process(shell: Shell) -> None:
    await shell("true")
    before = open_descriptors(), children()

    for number in range(100):
        if number % 10:
            await shell("exit 1")
            continue
        with pytest.raises(BackendError):
            await shell(FOREVER, timeout_s=0.02)

    assert (open_descriptors(), children()) == before


# --- a server that holds a lock ---

SERVER = """
import os, signal, subprocess, sys
from pathlib import Path
from composable_memory.supervision.file_lock import hold_lock
from composable_memory.supervision.process import GuardedServer

root = Path(sys.argv[1])
log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with hold_lock(root / "lock") as lock:
    command = ["sh", "-c", sys.argv[2]]
    server = GuardedServer(command, owner="test", lock=lock, log=log, folder=root / "socket")
os.kill(os.getpid(), signal.SIGSTOP)
"""
SERVES = "echo $$ > pid; exec sleep 600"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], GuardedServer]]:
    """Return what starts a server that runs a line of shell, and holds the lock of `tmp_path`."""
    servers = []
    (tmp_path / "socket").mkdir()

    def started(script: str) -> GuardedServer:
        log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with hold_lock(tmp_path / "lock") as lock:
            assert lock is not None
            command = ["sh", "-c", f"cd {tmp_path}; {script}"]
            server = GuardedServer(command, owner="test", lock=lock, log=log, folder=tmp_path / "socket")
        os.close(log)
        servers.append(server)
        return server

    yield started
    for server in servers:
        server.stop()


Serve = Callable[[str], GuardedServer]


def is_locked(tmp_path: Path) -> bool:
    with hold_lock(tmp_path / "lock") as lock:
        return lock is None


async def test_a_server_holds_its_lock_until_it_is_stopped(serve: Serve, tmp_path: Path) -> None:
    server = await asyncio.to_thread(serve, SERVES)
    await eventually(lambda: has_noted(tmp_path))
    assert await asyncio.to_thread(is_locked, tmp_path)

    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.stop)

    assert not is_running(noted_pid(tmp_path))
    assert not await asyncio.to_thread(is_locked, tmp_path)
    assert not (tmp_path / "socket").exists()


async def test_a_server_has_time_to_write_out_what_it_holds(serve: Serve, tmp_path: Path) -> None:
    writes = "trap 'sleep 0.3; echo out > written; exit' TERM; echo $$ > pid; while :; do sleep 0.05; done"
    server = await asyncio.to_thread(serve, writes)
    await eventually(lambda: has_noted(tmp_path))

    await asyncio.to_thread(server.stop)

    assert (tmp_path / "written").read_text() == "out\n"


async def test_a_server_that_ends_by_itself_frees_its_lock(serve: Serve, tmp_path: Path) -> None:
    await asyncio.to_thread(serve, "echo why >&2; echo on-stdout; exit 1")

    # Not before it has the lock: that is what its standard input is.
    await eventually(lambda: "on-stdout" in (tmp_path / "log").read_text())
    await eventually(lambda: not is_locked(tmp_path))

    assert (tmp_path / "log").read_text() == "why\non-stdout\n"


async def test_a_server_whose_guard_was_killed_ends_all_the_same(serve: Serve, tmp_path: Path) -> None:
    server = await asyncio.to_thread(serve, SERVES)
    await eventually(lambda: has_noted(tmp_path))

    os.kill(server.guard_pid, signal.SIGKILL)
    await asyncio.to_thread(server.stop)

    await eventually(lambda: not is_running(noted_pid(tmp_path)))
    assert not (tmp_path / "socket").exists()


async def test_a_server_ends_with_its_owner_and_frees_its_lock(tmp_path: Path) -> None:
    (tmp_path / "socket").mkdir()
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(tmp_path), f"cd {tmp_path}; {SERVES}"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, HOUSES))},
    )
    try:
        await eventually(lambda: has_noted(tmp_path))  # to look at its lock may take it away
        assert await asyncio.to_thread(is_locked, tmp_path)
    finally:
        owner.kill()
        await owner.wait()

    await eventually(lambda: not is_locked(tmp_path))
    await eventually(lambda: not (tmp_path / "socket").exists())
