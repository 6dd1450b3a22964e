"""Runs a command under a guard, which ends it and everything it started on request, or when we end.

The guard is a small shell, the parent of the command, in its own session, connected to us by a socket. When
we end, by whatever signal, the connection breaks, and the guard ends everything it started. When the command
ends, the guard reports its exit code over the socket and ends what the command left running. No library can
do that for us (psutil finds the descendants of a process, but something has to stay alive to look for them).

On request, and on Linux only, processes that left the guard's session (`setsid`, a daemon) are found by an
environment variable that they inherited.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from composable_memory.errors import BackendUnavailable
from composable_memory.supervision.process_identity import host, is_gone, start_of
from composable_memory.supervision.tasks import until_done

GRACE_S = 1.0
"""Seconds that a command has to end after being asked to; then it is killed."""

SERVER_GRACE_S = 5.0
"""The same for a server, which may have to write its data first; that takes about 0.1 s."""

LINGER_S = 1.0
"""Seconds to wait for the remaining output of a command that has ended."""

POLL_S = 0.01
LINE_BYTES = 64
LONGEST_SOCKET = 103
"""Maximum length of the path of a Unix socket in bytes; on macOS 103, on Linux four more."""

KILLED = 128 + 9
"""The exit code of a command that was killed, or whose guard was killed and cannot report one."""

# The watcher starts first, so that there is no moment without anyone to end the command. It must not hold the
# command's output open, or that would never reach its end. A signal may interrupt `wait`: the exit code
# counts only once the command is gone. A command that `gets_lock` receives it, our standard output, as its
# standard input, and from then on it alone holds the lock: exactly as long as it lives. Any other `input` is
# the path of a pipe that the command reads. The variable is not exported, or `grep` would find itself; a
# process that has ended has none. grep's exit code is useless: other processes end while it looks.
GUARD = """
folder=$1 grace=$2 gets_lock=$3 input=${4:-/dev/null} sweeps=$5; shift 5
token=
[ -z "$sweeps" ] || read -r token 2>/dev/null </proc/sys/kernel/random/uuid
sweep() {
    [ -n "$token" ] || return 0
    for signal in TERM KILL KILL; do
        left=$(grep -sl "COMPOSABLE_MEMORY_GUARD=$token" /proc/[0-9]*/environ)
        [ -n "$left" ] || return 0
        for one in $left; do one=${one%/environ}; kill -"$signal" "${one#/proc/}"; done
        sleep 0.2
    done
}
tidy() { [ -z "$folder" ] || rm -rf "$folder"; }
exec 3<&0 </dev/null
trap 'trap "" TERM; kill -TERM 0' TERM
trap 'kill -KILL "${child:-0}"' USR1
(trap "" TERM; exec >/dev/null 2>&1; read -r _ <&3; tidy; kill -TERM 0; sleep "$grace"; sweep; kill -KILL 0) &
watcher=$!
if [ -n "$gets_lock" ]; then "$@" 3<&- <&1 >&2 &
elif [ -n "$token" ]; then COMPOSABLE_MEMORY_GUARD=$token "$@" 3<&- <"$input" &
else "$@" 3<&- <"$input" & fi
child=$!
trap "" PIPE
exec >/dev/null 2>&1
echo "$child" >&3
while :; do
    wait "$child"
    code=$?
    kill -0 "$child" || break
