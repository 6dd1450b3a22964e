"""The graph memory's door to httpx: sends a request to the service, or says why there is no answer."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import field
from http.client import responses
from time import perf_counter

import httpx

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.types import JsonValue
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_ops_logs import redact
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_ANSWER_BYTES = 32 * 2**20
MAX_REPLY_BYTES = 16 * 2**10
REPLY_CHARS = 200
"""How much of a reply stands in an error."""
CONNECT_TIMEOUT_S = 10.0
LIMITS = httpx.Limits(max_connections=8, keepalive_expiry=3.0)
"""Its server closes a connection that idles for five seconds; ours lets go of it before."""
DIRECTLY = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
"""This machine is never asked through a proxy, whatever the environment says of proxies."""
NO_ROUTE = "Not Found"
"""What the service says of an address it does not know, in contrast to a fact that is not there."""
PASSING = frozenset({408, 425, 429})
"""Refusals that say nothing about the request itself, so that it may be sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A request to a path below the base URL; `operation` names it in errors.

    With `may_miss`, something that is not there is no error. `on_sending` is called when a connection is
    there and the body goes out: of what ends before, the service has taken nothing.
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
        self._base = httpx.URL(base_url.rstrip("/"))
        self._key = api_key or ""
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    @property
    def address(self) -> str:
        """Return where the service is, without user and password."""
        port = f":{self._base.port}" if self._base.port else ""
        return f"{self._base.scheme}://{self._base.host}{port}{self._base.path.rstrip('/')}"

    async def send(self, request: ServiceRequest) -> bytes | None:
        """Return the body of a successful answer; None for what is not there, where that is no error.

        Raises:
            BackendUnavailable: the service cannot be asked, or is in trouble itself.
            BackendTimeout: the whole answer was not there in time.
            BackendRejected: it refuses this very request, and will refuse it again.
            BackendGarbled: the answer has no end.
        """
        started = perf_counter()
        client = await self._opened(request.operation)
        # What httpx raises refers to the request and so to the key: it must not be in the chain of ours.
        failure: BackendError
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(client, request)
        except TimeoutError:
            elapsed_s = perf_counter() - started
            failure = BackendTimeout(
                BACKEND_ID, request.operation, limit_s=self._timeout_s, elapsed_s=elapsed_s
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = self._unavailable(request, "cannot be reached", str(error), fix=_START)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            failure = self._unavailable(request, "broke off", reason, fix="try again, and look at its log")
        raise failure

    async def close(self) -> None:
        """Close all connections; calling this again does nothing."""
        self._is_closed = True
        if self._client is not None:
            await self._client.aclose()

    def garbled(self, operation: str, body: bytes, expected: str) -> BackendGarbled:
        """Return the error for an answer that cannot be read."""
        return BackendGarbled(BACKEND_ID, operation, excerpt=self._censored(body), expected=expected)

    async def _opened(self, operation: str) -> httpx.AsyncClient:
        async with self._opening:
            if self._client is None and not self._is_closed:
                # Reading the trusted certificates takes its time.
                self._client = await asyncio.to_thread(self._open)
        if self._client is None or self._is_closed:
            raise BackendUnavailable(
                BACKEND_ID, "the client was closed", fix="open a new one", operation=operation
            )
        return self._client

    def _open(self) -> httpx.AsyncClient:
        bearer = {"authorization": f"Bearer {self._key}"} if self._key else {}
        return httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)),
            headers={"accept": "application/json", "user-agent": "composable-memory", **bearer},
            limits=LIMITS,
            mounts=DIRECTLY,
            follow_redirects=False,
        )

    async def _exchange(self, client: httpx.AsyncClient, request: ServiceRequest) -> bytes | None:
        url = self._base.copy_with(path=f"{self._base.path.rstrip('/')}/{request.path.lstrip('/')}")
        url = url.copy_merge_params(request.query) if request.query else url
        content = None if request.body is None else _encoded(request.body)
        headers = {"content-type": "application/json"} if content is not None else {}

        async def watch(event: str, _: object) -> None:
            if event.endswith(".send_request_body.started") and request.on_sending is not None:
                request.on_sending()

        async with client.stream(
            request.method, url, content=content, headers=headers, extensions={"trace": watch}
        ) as response:
            if response.is_success:
                return await self._whole(request, response)
            reply = await _beginning(response, MAX_REPLY_BYTES)
            if response.status_code == 404 and request.may_miss and _detail(reply) != NO_ROUTE:
                return None
            raise self._refusal(request, response, reply)

    async def _whole(self, request: ServiceRequest, response: httpx.Response) -> bytes:
        body = await _beginning(response, MAX_ANSWER_BYTES)
        if len(body) > MAX_ANSWER_BYTES:
            most = f"an answer of at most {MAX_ANSWER_BYTES // 2**20} MiB"
            raise self.garbled(request.operation, body[:MAX_REPLY_BYTES], most)
        return body

    def _refusal(self, request: ServiceRequest, response: httpx.Response, reply: bytes) -> BackendError:
        status = response.status_code
        summary = f"answered {status} {responses.get(status, '')}".rstrip()
        text = self._censored(reply)
        if response.has_redirect_location:
            target = response.url.join(response.headers["location"])
            host = f"{target.scheme}://{target.netloc.decode('ascii').rpartition('@')[2]}"
            return self._unavailable(
                request,
                f"points to {host}",
                "",
                fix="redirects are not followed; correct memory.graphiti.base_url",
            )
        if status in (401, 403):
            return self._unavailable(request, summary, text, fix="check memory.graphiti.api_key")
        if status == 404:
            return self._unavailable(request, summary, text, fix=_NO_SERVICE)
        if status >= 500 or status in PASSING:
            return self._unavailable(request, summary, text, fix="try again later, and look at its log")
        return BackendRejected(
            BACKEND_ID, request.operation, status=summary.removeprefix("answered "), body=text
        )

    def _unavailable(
        self, request: ServiceRequest, problem: str, reply: str, *, fix: str
    ) -> BackendUnavailable:
        reply = self._censored(reply.encode())
        what = f"the graph service at {self.address} {problem}" + (f": {reply}" if reply else "")
        return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=request.operation)

    def _censored(self, reply: bytes) -> str:
        """Return a reply: one line, without the key, not too long."""
        text = _detail(reply) or reply.decode("utf-8", "replace")
        if self._key:
            text = text.replace(self._key, "***")
        text = " ".join(redact(text).split())
        return text if len(text) <= REPLY_CHARS else f"{text[:REPLY_CHARS]}…"


_START = "start it, or correct memory.graphiti.base_url"
_NO_SERVICE = "no Graphiti service seems to be there; correct memory.graphiti.base_url"


async def _beginning(response: httpx.Response, limit: int) -> bytes:
    """Return the body, or a beginning of it that is longer than `limit`."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > limit:
            break
    return bytes(body)


def _encoded(body: JsonValue) -> bytes:
    # A half of a surrogate pair is no text in any encoding; the service would refuse the whole request.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _detail(reply: bytes) -> str:
    """Return the reason that the service gives for people, if the answer is its own."""
    try:
        answer = json.loads(reply)
    except ValueError:
        return ""
    detail = answer.get("detail") if isinstance(answer, dict) else None
    if isinstance(detail, str) or not detail:
        return detail or ""
    return json.dumps(detail, ensure_ascii=False)
