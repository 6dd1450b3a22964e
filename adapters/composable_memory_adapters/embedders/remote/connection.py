"""Asks one endpoint patiently, and with another key when one has reached its limit."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from composable_memory.supervision.backoff import Pace, Verdict, retry
from composable_memory_adapters.embedders.remote.http import HttpClient, HttpRequest, Reader
from composable_memory_adapters.embedders.remote.refusals import HttpFailure, Trouble

__all__ = ["Connection", "HttpClient", "HttpRequest", "Reader"]

T = TypeVar("T")

JSON = {"content-type": "application/json"}


class Connection:
    """One endpoint. `credentials` are the headers of each key; `headers` go with every request and win.

    A key whose rate limit or quota is reached gives way to the next one before anything is waited for.
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
        self._credentials = [_beside(headers, one) for one in credentials] or [{}]
        self._headers = headers
        self._pace = pace
        self._turn = 0

    async def send(self, request: HttpRequest) -> bytes:
        """Return what the endpoint answers.

        Raises:
            HttpFailure: it failed, and went on failing if that may pass.
        """
        send = partial(self._with_any_key, request, self._client.send)
        return await retry(send, judge=_judge, pace=self._pace)

    async def read(self, request: HttpRequest, reader: Reader[T]) -> T:
        """Return what `reader` makes of the answer, which is not held whole.

        Raises:
            HttpFailure: it failed, and went on failing if that may pass.
        """
        read = partial(self._with_any_key, request, partial(self._client.read, reader=reader))
        return await retry(read, judge=_judge, pace=self._pace)

    async def post(self, path: str, content: bytes) -> bytes:
        """Send JSON and return what the endpoint answers.

        Raises:
            HttpFailure: it failed, and went on failing if that may pass.
        """
        return await self.send(HttpRequest(path=path, content=content, headers=JSON))

    def with_first_key(self) -> "Connection":
        """Return this connection with one key alone, for things that belong to the account of a key."""
        return Connection(
            self._client, credentials=self._credentials[:1], headers=self._headers, pace=self._pace
        )

    async def close(self) -> None:
        """Close everything; calling it again does nothing."""
        await self._client.close()

    async def _with_any_key(self, request: HttpRequest, ask: Callable[[HttpRequest], Awaitable[T]]) -> T:
        for _ in self._credentials[1:]:
            turn = self._turn
            try:
                return await ask(self._signed(request))
            except HttpFailure as failure:
                if failure.trouble not in {Trouble.RATE, Trouble.QUOTA}:
                    raise
            self._turn = turn + 1
        return await ask(self._signed(request))

    def _signed(self, request: HttpRequest) -> HttpRequest:
        credential = self._credentials[self._turn % len(self._credentials)]
        return replace(request, headers={**credential, **self._headers, **request.headers})


def _beside(headers: Mapping[str, str], credential: Mapping[str, str]) -> dict[str, str]:
    """Return what of a credential is not overruled by a header, whose name may differ in case."""
    overruled = {name.lower() for name in headers}
    return {name: value for name, value in credential.items() if name.lower() not in overruled}


def _judge(error: Exception) -> Verdict:
    if isinstance(error, HttpFailure):
        return Verdict(may_pass=error.may_pass, asked_s=error.asked_s)
    return Verdict(may_pass=False)