done
kill -KILL "$watcher"
wait "$watcher"
tidy
sweep
echo "$code" >&3
kill -KILL 0
"""


class GuardedProcess:
    """A command under its guard. Whoever creates one with `await start(…)` must `stop` it.

    process = await GuardedProcess.start(["qmd", "mcp"], owner="qmd", operation="start its server", …)
    try:
        code = await process.wait()
    finally:
        await process.stop()
    """

    def __init__(
        self, transport: asyncio.SubprocessTransport, listener: "_Listener", line: socket.socket
    ) -> None:
        self._transport = transport
        self._listener = listener
        self._line = line
        self._told = b""
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        owner: str,
        operation: str,
        environ: Mapping[str, str],
        cwd: Path,
        on_output: Callable[[int, bytes], None],
        folder: Path | None = None,
        reads_from: int | None = None,
        sweeps: bool = False,
    ) -> "GuardedProcess":
        """Start a command; `on_output` receives its output with the descriptor: 1 for stdout, 2 for stderr.

        `folder` is removed when the command has ended. `reads_from` is the end of a pipe for its standard
        input, which is empty otherwise. With `sweeps`, processes that left its session end with it too,
        unless the guard itself is killed. `owner` and `operation` are for errors.

        Raises:
            BackendUnavailable: the process cannot be started, or not in `cwd`.
        """
        try:
            ours, its = socket.socketpair()
        except OSError as error:  # too many open files
            raise cannot_start(command, owner, operation, str(error)) from error
        ours.setblocking(False)
        with its:
            starting = asyncio.ensure_future(
                asyncio.get_running_loop().subprocess_exec(
                    lambda: _Listener(on_output),
                    *_guarded(command, owner, folder, grace_s=GRACE_S, reads_from=reads_from, sweeps=sweeps),
                    stdin=its.fileno(),
                    pass_fds=() if reads_from is None else (reads_from,),
                    env=environ,
                    cwd=cwd,
                    start_new_session=True,  # so that only we receive Ctrl-C from the terminal
                    umask=0o077,  # nobody else may read what it writes
                )
            )
            # Closing the socket makes the guard end whatever it has started so far.
            cancelled = await until_done(starting, when_cancelled=ours.close)
        if cancelled is not None:
            if not starting.cancelled() and starting.exception() is None:
                await cls(*starting.result(), ours).stop(at_once=True)  # it has only just started
            raise cancelled
        try:
            return cls(*starting.result(), ours)
        except (OSError, ValueError) as error:
            ours.close()
            raise cannot_start(command, owner, operation, str(error)) from error

    @property
    def pid(self) -> int | None:
        """Return the PID of the command, or None until it has started."""
        pid, end, _ = self._received().partition(b"\n")
        return int(pid) if end else None

    async def wait(self) -> int:
        """Wait until the command has ended and its output has arrived; return the exit code."""
        await asyncio.shield(self._listener.exited)
        # Only processes that left the guard's session can still hold its output open; do not wait for those.
        await asyncio.wait([self._listener.closed], timeout=LINGER_S)
        _, _, code = self._received().partition(b"\n")
        return int(code) if code.strip() else KILLED

    async def stop(self, *, at_once: bool = False) -> None:
        """End the command, by force after a grace period, and release its resources; may be called again.

        With `at_once` there is no grace period. Cancellation does not interrupt it and is raised at the end.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(at_once=at_once), name="stop guarded process")
        cancelled = await until_done(self._stopping)
        if cancelled is not None:
            raise cancelled

    async def _stop(self, *, at_once: bool) -> None:
        try:
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL)[at_once:]:
                if await self._has_ended_after(number):
                    return
        finally:
            self._line.close()
            self._transport.close()
            await asyncio.wait([self._listener.closed], timeout=LINGER_S)

    async def _has_ended_after(self, number: signal.Signals) -> bool:
        if not self._listener.exited.done():
            # Not through the transport: it polls the process, and then its watcher cannot get the exit code.
            # If the whole session is stopped (SIGSTOP), the guard cannot act: SIGKILL goes to all of it.
            signalled = os.killpg if number == signal.SIGKILL else os.kill
            with contextlib.suppress(ProcessLookupError):
                signalled(self._transport.get_pid(), number)
            await asyncio.wait([self._listener.exited], timeout=GRACE_S)
        return self._listener.exited.done()

    def _received(self) -> bytes:
        with contextlib.suppress(OSError):
            self._told += self._line.recv(LINE_BYTES)
        return self._told


