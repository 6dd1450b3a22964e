"""Sends requests to a QMD server over HTTP; the only module of the QMD memory that imports httpx."""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence

import httpx

from composable_memory.errors import (
    BackendGarbled,
    BackendRejected,
    BackendUnavailable,
)
from composable_memory.supervision.deadline import deadline
from composable_memory.types import JsonValue
from composable_memory_adapters.qmd.transport.replies import (
    SEARCH,
    TOOL,
    arguments_of,
    error_text,
    has_failed,
    hits_of,
    refusal,
    results_in,
)
from composable_memory_adapters.qmd.types import BACKEND_ID, Hit, SearchRequest

MAX_ANSWER_BYTES = 4 * 2**20
BASE = "http://localhost"
"""The host name in a request; QMD rejects others."""

EVENT_DATA = b"data:"

# A server that runs on Node closes an idle connection after 5 s.
LIMITS = httpx.Limits(max_connections=16, keepalive_expiry=3.0)

# An MCP server may answer either way, and rejects clients that do not accept both.
HEADERS = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "user-agent": "composable-memory",
}


class DaemonClient:
    """Talks to the QMD server at a socket. Requests may run concurrently; each can be cancelled."""

    def __init__(self, address: str) -> None:
        self.address = address
        # Without certificates: loading them takes time, and a Unix socket needs none.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        transport = httpx.AsyncHTTPTransport(uds=address, limits=LIMITS, verify=context)
        self._client = httpx.AsyncClient(
            transport=transport,
            timeout=None,  # noqa: S113 - each request has its own limit
            headers=HEADERS,
            base_url=BASE,
        )

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that the server finds, best first; see `Transport` for the errors."""
        async with deadline(BACKEND_ID, SEARCH, timeout_s):
            if request.expand:
                body = await self._post("/mcp", _tool_message(request))
                return hits_of(_tool_results(body), encoded=False)
            body = await self._post("/query", arguments_of(request))
            return hits_of(_object(body).get("results"), encoded=True)

    async def is_healthy(self, *, timeout_s: float) -> bool:
        """Return whether the server reports within `timeout_s` that it is healthy."""
        try:
            async with asyncio.timeout(timeout_s):
                async with self._client.stream("GET", "/health") as response:
                    return response.is_success
        except (TimeoutError, httpx.HTTPError):
            return False

    async def close(self) -> None:
        """Close all connections; a second call does nothing."""
        await self._client.aclose()

    async def _post(self, url: str, payload: Mapping[str, JsonValue]) -> bytes:
        try:
            async with self._client.stream("POST", url, json=payload) as response:
                body = await _bounded(response)
        except httpx.HTTPError as error:
            what = f"QMD's server at {self.address} broke off ({error or type(error).__name__})"
            raise BackendUnavailable(BACKEND_ID, what, fix="ask again", operation=SEARCH) from error
        if not response.is_success:
            status = f"{response.status_code} {response.reason_phrase}"
            message = body.decode("utf-8", "replace").strip()
            raise BackendRejected(BACKEND_ID, SEARCH, status=status, body=message or "nothing")
        return body


def _tool_message(request: SearchRequest) -> dict[str, JsonValue]:
    """Return the MCP message that lets QMD expand the query itself, which its REST interface cannot do."""
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": TOOL, "arguments": arguments_of(request)},
    }


def _tool_results(body: bytes) -> object:
    """Return the results in the answer to a tool call, which is JSON or the data of an event.

    Raises:
        BackendError: the tool failed; its message decides which error.
        BackendGarbled: the answer is not a JSON object.
    """
    events = [line for line in body.splitlines() if line.startswith(EVENT_DATA)]
    message = _object(events[-1].removeprefix(EVENT_DATA) if events else body)
    result = message.get("result")
    if not isinstance(result, dict):
        raise refusal(1, "", error_text(message) or json.dumps(message.get("error")))
    if has_failed(result):
        raise refusal(1, "", error_text(result) or json.dumps(result.get("content")))
    return results_in(result)


def _object(body: bytes) -> dict[str, object]:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise _garbled(body, "a JSON object")
    return read


async def _bounded(response: httpx.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_raw():  # not decompressed: a small body may expand to any size
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise _garbled(bytes(body[:200]), f"an answer of at most {MAX_ANSWER_BYTES // 2**20} MiB")
    return bytes(body)


def _garbled(body: bytes, expected: str) -> BackendGarbled:
    excerpt = body[:800].decode("utf-8", "replace").strip()
    return BackendGarbled(BACKEND_ID, SEARCH, excerpt=excerpt or "nothing", expected=expected)
