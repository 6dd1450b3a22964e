"""The transport over HTTP, for clients on this machine that know the token."""

import asyncio
import hmac
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from composable_memory.errors import ConfigError
from composable_memory.state.folders import made_folder

HOST = "127.0.0.1"
PATH = "/mcp"
TOKEN_FILE = "mcp-token"  # noqa: S105 - its name
TOKEN_BYTES = 32
MAX_REQUEST_BYTES = 1024 * 1024
GRACE_S = 3


async def serve_http(
    server: Server[Any], port: int, state_dir: Path, on_ready: Callable[[str, Path], object]
) -> None:
    """Serve until the process is told to end; requests then have some seconds left.

    `on_ready` is called with the URL and the file of the token, once requests are accepted. Port 0 is any.

    Raises:
        ConfigError: the port is taken, or the token cannot be kept to its owner.
    """
    file = await asyncio.to_thread(made_folder, state_dir) / TOKEN_FILE
    token = await asyncio.to_thread(_token, file)
    with _bound(port) as listening:
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            _Guarded(_app(server, port), token),
            access_log=False,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        await _Http(config, lambda: on_ready(f"http://{HOST}:{port}{PATH}", file)).serve(sockets=[listening])


def _app(server: Server[Any], port: int) -> ASGIApp:
    """Return the application; nothing of a client stays after its request, so that it may go as it likes."""
    names = [f"{host}:{port}" for host in (HOST, "localhost")]
    return server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        transport_security=TransportSecuritySettings(
            allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names]
        ),
    )


class _Guarded:
    """An application that answers only who knows the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not self._is_known(Headers(scope=scope)):
            problem = {"error": f"send the header `Authorization: Bearer TOKEN`; TOKEN is in {TOKEN_FILE}"}
            app = JSONResponse(problem, status_code=401, headers={"WWW-Authenticate": "Bearer"})
        elif scope["type"] == "http" and scope["method"] != "POST":
            # GET asks for a stream of messages that this server never sends.
            app = JSONResponse({"error": "only POST is served"}, status_code=405, headers={"Allow": "POST"})
        await app(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        return hmac.compare_digest(headers.get("authorization", "").encode("latin-1"), self._expected)


class _Http(uvicorn.Server):
    """The server of HTTP; a signal ends it, and the process goes on to close what it has open."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop, ends = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        try:
            for end in ends:
                loop.add_signal_handler(end, self.handle_exit, end, None)
        except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            with super().capture_signals():
                yield
            return
        try:
            yield
        finally:
            for end in ends:
                loop.remove_signal_handler(end)


def _token(file: Path) -> str:
    """Return the token in a file that its owner alone can read; without the file, make one. Blocks."""
    try:
        with suppress(FileExistsError):
            made = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(made, "w", encoding="ascii") as new:
                new.write(secrets.token_urlsafe(TOKEN_BYTES))
        is_private = sys.platform == "win32" or not file.stat().st_mode & 0o077
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ConfigError("state_dir", f"the token in {file} cannot be used: {error}") from error
    if not is_private or len(token) < TOKEN_BYTES:
        problem = f"{file} can be read by others, or holds no token; remove it, and a new one is made"
        raise ConfigError("state_dir", problem)
    return token


def _bound(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        problem = f"port {port} cannot be used: {error.strerror}; choose another with --port"
        raise ConfigError("port", problem) from error
