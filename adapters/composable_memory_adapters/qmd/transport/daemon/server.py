"""Starts a QMD server that nobody but us can reach, and ends it.

QMD's server listens on a port, where every user of the machine could ask it for the notes, and takes no
password. So its Node is told to have it listen on a Unix socket instead, in a folder that is ours alone.
Where that is not heeded (QMD under Bun), it is given a host that does not exist, and cannot listen at all.
"""

import asyncio
import shutil
from pathlib import Path
from urllib.parse import quote

from composable_memory.errors import BackendUnavailable
from composable_memory.supervision.process import GuardedProcess, new_socket
from composable_memory.supervision.tasks import comes_first
from composable_memory_adapters.qmd.values import BACKEND_ID, Home, Installation

__all__ = ["SOCKET_VARIABLE", "Server"]

NO_HOST = "socket.invalid"
SOCKET_VARIABLE = "COMPOSABLE_MEMORY_QMD_SOCKET"
LISTEN_ON_SOCKET = f"""
import net from "node:net";
const {{ listen }} = net.Server.prototype;
net.Server.prototype.listen = function (port, host, ready) {{
  return listen.call(this, process.env.{SOCKET_VARIABLE}, ready);
}};
"""
WORDS_BYTES = 4096
LISTENING = b"listening on http"
OPERATION = "start its server"


class Server:
    """A QMD server that we started and that does not outlive us; whoever starts one has to `stop` it."""

    def __init__(self, process: GuardedProcess, words: "_Words", *, address: str, pid: int) -> None:
        self.address = address
        self.pid = pid
        self._process = process
        self._words = words

    @classmethod
    async def start(cls, installation: Installation, home: Home, *, timeout_s: float) -> "Server":
        """Start one and return when it listens.

        Raises:
            BackendUnavailable: it ended, or did not listen after `timeout_s`, or there is no place for it.
        """
        try:
            socket = await asyncio.to_thread(new_socket)
        except OSError as error:
            raise _failed(f"QMD's server has no place for its socket ({error})") from error
        server: Server | None = None
        try:
            async with asyncio.timeout(timeout_s):
                server = await _start(installation, home, socket)
        except TimeoutError as error:
            raise _failed(f"QMD's server did not listen after {timeout_s:g} s") from error
        finally:
            if server is None:
                await asyncio.to_thread(_remove, socket)
        return server

    async def ended(self) -> str:
        """Wait until the server ends by itself or by others; return why, as far as it told."""
        code = await self._process.wait()
        return f"QMD's server ended with {code} ({self._words.last})"

    async def stop(self) -> None:
        """End it; calling it again does nothing."""
        await self._process.stop()
        await asyncio.to_thread(_remove, Path(self.address))  # where its guard was killed


async def _start(installation: Installation, home: Home, socket: Path) -> Server:
    """Return a server that listens.

    Raises:
        BackendUnavailable: it ended before.
    """
    words = _Words()
    hook = f"--import=data:text/javascript,{quote(LISTEN_ON_SOCKET)}"
    node_options = f"{home.environ.get('NODE_OPTIONS', '')} {hook}".strip()
    options = ("--index", "index", "mcp", "--http", "--host", NO_HOST)
    process = await GuardedProcess.start(
        [*installation.command, *options],
        environ={**home.environ, "NODE_OPTIONS": node_options, SOCKET_VARIABLE: str(socket)},
        cwd=home.root,
        owner=BACKEND_ID,
        operation=OPERATION,
        on_output=words.add,
        folder=socket.parent,
    )
    server: Server | None = None
    try:
        if await comes_first(words.listening.wait(), process.wait()) and (pid := process.pid) is not None:
            server = Server(process, words, address=str(socket), pid=pid)
            return server
        raise _failed(f"QMD's server ended at once ({words.last})")
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


def _remove(socket: Path) -> None:
    shutil.rmtree(socket.parent, ignore_errors=True)


def _failed(what: str) -> BackendUnavailable:
    fix = "look at `cmem status`; questions are answered by a process each meanwhile"
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=OPERATION)
