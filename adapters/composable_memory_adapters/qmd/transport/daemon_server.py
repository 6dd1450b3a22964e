"""Starts and stops a QMD server that only this user can reach.

QMD's server listens on a TCP port without any password, so every user of the machine could read the notes. A
preloaded hook therefore makes its Node listen on a Unix socket in a private folder of this user. If the hook
is ignored (QMD under Bun), the server cannot listen at all, because the given host name does not exist.
"""

import asyncio
import shutil
from pathlib import Path
from urllib.parse import quote

from composable_memory.errors import BackendUnavailable
from composable_memory.supervision.process import GuardedProcess, new_socket
from composable_memory.supervision.tasks import comes_first
from composable_memory_adapters.qmd.types import BACKEND_ID, Home, Installation

NO_HOST = "socket.invalid"
SOCKET_VARIABLE = "COMPOSABLE_MEMORY_QMD_SOCKET"
LISTEN_ON_SOCKET = f"""
import net from "node:net";
const {{ listen }} = net.Server.prototype;
net.Server.prototype.listen = function (port, host, ready) {{
  return listen.call(this, process.env.{SOCKET_VARIABLE}, ready);
}};
"""
KEPT_BYTES = 4096
LISTENING = b"listening on http"
OPERATION = "start its server"


class QmdServer:
    """A QMD server started by this process, which must `stop` it; it never outlives the process."""

    def __init__(self, process: GuardedProcess, output: "_Output", *, address: str, pid: int) -> None:
        self.address = address
        self.pid = pid
        self._process = process
        self._output = output

    @classmethod
    async def start(cls, installation: Installation, home: Home, *, timeout_s: float) -> "QmdServer":
        """Start a server and return when it listens.

        Raises:
            BackendUnavailable: it ended, did not listen in time, or there is no place for its socket.
        """
        try:
            socket = await asyncio.to_thread(new_socket)
        except OSError as error:
            raise _failed(f"QMD's server has no place for its socket ({error})") from error
        server: QmdServer | None = None
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
        """Wait until the server ends for any reason, and return a message that says why."""
        code = await self._process.wait()
        return f"QMD's server ended with {code} ({self._output.last_line})"

    async def stop(self) -> None:
        """Stop it; a second call does nothing."""
        await self._process.stop()
        await asyncio.to_thread(_remove, Path(self.address))  # in case its guard was killed


async def _start(installation: Installation, home: Home, socket: Path) -> QmdServer:
    """Return a server that listens.

    Raises:
        BackendUnavailable: it ended before that.
    """
    output = _Output()
    hook = f"--import=data:text/javascript,{quote(LISTEN_ON_SOCKET)}"
    node_options = f"{home.environ.get('NODE_OPTIONS', '')} {hook}".strip()
    options = ("--index", "index", "mcp", "--http", "--host", NO_HOST)
    process = await GuardedProcess.start(
        [*installation.command, *options],
        environ={**home.environ, "NODE_OPTIONS": node_options, SOCKET_VARIABLE: str(socket)},
        cwd=home.root,
        owner=BACKEND_ID,
        operation=OPERATION,
        on_output=output.add,
        folder=socket.parent,
    )
    server: QmdServer | None = None
    try:
        if await comes_first(output.listening.wait(), process.wait()) and (pid := process.pid) is not None:
            server = QmdServer(process, output, address=str(socket), pid=pid)
            return server
        raise _failed(f"QMD's server ended at once ({output.last_line})")
    finally:
        if server is None:
            await process.stop()


class _Output:
    """The end of a server's output, which has a line for each request."""

    def __init__(self) -> None:
        self.listening = asyncio.Event()
        self._written = bytearray()

    def add(self, _fd: int, data: bytes) -> None:
        self._written += data
        if not self.listening.is_set() and LISTENING in self._written:
            self.listening.set()
        del self._written[:-KEPT_BYTES]

    @property
    def last_line(self) -> str:
        lines = self._written.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing"


def _remove(socket: Path) -> None:
    shutil.rmtree(socket.parent, ignore_errors=True)


def _failed(what: str) -> BackendUnavailable:
    fix = "see `cmem status`; until it runs, each search starts a process"
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=OPERATION)
