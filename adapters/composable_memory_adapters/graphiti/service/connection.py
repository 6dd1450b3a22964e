"""The graph memory's way to the REST service: sends a request to it, or says why there is no answer."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import field
from urllib.parse import urlsplit

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.types import JsonValue
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.http_client import JSON, HttpClient, HttpRequest, read_whole
from composable_memory_adapters.http_failures import FailureKind, HttpFailure
from composable_memory_ops_logs import redact, utc_now
from composable_memory_ops_logs.quick_dataclass import dataclass

REPLY_CHARS = 200
"""How much of a reply stands in an error."""
KEEPALIVE_S = 3.0
"""Its server closes a connection that idles for five seconds; ours lets go of it before."""
NO_ROUTE = "Not Found"
"""What the service says of an address it does not know, in contrast to a fact that is not there."""
_FIXES = {
    FailureKind.UNREACHABLE: "start it, or correct memory.graphiti.base_url",
    FailureKind.BROKEN: "try again, and look at its log",
    FailureKind.REDIRECTED: "redirects are not followed; correct memory.graphiti.base_url",
    FailureKind.KEY: "check memory.graphiti.api_key",
    FailureKind.NOT_FOUND: "no Graphiti service seems to be there; correct memory.graphiti.base_url",
    FailureKind.CLOSED: "open a new client",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A request to a path below the base URL; `operation` names it in errors.

    With `may_miss`, something that is not there is no error. `on_sending` is called as in `HttpRequest`.
    """

    operation: str
    path: str
    method: str = "GET"
    body: JsonValue | None = field(default=None, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    may_miss: bool = False
    on_sending: Callable[[], None] | None = None


class ServiceConnection:
    """Asks one graph service. `api_key` goes along as a bearer token and never stands in an error.

    Redirects are not followed: they would take texts and key elsewhere. Several requests may go on at once;
    cancelling one closes its connection.
    """

    def __init__(self, base_url: str, *, api_key: str | None, timeout_s: float) -> None:
        self._base = base_url.rstrip("/")
        self._key = api_key or ""
        self._timeout_s = timeout_s
        self._client: HttpClient | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    @property
    def address(self) -> str:
        """Return where the service is, without user and password."""
        parts = urlsplit(self._base)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def send(self, request: ServiceRequest) -> bytes | None:
        """Return the body of a successful answer; None for what is not there, where that is no error.

        Raises:
            BackendUnavailable: the service cannot be asked, or is in trouble itself.
            BackendTimeout: the whole answer was not there in time.
            BackendRejected: it refuses this very request, and will refuse it again.
            BackendGarbled: the answer has no end.
        """
        has_body = request.body is not None
        wire = HttpRequest(
            path=request.path,
            method=request.method,
            query=request.query,
            content=_encoded(request.body) if has_body else b"",
            headers=(JSON if has_body else {}) | self._bearer,
            on_sending=request.on_sending,
        )
        try:
            return await (await self._opened()).send(wire, read_whole)
        except HttpFailure as failure:
            is_missing = failure.kind is FailureKind.NOT_FOUND and failure.detail != NO_ROUTE
            if request.may_miss and is_missing:
                return None
            error = self._error(request.operation, failure)
        raise error

    async def close(self) -> None:
        """Close all connections; calling this again does nothing."""
        self._is_closed = True
        if self._client is not None:
            await self._client.close()

    def garbled(self, operation: str, body: bytes, expected: str) -> BackendGarbled:
        """Return the error for an answer that cannot be read."""
        excerpt = self._censored(body.decode("utf-8", "replace"))
        return BackendGarbled(BACKEND_ID, operation, excerpt=excerpt, expected=expected)

    @property
    def _bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._key}"} if self._key else {}

    async def _opened(self) -> HttpClient:
        async with self._opening:
            if self._is_closed:
                raise HttpFailure(FailureKind.CLOSED, "is no longer asked: the client was closed")
            if self._client is None:
                # Reading the trusted certificates takes its time.
                self._client = await asyncio.to_thread(self._open)
            return self._client

    def _open(self) -> HttpClient:
        return HttpClient(
            self._base,
            timeout_s=self._timeout_s,
            clock=utc_now,
            keepalive_s=KEEPALIVE_S,
            max_redirects=0,
        )

    def _error(self, operation: str, failure: HttpFailure) -> BackendError:
        detail = self._censored(failure.detail)
        match failure.kind:
            case FailureKind.SLOW:
                limit_s = self._timeout_s
                return BackendTimeout(BACKEND_ID, operation, limit_s=limit_s, elapsed_s=limit_s)
            case FailureKind.TOO_LARGE:
                return BackendGarbled(
                    BACKEND_ID, operation, excerpt="", expected=f"less: it {failure.problem}"
                )
            case FailureKind.REJECTED:
                status = failure.problem.removeprefix("answered ")
                return BackendRejected(BACKEND_ID, operation, status=status, body=detail)
        problem = f"the graph service at {self.address} {failure.problem}" + (f": {detail}" if detail else "")
        fix = _FIXES.get(failure.kind, "try again later, and look at its log")
        return BackendUnavailable(BACKEND_ID, problem, fix=fix, operation=operation)

    def _censored(self, reply: str) -> str:
        """Return a reply: one line, without the key, not too long."""
        text = reply.replace(self._key, "***") if self._key else reply
        text = " ".join(redact(text).split())
        return text if len(text) <= REPLY_CHARS else f"{text[:REPLY_CHARS]}…"


def _encoded(body: JsonValue) -> bytes:
    # Half of a surrogate pair is no text in any encoding; the service would refuse the whole request.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
