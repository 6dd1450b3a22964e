"""The only way to a language model: asks an OpenAI-compatible endpoint, or says what is wrong with it.

The graph memory uses it too: `ask` sends a request unchanged, `complete` finds out how an endpoint has to be
asked for JSON.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from datetime import datetime
from ipaddress import ip_address
from time import perf_counter
from typing import Literal, Self

import httpx

from composable_memory_feedback.chat_protocol import (
    BUSY,
    Manner,
    Question,
    Refused,
    meaning,
    read_completion,
)
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.language_model import ChatReply, one_line
from composable_memory_feedback.retry_after import retry_after_s
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.events import JsonValue
from composable_memory_ops_logs.quick_dataclass import dataclass

CONNECT_TIMEOUT_S = 10.0
TRIES = 3
FIRST_WAIT_S = 0.5
MAX_REFUSAL_BYTES = 16 * 2**10
EXCERPT_CHARS = 200

Pace = Callable[[float], Awaitable[None]]
"""Sleeps between two attempts, for a time in seconds."""


ChatErrorKind = Literal["refused", "slow", "unreachable", "garbled"]


class ChatError(FeedbackError):
    """Why there is no answer; `status` is the HTTP status of a refusal, `said` the server's explanation."""

    def __init__(
        self, problem: str, *, subject: str, advice: str, kind: ChatErrorKind, status: int | None, said: str
    ) -> None:
        super().__init__(problem, subject=subject, advice=advice)
        self.kind = kind
        self.status = status
        self.said = said


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """The address of a model, and limits for its answers.

    `base_url` is the part before `/chat/completions`. `timeout_s` is for a whole answer, including retries;
    `max_tokens` limits the model's output, `max_bytes` the response.

    Raises:
        FeedbackError: the address or the key is invalid.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    max_tokens: int = 2048
    max_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        if not _is_address(self.base_url):
            # The address may contain a password, so it is not shown.
            advice = "give one such as http://127.0.0.1:8080/v1, without a user name"
            raise FeedbackError("the address cannot be asked", subject="the base URL", advice=advice)
        # A character that no header can contain would come back in an error of the library, together with the
        # key.
        if not all("!" <= character <= "~" for character in self.key):
            advice = "give it as it was issued, without spaces"
            raise FeedbackError("the key cannot be one", subject=f"the key for {self.host}", advice=advice)

    @property
    def key(self) -> str:
        """Return the key without a trailing line break, as files have it; empty if there is none."""
        return (self.api_key or "").strip()

    @property
    def host(self) -> str:
        """Return the host, with its port if one is given."""
        return httpx.URL(self.base_url).netloc.decode("ascii")

    @property
    def completions_url(self) -> httpx.URL:
        """Return the URL for requests, keeping a query in the base URL."""
        base = httpx.URL(self.base_url)
        return base.copy_with(path=f"{base.path.rstrip('/')}/chat/completions")

    @property
    def is_this_machine(self) -> bool:
        """Return whether the model runs on this machine, so that no proxy must be used."""
        host = httpx.URL(self.base_url).host
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


class ChatClient:
    """Asks one endpoint, inside `async with`; requests may run concurrently.

    Endpoints differ in how they have to be asked for JSON: a method that one refuses is not tried again.
    """

    def __init__(
        self, endpoint: ChatEndpoint, *, clock: Callable[[], datetime] = utc_now, pace: Pace = asyncio.sleep
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._pace = pace
        self._manner = Manner()
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        if self._client is None:
            # Loading the trusted certificates takes a while.
            self._client = await asyncio.to_thread(_open, self._endpoint)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def model(self) -> str:
        """Return the name of the model."""
        return self._endpoint.model

    async def close(self) -> None:
        """Close all connections; calling it again does nothing."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def complete(
        self,
        system: str,
        user: str,
        *,
        schema: Mapping[str, JsonValue] | None = None,
        schema_name: str = "answer",
    ) -> ChatReply:
        """Return the model's answer; with a schema, as JSON of that form if the endpoint supports it.

        A busy endpoint is asked up to two more times, if it allows that before the timeout.

        Raises:
            ChatError: it cannot be reached, refuses, stays busy, is too slow, or gives no completion.
        """
        question = Question(
            model=self.model,
            system=system,
            user=user,
            max_tokens=self._endpoint.max_tokens,
            schema=schema,
            schema_name=schema_name,
        )
        return await self._bounded(lambda until: self._ask_in_manners(question, until))

    async def ask(self, body: Mapping[str, object]) -> ChatReply:
        """Return the answer to a request in the format of the protocol; retries as `complete` does.

        Raises:
            ChatError: it cannot be reached, refuses, stays busy, is too slow, or gives no completion.
        """
        return await self._bounded(lambda until: self._retry_while_busy(json.dumps(body).encode(), until))

    async def _bounded(self, asking: Callable[[float], Awaitable[bytes]]) -> ChatReply:
        """Return the answer, or raise what is wrong with it; `asking` gets the time at which it must end."""
        began, limit_s = perf_counter(), self._endpoint.timeout_s
        # Exceptions of httpx refer to the request and so to its key: they must not be in the chain of ours.
        try:
            async with asyncio.timeout(limit_s):
                content = await asking(asyncio.get_running_loop().time() + limit_s)
        except TimeoutError:
            advice = "allow more time, or use a faster model"
            problem = self._problem(f"no complete answer came within {limit_s:g} s", advice, kind="slow")
        except Refused as refused:
            failed, advice = meaning(refused.status)
            problem = self._problem(failed, advice, refused.said, kind="refused", status=refused.status)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = str(error) or type(error).__name__
            advice = "start it, or check its base URL"
            problem = self._problem("the language model cannot be reached", advice, said, kind="unreachable")
        else:
            spent_ms = (perf_counter() - began) * 1000
            reply = read_completion(content, model=self.model, duration_ms=spent_ms)
            if reply is not None:
                return reply
            said = content[: 2 * EXCERPT_CHARS].decode("utf-8", "replace")
            advice = "check that the base URL is that of an OpenAI-compatible API"
            problem = self._problem("the answer is not a chat completion", advice, said)
        raise problem

    async def _ask_in_manners(self, question: Question, until: float) -> bytes:
        """Ask in the manner that worked last, and in simpler ones if that is refused."""
        manner = self._manner
        while True:
            try:
                content = await self._retry_while_busy(manner.body(question), until)
            except Refused as refused:
                plainer = manner.instead(refused, question)
                if plainer is None:
                    raise
                manner = plainer
            else:
                self._manner = manner
                return content

    async def _retry_while_busy(self, body: bytes, until: float) -> bytes:
        """Retry while the endpoint is busy, at the interval that it asks for, until the loop's time is up."""
        failures = 0
        while True:
            try:
                return await self._post(body)
            except Refused as refused:
                failures += 1
                wait_s = FIRST_WAIT_S * failures if refused.asked_s is None else refused.asked_s
                is_late = asyncio.get_running_loop().time() + wait_s >= until
                if refused.status not in BUSY or failures == TRIES or is_late:
                    raise
            await self._pace(wait_s)

    async def _post(self, body: bytes) -> bytes:
        if self._client is None:
            raise self._problem("the client of the language model is closed", "ask inside its `async with`")
        async with self._client.stream("POST", self._endpoint.completions_url, content=body) as response:
            if not response.is_success:
                said = (await _beginning(response, MAX_REFUSAL_BYTES)).decode("utf-8", "replace")
                asked_s = retry_after_s(response.headers.get("retry-after"), self._clock())
                raise Refused(response.status_code, said, asked_s)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise self._problem("the answer is compressed, which was not requested", "check the base URL")
            content = await _beginning(response, self._endpoint.max_bytes)
        if len(content) > self._endpoint.max_bytes:
            problem = f"the answer is longer than {self._endpoint.max_bytes} bytes"
            raise self._problem(problem, "check the base URL, or limit the model's output")
        return content

    def _problem(
        self,
        problem: str,
        advice: str,
        said: str = "",
        *,
        kind: ChatErrorKind = "garbled",
        status: int | None = None,
    ) -> ChatError:
        """Return the error, with what the server or the network said, but never the key."""
        subject = f"{self.model} at {self._endpoint.host}"
        excerpt = one_line(_without(self._endpoint.key, said), EXCERPT_CHARS)
        if excerpt:
            subject = f"{subject} ({excerpt})"
        return ChatError(problem, subject=subject, advice=advice, kind=kind, status=status, said=excerpt)


