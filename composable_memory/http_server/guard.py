"""The one way in: who may ask, from which page, how much, and what every answer forbids to a browser."""

import asyncio
import hmac
import socket
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from ipaddress import ip_address

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MCP_PATH = "/mcp"
MAX_REQUEST_BYTES = 1024 * 1024
SEND_S = 30.0
"""A client that takes nothing of its answer for so long is left."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")
READS = ("GET", "HEAD")
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",  # without one, browsers send `Origin: null` with a form
    "x-content-type-options": "nosniff",
}
"""Of every answer, unless a handler sets others."""
ENTRANCE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>composable-memory</title>
<form>
<label>Token: <input name="token" type="password" autofocus required></label>
<button>Enter</button>
</form>
<p>It stands in the file that the server named when it began.</p></html>
"""


class Guard:
    """An application that is asked only by programs that know the token, and by pages of its own.

    What it does for a client is cancelled when the client goes: nobody would get the answer.
    A program sends the token in each request; a browser once, in the address, and gets a cookie for it.
    `host` is where others can reach the server, None if none can: then it answers to local names alone.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int, host: str | None = None) -> None:
        self._app, self._token = app, token
        self._hosts = {f"{name}:{port}" for name in LOCAL}
        self._names = {host, socket.gethostname()} if host else None
        # Programs on other ports get a browser's cookies as well: this one does not tell them the token.
        self._cookie = f"cmem-{port}"
        self._secret = hmac.digest(token.encode(), b"cookie", "sha256").hex()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        request = Request(scope)
        answer = self._refusal(request) or self._app
        received = _Bounded(receive, is_whole=request.method in READS)
        try:
            async with asyncio.TaskGroup() as tasks:
                leaving = tasks.create_task(received.until_gone())
                await answer(scope, received, partial(_sent, send))
                leaving.cancel()
        except* ClientDisconnect:
            pass

    def _refusal(self, request: Request) -> Response | None:
        """Return what a request is answered that may not come in."""
        hosts, origin = request.headers.getlist("host"), request.headers.get("origin")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return problem(421, "this server is not known by the name in `Host`")
        if origin not in (None, f"http://{hosts[0]}"):
            return problem(403, f"a page of {origin} may not ask")
        if _same(request.headers.get("authorization", ""), f"Bearer {self._token}"):
            return _too_large(request)
        given = request.query_params.get("token") if request.method in READS else None
        if given is not None and _same(given, self._token):
            return self._let_in(request)
        if not _same(request.cookies.get(self._cookie, ""), self._secret):
            return _stopped(request)
        if request.headers.get("sec-fetch-site") not in (None, "same-origin", "none"):
            return problem(403, "a page of another site may not ask")
        if request.method not in READS and origin is None:
            return problem(403, "a browser has to send `Origin` with what changes something")
        return _too_large(request)

    def _is_own(self, host: str) -> bool:
        """Return whether a name is one of ours: what a page makes its name lead to is not."""
        if self._names is None or host in self._hosts:
            return host in self._hosts
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        with suppress(ValueError):  # nobody else decides where a number leads to
            return bool(ip_address(name.strip("[]")))
        return name in self._names

    def _let_in(self, request: Request) -> Response:
        """Give a browser its cookie, and take the token out of its address."""
        there = request.url.remove_query_params("token")
        answer = RedirectResponse(f"{there.path}{'?' if there.query else ''}{there.query}", 303)
        answer.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict")
        return answer


def problem(status: int, error: str, **headers: str) -> JSONResponse:
    """Return why a request is not answered, as JSON."""
    return JSONResponse({"error": error}, status_code=status, headers=headers)


async def refused(_: Request, refusal: HTTPException) -> Response:
    """Answer what a route refuses."""
    return problem(refusal.status_code, refusal.detail, **(refusal.headers or {}))


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _stopped(request: Request) -> Response:
    headers = {"WWW-Authenticate": "Bearer"}
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(ENTRANCE, status_code=401, headers=headers)
    return problem(401, "send the header `Authorization: Bearer TOKEN`; the server told its file", **headers)


def _too_large(request: Request) -> Response | None:
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > MAX_REQUEST_BYTES:
        return problem(413, f"a request may have {MAX_REQUEST_BYTES} bytes", connection="close")
    return None


class _Bounded:
    """What a client sends, as long as it is not too much; a request that only reads is whole by its head."""

    def __init__(self, receive: Receive, *, is_whole: bool) -> None:
        self._receive, self._bytes, self._whole = receive, 0, asyncio.Event()
        if is_whole:
            self._whole.set()

    async def until_gone(self) -> None:
        """Wait until the client is gone, or has its answer.

        Raises:
            ClientDisconnect: it is, or has.
        """
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect

    async def __call__(self) -> Message:
        message = await self._receive()
        if not message.get("more_body"):
            self._whole.set()
        self._bytes += len(message.get("body", b""))
        if self._bytes > MAX_REQUEST_BYTES:
            raise HTTPException(413, f"a request may have {MAX_REQUEST_BYTES} bytes", {"connection": "close"})
        return message


async def _sent(send: Send, message: Message) -> None:
    """Send a client something, with the headers of every answer, as long as it takes it."""
    if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        for name, value in {**HEADERS, "date": formatdate(usegmt=True)}.items():
            headers.setdefault(name, value)
    async with asyncio.timeout(SEND_S):
        await send(message)
