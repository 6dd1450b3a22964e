"""The QMD memory's door to httpx: puts a question to a QMD server, and asks it how it is."""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence

import httpx

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendUnavailable,
)
from composable_memory.supervision.deadline import deadline
from composable_memory.types import JsonValue
from composable_memory_adapters.qmd.transport.replies import hits_of, refusal
from composable_memory_adapters.qmd.values import BACKEND_ID, CANDIDATES, Hit, SearchRequest

__all__ = ["Client"]

MAX_ANSWER_BYTES = 4 * 2**20
OPERATION = "search"
BASE = "http://localhost"
"""What the server is called in a request; QMD refuses other names."""

EVENT_DATA = b"data:"

# A server that runs on Node closes an idle connection after 5 s.
LIMITS = httpx.Limits(max_connections=16, keepalive_expiry=3.0)

# An MCP server may answer either way, and refuses who does not take both.
HEADERS = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "user-agent": "composable-memory",
}


class Client:
    """Asks the QMD server at a socket. Several questions may go on at once; each can be cancelled."""

    def __init__(self, address: str) -> None:
        self.address = address
        # Without certificates, whose reading takes its time.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        transport = httpx.AsyncHTTPTransport(uds=address, limits=LIMITS, verify=context)
        self._client = httpx.AsyncClient(
            transport=transport,
            timeout=None,  # noqa: S113 - every question has its own limit
            headers=HEADERS,
            base_url=BASE,
        )

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that the server finds, best first.

        Raises:
            BackendTimeout: no answer within `timeout_s`.
            BackendUnavailable: nobody listens, or the server broke off, or lacks something.
            BackendRejected: the server refused.
            BackendGarbled: the answer cannot be read.
        """
        async with deadline(BACKEND_ID, OPERATION, timeout_s):
            if request.expand:
                body = await self._post("/mcp", _tool_call(request))
                return hits_of(_tool_result(body), encoded=False)
            body = await self._post("/query", _structured(request))
            return hits_of(_object(body).get("results"), encoded=True)

    async def is_healthy(self, *, timeout_s: float) -> bool:
        """Say whether the server answers within `timeout_s` that it is well."""
        try:
            async with asyncio.timeout(timeout_s):
                async with self._client.stream("GET", "/health") as response:
                    return response.is_success
        except (TimeoutError, httpx.HTTPError):
            return False

    async def close(self) -> None:
        """Close all connections; calling it again does nothing."""
        await self._client.aclose()

    async def _post(self, url: str, payload: Mapping[str, JsonValue]) -> bytes:
        try:
            async with self._client.stream("POST", url, json=payload) as response:
                body = await _bounded(response)
        except httpx.HTTPError as error:
            what = f"QMD's server at {self.address} broke off ({error or type(error).__name__})"
            raise BackendUnavailable(BACKEND_ID, what, fix="ask again", operation=OPERATION) from error
        if not response.is_success:
            status = f"{response.status_code} {response.reason_phrase}"
            said = body.decode("utf-8", "replace").strip()
            raise BackendRejected(BACKEND_ID, OPERATION, status=status, body=said or "nothing")
        return body


def _structured(request: SearchRequest) -> dict[str, JsonValue]:
    return {
        "searches": [{"type": one.kind, "query": one.text} for one in request.searches],
        "collections": list(request.collections),
        "limit": request.limit,
        "candidateLimit": max(CANDIDATES, request.limit),
        "rerank": False,
    }


def _tool_call(request: SearchRequest) -> dict[str, JsonValue]:
    """Return the message that has QMD widen the question itself; there is no plain request for it."""
    arguments: dict[str, JsonValue] = {
        "query": request.text,
        "collections": list(request.collections),
        "limit": request.limit,
        "candidateLimit": max(CANDIDATES, request.limit),
    }
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "query", "arguments": arguments},
    }


def _tool_result(body: bytes) -> object:
    """Return the results in the answer to a tool call, which comes as JSON or as the data of an event.

    Raises:
        BackendError: the tool failed; what it says decides how.
        BackendGarbled: there is no result in the answer.
    """
    events = [line for line in body.splitlines() if line.startswith(EVENT_DATA)]
    message = _object(events[-1].removeprefix(EVENT_DATA) if events else body)
    result = message.get("result")
    if not isinstance(result, dict):
        raise _tool_refusal(message.get("error"))
    if result.get("isError"):
        raise _tool_refusal(result.get("content"))
    found = result.get("structuredContent")
    return found.get("results") if isinstance(found, dict) else None


def _tool_refusal(said: object) -> BackendError:
    return refusal(1, "", _texts(said) or json.dumps(said))


def _texts(said: object) -> str:
    parts = said if isinstance(said, list) else [said]
    found = [part.get("text") or part.get("message") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in found if isinstance(text, str))


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
    async for part in response.aiter_raw():  # what is packed small may be of any size
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise _garbled(bytes(body[:200]), f"an answer of at most {MAX_ANSWER_BYTES // 2**20} MiB")
    return bytes(body)


def _garbled(body: bytes, expected: str) -> BackendGarbled:
    excerpt = body[:800].decode("utf-8", "replace").strip()
    return BackendGarbled(BACKEND_ID, OPERATION, excerpt=excerpt or "nothing", expected=expected)
