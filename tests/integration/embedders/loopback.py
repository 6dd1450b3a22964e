"""A small HTTP server on loopback that speaks the protocols of embedding providers, or misbehaves as told."""

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "SHORT",
    "Answerer",
    "Loopback",
    "Received",
    "Reply",
    "gemini",
    "in_turn",
    "listening",
    "ollama",
    "ollama_of_old",
    "openai",
    "vector_of",
]

SHORT = 32
"""Length of the vectors of these servers, where no other is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as it came in; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer. `drip` sends the body byte by byte and never all of it; `cut` breaks off in its middle."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drip: bool = False
    cut: bool = False

    @classmethod
    def of(cls, value: object, status: int = 200, **headers: str) -> "Reply":
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return cls(status=status, body=json.dumps(value).encode(), headers=named)


ACCEPTING = 4
"""Turns of the loop after which a connection that was accepted has got to who serves it.

Python 3.12 forgets one, unclosed, whose server is closed before that.
"""

Answerer = Callable[[Received], Reply | Awaitable[Reply]]


class Loopback:
    """The server: what it received, and how often a caller went away before the answer."""

    def __init__(self, answer: Answerer) -> None:
        self.answer = answer
        self.url = ""
        self.received: list[Received] = []
        self.arrived = asyncio.Event()
        self.deserted = asyncio.Event()
        self._talks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def stop(self) -> None:
        self._is_stopped = True
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:  # it was accepted just before the end
            writer.close()
            return
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)
        talk.add_done_callback(lambda _: writer.close())  # also of one that is cancelled before it begins

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun = b""
        try:
            while begun := begun or await reader.read(1):
                received = await _read(begun, reader)
                self.received.append(received)
                self.arrived.set()
                begun = await self._serve(received, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.deserted.set()

    async def _serve(
        self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Answer, unless the caller leaves before; return the first byte of what comes next."""
        next_byte = asyncio.create_task(reader.read(1))
        work = asyncio.create_task(self._reply(received, writer))
        try:
            await asyncio.wait({next_byte, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.deserted.set()
                return b""
            await work
            return await next_byte
        finally:
            next_byte.cancel()
            work.cancel()
            await asyncio.wait({next_byte, work})

    async def _reply(self, received: Received, writer: asyncio.StreamWriter) -> None:
        reply = self.answer(received)
        if not isinstance(reply, Reply):
            reply = await reply
        headers = {
            "content-type": "application/json",
            "content-length": str(len(reply.body)),
            **reply.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} Any\r\n{head}\r\n".encode())
        if reply.drip:
            await _drip(reply.body, writer)
        writer.write(reply.body[: len(reply.body) // 2] if reply.cut else reply.body)
        await writer.drain()
        if reply.cut:
            writer.close()


async def _read(begun: bytes, reader: asyncio.StreamReader) -> Received:
    head = (begun + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method=method, path=path, headers=headers, body=body)


async def _drip(body: bytes, writer: asyncio.StreamWriter) -> None:
    for place in range(len(body) - 1):
        writer.write(body[place : place + 1])
        await writer.drain()
        await asyncio.sleep(0.01)
    await asyncio.Event().wait()


@asynccontextmanager
async def listening(answer: Answerer) -> AsyncIterator[Loopback]:
    """Open a server that answers so."""
    loopback = Loopback(answer)
    server = await loopback.start()
    try:
        yield loopback
    finally:
        for _ in range(ACCEPTING):
            await asyncio.sleep(0)
        server.close()
        await loopback.stop()
        await server.wait_closed()


def in_turn(*replies: Reply, then: Answerer) -> Answerer:
    """Give these replies first, and then what `then` says."""
    waiting = list(replies)
    return lambda received: waiting.pop(0) if waiting else then(received)


def vector_of(text: str, length: int = SHORT) -> list[float]:
    """Return a vector that is near to those of texts with the same words."""
    vector = [0.0] * length
    for word in re.findall(r"\w+|[^\w\s]", text.lower()) or ["·"]:
        vector[zlib.crc32(word.encode()) % length] += 1.0
    return vector


def openai(received: Received) -> Reply:
    """Answer as OpenAI, Mistral and Voyage do, each with its own word for the wanted length."""
    body = received.json
    length = body.get("dimensions") or body.get("output_dimension") or SHORT
    return _embedding_list([vector_of(text, length) for text in body["input"]])


def _embedding_list(vectors: Sequence[Sequence[float]]) -> Reply:
    items = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    # The order of the items is not promised.
    return Reply.of({"object": "list", "data": items[::-1], "model": "m", "usage": {"total_tokens": 1}})


def gemini(received: Received) -> Reply:
    """Answer as Gemini does."""
    assert received.path.endswith(":batchEmbedContents")
    vectors = [
        vector_of(one["content"]["parts"][0]["text"], one.get("outputDimensionality", SHORT))
        for one in received.json["requests"]
    ]
    return Reply.of({"embeddings": [{"values": vector} for vector in vectors]})


def ollama(received: Received) -> Reply:
    """Answer as today's Ollama does, whose only model is nomic-embed-text."""
    body = received.json
    if not body["model"].startswith("nomic-embed-text"):
        return Reply.of({"error": f'model "{body["model"]}" not found, try pulling it first'}, 404)
    length = body.get("dimensions") or SHORT
    return Reply.of({"embeddings": [vector_of(text, length) for text in body["input"]]})


def ollama_of_old(_: Received) -> Reply:
    """Answer as Ollama did before it knew batches."""
    return Reply(status=404, body=b"404 page not found", headers={"content-type": "text/plain"})
