"""Foreign memories keep the contract: an MCP server, a service over HTTP, and a search function."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from composable_memory.interfaces import BackendServices, BackendSpec, MemorySearchManager
from composable_memory.testing import SEED_NOTES, AnswerContract, BackendContract, Opener
from composable_memory.testing.contracts.opening import BackendSuite
from composable_memory.testing.in_memory import InMemoryBackend
from composable_memory.types import SearchOptions
from composable_memory_adapters.external.http import spec as http_spec
from composable_memory_adapters.external.mcp import spec as mcp_spec
from composable_memory_adapters.external.retrievers import retriever_backend
from tests.contract.in_short import InShort

SERVER = Path(__file__).parents[1] / "integration" / "external" / "notes_server.py"
NOTES = InMemoryBackend(SEED_NOTES, backend_id="notes")


async def found(query: str, limit: int) -> list[dict[str, Any]]:
    hits = await NOTES.search(query, SearchOptions(max_results=limit))
    return [
        {"path": hit.path, "line": hit.start_line, "text": hit.text or hit.snippet, "score": hit.score}
        for hit in hits
    ]


class External(BackendSuite):
    capabilities = mcp_spec.capabilities

    @asynccontextmanager
    async def opened(
        self, spec: BackendSpec, services: BackendServices, **settings: Any
    ) -> AsyncIterator[MemorySearchManager]:
        own = replace(services, backend_id="notes")
        async with spec.open(spec.settings(**settings), own) as memory:
            yield memory


class McpServer(External):
    @pytest.fixture
    def open_backend(self, services: BackendServices) -> Opener[MemorySearchManager]:
        return lambda: self.opened(mcp_spec, services, command=(sys.executable, str(SERVER)))


class TestMcpServerInShort(McpServer, InShort): ...


@pytest.mark.thorough
class TestMcpServer(McpServer, BackendContract, AnswerContract): ...


class TestHttpService(External, BackendContract, AnswerContract):
    @pytest.fixture
    def open_backend(self, services: BackendServices) -> Opener[MemorySearchManager]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[MemorySearchManager]:
            server = await asyncio.start_server(_answer, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/search"
            body = {"q": "{query}", "n": "{limit}"}
            async with server, self.opened(http_spec, services, url=url, body=body) as memory:
                yield memory

        return opened


class TestSearchFunction(External, BackendContract, AnswerContract):
    @pytest.fixture
    def open_backend(self, services: BackendServices) -> Opener[MemorySearchManager]:
        return lambda: self.opened(retriever_backend("notes", found), services)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests as a service does that knows `q` and `n`."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            asked = json.loads(await reader.readexactly(length))
            body = json.dumps({"data": {"hits": await found(asked["q"], asked["n"])}}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        pass
    finally:
        writer.close()
