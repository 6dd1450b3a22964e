"""The HTTP client of the adapters: redirects, limits, retries and keys."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeAlias, TypeVar

import httpx

from composable_memory.interfaces import Clock
from composable_memory.supervision.backoff import Pace, Verdict, retry
from composable_memory_adapters.http_failures import FailureKind, HttpFailure, failure_of_response
from composable_memory_feedback.retry_after import retry_after_s
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")

Reader: TypeAlias = Callable[[AsyncIterator[bytes]], Awaitable[T]]
"""Turns a body that arrives in chunks into a value. It is called anew when a request is tried again."""

CONNECT_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
MAX_REDIRECTS = 3
CHUNK_BYTES = 256 * 2**10
"""A larger body is sent in chunks of this size: encrypting it at once would hold up the event loop.

Packed answers are unpacked in pieces of this size, because a small one may become huge.
"""
NO_PROXY = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
"""This machine is never asked through a proxy, whatever the environment says of proxies."""
JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request to a path below the base URL, or below its host if the path begins with a slash.

    `query` is added to the query of the base URL. `timeout_s` counts where it is longer than the client's.
    The headers may hold a key, so they are not shown. `on_sending` is called when a connection is there and
    the body goes out: of what ends before, the other side has taken nothing.
    """

    path: str
    content: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    timeout_s: float = 0.0
    on_sending: Callable[[], None] | None = None


