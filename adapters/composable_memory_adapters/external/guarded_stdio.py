"""The transport to an MCP server on standard input and output, with the server under our guard.

The library's own starts a process that may outlive us, and holds a line in memory however long it is.
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
"""Bytes of one message."""
MAX_WAITING = 1_000
"""Messages that wait to be read; a server that sends more is no longer heard."""
TAIL = 2_000
"""Bytes of its error output that are kept, to tell why it ended."""

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
    """Start a server and yield the streams to and from it; leaving the block ends it and all it has started.

    Lines that are no messages are passed over: some servers print greetings. Where the server ends, or sends
    what nobody can hold, the stream from it ends, and `on_end` is told why before, in the words that `tell`
    lets through.

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
    """Makes messages of what a server writes."""

    def __init__(self, on_end: Callable[[str], None]) -> None:
        self._on_end = on_end
        self.send, self.messages = anyio.create_memory_object_stream[SessionMessage | Exception](MAX_WAITING)
        self.said = b""
        """The last of its error output."""
        self._line = bytearray()

    def take(self, descriptor: int, data: bytes) -> None:
        """Take what came on standard output (1) or error output (2)."""
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
        """End the stream: nobody waits for more."""
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
    """Return a message; one that only strict readers refuse, for half a surrogate pair, is put right first.

    Raises:
        ValueError: it is none.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return jsonrpc_message_adapter.validate_json(sound_json(line), by_name=False)


async def _write(messages: anyio.abc.ObjectReceiveStream[SessionMessage], descriptor: int) -> None:
    """Write messages to the pipe until nobody reads it."""
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
        if not transport.is_closing():  # or it would be told twice that it is lost
            transport.abort()


class _Flow(asyncio.BaseProtocol):
    """Knows whether the pipe has room."""

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
    """End the stream from a server that has ended, with what it said last."""
    code = await server.wait()
    said = _most_telling(tell(incoming.said.decode("utf-8", "replace")))
    incoming.end(f"it ended with code {code}" + (f": {said[:300]}" if said else ""))


def _most_telling(said: str) -> str:
    """Return the last line that names an error, as Node writes its version below it; else the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "")
