"""HTTP services as backends: `kind: http`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

from pydantic import JsonValue
from pydantic_core import to_json

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.interfaces import BackendServices, BackendSpec, Clock
from composable_memory.supervision.backoff import RetryPolicy, Verdict, retry
from composable_memory.supervision.resource import closing
from composable_memory_adapters.external.answer_reader import SHORT, parsed
from composable_memory_adapters.external.backend import CAPABILITIES, ExternalMemory
from composable_memory_adapters.external.settings import HttpSettings, Secrets, filled
from composable_memory_adapters.http_client import Connection, HttpClient, HttpRequest, read_whole
from composable_memory_adapters.http_failures import FailureKind, HttpFailure
from composable_memory_ops_logs import redact

KIND = "http"
MAX_ANSWER = 16 * 2**20
"""The most bytes in an answer; the same as for an MCP server."""
RETRIES = RetryPolicy(tries=2, first_wait_s=0.2)
"""Only two tries: the user is waiting, and other memories may have the answer."""
ONCE = RetryPolicy(tries=1)
_read = partial(read_whole, limit=MAX_ANSWER)


class HttpSource:
    """Implements `Source` for a service; redirects to other hosts are not followed."""

    def __init__(
        self, settings: HttpSettings, *, backend_id: str, environ: Mapping[str, str], clock: Clock
    ) -> None:
        self._settings = settings
        self._id = backend_id
        self.found: Mapping[str, JsonValue] = {}
        self.provider = urlsplit(settings.url).netloc.rpartition("@")[2]
        self._path = urlsplit(settings.url).path or "/"
        secret = secret_headers(settings, backend_id, environ)
        bare = (environ[variable] for variable in _variables(settings).values())
        self._secrets = Secrets([*secret.values(), *bare])
        client = HttpClient(settings.url, timeout_s=settings.timeout_ms / 1000, clock=clock)
        headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        self._connection = Connection(client, credentials=[secret], headers=headers)

    async def ask(self, query: str, limit: int) -> JsonValue:
        """Return the service's answer.

        Raises:
            BackendError: it did not answer, refused, or its answer is not JSON.
        """
        settings = self._settings
        words: dict[str, str | int] = {"limit": limit, "query": query}
        params = {name: str(filled(value, words)) for name, value in settings.params.items()}
        answer = await self._sent(settings.method, self._path, filled(settings.body, words), params)
        return self._parsed(answer) if len(answer) < SHORT else await asyncio.to_thread(self._parsed, answer)

    async def use(self, what: Literal["read", "add"], words: Mapping[str, str]) -> JsonValue:
        """Have it add something; None if the settings do not say how.

        Raises:
            BackendError: it did not answer, or refused.
        """
        if what == "read" or self._settings.add is None:
            return None
        body = filled(self._settings.add, words)
        await self._sent("POST", self._settings.add_path or self._path, body, {}, policy=ONCE)
        return ""

    async def _sent(
        self,
        method: str,
        path: str,
        body: JsonValue,
        params: Mapping[str, str],
        *,
        policy: RetryPolicy = RETRIES,
    ) -> bytes:
        request = HttpRequest(
            path=path,
            method=method,
            query=params,
            content=b"" if body is None else to_json(body),
            headers={} if body is None else {"content-type": "application/json"},
        )
        try:
            send = partial(self._connection.send, request, _read, retries=False)
            return await retry(send, judge=_judge, policy=policy)
        except HttpFailure as failure:
            problem = self._problem(failure)
        raise problem

    async def close(self) -> None:
        """Close all connections; idempotent."""
        await self._connection.close()

    def _parsed(self, body: bytes) -> JsonValue:
        try:
            answer = parsed(body)
        except ValueError:
            # Masked before it is truncated: no rule recognises half a secret.
            shown = self._secrets.hidden(body.decode("utf-8", "replace"))[:2_000]
            excerpt = redact(shown)[:200]
            raise BackendGarbled(self._id, "search", excerpt=excerpt, expected="JSON") from None
        return self._secrets.hidden_in(answer)

    def _problem(self, failure: HttpFailure) -> BackendError:
        """Return the error for a failed request, without secrets."""
        detail, problem = self._secrets.hidden(failure.detail), self._secrets.hidden(failure.problem)
        told = f"{self.provider} {problem}" + (f": {redact(detail)[:200]}" if detail else "")
        limit_s = self._settings.timeout_ms / 1000
        match failure.kind:
            case FailureKind.SLOW:
                return BackendTimeout(self._id, "search", limit_s=limit_s, elapsed_s=limit_s)
            case FailureKind.KEY:
                names = ", ".join(_variables(self._settings).values()) or "`headers_env`"
                return BackendUnavailable(self._id, told, fix=f"check {names}", operation="search")
            case FailureKind.REJECTED | FailureKind.RATE | FailureKind.QUOTA:
                return BackendRejected(
                    self._id, "search", status=problem.removeprefix("answered "), body=redact(detail)
                )
        return BackendUnavailable(self._id, told, fix="check its `url`, and that it runs", operation="search")


def secret_headers(settings: HttpSettings, backend_id: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that contain secrets.

    Raises:
        BackendUnavailable: a variable is not set.
    """
    found = {}
    for header, variable in _variables(settings).items():
        if not (secret := environ.get(variable)):
            raise BackendUnavailable(
                backend_id, f"the variable {variable} is not set", fix="set it to the key"
            )
        scheme = settings.headers_env[header].rpartition(" ")[0]
        found[header] = f"{scheme} {secret}".strip()
    return found


def _judge(error: Exception) -> Verdict:
    """Retry only errors that may pass at once; if the server asks for a longer wait, report the error."""
    may_pass = isinstance(error, HttpFailure) and error.may_pass and not error.retry_after_s
    return Verdict(may_pass=may_pass)


def _variables(settings: HttpSettings) -> dict[str, str]:
    """Return the environment variable of each header with a secret."""
    return {header: words.split()[-1] for header, words in settings.headers_env.items() if words.strip()}


@asynccontextmanager
async def _open(settings: HttpSettings, services: BackendServices) -> AsyncIterator[ExternalMemory]:
    if not settings.url:
        raise BackendUnavailable(services.backend_id, "it has no address", fix="set its `url`, or a `preset`")
    make = lambda: HttpSource(  # noqa: E731 - in a thread, as it reads the trusted certificates
        settings, backend_id=services.backend_id, environ=services.environ, clock=services.clock
    )
    source = await asyncio.to_thread(make)
    async with closing(
        ExternalMemory(source, settings, backend_id=services.backend_id, clock=services.clock)
    ) as memory:
        yield memory


spec = BackendSpec(
    id=KIND,
    summary="A service queried over HTTP",
    settings=HttpSettings,
    open=_open,
    capabilities=CAPABILITIES,
)