class HttpClient:
    """A client for one host. Construct it in a thread: reading the trusted certificates takes its time.

    A connection that idles for `keepalive_s` is closed. At most `max_redirects` are followed, none of them to
    another host. Proxies and certificates of the environment count. Several requests may run at once;
    cancelling one closes its connection.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float,
        clock: Clock,
        keepalive_s: float = 5.0,
        max_redirects: int = MAX_REDIRECTS,
    ) -> None:
        self._base = httpx.URL(base_url)
        self._timeout_s = timeout_s
        self._clock = clock
        self._max_redirects = max_redirects
        self._client = httpx.AsyncClient(
            # Of two limits that end together nobody knows which one is told of.
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S if timeout_s > CONNECT_TIMEOUT_S else None),
            headers={
                "accept": "application/json",
                "accept-encoding": "gzip",
                "user-agent": "composable-memory",
            },
            limits=httpx.Limits(
                max_connections=100, max_keepalive_connections=20, keepalive_expiry=keepalive_s
            ),
            mounts=NO_PROXY,
            follow_redirects=False,
        )

    async def send(self, request: HttpRequest, reader: Reader[T]) -> T:
        """Return what `reader` makes of the body of a successful answer.

        Raises:
            HttpFailure: there was no connection, no answer in time, no success, or the answer broke off.
        """
        limit_s = max(self._timeout_s, request.timeout_s)
        # What httpx raises refers to the request and so to its key: it must not be in the chain of ours.
        try:
            async with asyncio.timeout(limit_s):
                return await self._follow(request, reader)
        except TimeoutError:
            failure = HttpFailure(FailureKind.SLOW, f"did not answer in full within {limit_s:g} s")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = HttpFailure(FailureKind.UNREACHABLE, "cannot be reached", detail=str(error))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            detail = str(error) or type(error).__name__
            failure = HttpFailure(FailureKind.BROKEN, "broke off", detail=detail)
        raise failure

    async def close(self) -> None:
        """Close all connections; calling it again does nothing."""
        await self._client.aclose()

    async def _follow(self, request: HttpRequest, reader: Reader[T]) -> T:
        base, url = self._base, self._url(request)
        content = request.content
        is_large = len(content) > CHUNK_BYTES
        length = {"content-length": str(len(content))} if is_large else {}

        async def watch(event: str, _: object) -> None:
            if event.endswith(".send_request_body.started") and request.on_sending is not None:
                request.on_sending()

        for _ in range(self._max_redirects + 1):
            if self._client.is_closed:
                raise HttpFailure(FailureKind.CLOSED, "is closed")
            async with self._client.stream(
                request.method,
                url,
                content=_chunks(content) if is_large else content,
                headers={**request.headers, **length},
                extensions={"trace": watch},
            ) as response:
                if not response.has_redirect_location:
                    await self._check(response)
                    return await reader(_unpacked(response))
                url = response.url.join(response.headers["location"])
            if (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port):
                problem = f"points to another host, {url.scheme}://{url.host}"
                raise HttpFailure(FailureKind.REDIRECTED, problem)
        raise HttpFailure(FailureKind.REDIRECTED, f"answered with more than {self._max_redirects} redirects")

    def _url(self, request: HttpRequest) -> httpx.URL:
        is_rooted = request.path.startswith("/")
        path = request.path if is_rooted else f"{self._base.path.rstrip('/')}/{request.path}"
        url = self._base.copy_with(path=path)
        return url.copy_merge_params(request.query) if request.query else url

    async def _check(self, response: httpx.Response) -> None:
        """Raise the failure that an unsuccessful answer reports."""
        if response.is_success:
            return
        body = await _read_up_to(_unpacked(response), MAX_ERROR_BYTES)
        wait_s = retry_after_s(response.headers.get("retry-after"), self._clock())
        raise failure_of_response(response.status_code, body[:MAX_ERROR_BYTES], retry_after_s=wait_s)


class Connection:
    """A client with retries and keys: `credentials` are the headers of each key.

    `headers` go with every request and win over those of a key. A key whose rate limit or quota is reached
    gives way to the next one before anything is waited for.
    """

    def __init__(
        self,
        client: HttpClient,
        *,
        credentials: Sequence[Mapping[str, str]],
        headers: Mapping[str, str],
        pace: Pace | None = None,
    ) -> None:
        self._client = client
        self._credentials = [_without_overridden(one, headers) for one in credentials] or [{}]
        self._headers = headers
        self._pace = pace
        self._key_index = 0

    async def send(self, request: HttpRequest, reader: Reader[T], *, retries: bool = True) -> T:
        """Return what `reader` makes of the answer, which is not held whole.

        Without `retries` it is sent once: it may have been carried out although it failed.

        Raises:
            HttpFailure: the request failed, and went on failing if that may pass.
        """
        if not retries:
            return await self._with_any_key(request, reader)
        return await retry(partial(self._with_any_key, request, reader), judge=_judge, pace=self._pace)

    async def post(self, path: str, content: bytes) -> bytes:
        """Send JSON and return the body of the answer.

        Raises:
            HttpFailure: the request failed, and went on failing if that may pass.
        """
        return await self.send(HttpRequest(path=path, content=content, headers=JSON), read_whole)

    def with_first_key(self) -> "Connection":
        """Return this connection with one key alone, for things that belong to the account of a key."""
        return Connection(
            self._client, credentials=self._credentials[:1], headers=self._headers, pace=self._pace
        )

    async def close(self) -> None:
        """Close everything; calling it again does nothing."""
        await self._client.close()

    async def _with_any_key(self, request: HttpRequest, reader: Reader[T]) -> T:
        for _ in self._credentials[1:]:
            index = self._key_index
            try:
                return await self._client.send(self._signed(request), reader)
            except HttpFailure as failure:
                if failure.kind not in {FailureKind.RATE, FailureKind.QUOTA}:
                    raise
            self._key_index = index + 1
        return await self._client.send(self._signed(request), reader)

    def _signed(self, request: HttpRequest) -> HttpRequest:
        credential = self._credentials[self._key_index % len(self._credentials)]
        return replace(request, headers={**credential, **self._headers, **request.headers})


async def read_whole(chunks: AsyncIterator[bytes], *, limit: int = MAX_ANSWER_BYTES) -> bytes:
    """Return a whole body, the usual `Reader`.

    Raises:
        HttpFailure: it is too large.
    """
    body = await _read_up_to(chunks, limit)
    if len(body) > limit:
        raise HttpFailure(FailureKind.TOO_LARGE, f"answered with more than {limit // 2**20} MiB")
    return body


async def _unpacked(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield a body in pieces. httpx would unpack whatever came at once, and that as often as it is packed.

    Raises:
        HttpFailure: it is packed in a way that was not asked for, or damaged.
    """
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("identity", "gzip"):
        problem = f"answered in the encoding {packing!r}, which was not asked for"
        raise HttpFailure(FailureKind.REJECTED, problem)
    gzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    async for chunk in response.aiter_raw():
        if packing == "identity":
            yield chunk
            continue
        try:
            while piece := gzip.decompress(chunk, CHUNK_BYTES):
                yield piece
                chunk = gzip.unconsumed_tail
                await asyncio.sleep(0)  # others have their turn
        except zlib.error as error:
            raise HttpFailure(FailureKind.BROKEN, "broke off", detail=str(error)) from None


async def _read_up_to(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """Return the body, or a beginning of it that is longer than `limit`."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), CHUNK_BYTES):
        yield content[start : start + CHUNK_BYTES]


def _without_overridden(credential: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a credential that no header overrides; names may differ in case."""
    overridden = {name.lower() for name in headers}
    return {name: value for name, value in credential.items() if name.lower() not in overridden}


def _judge(error: Exception) -> Verdict:
    if isinstance(error, HttpFailure):
        return Verdict(may_pass=error.may_pass, asked_s=error.retry_after_s)
    return Verdict(may_pass=False)
