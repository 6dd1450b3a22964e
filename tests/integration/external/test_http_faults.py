"""A service over HTTP as a memory: whatever it does, it is named, and the others answer."""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from composable_memory import open_memory
from composable_memory.runtime.memory import Memory
from composable_memory.types import QueryResponse

QUERY = "irrigation timer"
ROWS = json.dumps({"results": [{"id": "a", "text": "The irrigation timer waters twice a week."}]}).encode()
MEGABYTE = b" " * 2**20


class Service:
    """A service on this machine that does what its `fault` says, or answers if it has none."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.bomb = gzip.compress(64 * MEGABYTE, compresslevel=1) if fault == "bomb" else b""
        self.asked = 0
        self.sent = 0
        """Bytes that were taken from it in a flood."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/search"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0]))
            self.asked += 1
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match self.fault:
            case "hangs":
                await reader.read()
            case "hangs-within":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + ROWS)
                await reader.read()
            case "floods":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (100 * len(MEGABYTE)))
                for _ in range(100):
                    writer.write(MEGABYTE)
                    await writer.drain()
                    self.sent += len(MEGABYTE)
            case "breaks":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + ROWS)
            case "no-http":
                writer.write(b"\x00\xff\x17 nonsense\r\n\r\n")
            case "no-json":
                self._reply(writer, b"<html>It works! apikey=a1B2a1B2a1B2a1B2a1B2</html>")
            case "moves":
                self._reply(writer, b"", b"302 Found", b"location: http://192.0.2.1/search\r\n")
            case "bomb":
                self._reply(writer, self.bomb, extra=b"content-encoding: gzip\r\n")
            case "bomb-in-bomb":
                packed = gzip.compress(gzip.compress(MEGABYTE))
                self._reply(writer, packed, extra=b"content-encoding: gzip, gzip\r\n")
            case "packed":
                self._reply(writer, gzip.compress(ROWS), extra=b"content-encoding: gzip\r\n")
            case "packed-badly":
                self._reply(writer, b"\x1f\x8b" + ROWS, extra=b"content-encoding: gzip\r\n")
            case "":
                self._reply(writer, ROWS)

    @staticmethod
    def _reply(
        writer: asyncio.StreamWriter, body: bytes, status: bytes = b"200 OK", extra: bytes = b""
    ) -> None:
        writer.write(b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, extra, len(body), body))


@asynccontextmanager
async def joined(service: Service, tmp_path: Path, **section: Any) -> AsyncIterator[Memory]:
    """Open a memory of one note together with a service."""
    note = tmp_path / "notes" / "memory" / "timer.md"
    note.parent.mkdir(parents=True)
    note.write_text("A new irrigation timer costs 40.\n", encoding="utf-8")
    async with service.listening() as url:
        away = {"kind": "http", "url": url, "body": {"q": "{query}"}, "timeout_ms": 60_000, **section}
        config = {"embedding": {"provider": "none"}, "backends": {"builtin": {}, "away": away}}
        async with open_memory(tmp_path / "notes", tmp_path / "state", config, long_lived=False) as memory:
            await memory.sync()
            yield memory


def found(response: QueryResponse) -> set[str]:
    return {one.path for one in response.results}


def lost(response: QueryResponse) -> str:
    (problem,) = (one for one in response.degraded if one.backend_id == "away")
    return f"{problem.code}: {problem.reason}"


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("breaks", "broke off"),
        ("no-http", "broke off"),
        ("no-json", "It works!"),
        ("moves", "192.0.2.1"),
        ("floods", "16 MiB"),
        ("bomb-in-bomb", "gzip, gzip"),
        ("packed-badly", "broke off"),
    ],
)
async def test_a_fault_is_named_and_the_others_answer(tmp_path: Path, fault: str, named: str) -> None:
    service = Service(fault)
    async with joined(service, tmp_path) as memory:
        response = await memory.query(QUERY)
        service.fault = ""
        again = await memory.query(QUERY)
    assert found(response) == {"memory/timer.md"}
    assert named in lost(response)
    assert "a1B2a1B2" not in lost(response)
    assert found(again) == {"memory/timer.md", "away://a"}
    assert service.asked <= 3  # twice where it may pass, and once again
    assert service.sent <= 32 * len(MEGABYTE)  # what was read, and what the system holds


@pytest.mark.parametrize("fault", ["hangs", "hangs-within"])
async def test_a_service_that_hangs_is_left_at_its_deadline(tmp_path: Path, fault: str) -> None:
    async with joined(Service(fault), tmp_path, timeout_ms=300) as memory:
        response = await memory.query(QUERY)
    assert found(response) == {"memory/timer.md"}
    assert lost(response).startswith("timeout: ")


async def test_a_small_answer_that_becomes_huge_takes_little_memory(tmp_path: Path) -> None:
    async with joined(Service("bomb"), tmp_path) as memory:
        await memory.query("warm")  # what is imported on the way does not count
        tracemalloc.start()
        try:
            response = await memory.query(QUERY)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert found(response) == {"memory/timer.md"}
    assert "16 MiB" in lost(response)
    assert peak < 48 * len(MEGABYTE)


async def test_a_packed_answer_is_read(tmp_path: Path) -> None:
    async with joined(Service("packed"), tmp_path) as memory:
        assert found(await memory.query(QUERY)) == {"memory/timer.md", "away://a"}
