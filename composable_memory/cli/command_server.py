"""Runs the commands that clients send over a Unix socket, with all modules already imported.

Each runs as if in its own process, with the settings and environment of its client, on the memory that the
previous command left open if it would open an identical one. So its output is the same. Whatever might differ
here is declined, and the client runs the command itself.
"""

import asyncio
import io
import json
import os
import socket
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO, cast

from composable_memory.cli.output import CLIENT, Client
from composable_memory.config.layers import CONFIG_VARIABLE, STATE_VARIABLE
from composable_memory.json_documents import document
from composable_memory.registry import Registry
from composable_memory.runtime.warm_memory import WarmMemory
from composable_memory_start import (
    BEAT,
    DECLINED,
    END,
    ERR,
    MAX_REQUEST_BYTES,
    OUT,
    frame,
    installation,
    reachable,
)

MAX_CLIENTS = 200
MAX_AT_WORK = 4
"""Each may have its own memory, with threads, files and vectors; more would wait for each other."""
REQUEST_S = 2.0
BEAT_S = 0.5
SEND_S = 30.0
FOR_ALL = ("HOME", "LANG", "LANGUAGE", "PATH", "TZ", STATE_VARIABLE)
"""Variables that libraries read for the whole process: clients with other values are not served."""
FOR_ALL_TOO = ("HF_", "LC_", "PYTHON", "SSL_CERT_", "XDG_CACHE_", "XDG_CONFIG_", "XDG_DATA_", "XDG_STATE_")
"""Prefixes of more of them; those that end with `_proxy` count too."""

PACKAGES = sysconfig.get_path("purelib")
"""Where packages are installed."""


class Declined(Exception):
    """The client has to run its command itself."""


