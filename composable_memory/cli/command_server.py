"""Runs the commands that clients send over a Unix socket, with the modules of this process already imported.

Each runs as in a process of its own: it opens the memory anew, by the settings and the environment of its
client, and closes it. So its output is the same, and nothing of one command is left for the next. What a
client asks for in another way than `composable_memory_start` does, or what cannot be the same here, is
declined, and the client runs the command itself.
"""

import asyncio
import os
import socket
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

from composable_memory.cli.caller import CLIENT, Client, ClientStream
from composable_memory.config.layers import CONFIG_VARIABLE, STATE_VARIABLE
from composable_memory.registry import Registry
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_start import (
    BEAT,
    DECLINED,
    END,
    ERR,
    MAX_REQUEST_BYTES,
    OUT,
    installation,
    reachable,
)

MAX_CLIENTS = 200
MAX_AT_WORK = 8
"""Each has a memory open, with threads and files of its own; more of them would only wait for each other."""
REQUEST_S = 2.0
BEAT_S = 0.5
SEND_S = 30.0
HEAD_FIELDS = 8
FOR_ALL = ("HOME", "LANG", "LANGUAGE", "PATH", "TZ", STATE_VARIABLE)
"""Variables that libraries read for the whole process: who has others is not served."""
FOR_ALL_TOO = ("HF_", "LC_", "PYTHON", "SSL_CERT_", "XDG_CACHE_", "XDG_CONFIG_", "XDG_DATA_", "XDG_STATE_")
"""The beginnings of more of them; those that end with `_proxy` count as well."""


class Declined(Exception):
    """The client has to run its command itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A command as `composable_memory_start.request_of` sends it."""

    installation: str
    folder: str
    encodings: tuple[str, str]
    terminals: tuple[bool, bool]
    arguments: tuple[str, ...]
    environ: Mapping[str, str]

    @classmethod
    def parse(cls, message: bytes) -> "Request":
        """Return the request in a message.

        Raises:
            ValueError: there is none.
        """
        fields = [os.fsdecode(one) for one in message.split(b"\0")]
        made_by, folder, out, err, out_is_terminal, err_is_terminal, width, count = fields[:HEAD_FIELDS]
        rest = fields[HEAD_FIELDS:]
        pairs = (one.partition("=") for one in rest[int(count) :])
        environ = {name: value for name, _, value in pairs}
        return cls(
            installation=made_by,
            folder=folder,
            encodings=(out, err),
            terminals=(bool(out_is_terminal), bool(err_is_terminal)),
            arguments=tuple(rest[: int(count)]),
            environ={"COLUMNS": width, **environ} if width else environ,
        )


