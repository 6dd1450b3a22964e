"""Guards every request: who may ask, from which page, and how much; adds security headers to every answer."""

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
"""A client that accepts none of its answer for this long is dropped."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")
READS = ("GET", "HEAD")
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",  # otherwise browsers send `Origin: null` with a form
    "x-content-type-options": "nosniff",
}
"""Headers of every answer, unless a handler sets others."""
ENTRANCE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>composable-memory</title>
<form>
<label>Token: <input name="token" type="password" autofocus required></label>
<button>Enter</button>
</form>
<p>It is in the file that the server named when it started.</p></html>
"""


class Guard:
    """Passes requests to an application only from programs that know the token, and from its own pages.

    A request is cancelled when its client disconnects: nobody would get the answer. A program sends the token
    with each request; a browser once, in the URL, and gets a cookie for it. `host` is the name under which
    others can reach the server; None if they cannot: then only local names are accepted.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int, host: str | None = None) -> None:
        self._app, self._token = app, token
        self._hosts = {f"{name}:{port}" for name in LOCAL}
        self._names = {host, socket.gethostname()} if host else None
        # Browsers also send cookies to programs on other ports: this one does not reveal the token to them.
        self._cookie = f"cmem-{port}"
        self._secret = hmac.digest(token.encode(), b"cookie", "sha256").hex()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        request = Request(scope)
        answer = self._refusal(request) or self._app
        received = _BoundedBody(receive, is_whole=request.method in READS)
        try:
            async with asyncio.TaskGroup() as tasks:
                leaving = tasks.create_task(received.until_gone())
                await answer(scope, received, partial(_send, send))
                leaving.cancel()
        except* ClientDisconnect:
            pass

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request that is refused, else None."""
        hosts, origin = request.headers.getlist("host"), request.headers.get("origin")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return problem(421, "this server does not answer to the name in `Host`")
        if origin not in (None, f"http://{hosts[0]}"):
            return problem(403, f"a page from {origin} may not use this server")
        if _same(request.headers.get("authorization", ""), f"Bearer {self._token}"):
            return _too_large(request)
        given = request.query_params.get("token") if request.method in READS else None
        if given is not None and _same(given, self._token):
            return self._set_cookie(request)
        if not _same(request.cookies.get(self._cookie, ""), self._secret):
            return _stopped(request)
        if request.headers.get("sec-fetch-site") not in (None, "same-origin", "none"):
            return problem(403, "a page from another site may not use this server")
        if request.method not in READS and origin is None:
            return problem(403, "a browser has to send `Origin` with any request that changes something")
        return _too_large(request)

    def _is_own(self, host: str) -> bool:
        """Return whether a host name is ours, not one that a web page has pointed at us (DNS rebinding)."""
        if self._names is None or host in self._hosts:
            return host in self._hosts
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        with suppress(ValueError):  # an IP address cannot be rebound
            return bool(ip_address(name.strip("[]")))
        return name in self._names

    def _set_cookie(self, request: Request) -> Response:
        """Give a browser its cookie, and redirect it to the URL without the token."""
        there = request.url.remove_query_params("token")
        answer = RedirectResponse(f"{there.path}{'?' if there.query else ''}{there.query}", 303)
        answer.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict")
        return answer


def problem(status: int, error: str, **headers: str) -> JSONResponse:
    """Return a JSON response that says why a request failed."""
    return JSONResponse({"error": error}, status_code=status, headers=headers)


async def refused(_: Request, refusal: HTTPException) -> Response:
    """Return the response for a request that a route refuses."""
    return problem(refusal.status_code, refusal.detail, **(refusal.headers or {}))


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _stopped(request: Request) -> Response:
    headers = {"WWW-Authenticate": "Bearer"}
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(ENTRANCE, status_code=401, headers=headers)
    return problem(
        401,
        "send the header `Authorization: Bearer TOKEN`; the server named its file at the start",
        **headers,
    )


def _too_large(request: Request) -> Response | None:
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > MAX_REQUEST_BYTES:
        return problem(413, f"a request may have at most {MAX_REQUEST_BYTES} bytes", connection="close")
    return None


class _BoundedBody:
    """The request body, within a limit; `is_whole` says that there is none."""

    def __init__(self, receive: Receive, *, is_whole: bool) -> None:
        self._receive, self._bytes, self._whole = receive, 0, asyncio.Event()
        if is_whole:
            self._whole.set()

    async def until_gone(self) -> None:
        """Wait until the client disconnects, or has its answer.

        Raises:
            ClientDisconnect: always.
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
            raise HTTPException(
                413, f"a request may have at most {MAX_REQUEST_BYTES} bytes", {"connection": "close"}
            )
        return message


async def _send(send: Send, message: Message) -> None:
    """Send a message with the common headers, and give up on a client that does not read it."""
    if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        for name, value in {**HEADERS, "date": formatdate(usegmt=True)}.items():
            headers.setdefault(name, value)
    async with asyncio.timeout(SEND_S):
        await send(message)