class CommandServer:
    """A server of commands at a socket path, from `start` to `stop`.

    `commands` are those of Typer by name; `end` is set when a client asks the server to end. `url` is where
    the same process serves HTTP.
    """

    def __init__(
        self,
        address: Path,
        commands: Mapping[str, Any],
        registry: Registry,
        end: asyncio.Event,
        url: str | None = None,
    ) -> None:
        self._address, self._commands, self._registry, self._end = address, commands, registry, end
        self._url = url
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(MAX_AT_WORK)
        self._kept = WarmMemory()
        self._installation = ""
        self._code: Mapping[str, object] = {}
        self._since = datetime.now(UTC)
        self._answered = self._declined = 0
        self._reason: str | None = None

    async def start(self) -> None:
        """Listen; replaces a socket left by a killed server.

        Raises:
            OSError: it cannot be created.
        """
        self._installation = await asyncio.to_thread(installation)
        self._code = await asyncio.to_thread(_state_of_code)
        listening = await asyncio.to_thread(_listening, self._address)
        # In an empty context, so that no request belongs to the trace of this call.
        starting = asyncio.start_unix_server(self._accept, sock=listening, backlog=MAX_CLIENTS)
        self._server = await asyncio.create_task(starting, context=Context())

    async def stop(self) -> None:
        """Stop listening, cancel running commands, which their clients then run, and close the memory."""
        if self._server is not None:
            self._server.close()
        await asyncio.to_thread(self._address.unlink, missing_ok=True)
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await self._kept.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="command client")
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client; give up on one that is slow, disconnects or sends nonsense."""
        with suppress(OSError, ValueError, EOFError):
            try:
                if _is_stranger(writer) or len(self._clients) > MAX_CLIENTS:
                    return
                async with asyncio.timeout(REQUEST_S):
                    length = int.from_bytes(await reader.readexactly(4), "big")
                    message = await reader.readexactly(length) if length <= MAX_REQUEST_BYTES else b""
                answer = await self._while_there(
                    _client_of(message, self._registry, self._kept), reader, writer
                )
                async with asyncio.timeout(SEND_S):
                    writer.writelines(answer)
                    await writer.drain()
            finally:
                (writer.transport.abort if writer.transport.get_write_buffer_size() else writer.close)()

    async def _while_there(
        self, client: Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> list[bytes]:
        """Return the frames of an answer, unless the client disconnects.

        Raises:
            EOFError: it has disconnected.
        """
        work = asyncio.create_task(self._answer(client), name="command of a client")
        gone = asyncio.create_task(reader.read(1), name="client gone")
        try:
            while not work.done():
                writer.write(frame(BEAT))
                await asyncio.wait({work, gone}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if gone.done() and not work.done():
                    raise EOFError
            return work.result()
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.wait({work, gone})

    async def _answer(self, client: Client) -> list[bytes]:
        if client.arguments[:1] == ("serve",):
            if "stop" in client.arguments:
                self._end.set()
            return [frame(OUT, json.dumps(self._status()).encode()), frame(END, b"0")]
        try:
            await self._check(client)
            async with self._turns:
                code = await self._run(client)
        except Declined as why:
            self._declined, self._reason = self._declined + 1, str(why)
            return [frame(DECLINED)]
        self._answered += 1
        return [*client.frames, frame(END, str(code).encode())]

    def _status(self) -> Mapping[str, object]:
        return document(
            running=True,
            pid=os.getpid(),
            url=self._url,
            since=self._since.isoformat(timespec="seconds"),
            answered=self._answered,
            opened=self._kept.opened,
            declined=self._declined,
            last_declined=self._reason,
        )

    async def _check(self, client: Client) -> None:
        """Make sure that a command would behave as in its client's process.

        Raises:
            Declined: it might not.
        """
        if client.installation != self._installation:
            raise Declined("the client is from another installation")
        if await asyncio.to_thread(_state_of_code, self._code) != self._code:
            raise Declined("the program has been replaced since the server started; restart the server")
        for name in sorted({*client.environ, *os.environ}):
            is_for_all = name in FOR_ALL or name.startswith(FOR_ALL_TOO) or name.lower().endswith("_proxy")
            if is_for_all and client.environ.get(name) != os.environ.get(name):
                raise Declined(f"the variable {name} differs from the server's")
        for name in (CONFIG_VARIABLE, STATE_VARIABLE):
            if client.environ.get(name, "")[:1] not in ("", "/", "~"):
                raise Declined(f"the variable {name} is a path relative to the client's folder")

    async def _run(self, client: Client) -> int:
        """Run a command and return its exit code.

        Raises:
            Declined: it ended in a way that the client can report best.
        """
        CLIENT.set(client)  # for this task
        name, *arguments = client.arguments
        try:
            command = self._commands[name]
            with command.make_context(f"cmem {name}", arguments) as context:
                command.invoke(context)
            (work,) = client.works
            return int(await work)
        except Exception as problem:  # wrong usage, or an unexpected error: reported as usual
            raise Declined(f"{name}: {type(problem).__name__}") from problem


def _client_of(message: bytes, registry: Registry, kept: WarmMemory) -> Client:
    """Parse the message that `composable_memory_start.request_of` made.

    Raises:
        ValueError: it is something else.
    """
    made_by, folder, width, count, *rest = map(os.fsdecode, message.split(b"\0"))
    (out, out_is_terminal, err, err_is_terminal), arguments = rest[:4], rest[4 : 4 + int(count)]
    pairs = (one.partition("=") for one in rest[4 + int(count) :])
    environ = {name: value for name, _, value in pairs}
    frames: list[bytes] = []
    return Client(
        registry=registry,
        kept=kept,
        installation=made_by,
        folder=Path(folder),
        arguments=tuple(arguments),
        environ={"COLUMNS": width, **environ} if width else environ,
        out=cast("TextIO", _ClientStream(frames, OUT, out, is_terminal=bool(out_is_terminal))),
        err=cast("TextIO", _ClientStream(frames, ERR, err, is_terminal=bool(err_is_terminal))),
        frames=frames,
    )


class _ClientStream(io.TextIOBase):
    """Collects output for a client in frames, encoded as the client's own stream would."""

    encoding = ""

    def __init__(self, frames: list[bytes], kind: bytes, encoding: str, *, is_terminal: bool) -> None:
        self._frames, self._kind, self._is_terminal = frames, kind, is_terminal
        self.encoding = encoding

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self._frames.append(frame(self._kind, text.encode(self.encoding, "backslashreplace")))
        return len(text)


def _listening(address: Path) -> socket.socket:
    """Return a socket that only its owner can connect to. Blocks."""
    address.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(reachable(str(address)))
        address.chmod(0o600)
    except OSError:
        listening.close()
        raise
    return listening


def _is_stranger(writer: asyncio.StreamWriter) -> bool:
    """Return whether a client is another user; if that is unknown, the folder's permissions protect us."""
    if not hasattr(socket, "SO_PEERCRED"):
        return False
    told = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(told[4:8], sys.byteorder) != os.geteuid()


def _state_of_code(before: Iterable[str] = ()) -> dict[str, object]:
    """Return when the program was changed: its files, those `before`, and the installed packages. Blocks.

    Every command asks, so it uses plain paths: path objects take three times as long.
    """
    ours = [module for name, module in sys.modules.items() if name.startswith("composable_memory")]
    files = {*before} - {PACKAGES} or {one.__file__ for one in ours if one.__file__}
    installed = _installed(os.stat(PACKAGES).st_mtime_ns)  # noqa: PTH116
    return {**{one: _changed_at(one) for one in files}, PACKAGES: installed}


@lru_cache(maxsize=1)
def _installed(_changed_ns: int) -> frozenset[str]:
    """Return which packages are installed; the folder's time alone also changes for other reasons."""
    names = os.listdir(PACKAGES)  # noqa: PTH208
    return frozenset(one for one in names if one.endswith((".dist-info", ".pth")))


def _changed_at(file: str) -> float:
    try:
        return os.stat(file).st_mtime  # noqa: PTH116
    except FileNotFoundError:
        return 0.0
