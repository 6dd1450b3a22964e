"""Starts a command under a guard, which ends it and all it has started when it is told to, or when we end.

The guard is a small shell, the parent of the command, in a session of its own, with a line to us. When we
end, by whatever signal, the line breaks, and the guard ends all that it has started. When the command ends,
the guard tells its exit code on the line, and takes with it what the command may have left behind.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.qmd.values import BACKEND_ID

__all__ = ["KILLED", "GuardedProcess", "cannot_start", "comes_first"]

T = TypeVar("T")

GRACE_S = 1.0
"""How long a command may take to end when it is told to; then it is killed."""

LINGER_S = 1.0
"""How long output is waited for when the command has ended."""

LINE_BYTES = 64
KILLED = 128 + signal.SIGKILL
"""The exit code of a command that was killed; also of one whose guard was, and cannot tell."""

# The watcher comes first, so that there is no moment in which nobody would end the command. It does not write
# where the command writes, or there would be no end of that. A `wait` may have been interrupted by a signal:
# the code counts when the command is no longer there.
GUARD = f"""
folder=$1; shift
tidy() {{ [ -z "$folder" ] || rm -rf "$folder"; }}
exec 3<&0 </dev/null
trap 'trap "" TERM; kill -TERM 0' TERM
trap 'kill -KILL "${{child:-0}}"' USR1
(trap "" TERM; exec >/dev/null 2>&1; read -r _ <&3; tidy; kill -TERM 0; sleep {GRACE_S:g}; kill -KILL 0) &
watcher=$!
"$@" 3<&- &
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
echo "$code" >&3
kill -KILL 0
"""


class GuardedProcess:
    """A command under its guard. `await start(…)` makes one; whoever does has to `stop` it."""

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
        environ: Mapping[str, str],
        cwd: Path,
        operation: str,
        on_output: Callable[[int, bytes], None],
        folder: Path | None = None,
    ) -> "GuardedProcess":
        """Start a command; `on_output` gets what it writes, with 1 for standard output and 2 for the other.

        `folder` is removed when it has ended.

        Raises:
            BackendUnavailable: no process can be started, or not in `cwd`.
        """
        try:
            ours, its = socket.socketpair()
        except OSError as error:  # too many files are open
            raise cannot_start(command, operation, str(error)) from error
        ours.setblocking(False)
        with its:
            starting = asyncio.ensure_future(
                asyncio.get_running_loop().subprocess_exec(
                    lambda: _Listener(on_output),
                    "/bin/sh",
                    *("-c", GUARD, BACKEND_ID, str(folder or ""), *command),
                    stdin=its.fileno(),
                    env=environ,
                    cwd=cwd,
                    start_new_session=True,  # so that Ctrl-C in a terminal is ours alone to act on
                    umask=0o077,  # what it writes is nobody else's to read
                )
            )
            # Breaking the line has the guard end what it may have started by then.
            cancelled = await _until_done(starting, when_cancelled=ours.close)
        if cancelled is not None:
            if not starting.cancelled() and starting.exception() is None:
                await cls(*starting.result(), ours).stop(at_once=True)  # it has hardly begun
            raise cancelled
        try:
            return cls(*starting.result(), ours)
        except (OSError, ValueError) as error:
            ours.close()
            raise cannot_start(command, operation, str(error)) from error

    @property
    def pid(self) -> int | None:
        """Return the process number of the command, or None as long as it has not been started."""
        pid, end, _ = self._heard().partition(b"\n")
        return int(pid) if end else None

    async def wait(self) -> int:
        """Wait until the command has ended and its output has arrived; return its exit code."""
        await asyncio.shield(self._listener.exited)
        # Nobody else has an end of its output now, but who left the guard's session; for them we do not wait.
        await asyncio.wait([self._listener.closed], timeout=LINGER_S)
        _, _, code = self._heard().partition(b"\n")
        return int(code) if code.strip() else KILLED

    async def stop(self, *, at_once: bool = False) -> None:
        """End the command, by force after a moment, and free all it holds; calling it again does nothing.

        It has no such moment where it is to end `at_once`. Being cancelled does not keep it from that: the
        cancellation is passed on afterwards.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(at_once=at_once), name="qmd-process-stop")
        cancelled = await _until_done(self._stopping)
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
            # Not by the transport, which looks whether the process has ended, and then its watcher cannot.
            # A guard that cannot act, as its whole session was halted, takes all of that with it.
            signalled = os.killpg if number == signal.SIGKILL else os.kill
            with contextlib.suppress(ProcessLookupError):
                signalled(self._transport.get_pid(), number)
            await asyncio.wait([self._listener.exited], timeout=GRACE_S)
        return self._listener.exited.done()

    def _heard(self) -> bytes:
        with contextlib.suppress(OSError):
            self._told += self._line.recv(LINE_BYTES)
        return self._told


class _Listener(asyncio.SubprocessProtocol):
    """Passes on what a process writes, and knows when it has ended and when its output has."""

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


async def _until_done(
    work: asyncio.Future[T], *, when_cancelled: Callable[[], None] = lambda: None
) -> asyncio.CancelledError | None:
    """Wait until work is done, even when cancelled; return the cancellation, for the caller to raise."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
            when_cancelled()
    return cancelled


async def comes_first(
    awaited: Coroutine[object, object, object], other: Coroutine[object, object, object]
) -> bool:
    """Wait for the first of two things; say whether it is `awaited`. Nobody waits for either of them then."""
    tasks = [asyncio.create_task(one, name="qmd-first") for one in (awaited, other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def cannot_start(command: Sequence[str], operation: str, said: str) -> BackendUnavailable:
    """Return the error for a command that is not there or cannot be run; `said` tells what came instead."""
    told = said.strip().rpartition("\n")[2]
    return BackendUnavailable(
        BACKEND_ID,
        f"`{command[0]}` cannot be started" + (f" ({told})" if told else ""),
        fix="install what it names, or correct the command in the settings",
        operation=operation,
    )