def _is_address(base_url: str) -> bool:
    try:
        url = httpx.URL(base_url)
        has_host = bool(url.host)
    except (httpx.InvalidURL, UnicodeError):  # the latter if the host is not a valid international name
        return False
    is_port = url.port is None or 0 < url.port < 2**16
    return url.scheme in {"http", "https"} and has_host and is_port and not url.userinfo


def _open(endpoint: ChatEndpoint) -> httpx.AsyncClient:
    headers = {
        "accept": "application/json",
        "accept-encoding": "identity",  # a small compressed answer may expand to a huge one
        "content-type": "application/json",
        "user-agent": "composable-memory",
    }
    if endpoint.key:
        headers["authorization"] = f"Bearer {endpoint.key}"
    is_encrypted = httpx.URL(endpoint.base_url).scheme == "https"
    return httpx.AsyncClient(
        headers=headers,
        # Loading the trusted certificates takes a tenth of a second, and is useless without TLS.
        verify=httpx.create_ssl_context() if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
        trust_env=not endpoint.is_this_machine,
        follow_redirects=False,
    )


async def _beginning(response: httpx.Response, limit: int) -> bytes:
    """Return the body, or if it is too long, a beginning of it that is longer than `limit`."""
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > limit:
            break
    return bytes(body)


def _without(key: str, said: str) -> str:
    """Return the text without the key, even where JSON has escaped its slashes."""
    return said.replace("\\/", "/").replace(key, "***") if key else said
