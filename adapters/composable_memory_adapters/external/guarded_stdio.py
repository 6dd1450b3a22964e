"""The stdio transport to an MCP server, with the server under our supervision.

The library's own transport starts a process that may outlive us, and buffers lines of any length.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter

from composable_memory.supervision.process import GuardedProcess
from composable_memory_adapters.external.answer_reader import sound_json
from composable_memory_ops_logs import redact

MAX_LINE = 16 * 2**20
"""The most bytes in one message."""
MAX_WAITING = 1_000
"""How many messages may wait to be read; if a server sends more, the stream is ended."""
TAIL = 2_000
"""How many bytes of its error output to keep, to explain why it ended."""

Streams: TypeAlias = tuple[
    anyio.abc.ObjectReceiveStream[SessionMessage | Exception], anyio.abc.ObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def guarded_stdio(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    cwd: Path,
    owner: str,
    on_end: Callable[[str], None],
    tell: Callable[[str], str] = redact,
) -> AsyncIterator[Streams]:
    """Start a server and yield the streams from and to it; leaving the block ends all its processes.

    Lines that are not messages are ignored: some servers print greetings. If the server ends, or sends more
    than can be buffered, the stream from it ends; before that, `on_end` is called with the reason, filtered
    by `tell`.

    Raises:
        BackendUnavailable: the command cannot be started.
    """
    its_end, our_end = os.pipe()
    incoming = _Incoming(on_end)
    with ExitStack() as failed:
        failed.callback(os.close, our_end)
        try:
            server = await GuardedProcess.start(
                command,
                owner=owner,
                operation="start its server",
                environ=environ,
                cwd=cwd,
                on_output=incoming.take,
                reads_from=its_end,
                sweeps=True,
            )
        finally:
            os.close(its_end)
        failed.pop_all()
    outgoing, to_write = anyio.create_memory_object_stream[SessionMessage](0)
    writing = asyncio.create_task(_write(to_write, our_end), name=f"write to {owner}")
    watching = asyncio.create_task(_watch(server, incoming, tell), name=f"watch {owner}")
    try:
        yield incoming.messages, outgoing
    finally:
        writing.cancel()
        watching.cancel()
        await server.stop()
        await asyncio.wait([writing, watching])
        for stream in (outgoing, to_write, incoming.messages, incoming.send):
            stream.close()


class _Incoming:
    """Parses messages from a server's output."""

    def __init__(self, on_end: Callable[[str], None]) -> None:
        self._on_end = on_end
        self.send, self.messages = anyio.create_memory_object_stream[SessionMessage | Exception](MAX_WAITING)
        self.said = b""
        """The end of its error output."""
        self._line = bytearray()

    def take(self, descriptor: int, data: bytes) -> None:
        """Handle data from standard output (1) or error output (2)."""
        if descriptor == 2:
            self.said = (self.said + data)[-TAIL:]
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            self._deliver(bytes(self._line))
            self._line.clear()
        self._line += rest
        if len(self._line) > MAX_LINE:
            self.end(f"it sent a message of more than {MAX_LINE // 2**20} MiB")

    def end(self, why: str) -> None:
        """End the stream: no more messages will come."""
        self._on_end(why)
        self._line.clear()
        self.send.close()

    def _deliver(self, line: bytes) -> None:
        if not line.lstrip().startswith(b"{"):
            return
        try:
            message = _message(line)
        except ValueError:
            return
        try:
            self.send.send_nowait(SessionMessage(message))
        except anyio.WouldBlock:
            self.end(f"it sent more than {MAX_WAITING} unexpected messages")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass


def _message(line: bytes) -> JSONRPCMessage:
    """Parse a message; lone surrogates, which only strict parsers reject, are repaired first.

    Raises:
        ValueError: it is not a message.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return jsonrpc_message_adapter.validate_json(sound_json(line), by_name=False)


async def _write(messages: anyio.abc.ObjectReceiveStream[SessionMessage], descriptor: int) -> None:
    """Write messages to the pipe until its reader closes it."""
    pipe = os.fdopen(descriptor, "wb", buffering=0)
    transport, protocol = await asyncio.get_running_loop().connect_write_pipe(_Flow, pipe)
    try:
        async for message in messages:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            transport.write(f"{text}\n".encode())
            await protocol.can_write.wait()
            if transport.is_closing():
                return
    finally:
        if not transport.is_closing():  # otherwise `connection_lost` would be called twice
            transport.abort()


class _Flow(asyncio.BaseProtocol):
    """Tracks whether the pipe has room."""

    def __init__(self) -> None:
        self.can_write = asyncio.Event()
        self.can_write.set()

    def pause_writing(self) -> None:
        self.can_write.clear()

    def resume_writing(self) -> None:
        self.can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface's
        self.can_write.set()


async def _watch(server: GuardedProcess, incoming: _Incoming, tell: Callable[[str], str]) -> None:
    """End the stream when the server ends, with the end of its error output."""
    code = await server.wait()
    said = _error_line(tell(incoming.said.decode("utf-8", "replace")))
    incoming.end(f"it ended with code {code}" + (f": {said[:300]}" if said else ""))


def _error_line(said: str) -> str:
    """Return the last line that names an error (Node prints its version below it), or else the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "")
