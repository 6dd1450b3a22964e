"""Starts a QMD server on a free port of this machine's own address, and ends it."""

import asyncio
import socket
from collections.abc import Callable

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.qmd.machine.process import GuardedProcess, comes_first
from composable_memory_adapters.qmd.values import BACKEND_ID, Home, Installation

__all__ = ["Server", "free_port"]

LOOPBACK = "127.0.0.1"
PORTS = 5
"""How many ports are tried: between its choice and its use, another program may take one."""

WORDS_BYTES = 4096
LISTENING = b"listening on http"
TAKEN = "already in use"
OPERATION = "start its server"


def free_port() -> int:
    """Return a port that nobody listened on just now; QMD cannot choose one itself."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


class Server:
    """A QMD server that we started and that does not outlive us; whoever starts one has to `stop` it."""

    def __init__(self, process: GuardedProcess, words: "_Words", *, address: str, pid: int) -> None:
        self.address = address
        self.pid = pid
        self._process = process
        self._words = words

    @classmethod
    async def start(
        cls,
        installation: Installation,
        home: Home,
        *,
        timeout_s: float,
        choose_port: Callable[[], int] = free_port,
    ) -> "Server":
        """Start one and return when it listens.

        Raises:
            BackendUnavailable: it ended, or did not listen after `timeout_s`, or no port was free.
        """
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(PORTS):
                    started = await _start(installation, home, choose_port())
                    if isinstance(started, Server):
                        return started
                    if TAKEN not in started:
                        raise _failed(f"QMD's server ended at once ({started})")
        except TimeoutError as error:
            raise _failed(f"QMD's server did not listen after {timeout_s:g} s") from error
        except OSError as error:  # no port can be had, as too many files are open
            raise _failed(f"QMD's server has no port ({error.strerror})") from error
        raise _failed(f"QMD found {PORTS} ports taken, one after the other")

    async def ended(self) -> str:
        """Wait until the server ends by itself or by others; return why, as far as it told."""
        code = await self._process.wait()
        return f"QMD's server ended with {code} ({self._words.last})"

    async def stop(self) -> None:
        """End it; calling it again does nothing."""
        await self._process.stop()


async def _start(installation: Installation, home: Home, port: int) -> Server | str:
    """Return a server that listens, or the last words of one that ended before."""
    words = _Words()
    options = ("--index", "index", "mcp", "--http", "--host", LOOPBACK, "--port", str(port))
    process = await GuardedProcess.start(
        [*installation.command, *options],
        environ=home.environ,
        cwd=home.root,
        operation=OPERATION,
        on_output=words.add,
    )
    server: Server | None = None
    try:
        if await comes_first(words.listening.wait(), process.wait()) and (pid := process.pid) is not None:
            server = Server(process, words, address=f"http://{LOOPBACK}:{port}", pid=pid)
        return server or words.last
    finally:
        if server is None:
            await process.stop()


class _Words:
    """What a server writes, which is a line for each question: the end of it."""

    def __init__(self) -> None:
        self.listening = asyncio.Event()
        self._written = bytearray()

    def add(self, _fd: int, data: bytes) -> None:
        self._written += data
        if not self.listening.is_set() and LISTENING in self._written:
            self.listening.set()
        del self._written[:-WORDS_BYTES]

    @property
    def last(self) -> str:
        lines = self._written.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing"


def _failed(what: str) -> BackendUnavailable:
    fix = "look at `cmem status`; questions are answered by a process each meanwhile"
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=OPERATION)