class CommandServer:
    """A server of commands at the path of a socket, from `start` to `stop`.

    `commands` are those of Typer by their names; `control` answers what is asked of the server itself.
    """

    def __init__(
        self,
        address: Path,
        *,
        commands: Mapping[str, Any],
        registry: Registry,
        control: Callable[[Sequence[str]], str],
    ) -> None:
        self._address = address
        self._commands = commands
        self._registry = registry
        self._control = control
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(MAX_AT_WORK)
        self._installation = ""
        self._code: Mapping[str, int] = {}
        self.answered = 0
        self.declined = 0
        self.last_reason = ""

    async def start(self) -> None:
        """Listen; a socket that a killed server left there is replaced.

        Raises:
            OSError: it cannot be made.
        """
        self._installation = await asyncio.to_thread(installation)
        self._code = await asyncio.to_thread(_state_of_code)
        listening = await asyncio.to_thread(_listening, self._address)
        # In an empty context, so that no request belongs to the trace of this call.
        starting = asyncio.start_unix_server(self._accept, sock=listening, backlog=MAX_CLIENTS)
        self._server = await asyncio.create_task(starting, context=Context())

    async def stop(self) -> None:
        """Listen no longer and cancel what is at work; its clients run it themselves."""
        if self._server is not None:
            self._server.close()
        await asyncio.to_thread(self._address.unlink, missing_ok=True)
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="command client")
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client; one that is slow, goes away or sends nonsense is left."""
        try:
            if _is_stranger(writer) or len(self._clients) > MAX_CLIENTS:
                return
            async with asyncio.timeout(REQUEST_S):
                length = int.from_bytes(await reader.readexactly(4), "big")
                if length > MAX_REQUEST_BYTES:
                    return
                request = Request.parse(await reader.readexactly(length))
            writer.write(_frame(BEAT))
            frames = await self._while_there(request, reader, writer)
            async with asyncio.timeout(SEND_S):
                writer.write(b"".join(frames))
                await writer.drain()
        except (OSError, ValueError, EOFError):
            pass
        finally:
            (writer.transport.abort if writer.transport.get_write_buffer_size() else writer.close)()

    async def _while_there(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> list[bytes]:
        """Return the frames of an answer, as long as the client waits for them.

        Raises:
            EOFError: it does not.
        """
        work = asyncio.create_task(self._answer(request), name=f"command {request.arguments[:1]}")
        gone = asyncio.create_task(reader.read(1), name="client gone")
        try:
            while not work.done():
                await asyncio.wait({work, gone}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if gone.done() and not work.done():
                    raise EOFError
                writer.write(_frame(BEAT))
            return work.result()
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.wait({work, gone})

    async def _answer(self, request: Request) -> list[bytes]:
        if request.arguments[:1] == ("serve",):
            said = self._control(request.arguments[1:]).encode()
            return [_frame(OUT, said), _frame(END, b"0")]
        try:
            await self._check(request)
            async with self._turns:
                frames = await self._run(request)
        except Declined as why:
            self.declined += 1
            self.last_reason = str(why)
            return [_frame(DECLINED)]
        self.answered += 1
        return frames

    async def _check(self, request: Request) -> None:
        """Make sure that a command would do the same in its client's process.

        Raises:
            Declined: it might not.
        """
        if not request.arguments or request.arguments[0] not in self._commands:
            raise Declined("it only answers " + ", ".join(sorted(self._commands)))
        if request.installation != self._installation:
            raise Declined("the client is of another installation")
        for name in sorted({*request.environ, *os.environ}):
            is_for_all = name in FOR_ALL or name.startswith(FOR_ALL_TOO) or name.lower().endswith("_proxy")
            if is_for_all and request.environ.get(name) != os.environ.get(name):
                raise Declined(f"the variable {name} is another one than that of the server")
        # Only these would be looked for in the folder of the server.
        for name in (CONFIG_VARIABLE, STATE_VARIABLE):
            given = request.environ.get(name) or "/"
            if not Path(given).is_absolute() and not given.startswith("~"):
                raise Declined(f"the variable {name} is a relative path")
        if await asyncio.to_thread(_state_of_code, self._code) != self._code:
            raise Declined("the program was replaced since the server started; restart it")

    async def _run(self, request: Request) -> list[bytes]:
        """Run a command and return what it prints, and its exit code.

        Raises:
            Declined: it ended in a way that the client can tell best.
        """
        frames: list[bytes] = []
        out, err = (
            ClientStream(partial(_add_frame, frames, kind), encoding, is_terminal=is_terminal)
            for kind, encoding, is_terminal in zip(
                (OUT, ERR), request.encodings, request.terminals, strict=True
            )
        )
        client = Client(
            out=cast("TextIO", out),
            err=cast("TextIO", err),
            environ=request.environ,
            folder=Path(request.folder),
            registry=self._registry,
            works=[],
        )
        CLIENT.set(client)  # of this task
        try:
            name, *arguments = request.arguments
            command = self._commands[name]
            with command.make_context(f"cmem {name}", arguments) as context:
                command.invoke(context)
            (work,) = client.works
            code = await work
        except Exception as problem:  # wrong usage, or what nobody foresaw: told in the usual way
            raise Declined(f"{name}: {type(problem).__name__}") from problem
        return [*frames, _frame(END, str(int(code)).encode())]


def _add_frame(frames: list[bytes], kind: bytes, data: bytes) -> None:
    frames.append(_frame(kind, data))


def _frame(kind: bytes, data: bytes = b"") -> bytes:
    return kind + len(data).to_bytes(4, "big") + data


def _listening(address: Path) -> socket.socket:
    """Return a socket that its owner alone can connect to. Blocks."""
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
    """Return whether a client belongs to another user; where nobody tells, the folder keeps them out."""
    if not hasattr(socket, "SO_PEERCRED"):
        return False
    told = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(told[4:8], sys.byteorder) != os.geteuid()


def _state_of_code(before: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return when the files of the program were changed, and those that were there `before`. Blocks."""
    files = before or {
        *(
            str(module.__file__)
            for name, module in sys.modules.items()
            if name.startswith("composable_memory") and getattr(module, "__file__", None)
        ),
        sysconfig.get_path("purelib"),
    }
    found: dict[str, int] = {}
    for one in files:
        with suppress(OSError):
            found[one] = Path(one).stat().st_mtime_ns
    return found