class GuardedServer:
    """A server that holds a file lock while it lives, and ends when we do. All methods block."""

    def __init__(self, command: Sequence[str], *, owner: str, lock: int, log: int, folder: Path) -> None:
        """Start the server. It gets the descriptors `lock` and `log`; `folder` is removed when it has ended.

        Raises:
            OSError: the process cannot be started.
        """
        self._folder = folder
        self._line, its = socket.socketpair()
        with its, contextlib.ExitStack() as failed:
            failed.callback(self._line.close)
            self._guard = subprocess.Popen(  # noqa: S603 - our own arguments, no shell expands them
                _guarded(command, owner, folder, grace_s=SERVER_GRACE_S, gets_lock=True),
                stdin=its.fileno(),
                stdout=lock,
                stderr=log,
                cwd="/",
                start_new_session=True,  # as above
                umask=0o077,
            )
            failed.pop_all()

    @property
    def guard_pid(self) -> int:
        """Return the PID of the guard, which is also the id of the process group of guard and server."""
        return self._guard.pid

    def stop(self) -> None:
        """End the server, by force after some seconds, and clean up; may be called again."""
        if self._line.fileno() < 0:
            return
        with self._line as line:
            with contextlib.suppress(OSError):  # the guard is already gone
                line.shutdown(socket.SHUT_WR)  # the guard notices, and can still report the exit code
            try:
                self._guard.wait(SERVER_GRACE_S + LINGER_S)
            except subprocess.TimeoutExpired:
                self._kill()
                self._guard.wait()
            line.setblocking(False)
            told = b""
            with contextlib.suppress(OSError):
                told = line.recv(LINE_BYTES)
        has_exit_code = told.count(b"\n") > 1
        if not has_exit_code:  # the guard was killed: server and folder may be left
            self._end_group(told.partition(b"\n")[0])
            shutil.rmtree(self._folder, ignore_errors=True)

    def _end_group(self, server: bytes) -> None:
        """End what a killed guard has left behind; `server` is the PID that it reported, if any."""
        pid = int(server or self._guard.pid)
        started = start_of(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guard.pid, signal.SIGTERM)
            for _ in range(int(SERVER_GRACE_S / POLL_S)):
                if is_gone(pid, on_host=host(), started=started):
                    break
                time.sleep(POLL_S)
            self._kill()  # the guard's watcher, which would sleep until the end of the grace period

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guard.pid, signal.SIGKILL)


def _guarded(
    command: Sequence[str],
    owner: str,
    folder: Path | None,
    *,
    grace_s: float,
    gets_lock: bool = False,
    reads_from: int | None = None,
    sweeps: bool = False,
) -> list[str]:
    pipe = "" if reads_from is None else f"/dev/fd/{reads_from}"
    options = (
        str(folder or ""),
        f"{grace_s:g}",
        "lock" if gets_lock else "",
        pipe,
        "sweep" if sweeps else "",
    )
    return ["/bin/sh", "-c", GUARD, owner, *options, *command]


class _Listener(asyncio.SubprocessProtocol):
    """Passes on the output of a process, and knows when the process and its output have ended."""

    def __init__(self, on_output: Callable[[int, bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self._on_output = on_output
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._on_output(fd, data)

    def process_exited(self) -> None:
        self.exited.set_result(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.closed.set_result(None)


def cannot_start(command: Sequence[str], owner: str, operation: str, said: str) -> BackendUnavailable:
    """Return the error for a command that is missing or cannot be run; `said` is its output or message."""
    excerpt = said.strip().rpartition("\n")[2]
    return BackendUnavailable(
        owner,
        f"`{command[0]}` cannot be started" + (f" ({excerpt})" if excerpt else ""),
        fix="install the program, or correct the command in the settings",
        operation=operation,
    )


def new_socket() -> Path:
    """Return a short path for a server's Unix socket, in a new folder that only this user can enter.

    Raises:
        OSError: there is nowhere to create one.
    """
    for base in (None, "/tmp"):  # noqa: S108 - mkdtemp makes it safe; the default folder may be too long
        path = Path(tempfile.mkdtemp(prefix="cmem-", dir=base)) / "s"
        if len(os.fsencode(path)) <= LONGEST_SOCKET:
            return path
        path.parent.rmdir()
    raise OSError(f"the path of the temporary folder is too long for a socket: {tempfile.gettempdir()}")
