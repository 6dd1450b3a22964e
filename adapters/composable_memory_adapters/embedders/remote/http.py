"""The one door to httpx: sends a request to one host and brings back the body, or says what went wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import httpx

from composable_memory.interfaces import Clock
from composable_memory_adapters.embedders.remote.refusals import HttpFailure, Trouble, read_refusal
from composable_memory_feedback.retry_after import retry_after_s

__all__ = ["HttpClient", "HttpRequest", "Reader"]

T = TypeVar("T")

Reader: TypeAlias = Callable[[AsyncIterator[bytes]], Awaitable[T]]
"""Makes something of a body that comes in parts. It is called anew when a request is tried again."""

CONNECT_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 * 2**20
MAX_REFUSAL_BYTES = 64 * 2**10
MAX_REDIRECTS = 3
PIECE_BYTES = 256 * 2**10
"""A larger body is sent in pieces of this size: encrypting it at once would hold up the event loop."""
DIRECTLY = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
"""This machine is never asked through a proxy, whatever the environment says of proxies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request to a path below the base URL, or below its host if the path begins with a slash.

    `query` is added to the query of the base URL. `timeout_s` counts where it is longer than the client's.
    The headers may hold a key, so they are not shown.
    """

    path: str
    content: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    timeout_s: float = 0.0


class HttpClient:
    """Asks one host. Construct it in a thread: reading the trusted certificates takes its time.

    Proxies and certificates of the environment count. Several requests may go on at once; cancelling one
    closes its connection.
    """

    def __init__(self, base_url: str, *, timeout_s: float, clock: Clock) -> None:
        self._base = httpx.URL(base_url)
        self._timeout_s = timeout_s
        self._clock = clock
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
            headers={"accept": "application/json", "user-agent": "composable-memory"},
            mounts=DIRECTLY,
            follow_redirects=False,
        )

    async def send(self, request: HttpRequest) -> bytes:
        """Return the body of a successful answer.

        Raises:
            HttpFailure: there is none: no connection, no answer in time, no success, or no end of it.
        """
        return await self.read(request, _whole)

    async def read(self, request: HttpRequest, reader: Reader[T]) -> T:
        """Return what `reader` makes of the body of a successful answer.

        Raises:
            HttpFailure: there is none: no connection, no answer in time, no success, or no end of it.
        """
        limit_s = max(self._timeout_s, request.timeout_s)
        # What httpx raises refers to the request and so to its key: it must not be in the chain of ours.
        try:
            async with asyncio.timeout(limit_s):
                return await self._follow(request, reader)
        except TimeoutError:
            failure = HttpFailure(Trouble.SLOW, f"gave no whole answer within {limit_s:g} s")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = HttpFailure(Trouble.UNREACHABLE, "cannot be reached", said=str(error))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = str(error) or type(error).__name__
            failure = HttpFailure(Trouble.BROKEN, "broke off", said=said)
        raise failure

    async def close(self) -> None:
        """Close all connections; calling it again does nothing."""
        await self._client.aclose()

    async def _follow(self, request: HttpRequest, reader: Reader[T]) -> T:
        base, url = self._base, self._url(request)
        content = request.content
        is_large = len(content) > PIECE_BYTES
        length = {"content-length": str(len(content))} if is_large else {}
        for _ in range(MAX_REDIRECTS + 1):
            if self._client.is_closed:
                raise HttpFailure(Trouble.CLOSED, "is no longer asked")
            async with self._client.stream(
                request.method,
                url,
                content=_pieces(content) if is_large else content,
                headers={**request.headers, **length},
            ) as response:
                if not response.has_redirect_location:
                    await self._check(response)
                    return await reader(response.aiter_bytes())
                url = response.url.join(response.headers["location"])
            if (url.scheme, url.host, url.port) != (base.scheme, base.host, base.port):
                raise HttpFailure(Trouble.REDIRECTED, f"points to another host, {url.scheme}://{url.host}")
        raise HttpFailure(Trouble.REDIRECTED, f"answered with more than {MAX_REDIRECTS} redirects")

    def _url(self, request: HttpRequest) -> httpx.URL:
        is_rooted = request.path.startswith("/")
        path = request.path if is_rooted else f"{self._base.path.rstrip('/')}/{request.path}"
        url = self._base.copy_with(path=path)
        return url.copy_merge_params(request.query) if request.query else url

    async def _check(self, response: httpx.Response) -> None:
        """Raise what an answer says that is no success."""
        if response.is_success:
            return
        body = await _beginning(response.aiter_bytes(), MAX_REFUSAL_BYTES)
        asked_s = retry_after_s(response.headers.get("retry-after"), self._clock())
        raise read_refusal(response.status_code, body[:MAX_REFUSAL_BYTES], asked_s=asked_s)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


async def _whole(parts: AsyncIterator[bytes]) -> bytes:
    body = await _beginning(parts, MAX_ANSWER_BYTES)
    if len(body) > MAX_ANSWER_BYTES:
        raise HttpFailure(Trouble.TOO_LARGE, f"answered with more than {MAX_ANSWER_BYTES // 2**20} MiB")
    return body


async def _beginning(parts: AsyncIterator[bytes], limit: int) -> bytes:
    """Return the body, or a beginning of it that is longer than `limit`."""
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > limit:
            break
    return bytes(body)
